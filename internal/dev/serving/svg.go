package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
)

// A picture has two panels beside each other, in pixels.
const (
	panelWidth, panelHeight = 420, 300
	marginLeft, marginTop   = 60, 34
	plotWidth, plotHeight   = 340, 200
)

// style is of a picture on its own, for light and dark pages.
const style = `<style>text{font:11px sans-serif;fill:#444}` +
	`.grid{stroke:#ddd}.s0{stroke:#0b62a8}.s1{stroke:#b4460f}path{fill:none;stroke-width:2}` +
	`.p99{stroke-dasharray:5 3}` +
	`@media(prefers-color-scheme:dark){text{fill:#ccc}.grid{stroke:#444}.s0{stroke:#6cb6ff}.s1{stroke:#ff9d6c}}</style>`

// WriteSVG draws latency over load: the time to the first token, and between tokens. Medians are lines, 99th
// percentiles are dashed.
func (r *Report) WriteSVG(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
			`aria-label="Latency over load">%s`+"\n",
		2*panelWidth, panelHeight, 2*panelWidth, panelHeight, style)
	r.panel(&b, 0, "Time to first token, ms", func(t *Row) Spread { return t.TTFT })
	r.panel(&b, panelWidth, "Between tokens, ms", func(t *Row) Spread { return t.ITL })
	for i, s := range r.Servers {
		fmt.Fprintf(&b, `<path class="s%d" d="M%d %dh20"/><text x="%d" y="%d">%s (dashed: p99)</text>`+"\n", i,
			marginLeft+i*panelWidth, panelHeight-12, marginLeft+26+i*panelWidth, panelHeight-8,
			html.EscapeString(s.URL))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// panel draws a latency from x on. Levels lie at equal distances.
func (r *Report) panel(b *strings.Builder, x int, title string, of func(*Row) Spread) {
	n, levels := len(r.Servers), len(r.Rows)/max(1, len(r.Servers))
	top := 0.0
	for _, t := range r.Rows {
		top = max(top, 1e3*of(t).P99)
	}
	step := nice(top / 4)
	top = step * max(1, math.Ceil(top/step))
	left := float64(x + marginLeft)
	at := func(i int, ms float64) (float64, float64) {
		return left + plotWidth*(float64(i)+.5)/float64(max(1, levels)), marginTop + plotHeight*(1-ms/top)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", x+marginLeft, marginTop-14, title)
	for i := range int(math.Round(top/step)) + 1 {
		_, y := at(0, float64(i)*step)
		fmt.Fprintf(b,
			`<path class="grid" style="stroke-width:1" d="M%.1f %.1fh%d"/>`+
				`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y, plotWidth, left-6, y+4, strconv.FormatFloat(float64(i)*step, 'g', 6, 64))
	}
	for i := range levels {
		px, _ := at(i, 0)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", px, marginTop+plotHeight+18,
			r.Rows[i*n].Level)
	}
	for k := range n {
		var median, high strings.Builder
		for i := range levels {
			s := of(r.Rows[i*n+k])
			for _, line := range []struct {
				to *strings.Builder
				ms float64
			}{{&median, 1e3 * s.P50}, {&high, 1e3 * s.P99}} {
				px, py := at(i, line.ms)
				fmt.Fprintf(line.to, "%c%.1f %.1fm-2 0h4m-2 0", "ML"[min(i, 1)], px, py)
			}
		}
		fmt.Fprintf(b, `<path class="s%d" d="%s"/><path class="s%d p99" d="%s"/>`+"\n", k, median.String(), k,
			high.String())
	}
}

// nice is the least of 1, 2 and 5 times a power of ten that is x or more; 1 for none.
func nice(x float64) float64 {
	if !(x > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= x {
			return m * power
		}
	}
	return 10 * power
}
