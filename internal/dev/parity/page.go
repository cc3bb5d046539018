package parity

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

// HTML writes the scores as a page that needs nothing else.
func (r *Report) HTML(w io.Writer) error {
	var tables, failed strings.Builder
	for _, t := range r.tables() {
		fmt.Fprintf(&tables, "<h2>%s</h2>\n<div class=\"wide\"><table>\n<tr><th></th>", html.EscapeString(t.title))
		for _, c := range t.columns {
			fmt.Fprintf(&tables, `<th scope="col">%s</th>`, html.EscapeString(c))
		}
		tables.WriteString("</tr>\n")
		for _, row := range t.rows {
			less, class := "", "bar"
			if row.less {
				less, class = " <small>less is better</small>", "bar bad"
			}
			fmt.Fprintf(&tables, `<tr><th scope="row">%s%s</th>`, html.EscapeString(row.name), less)
			for _, c := range row.cells {
				bar := ""
				if c.count.Of > 0 {
					bar = fmt.Sprintf(`<span class="%s"><i style="width: %.1f%%"></i></span>`, class, c.count.Share())
				}
				fmt.Fprintf(&tables, "<td>%s%s</td>", html.EscapeString(c.String()), bar)
			}
			tables.WriteString("</tr>\n")
		}
		tables.WriteString("</table></div>\n")
	}
	for _, x := range r.Results {
		if len(x.Failed) > 0 {
			fmt.Fprintf(&failed, "<li>%s</li>", html.EscapeString(x.Line()))
		}
	}
	list := ""
	if failed.Len() > 0 {
		list = "<h2>What missed a score</h2>\n<ul>" + failed.String() + "</ul>"
	}
	_, err := strings.NewReplacer("{{summary}}", html.EscapeString(r.summary()), "{{tables}}", tables.String(),
		"{{failed}}", list).
		WriteString(w, pageText)
	return err
}
