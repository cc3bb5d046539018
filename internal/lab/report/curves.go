package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// maxPoints is how many points a curve has; of more the worst are drawn.
const maxPoints = 320

// A figure is a chart with its legend.
type figure struct {
	Title, Note string
	SVG         template.HTML
	Width       int // natural, pixels; the page scrolls a wider one
	Keys        []key
	Heat        bool // a map of cells
}

// A key is an entry of a legend.
type key struct {
	Text  string
	Ink   ink
	Shape string // line, dashed, dot or box
}

// equationCurves draws, in the order of the graph, every equation's residual beside
// its floor, and what the free run is off beside what rounding makes of that.
func equationCurves(d *diagnose.Diagnosis) ([]figure, error) {
	if len(d.Curves) == 0 {
		return nil, nil
	}
	own, err := equationChart(d.Curves, figure{
		Title: "Equations",
		Note:  "Each dot is an operation computed again from the engine's own inputs: relative error of its worst row. Errors don't pile up here, so a high dot is where an error is made.",
		Keys:  []key{{"holds", inkSeries, "dot"}, {"does not hold", inkBad, "dot"}, {"what rounding makes", inkFloor, "dashed"}},
	}, false)
	if err != nil {
		return nil, err
	}
	free, err := equationChart(d.Curves, figure{
		Title: "Free run",
		Note:  "The same places against the reference's own run: what an error has grown to on its way.",
		Keys:  []key{{"engine", inkSeries, "line"}, {"what rounding grows to", inkFloor, "dashed"}},
	}, true)
	return []figure{own, free}, err
}

// equationChart draws one of the two.
func equationChart(curves []diagnose.Curve, f figure, free bool) (figure, error) {
	at := func(c *diagnose.Curve) (v, floor float64) {
		if free {
			return float64(c.Free), float64(c.FreeFloor)
		}
		return float64(c.Residual), float64(c.Floor)
	}
	var x, values, floors []float64
	var good, bad plotter.XYs
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
	}
	s := newDecades(values, floors)
	for j, i := range picked {
		if xy := (plotter.XY{X: x[j], Y: s.at(values[j])}); curves[i].Flagged {
			bad = append(bad, xy)
		} else {
			good = append(good, xy)
		}
	}
	p := newPlot("layer", true)
	layerAxis(p, curves)
	s.apply(p)
	curveLine(p, s, x, floors, inkFloor, true)
	if free {
		curveLine(p, s, x, values, inkSeries, false)
	} else {
		dots(p, good, inkSeries, 1.8)
		dots(p, bad, inkBad, 2.6)
	}
	var err error
	f.Width = chartWidth
	f.SVG, err = svg(p, chartWidth, chartHeight, f.Title+": relative error by layer, logarithmic")
	return f, err
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

// layerAxis labels a horizontal axis of equations where a layer begins.
func layerAxis(p *plot.Plot, curves []diagnose.Curve) {
	p.X.Min, p.X.Max = -0.5, float64(len(curves))-0.5
	var begins []plot.Tick
	last := -1
	for i := range curves {
		if l := curves[i].Layer; l != last && l >= 0 {
			begins = append(begins, plot.Tick{Value: float64(i), Label: strconv.Itoa(l)})
		}
		last = curves[i].Layer
	}
	p.X.Tick.Marker = every(begins, 10)
}

