package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/template"
)

// An ink is one of the page's colors, which its style sheet gives for light and dark.
type ink uint8

const (
	inkText ink = iota
	inkGrid
	inkFloor
	inkBad
	inkSeries                         // and the next numSeries-1
	inkHeat   = inkSeries + numSeries // and the next numHeat-1
)

const (
	numSeries = 5
	numHeat   = 9 // eight steps, and values that are not numbers
)

// Variable names an ink in the style sheet.
func (k ink) Variable() string {
	switch {
	case k >= inkHeat:
		return "--heat" + strconv.Itoa(int(k-inkHeat))
	case k >= inkSeries:
		return "--series" + strconv.Itoa(int(k-inkSeries))
	}
	return [...]string{"--muted", "--grid", "--floor", "--bad"}[k]
}

// MarshalText gives an ink to the page's script.
func (k ink) MarshalText() ([]byte, error) { return []byte(k.Variable()), nil }

// A chart is drawn in units that are CSS pixels at its natural width.
const (
	chartWidth  = 400
	chartHeight = 240
)

// A chart is traces over two axes. svg draws it for readers without scripts; page.js
// draws the same of its JSON, to be read point by point and enlarged.
type chart struct {
	Width  int               `json:"width"`
	Height int               `json:"height"`
	Label  string            `json:"label"` // what it shows
	X      axis              `json:"x"`
	Y      axis              `json:"y"`
	Traces []trace           `json:"traces"`
	Names  map[string]string `json:"names,omitempty"` // of places on X; the others are X.Label and the number
}

type axis struct {
	Label string  `json:"label,omitempty"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Ticks []tick  `json:"ticks"`
	Most  int     `json:"-"` // of the ticks, how many the SVG has room for; 0: all
	Log   bool    `json:"log,omitempty"`
}

type tick struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// A trace is points of one kind: a line through them, dots, or stems up or down to To.
type trace struct {
	Name   string    `json:"name"`
	Shape  string    `json:"shape"` // line, dashed, dot or stem
	Ink    ink       `json:"ink"`
	Radius float64   `json:"radius,omitempty"` // of dots; a line's dots are drawn, too
	X      []float64 `json:"x"`
	Y      []float64 `json:"y"`
	To     []float64 `json:"to,omitempty"`
	Text   []string  `json:"text,omitempty"` // the values in words
}

// add adds a point of a value.
func (m *trace) add(x, y float64, text string) {
	m.X, m.Y, m.Text = append(m.X, x), append(m.Y, y), append(m.Text, text)
}

// name names a place on X.
func (c *chart) name(x int, text string) {
	if c.Names == nil {
		c.Names = map[string]string{}
	}
	c.Names[strconv.Itoa(x)] = text
}

// svg draws the chart for a page whose style sheet has the inks.
func (c *chart) svg() template.HTML {
	left, bottom := 8.0, 20.0
	for _, t := range c.Y.Ticks {
		left = max(left, 10+textWidth(t.Text))
	}
	if c.Y.Label != "" {
		left += 15
	}
	if c.X.Label != "" {
		bottom += 15
	}
	d := &drawing{x: left, y: 8, w: float64(c.Width) - left - 10, h: float64(c.Height) - bottom - 8}
	at := func(x, y float64) (float64, float64) {
		return d.x + d.w*(x-c.X.Min)/(c.X.Max-c.X.Min), d.y + d.h*(c.Y.Max-y)/(c.Y.Max-c.Y.Min)
	}
	d.open(c.Width, c.Height, c.Label)
	for _, t := range c.Y.Ticks {
		_, y := at(0, t.At)
		d.text(d.x-6, y+4, "end", t.Text)
		d.path(inkGrid, "stroke-width=\".75\"", fmt.Sprintf("M%.1f %.1fh%.1f", d.x, y, d.w))
	}
	for _, t := range every(c.X.Ticks, c.X.Most) {
		x, _ := at(t.At, 0)
		d.text(x, d.y+d.h+15, "middle", t.Text)
	}
	if c.X.Label != "" {
		d.text(d.x+d.w/2, float64(c.Height)-4, "middle", c.X.Label)
	}
	if c.Y.Label != "" {
		d.turned(11, d.y+d.h/2, c.Y.Label)
	}
	for _, m := range c.Traces {
		d.trace(&m, at)
	}
	return d.close()
}

// A drawing is an SVG that grows; x, y, w and h are where the traces are.
type drawing struct {
	b          strings.Builder
	x, y, w, h float64
}

func (d *drawing) open(width, height int, label string) {
	fmt.Fprintf(&d.b, `<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		width, height, width, height, template.Escape(label))
}

func (d *drawing) close() template.HTML {
	d.b.WriteString("</svg>")
	return template.HTML(d.b.String())
}

// path strokes a path.
func (d *drawing) path(k ink, attributes, path string) {
	if path != "" {
		fmt.Fprintf(&d.b, `<path fill="none" style="stroke:var(%s)" %s d="%s"/>`, k.Variable(), attributes, path)
	}
}

