package diagnose

import (
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// wiring answers questions about a graph and where a dump taps it.
type wiring struct {
	*mistake.Wiring
	g     *graph.Graph
	model *reference.Model
	taps  map[*graph.Node]string // PyTorch's names of the values that any prompt has

	others lab.Names // of all values
}

func (r *wiring) tapName(n *graph.Node) string {
	if name, ok := r.taps[n]; ok {
		return name
	}
	if n.HF != "" {
		return n.HF
	}
	return n.Name
}

func (r *wiring) names(nodes []*graph.Node) []string {
	names := []string{}
	for _, n := range nodes {
		names = append(names, r.tapName(n))
	}
	return names
}

func (r *wiring) hasGELU() bool {
	for _, n := range r.g.Nodes {
		if a, ok := n.Activates(); ok && a.Act == graph.GELUTanh {
			return true
		}
	}
	return false
}

func layers(g *graph.Graph) int {
	n := 0
	for _, x := range g.Nodes {
		n = max(n, x.Layer+1)
	}
	return n
}

// opNames are the operations as findings name them.
var opNames = map[graph.Op]string{graph.Embed: "Embed", graph.Linear: "Linear", graph.RMSNorm: "RMSNorm", graph.RoPE: "RoPE", graph.StoreKV: "StoreKV",
	graph.Attention: "Attention", graph.Add: "Add", graph.Mul: "Mul", graph.Scale: "Scale", graph.GLU: "GLU", graph.Act: "Act", graph.Softcap: "Softcap",
	graph.Rows: "Rows", graph.View: "View", graph.Route: "Route", graph.Experts: "Experts", graph.LayerNorm: "LayerNorm", graph.L2Norm: "L2Norm",
	graph.Concat: "Concat", graph.Slice: "Slice", graph.EmbedPos: "EmbedPos", graph.ScalePos: "ScalePos",
	graph.Pool: "Pool", graph.HeadLinear: "HeadLinear", graph.Conv: "Conv", graph.SSMScan: "SSMScan", graph.DeltaScan: "DeltaScan"}

func opName(n *graph.Node) string { return opNames[n.Op] }

// Names of the table that the stages use.
var (
	role      = mistake.Role
	behind    = mistake.Behind
	turned    = mistake.Turned
	union     = mistake.Union
	layersOf  = mistake.LayersOf
	side      = mistake.Side
	sectioned = mistake.Sectioned
	theta     = mistake.Theta
	speeds    = mistake.Speeds
	list      = mistake.List
	times     = mistake.Times
)

const anotherKind = mistake.AnotherKind
