package report

import (
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// The largest heat map.
const (
	maxHeatRows    = 64
	maxHeatColumns = 160
)

// heatSteps are the bounds between a heat map's colors, in floors. Up to outside an
// equation holds.
var heatSteps = []float64{1, outside, 10, 1e2, 1e3, 1e4, 1e6}

// heatStep returns the color of a ratio: its step, or the one past them for what is
// no number.
func heatStep(r float64) int {
	if math.IsInf(r, 0) || math.IsNaN(r) {
		return numHeat - 1
	}
	i, _ := slices.BinarySearch(heatSteps, r)
	return i
}

// heatMap is a grid of the worst ratios of residual and floor: rows are places in a
// layer, columns layers.
type heatMap struct {
	rows    []string
	columns []int // -1: outside the layers
	share   int   // how many layers a column has
	cells   map[[2]int]float64
	left    int // rows that are left out
}

// inLayer matches the part of a tap's name that says which layer it is in.
var inLayer = regexp.MustCompile(`^(.*\.)?layers\.\d+\.`)

// place names an equation within its layer.
func place(c *diagnose.Curve) string {
	tap := strings.TrimSuffix(strings.TrimPrefix(inLayer.ReplaceAllString(c.Tap, ""), "model."), ".out")
	return clip(tap, 32) + " · " + clip(c.Op, 12)
}

// newHeatMap arranges the equations.
func newHeatMap(curves []diagnose.Curve) *heatMap {
	h := &heatMap{cells: map[[2]int]float64{}, share: 1}
	index, worstOf := map[string]int{}, []float64{}
	seen := map[int]bool{}
	for i := range curves {
		seen[max(-1, curves[i].Layer)] = true
	}
	numbered := 0
	for l := range seen {
		h.columns = append(h.columns, l)
		if l >= 0 {
			numbered++
		}
	}
	slices.Sort(h.columns)
	if numbered > maxHeatColumns {
		h.share = (numbered + maxHeatColumns - 1) / maxHeatColumns
	}
	column := map[int]int{}
	for i, l := range h.columns {
		column[l] = i / h.share
	}
	for i := range curves {
		c := &curves[i]
		p := place(c)
		row, ok := index[p]
		if !ok {
			row = len(h.rows)
			index[p] = row
			h.rows, worstOf = append(h.rows, p), append(worstOf, 0)
		}
		at, r := [2]int{column[max(-1, c.Layer)], row}, ratio(c.Residual, c.Floor)
		if old, ok := h.cells[at]; !ok || r > old {
			h.cells[at] = r
		}
		worstOf[row] = max(worstOf[row], r)
	}
	h.keepWorst(worstOf)
	return h
}

// keepWorst leaves the rows with the worst ratios, if there are too many.
func (h *heatMap) keepWorst(worstOf []float64) {
	if len(h.rows) <= maxHeatRows {
		return
	}
	order := make([]int, len(h.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := worstOf[a], worstOf[b]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	h.left = len(h.rows) - maxHeatRows
	kept := slices.Sorted(slices.Values(order[:maxHeatRows]))
	rows, cells := make([]string, 0, maxHeatRows), map[[2]int]float64{}
	for to, from := range kept {
		rows = append(rows, h.rows[from])
		for c := range h.columns {
			if r, ok := h.cells[[2]int{c, from}]; ok {
				cells[[2]int{c, to}] = r
			}
		}
	}
	h.rows, h.cells = rows, cells
}

// Dims, X, Y and Z are the plotting library's view of the grid: rows go upwards.
func (h *heatMap) Dims() (c, r int) {
	return (len(h.columns) + h.share - 1) / h.share, len(h.rows)
}
func (h *heatMap) X(c int) float64 { return float64(c) }
func (h *heatMap) Y(r int) float64 { return float64(r) }
func (h *heatMap) Z(c, r int) float64 {
	if v, ok := h.cells[[2]int{c, len(h.rows) - 1 - r}]; ok {
		return float64(heatStep(v))
	}
	return math.NaN()
}

// heatPalette is the colors of the steps.
type heatPalette struct{}

func (heatPalette) Colors() (list []color.Color) {
	for i := range numHeat {
		list = append(list, (inkHeat + ink(i)).color())
	}
	return list
}

var _ palette.Palette = heatPalette{}

// heatFigure draws the heat map, nil if there are no equations.
func heatFigure(d *diagnose.Diagnosis) (*figure, error) {
	if len(d.Curves) == 0 {
		return nil, nil
	}
	h := newHeatMap(d.Curves)
	columns, rows := h.Dims()
	p := newPlot("layer", false)
	p.X.Padding, p.Y.Padding = 0, 2
	p.X.LineStyle.Width = 0
	m := plotter.NewHeatMap(h, heatPalette{})
	m.Min, m.Max = 0, numHeat-1
	p.Add(m)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(columns)-0.5, -0.5, float64(rows)-0.5
	var x, y []plot.Tick
	var widest vg.Length
	for c := range columns {
		label := "–"
		if l := h.columns[c*h.share]; l >= 0 {
			label = strconv.Itoa(l)
		}
		x = append(x, plot.Tick{Value: float64(c), Label: label})
	}
	for r := range rows {
		label := h.rows[rows-1-r]
		widest = max(widest, p.Y.Tick.Label.Width(label))
		y = append(y, plot.Tick{Value: float64(r), Label: label})
	}
	cell := min(max(560/columns, 9), 24)
	p.X.Tick.Marker, p.Y.Tick.Marker = every(x, columns*cell/22), plot.ConstantTicks(y)
	f := &figure{Title: "Operations by layers", Heat: true, Width: int(widest) + 28 + columns*cell, Keys: heatKeys()}
	f.Note = "Residual of each operation in each layer, in floors: what rounding alone makes of it."
	if h.columns[0] < 0 {
		f.Note += " – is outside the layers."
	}
	if h.share > 1 {
		f.Note += fmt.Sprintf(" A column is the worst of %d layers.", h.share)
	}
	if h.left > 0 {
		f.Note += fmt.Sprintf(" %d rows with smaller errors are left out.", h.left)
	}
	var err error
	f.SVG, err = svg(p, f.Width, rows*16+54, "Residual over floor, by operation and layer")
	return f, err
}

// heatKeys are the legend of the steps.
func heatKeys() (keys []key) {
	for i := range numHeat {
		var text string
		switch {
		case i == 0:
			text = "up to 1"
		case i < len(heatSteps):
			text = "to " + number(heatSteps[i])
		case i == len(heatSteps):
			text = "more"
		default:
			text = "not a number, or no floor"
		}
		keys = append(keys, key{text, inkHeat + ink(i), "box"})
	}
	return keys
}