// text writes a label, which is as wide as textWidth says whatever fonts the reader has.
func (d *drawing) text(x, y float64, anchor, s string) {
	d.label(fmt.Sprintf(`x="%.1f" y="%.1f" text-anchor="%s"`, x, y, anchor), s)
}

// turned writes a label that is read upwards.
func (d *drawing) turned(x, y float64, s string) {
	d.label(fmt.Sprintf(`transform="translate(%.1f %.1f) rotate(-90)" text-anchor="middle"`, x, y), s)
}

func (d *drawing) label(place, s string) {
	fmt.Fprintf(&d.b, `<text %s textLength="%.1f" lengthAdjust="spacingAndGlyphs" style="fill:var(%s)">%s</text>`,
		place, textWidth(s), inkText.Variable(), template.Escape(s))
}

func (d *drawing) trace(m *trace, at func(x, y float64) (float64, float64)) {
	var line, dots, stems strings.Builder
	for i := range m.X {
		x, y := at(m.X[i], m.Y[i])
		fmt.Fprintf(&line, "%c%.1f %.1f", "ML"[min(i, 1)], x, y)
		fmt.Fprintf(&dots, "M%.1f %.1fh0", x, y)
		if m.To != nil {
			_, to := at(m.X[i], m.To[i])
			fmt.Fprintf(&stems, "M%.1f %.1fV%.1f", x, y, to)
		}
	}
	switch m.Shape {
	case "stem":
		d.path(m.Ink, `stroke-width="2"`, stems.String())
	case "dashed":
		d.path(m.Ink, `stroke-width="1.25" stroke-dasharray="4 3"`, line.String())
	case "line":
		d.path(m.Ink, `stroke-width="1.75"`, line.String())
	}
	if m.Radius > 0 {
		d.path(m.Ink, fmt.Sprintf(`stroke-width="%.1f" stroke-linecap="round"`, 2*m.Radius), dots.String())
	}
}

// textWidth is about how wide a text is in Arial at 11 pixels.
func textWidth(s string) (w float64) {
	for _, r := range s {
		switch {
		case strings.ContainsRune("ijl.,:;'|!", r):
			w += 2.7
		case strings.ContainsRune("ft ⁻⁰¹²³⁴⁵⁶⁷⁸⁹·-r", r):
			w += 3.6
		case strings.ContainsRune("mwMW", r):
			w += 8.8
		case r >= 'A' && r <= 'Z' || r > 0x2fff:
			w += 7.6
		default:
			w += 6.1
		}
	}
	return w
}

// decades is a logarithmic axis from 10^lo to 10^hi. A zero lies a step below, and
// a value that is not finite a step above.
type decades struct {
	lo, hi          int
	zero, nonFinite bool
}

// Values beyond these powers of ten are drawn at them.
const (
	minDecade = -20
	maxDecade = 10
)

// newDecades returns the axis for some values.
func newDecades(lists ...[]float64) decades {
	s := decades{lo: maxDecade, hi: minDecade}
	for _, list := range lists {
		for _, v := range list {
			switch {
			case math.IsNaN(v) || math.IsInf(v, 0):
				s.nonFinite = true
			case v <= 0:
				s.zero = true
			default:
				x := clampDecade(math.Log10(v))
				s.lo, s.hi = min(s.lo, int(math.Floor(x))), max(s.hi, int(math.Ceil(x)))
			}
		}
	}
	switch {
	case s.lo > s.hi: // no value that is finite and not 0
		s.lo, s.hi = -1, 0
	case s.lo == s.hi:
		s.lo--
	}
	return s
}

func clampDecade(x float64) float64 { return min(max(x, minDecade), maxDecade) }

// step is how many powers of ten lie between two labels.
func (s decades) step() int { return max(1, (s.hi-s.lo+5)/6) }

// at is where a value lies.
func (s decades) at(v float64) float64 {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return float64(s.hi + s.step())
	case v <= 0:
		return float64(s.lo - s.step())
	}
	return clampDecade(math.Log10(v))
}

// axis is the vertical axis of a chart.
func (s decades) axis() axis {
	a := axis{Min: float64(s.lo), Max: float64(s.hi), Log: true}
	if s.zero {
		a.Min = s.at(0)
		a.Ticks = append(a.Ticks, tick{a.Min, "0"})
	}
	for e := s.lo; e <= s.hi; e += s.step() {
		a.Ticks = append(a.Ticks, tick{float64(e), power(e)})
	}
	if s.nonFinite {
		a.Max = s.at(math.NaN())
		a.Ticks = append(a.Ticks, tick{a.Max, "NaN, ∞"})
	}
	return a
}

// trace is values at x in these decades.
func (s decades) trace(name, shape string, k ink, x, values []float64) trace {
	m := trace{Name: name, Shape: shape, Ink: k}
	for i := range x {
		m.add(x[i], s.at(values[i]), number(values[i]))
	}
	return m
}

// power writes a power of ten.
func power(e int) string {
	switch e {
	case 0:
		return "1"
	case 1:
		return "10"
	}
	return "10" + strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴",
		"5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹").Replace(strconv.Itoa(e))
}
