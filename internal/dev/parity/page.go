package parity

import (
	_ "embed"
	"io"

	"github.com/karat-run/karat/internal/template"
)

//go:embed page.html
var pageText string

var page = template.Must(map[string]string{"page": pageText}, template.Options{HTML: true})

// HTML writes the scores as a page that needs nothing else.
func (r *Report) HTML(w io.Writer) error {
	type bar struct {
		Text  string
		Share float64 // of the bar that is full, in percent
		Any   bool    // it is a count
	}
	type line struct {
		Name string
		Less bool
		Bars []bar
	}
	type view struct {
		Title   string
		Columns []string
		Rows    []line
	}
	var views []view
	for _, t := range r.tables() {
		v := view{Title: t.title, Columns: t.columns}
		for _, row := range t.rows {
			l := line{Name: row.name, Less: row.less}
			for _, c := range row.cells {
				n := c.count
				l.Bars = append(l.Bars, bar{c.String(), n.Share(), n.Of > 0})
			}
			v.Rows = append(v.Rows, l)
		}
		views = append(views, v)
	}
	var failed []string
	for _, x := range r.Results {
		if len(x.Failed) > 0 {
			failed = append(failed, x.Line())
		}
	}
	return page.Execute(w, "page", map[string]any{"Summary": r.summary(), "Tables": views, "Failed": failed})
}
