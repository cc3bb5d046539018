package experiment

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab"
)

// maxMaps bounds the maps of a page.
const maxMaps = 60

// pageHead is the beginning of a page, with its title twice.
//
//go:embed page.html
var pageHead string

// page returns the bundle as a page without scripts and without network: a heat map for each pair and metric.
func (b *Bundle) page() []byte {
	m, w := &b.Manifest, &bytes.Buffer{}
	title := html.EscapeString(m.Name)
	if title == "" {
		title = "Experiment"
	}
	fmt.Fprintf(w, pageHead, title, title)
	fmt.Fprintf(w, "<p>%s. Model %s, fingerprint <code>%s</code>, precision %s, %d cells. Spec "+
		"<code>%.16s…</code>.</p>\n",
		html.EscapeString(m.Program), html.EscapeString(m.Model), m.Print, m.Precision, m.Cells, m.Spec)
	maps := 0
	for i := range m.Pairs {
		p := &m.Pairs[i]
		fmt.Fprintf(w, "<h2>%s</h2>\n", html.EscapeString(p.Clean.Text))
		if p.Corrupted != nil {
			reach := ""
			if len(m.Receivers) > 0 {
				reach = ", and reach only " + strings.Join(m.Receivers, ", ") + " there, on the residual stream"
			}
			fmt.Fprintf(w, "<p>Values of this run are written into that of: %s%s</p>\n",
				html.EscapeString(p.Corrupted.Text), html.EscapeString(reach))
		}
		for _, g := range b.maps(i) {
			if maps++; maps <= maxMaps {
				g.draw(w)
			}
		}
	}
	if maps > maxMaps {
		fmt.Fprintf(w, "<p>%d maps are left out: cells.jsonl has all.</p>\n", maps-maxMaps)
	}
	return w.Bytes()
}

// heat is a map: rows are nodes, columns positions or heads.
type heat struct {
	title         string
	rows, columns []string
	cells         map[[2]int]float64
	from, to      float64 // values of the runs without interventions: from is pale, to dark
}

// maps returns the maps of a pair.
func (b *Bundle) maps(pair int) (all []heat) {
	p := &b.Manifest.Pairs[pair]
	heads, ats := false, []string{}
	for i := range b.Cells {
		if c := &b.Cells[i]; c.Pair == pair {
			heads = heads || c.Head != "" && c.Column > 0
			if !slices.Contains(ats, c.At) {
				ats = append(ats, c.At)
			}
		}
	}
	if !heads {
		ats = []string{""}
	}
	for _, m := range metrics {
		base := *m.of(&p.Base)
		for _, at := range ats {
			if base == nil {
				continue
			}
			h := heat{title: m.title, cells: map[[2]int]float64{}}
			if h.from, h.to = float64(*base), 0; p.Start != nil {
				h.from, h.to = float64(**m.of(p.Start)), float64(*base)
			}
			if at != "" {
				h.title += ", positions " + at
			}
			b.fill(&h, pair, at, m)
			all = append(all, h)
		}
	}
	return all
}

// fill sets the cells of a map: of a single position if at is not empty.
func (b *Bundle) fill(h *heat, pair int, at string, m metric) {
	for i := range b.Cells {
		c := &b.Cells[i]
		v := *m.of(&c.Values)
		if c.Pair != pair || at != "" && c.At != at || v == nil {
			continue
		}
		row := slices.Index(h.rows, c.Node)
		if row < 0 {
			row, h.rows = len(h.rows), append(h.rows, c.Node)
		}
		for len(h.columns) <= c.Column {
			h.columns = append(h.columns, "")
		}
		switch {
		case at != "":
			h.columns[c.Column] = "head " + c.Head
		case c.Token != "":
			h.columns[c.Column] = strings.TrimSpace(lab.Printable(c.Token))
		default:
			h.columns[c.Column] = c.At
		}
		h.cells[[2]int{row, c.Column}] = float64(*v)
		if b.Manifest.Pairs[pair].Start == nil && math.Abs(float64(*v)-h.from) > math.Abs(h.to-h.from) {
			h.to = float64(*v)
		}
	}
}

// draw writes the map.
func (h *heat) draw(w io.Writer) {
	const row, wide, top = 18, 46, 70
	left := 60
	for _, r := range h.rows {
		left = max(left, 7*len(r)+10)
	}
	fmt.Fprintf(w, "<h3>%s</h3>\n<p>%s</p>\n", html.EscapeString(h.title), h.legend())
	fmt.Fprintf(w, `<svg viewBox="0 0 %d %d" width="%d" role="img" aria-label="%s">`+"\n", left+wide*len(h.columns)+20,
		top+row*len(h.rows)+10, left+wide*len(h.columns)+20, html.EscapeString(h.title))
	for i, c := range h.columns {
		x := left + i*wide + wide/2
		fmt.Fprintf(w, `<text x="%d" y="%d" transform="rotate(-40 %d %d)">%s</text>`+"\n", x, top-8, x, top-8,
			html.EscapeString(c))
	}
	for r, name := range h.rows {
		fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			left-6, top+r*row+13, html.EscapeString(name))
		for c := range h.columns {
			v, ok := h.cells[[2]int{r, c}]
			if !ok {
				continue
			}
			fmt.Fprintf(w, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"><title>%s, %s: %s</title></rect>`+"\n",
				left+c*wide, top+r*row, wide-1, row-1, shade(h.share(v)), html.EscapeString(name),
				html.EscapeString(h.columns[c]),
				lab.Digits(v))
		}
	}
	fmt.Fprintln(w, "</svg>")
}

// share returns how far v has come from pale to dark.
func (h *heat) share(v float64) float64 { return (v - h.from) / (h.to - h.from) }

// legend names the colors, red only where red appears.
func (h *heat) legend() string {
	for _, v := range h.cells {
		if h.share(v) < 0 {
			return fmt.Sprintf("Pale is %s, dark blue is %s, and dark red as far the other way.", lab.Digits(h.from),
				lab.Digits(h.to))
		}
	}
	return fmt.Sprintf("Pale is %s, dark is %s.", lab.Digits(h.from), lab.Digits(h.to))
}

// shade returns pale at 0, blue to 1, red to -1, and grey where there is no number.
func shade(share float64) string {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return "#999"
	}
	if share < 0 {
		s := min(1, -share)
		return fmt.Sprintf("#%02x%02x%02x", int(238-58*s), int(242-212*s), int(250-220*s))
	}
	s := min(1, share)
	return fmt.Sprintf("#%02x%02x%02x", int(238-210*s), int(242-160*s), int(250-90*s))
}
