package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/template"
)

// The largest heat map.
const (
	maxHeatRows    = 64
	maxHeatColumns = 160
)

// heatSteps are the bounds between a heat map's colors, in floors. Up to outside an
// equation holds.
var heatSteps = []float64{1, outside, 10, 1e2, 1e3, 1e4, 1e6}

// heatStep returns the color of a ratio: its step, or the one past the last for a ratio that is
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

// cells is a heat map for the page's script: where its cells are in the SVG, in its
// pixels, and what each says.
type cells struct {
	Left    float64    `json:"left"`
	Top     float64    `json:"top"`
	Width   int        `json:"cellWidth"`
	Height  int        `json:"cellHeight"`
	Columns []string   `json:"columns"`
	Rows    []string   `json:"rows"`
	Values  [][]string `json:"values"` // [rows, columns] in floors, empty where there is no operation
}

const (
	heatRow    = 16 // pixels
	heatMargin = 8
)

// newCells is the map's geometry and its values in words.
func (h *heatMap) newCells() *cells {
	columns := (len(h.columns) + h.share - 1) / h.share
	c := &cells{Top: heatMargin, Width: min(max(560/columns, 9), 24), Height: heatRow, Rows: h.rows}
	for i := range columns {
		label := "–"
		if l := h.columns[i*h.share]; l >= 0 {
			label = strconv.Itoa(l)
		}
		c.Columns = append(c.Columns, label)
	}
	for r, row := range h.rows {
		c.Left = max(c.Left, textWidth(row)+14)
		values := make([]string, columns)
		for i := range values {
			if v, ok := h.cells[[2]int{i, r}]; ok {
				values[i] = number(v)
			}
		}
		c.Values = append(c.Values, values)
	}
	return c
}

// svg draws the map: a path of all cells for each color.
func (h *heatMap) svg(c *cells, label string) template.HTML {
	d := &drawing{x: c.Left, y: c.Top, w: float64(len(c.Columns) * c.Width), h: float64(len(c.Rows) * c.Height)}
	d.open(int(d.x+d.w)+14, int(d.y+d.h)+38, label)
	var paths [numHeat]strings.Builder
	for r := range c.Rows {
		d.text(d.x-6, d.y+float64(r*c.Height)+12, "end", c.Rows[r])
		for i := range c.Columns {
			if v, ok := h.cells[[2]int{i, r}]; ok {
				fmt.Fprintf(&paths[heatStep(v)], "M%.1f %.1fh%dv%dh-%dz", d.x+float64(i*c.Width), d.y+float64(r*c.Height), c.Width, c.Height, c.Width)
			}
		}
	}
	for i := range paths {
		if paths[i].Len() > 0 {
			fmt.Fprintf(&d.b, `<path style="fill:var(%s)" d="%s"/>`, (inkHeat + ink(i)).Variable(), paths[i].String())
		}
	}
	var ticks []tick
	for i, label := range c.Columns {
		ticks = append(ticks, tick{d.x + (float64(i)+0.5)*float64(c.Width), label})
	}
	for _, t := range every(ticks, max(1, len(c.Columns)*c.Width/22)) {
		d.text(t.At, d.y+d.h+15, "middle", t.Text)
	}
	d.text(d.x+d.w/2, d.y+d.h+31, "middle", "layer")
	return d.close()
}

// heatFigure draws the heat map, nil if there are no equations.
func heatFigure(d *diagnose.Diagnosis) *figure {
	if len(d.Curves) == 0 {
		return nil
	}
	h := newHeatMap(d.Curves)
	c := h.newCells()
	f := &figure{Title: "Operations by layers", Cells: c, SVG: h.svg(c, "Residual over floor, by operation and layer"), Keys: heatKeys()}
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
	return f
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
