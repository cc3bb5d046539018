package report

import (
	_ "embed" // stats.html
	"io"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/template"
)

//go:embed stats.html
var statsHTML string

var statsTemplate = template.Must(map[string]string{"stats": statsHTML}, template.Options{HTML: true, Funcs: pageTemplate.Funcs})

// StatsHTML writes a model's numbers as a page that loads nothing: for the nodes, and for the weights, a chart each of
// RMS, largest value and mean in the graph's order. Each opens on a click.
func StatsHTML(w io.Writer, r *lab.RunStats) error {
	var figures []figure
	var nodes, weights []point
	for _, n := range r.Nodes {
		nodes = append(nodes, point{n.Name, n.Op, n.Layer, n.Stats})
	}
	for _, x := range r.Weights {
		weights = append(weights, point{x.Name, x.Type, x.Layer, x.Stats})
	}
	figures = append(statsFigures("Nodes", nodes), statsFigures("Weights", weights)...)
	return statsTemplate.Execute(w, "stats", map[string]any{
		"Style": template.HTML(uplotCSS + pageCSS), "Script": template.HTML(script), "ScriptHash": scriptHash,
		"Model": name(r.Model), "Prompts": r.Prompts, "IDs": r.IDs, "Figures": figures,
	})
}

// point is a node or a weight in a chart.
type point struct {
	name, kind string
	layer      int
	lab.Stats
}

// statsFigures is a chart each of RMS, largest value and mean of some points; none for none.
func statsFigures(of string, points []point) (figures []figure) {
	if len(points) == 0 {
		return nil
	}
	// Of too many points those with something that is not finite are drawn first, then the largest.
	picked := thin(len(points), maxPoints, func(i int) float64 {
		if points[i].NaN+points[i].Inf > 0 {
			return math.MaxFloat64
		}
		return float64(points[i].MaxAbs)
	})
	var drawn []point
	var places []diagnose.Curve
	for _, i := range picked {
		drawn = append(drawn, points[i])
		places = append(places, diagnose.Curve{Layer: points[i].layer})
	}
	for _, panel := range []struct {
		title, note string
		value       func(*lab.Stats) float64
	}{
		{"RMS", "Root of the mean square of the finite values.", func(s *lab.Stats) float64 { return float64(s.RMS) }},
		{"Largest", "Largest absolute value; a value that is not finite is at the top.", func(s *lab.Stats) float64 {
			if s.NaN+s.Inf > 0 {
				return math.NaN()
			}
			return float64(s.MaxAbs)
		}},
		{"Mean", "Absolute mean of the finite values.", func(s *lab.Stats) float64 { return math.Abs(float64(s.Mean)) }},
	} {
		c := &chart{Width: chartWidth, Height: chartHeight, Label: of + ": " + panel.title + " by layer, logarithmic", X: layerAxis(places)}
		var x, values []float64
		for i := range drawn {
			x, values = append(x, float64(i)), append(values, panel.value(&drawn[i].Stats))
			c.name(i, name(drawn[i].name)+" · "+name(drawn[i].kind))
		}
		s := newDecades(values)
		c.Y = s.axis()
		m := s.trace(panel.title, "dot", inkSeries, x, values)
		m.Radius = 1.8
		c.Traces = []trace{m}
		figures = append(figures, figure{Title: of + ": " + panel.title, Note: panel.note}.draws(c))
	}
	return slices.Clip(figures)
}
