package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/template"
)

// maxPoints is how many points a curve has; of more the worst are drawn.
const maxPoints = 320

// A figure is a chart with its legend.
type figure struct {
	Title, Note string
	SVG         template.HTML
	Chart       *chart // for the page's script, or
	Cells       *cells
	Keys        []key
}

// draws makes a figure of a chart.
func (f figure) draws(c *chart) figure {
	f.SVG, f.Chart = c.svg(), c
	return f
}

// A key is an entry of a legend.
type key struct {
	Text  string
	Ink   ink
	Shape string // line, dashed, dot or box
}

// equationCurves draws, in the order of the graph, every equation's residual beside
// its floor, and what the free run is off beside what rounding makes of that.
func equationCurves(d *diagnose.Diagnosis) []figure {
	if len(d.Curves) == 0 {
		return nil
	}
	return []figure{equationChart(d.Curves, figure{
		Title: "Equations",
		Note:  "Each dot is an operation computed again from the engine's own inputs: relative error of its worst row. Errors don't pile up here, so a high dot is where an error is made.",
		Keys:  []key{{"holds", inkSeries, "dot"}, {"does not hold", inkBad, "dot"}, {"what rounding makes", inkFloor, "dashed"}},
	}, false), equationChart(d.Curves, figure{
		Title: "Free run",
		Note:  "The same places against the reference's own run: what an error has grown to on its way.",
		Keys:  []key{{"engine", inkSeries, "line"}, {"what rounding grows to", inkFloor, "dashed"}},
	}, true)}
}

// equationChart draws one of the two.
func equationChart(curves []diagnose.Curve, f figure, free bool) figure {
	at := func(c *diagnose.Curve) (v, floor float64) {
		if free {
			return float64(c.Free), float64(c.FreeFloor)
		}
		return float64(c.Residual), float64(c.Floor)
	}
	c := &chart{Width: chartWidth, Height: chartHeight, Label: f.Title + ": relative error by layer, logarithmic", X: layerAxis(curves)}
	var x, values, floors []float64
	picked := thin(len(curves), maxPoints, func(i int) float64 {
		v, floor := at(&curves[i])
		if curves[i].Flagged && !free {
			v *= math.MaxFloat32 // before all that hold
		}
		return ratio(v, floor)
	})
	for _, i := range picked {
		v, floor := at(&curves[i])
		x, values, floors = append(x, float64(i)), append(values, v), append(floors, floor)
		c.name(i, name(curves[i].Tap)+" · "+name(curves[i].Op))
	}
	s := newDecades(values, floors)
	c.Y = s.axis()
	c.Traces = []trace{s.trace(f.Keys[len(f.Keys)-1].Text, "dashed", inkFloor, x, floors)}
	if free {
		c.Traces = append(c.Traces, s.trace("engine", "line", inkSeries, x, values))
		return f.draws(c)
	}
	good, bad := trace{Name: "holds", Shape: "dot", Ink: inkSeries, Radius: 1.8}, trace{Name: "does not hold", Shape: "dot", Ink: inkBad, Radius: 2.6}
	for j, i := range picked {
		m := &good
		if curves[i].Flagged {
			m = &bad
		}
		m.add(x[j], s.at(values[j]), number(values[j]))
	}
	c.Traces = append(c.Traces, good, bad)
	return f.draws(c)
}

// thin picks at most most of n indices, in each stretch the one that is worst by a measure.
func thin(n, most int, measure func(int) float64) []int {
	var out []int
	for b := range min(n, most) {
		from, to := b*n/min(n, most), (b+1)*n/min(n, most)
		best := from
		for i := from + 1; i < to; i++ {
			if measure(i) > measure(best) {
				best = i
			}
		}
		out = append(out, best)
	}
	return out
}

// layerAxis is a horizontal axis of equations, labelled where a layer begins.
func layerAxis(curves []diagnose.Curve) axis {
	a := axis{Label: "layer", Min: -0.5, Max: float64(len(curves)) - 0.5, Most: 10}
	last := -1
	for i := range curves {
		if l := curves[i].Layer; l != last && l >= 0 {
			a.Ticks = append(a.Ticks, tick{float64(i), strconv.Itoa(l)})
		}
		last = curves[i].Layer
	}
	return a
}