// every labels at most most of some ticks, evenly.
func every(ticks []plot.Tick, most int) plot.ConstantTicks {
	step := max(1, (len(ticks)+most-1)/most)
	var out plot.ConstantTicks
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
func positionChart(f figure, list []series, floor float64) (figure, error) {
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
	p := newPlot("position", true)
	s.apply(p)
	p.X.Min, p.X.Max = 0, float64(max(1, most-1))
	p.X.Tick.Marker = wholeTicks(most)
	if !math.IsNaN(floor) {
		curveLine(p, s, []float64{0, p.X.Max}, []float64{floor, floor}, inkFloor, true)
		f.Keys = append(f.Keys, key{"what rounding makes", inkFloor, "dashed"})
	}
	for i, l := range list {
		k := inkSeries + ink(i%numSeries)
		var x, values []float64
		for _, j := range thin(len(l.values), maxPoints, func(j int) float64 { return ratio(l.values[j], 1) }) {
			x, values = append(x, float64(l.position(j))), append(values, l.values[j])
		}
		curveLine(p, s, x, values, k, false)
		if len(x) <= 40 {
			for j := range x {
				dots(p, plotter.XYs{{X: x[j], Y: s.at(values[j])}}, k, 2)
			}
		}
		f.Keys = append(f.Keys, key{l.name, k, "line"})
	}
	var err error
	f.Width = chartWidth
	f.SVG, err = svg(p, chartWidth, chartHeight, f.Title+" by position, logarithmic")
	return f, err
}

// wholeTicks labels positions 0 to n-1.
func wholeTicks(n int) plot.ConstantTicks {
	step := 1
	for i := 0; (n-1)/step > 8; i++ {
		step = []int{2, 5, 10}[i%3] * int(math.Pow10(i/3))
	}
	var out plot.ConstantTicks
	for i := 0; i < max(n, 1); i += step {
		out = append(out, plot.Tick{Value: float64(i), Label: strconv.Itoa(i)})
	}
	return out
}

// positionCurves draws the findings' residuals, and the logits' distance, by position.
func positionCurves(d *diagnose.Diagnosis) (figures []figure, err error) {
	var rows, kl []series
	for i := range d.Findings {
		f := &d.Findings[i]
		if c := curve(d, f); c != nil && len(c.Rows) > 0 && len(rows) < numSeries {
			rows = append(rows, series{what(f), floats(c.Rows), c.Positions})
		}
	}
	if len(rows) > 0 {
		f, err := positionChart(figure{Title: "Findings by position",
			Note: "Relative error of each finding's first equation, in the longest tapped prompt."}, rows, math.NaN())
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	for _, l := range prompts(d, numSeries) {
		if len(l.ByPosition) > 0 {
			kl = append(kl, series{fmt.Sprintf("prompt %d", l.Prompt), floats(l.ByPosition), nil})
		}
	}
	if len(kl) > 0 {
		f, err := positionChart(figure{Title: "Logits by position",
			Note: "KL divergence in nats, of the prompts that are farthest away, before the findings are built in."}, kl, float64(d.Closure.Floor))
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
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
func closureChart(d *diagnose.Diagnosis) ([]figure, error) {
	if len(d.Logits) == 0 || len(d.Findings) == 0 {
		return nil, nil
	}
	const most = 60
	var before, after []float64
	picked := thin(len(d.Logits), most, func(i int) float64 { return ratio(d.Logits[i].KLBefore, 1) })
	for _, i := range picked {
		before, after = append(before, float64(d.Logits[i].KLBefore)), append(after, float64(d.Logits[i].KLAfter))
	}
	s := newDecades(before, after, []float64{float64(d.Closure.Floor)})
	p := newPlot("prompt", true)
	s.apply(p)
	p.X.Min, p.X.Max = -0.5, float64(len(picked))-0.5
	var ticks []plot.Tick
	var from, to plotter.XYs
	for j, i := range picked {
		x := float64(j)
		ticks = append(ticks, plot.Tick{Value: x, Label: strconv.Itoa(d.Logits[i].Prompt)})
		from, to = append(from, plotter.XY{X: x, Y: s.at(before[j])}), append(to, plotter.XY{X: x, Y: s.at(after[j])})
		p.Add(&plotter.Line{XYs: plotter.XYs{from[j], to[j]}, LineStyle: draw.LineStyle{Color: inkGrid.color(), Width: 2}})
	}
	p.X.Tick.Marker = every(ticks, 16)
	floor := []float64{float64(d.Closure.Floor), float64(d.Closure.Floor)}
	curveLine(p, s, []float64{p.X.Min, p.X.Max}, floor, inkFloor, true)
	dots(p, from, inkBad, 3.4)
	dots(p, to, inkSeries, 3.4)
	image, err := svg(p, chartWidth, chartHeight, "KL divergence of each prompt before and after the findings are built in, logarithmic")
	return []figure{{Title: "Closure", Note: "KL divergence of the engine's logits from the reference's, in nats.", SVG: image, Width: chartWidth,
		Keys: []key{{"before", inkBad, "dot"}, {"with the findings built in", inkSeries, "dot"}, {"what rounding makes", inkFloor, "dashed"}}}}, err
}

// scatterChart sets the engine's logits against the reference's, nil if there are none.
func scatterChart(l *diagnose.Logits) (*figure, error) {
	var xy plotter.XYs
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range min(len(l.Scatter), maxScatter) {
		v := l.Scatter[i*len(l.Scatter)/min(len(l.Scatter), maxScatter)]
		x, y := float64(v[0]), float64(v[1])
		if math.IsNaN(x-y) || math.IsInf(x, 0) || math.IsInf(y, 0) {
			continue
		}
		xy = append(xy, plotter.XY{X: x, Y: y})
		lo, hi = min(lo, x, y), max(hi, x, y)
	}
	if len(xy) == 0 {
		return nil, nil
	}
	p := newPlot("reference's logit", true)
	p.Y.Label.Text, p.Y.Label.Padding = "engine's logit", 2
	if hi-lo < 1e-3 {
		lo, hi = lo-1, hi+1
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = lo, hi, lo, hi
	p.X.Tick.Marker, p.Y.Tick.Marker = fewTicks{}, fewTicks{}
	p.Add(&plotter.Line{XYs: plotter.XYs{{X: lo, Y: lo}, {X: hi, Y: hi}}, LineStyle: draw.LineStyle{Color: inkFloor.color(), Width: 1.25}})
	dots(p, xy, inkSeries, 1.6)
	const side = 300
	image, err := svg(p, side, side, fmt.Sprintf("The engine's logits of prompt %d over the reference's", l.Prompt))
	return &figure{Title: "Logits", Note: fmt.Sprintf("%d of the last position's; on the line they are equal.", len(xy)), SVG: image, Width: side}, err
}

// maxScatter is how many logits a scatter chart has.
const maxScatter = 600

// fewTicks are the plotting library's, without those that have no label.
type fewTicks struct{}

func (fewTicks) Ticks(lo, hi float64) (ticks []plot.Tick) {
	for _, t := range (plot.DefaultTicks{}).Ticks(lo, hi) {
		if !t.IsMinor() {
			ticks = append(ticks, plot.Tick{Value: t.Value, Label: strconv.FormatFloat(t.Value, 'g', 4, 64)})
		}
	}
	return ticks
}
