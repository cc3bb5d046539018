package report

import (
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// An ink is one of the page's colors, which its style sheet gives for light and dark.
// It is drawn as a color that stands for it, and named in the SVG.
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
	numHeat   = 9 // eight steps, and what is no number
)

// Variable names an ink in the style sheet.
func (k ink) Variable() template.CSS {
	switch {
	case k >= inkHeat:
		return template.CSS("--heat" + strconv.Itoa(int(k-inkHeat)))
	case k >= inkSeries:
		return template.CSS("--series" + strconv.Itoa(int(k-inkSeries)))
	}
	return [...]template.CSS{"--muted", "--grid", "--floor", "--bad"}[k]
}

func (k ink) color() color.Color { return color.NRGBA{0x5A, 0x17, uint8(k), 0xFF} }

var (
	standIn  = regexp.MustCompile(`(fill|stroke):#5A17([0-9A-F]{2})`)
	label    = regexp.MustCompile(`(<text [^>]*)>([^<]*)</text>`)
	fontRule = regexp.MustCompile(`font-family:[^;"]*;font-variant:[^;"]*;font-weight:[^;"]*;font-style:[^;"]*;`)
)

// A chart is drawn in units that are CSS pixels at its natural width.
const (
	chartWidth  = 400
	chartHeight = 240
	textSize    = 11
)

// newPlot returns a plot without marks, dressed as all charts are.
func newPlot(x string, grid bool) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: textSize}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = sans, inkText.color()
		a.Tick.Label.Font, a.Tick.Label.Color = sans, inkText.color()
		a.LineStyle.Color, a.LineStyle.Width = inkGrid.color(), 1
		a.Tick.LineStyle.Width = 0
		a.Padding = 3
	}
	p.Y.LineStyle.Width = 0
	p.X.Label.Text, p.X.Label.Padding = x, 3
	if grid {
		g := plotter.NewGrid()
		g.Vertical.Color = nil
		g.Horizontal = draw.LineStyle{Color: inkGrid.color(), Width: 0.75}
		p.Add(g)
	}
	return p
}

// svg draws a plot, for a page whose style sheet has the inks; title says what it shows.
func svg(p *plot.Plot, width, height int, title string) (template.HTML, error) {
	c := vgsvg.New(vg.Length(width), vg.Length(height))
	p.Draw(draw.Crop(draw.New(c), 4, -8, 3, -8)) // room for the halves of labels at the ends of the axes
	var b strings.Builder
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	_, body, ok := strings.Cut(b.String(), "xlink\">")
	if !ok {
		return "", fmt.Errorf("report: the plotting library's SVG has another head than expected")
	}
	body = fontRule.ReplaceAllString(body, "")
	body = standIn.ReplaceAllStringFunc(body, func(s string) string {
		attribute, value, _ := strings.Cut(s, ":")
		k, _ := strconv.ParseUint(value[len("#5A17"):], 16, 8) // the pattern has two hexadecimal digits there
		return attribute + ":var(" + string(ink(k).Variable()) + ")"
	})
	// Labels are as wide as they were measured to be, whatever fonts the reader has.
	body = label.ReplaceAllStringFunc(body, func(s string) string {
		m := label.FindStringSubmatch(s)
		width := p.X.Tick.Label.Width(html.UnescapeString(m[2])).Points()
		return fmt.Sprintf(`%s textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`, m[1], width, m[2])
	})
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		width, height, width, height, template.HTMLEscapeString(title)) + body), nil
}

// decades is a logarithmic axis from 10^lo to 10^hi. What is 0 lies a step below, and
// what is no finite number a step above.
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

// apply makes this the vertical axis of a plot.
func (s decades) apply(p *plot.Plot) {
	p.Y.Min, p.Y.Max = float64(s.lo), float64(s.hi)
	var ticks plot.ConstantTicks
	if s.zero {
		p.Y.Min = s.at(0)
		ticks = append(ticks, plot.Tick{Value: p.Y.Min, Label: "0"})
	}
	for e := s.lo; e <= s.hi; e += s.step() {
		ticks = append(ticks, plot.Tick{Value: float64(e), Label: power(e)})
	}
	if s.nonFinite {
		p.Y.Max = s.at(math.NaN())
		ticks = append(ticks, plot.Tick{Value: p.Y.Max, Label: "NaN, ∞"})
	}
	p.Y.Tick.Marker = ticks
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

// curveLine draws a line through values at x; a dashed one is a floor.
func curveLine(p *plot.Plot, s decades, x, values []float64, k ink, dashed bool) {
	xy := make(plotter.XYs, len(x))
	for i := range x {
		xy[i].X, xy[i].Y = x[i], s.at(values[i])
	}
	style := draw.LineStyle{Color: k.color(), Width: 1.75}
	if dashed {
		style.Width, style.Dashes = 1.25, []vg.Length{4, 3}
	}
	p.Add(&plotter.Line{XYs: xy, LineStyle: style})
}

// dots draws points.
func dots(p *plot.Plot, xy plotter.XYs, k ink, radius vg.Length) {
	p.Add(&plotter.Scatter{XYs: xy, GlyphStyle: draw.GlyphStyle{Color: k.color(), Radius: radius, Shape: draw.CircleGlyph{}}})
}