// every picks at most most of some ticks, evenly; 0: all.
func every(ticks []tick, most int) (out []tick) {
	if most <= 0 {
		return ticks
	}
	step := max(1, (len(ticks)+most-1)/most)
	for i := 0; i < len(ticks); i += step {
		out = append(out, ticks[i])
	}
	return out
}

// series is a named list of values by position.
type series struct {
	name   string
	values []float64
	at     []int // the values' positions; nil for all from 0 on
}

// position is that of the i-th value.
func (s *series) position(i int) int {
	if i < len(s.at) {
		return s.at[i]
	}
	return i
}

// positionChart draws lists of values by position, and a floor if it is not NaN.
func positionChart(f figure, list []series, floor float64) figure {
	all := [][]float64{}
	most := 0
	for _, l := range list {
		all = append(all, l.values)
		most = max(most, l.position(len(l.values)-1)+1)
	}
	if !math.IsNaN(floor) {
		all = append(all, []float64{floor})
	}
	s := newDecades(all...)
	c := &chart{Width: chartWidth, Height: chartHeight, Label: f.Title + " by position, logarithmic", Y: s.axis(),
		X: axis{Label: "position", Max: float64(max(1, most-1)), Ticks: wholeTicks(most)}}
	if !math.IsNaN(floor) {
		c.Traces = append(c.Traces, s.trace("what rounding makes", "dashed", inkFloor, []float64{0, c.X.Max}, []float64{floor, floor}))
		f.Keys = append(f.Keys, key{"what rounding makes", inkFloor, "dashed"})
	}
	for i, l := range list {
		k := inkSeries + ink(i%numSeries)
		var x, values []float64
		for _, j := range thin(len(l.values), maxPoints, func(j int) float64 { return ratio(l.values[j], 1) }) {
			x, values = append(x, float64(l.position(j))), append(values, l.values[j])
		}
		m := s.trace(l.name, "line", k, x, values)
		if len(x) <= 40 {
			m.Radius = 2
		}
		c.Traces = append(c.Traces, m)
		f.Keys = append(f.Keys, key{l.name, k, "line"})
	}
	return f.draws(c)
}

// wholeTicks labels positions 0 to n-1.
func wholeTicks(n int) (out []tick) {
	step := 1
	for i := 0; (n-1)/step > 8; i++ {
		step = []int{2, 5, 10}[i%3] * int(math.Pow10(i/3))
	}
	for i := 0; i < max(n, 1); i += step {
		out = append(out, tick{float64(i), strconv.Itoa(i)})
	}
	return out
}

// positionCurves draws the findings' residuals, and the logits' distance, by position.
func positionCurves(d *diagnose.Diagnosis) (figures []figure) {
	var rows, kl []series
	for i := range d.Findings {
		f := &d.Findings[i]
		if c := curve(d, f); c != nil && len(c.Rows) > 0 && len(rows) < numSeries {
			rows = append(rows, series{what(f), floats(c.Rows), c.Positions})
		}
	}
	if len(rows) > 0 {
		figures = append(figures, positionChart(figure{Title: "Findings by position",
			Note: "Relative error of each finding's first equation, in the longest tapped prompt."}, rows, math.NaN()))
	}
	for _, l := range prompts(d, numSeries) {
		if len(l.ByPosition) > 0 {
			kl = append(kl, series{fmt.Sprintf("prompt %d", l.Prompt), floats(l.ByPosition), l.Positions})
		}
	}
	if len(kl) > 0 {
		figures = append(figures, positionChart(figure{Title: "Logits by position",
			Note: "KL divergence in nats, of the prompts that are farthest away, before the findings are built in."}, kl, float64(d.Closure.Floor)))
	}
	return figures
}

func floats[T ~float32 | ~float64](list []T) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = float64(v)
	}
	return out
}

// closureChart sets each prompt's distance before the findings are built into the
// reference beside that after.
func closureChart(d *diagnose.Diagnosis) []figure {
	if len(d.Logits) == 0 || len(d.Findings) == 0 {
		return nil
	}
	const most = 60
	f := figure{Title: "Closure", Note: "KL divergence of the engine's logits from the reference's, in nats.",
		Keys: []key{{"before", inkBad, "dot"}, {"with the findings built in", inkSeries, "dot"}, {"what rounding makes", inkFloor, "dashed"}}}
	picked := thin(len(d.Logits), most, func(i int) float64 { return ratio(d.Logits[i].KLBefore, 1) })
	c := &chart{Width: chartWidth, Height: chartHeight, Label: "KL divergence of each prompt before and after the findings are built in, logarithmic",
		X: axis{Label: "prompt", Min: -0.5, Max: float64(len(picked)) - 0.5, Most: 16}}
	var x, before, after []float64
	for j, i := range picked {
		l := &d.Logits[i]
		x, before, after = append(x, float64(j)), append(before, float64(l.KLBefore)), append(after, float64(l.KLAfter))
		c.X.Ticks = append(c.X.Ticks, tick{float64(j), strconv.Itoa(l.Prompt)})
		c.name(j, fmt.Sprintf("prompt %d", l.Prompt))
	}
	floor := float64(d.Closure.Floor)
	s := newDecades(before, after, []float64{floor})
	c.Y = s.axis()
	from, to := s.trace("before", "dot", inkBad, x, before), s.trace("with the findings built in", "dot", inkSeries, x, after)
	from.Radius, to.Radius = 3.4, 3.4
	c.Traces = []trace{{Shape: "stem", Ink: inkGrid, X: x, Y: from.Y, To: to.Y},
		s.trace("what rounding makes", "dashed", inkFloor, []float64{c.X.Min, c.X.Max}, []float64{floor, floor}), from, to}
	return []figure{f.draws(c)}
}

// scatterChart sets the engine's logits against the reference's, nil if there are none.
func scatterChart(l *diagnose.Logits) *figure {
	var list [][2]float64
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range min(len(l.Scatter), maxScatter) {
		v := l.Scatter[i*len(l.Scatter)/min(len(l.Scatter), maxScatter)]
		x, y := float64(v[0]), float64(v[1])
		if math.IsNaN(x-y) || math.IsInf(x, 0) || math.IsInf(y, 0) {
			continue
		}
		list = append(list, [2]float64{x, y})
		lo, hi = min(lo, x, y), max(hi, x, y)
	}
	if len(list) == 0 {
		return nil
	}
	if hi-lo < 1e-3 {
		lo, hi = lo-1, hi+1
	}
	slices.SortFunc(list, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
	dots := trace{Name: "engine", Shape: "dot", Ink: inkSeries, Radius: 1.6}
	for _, v := range list {
		dots.add(v[0], v[1], strconv.FormatFloat(v[1], 'g', 5, 64))
	}
	const side = 300
	ticks := fewTicks(lo, hi)
	f := figure{Title: "Logits", Note: fmt.Sprintf("%d of the last position's; on the line they are equal.", len(list))}.draws(&chart{
		Width: side, Height: side, Label: fmt.Sprintf("The engine's logits of prompt %d over the reference's", l.Prompt),
		X: axis{Label: "reference's logit", Min: lo, Max: hi, Ticks: ticks}, Y: axis{Label: "engine's logit", Min: lo, Max: hi, Ticks: ticks},
		Traces: []trace{{Shape: "line", Ink: inkFloor, X: []float64{lo, hi}, Y: []float64{lo, hi}}, dots},
	})
	return &f
}

// maxScatter is how many logits a scatter chart has.
const maxScatter = 600

// fewTicks labels three to seven round numbers of an interval.
func fewTicks(lo, hi float64) (ticks []tick) {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/3)))
	for _, times := range []float64{5, 2} {
		if (hi-lo)/(step*times) >= 3 {
			step *= times
			break
		}
	}
	for i := math.Ceil(lo / step); i*step <= hi && len(ticks) < 12; i++ {
		ticks = append(ticks, tick{i * step, strconv.FormatFloat(i*step, 'g', 4, 64)})
	}
	return ticks
}
