package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// wiring answers questions about a graph and where a dump taps it.
type wiring struct {
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

// readers are the nodes that read n.
func (r *wiring) readers(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range r.g.Nodes {
		if slices.Contains(x.In, n) {
			all = append(all, x)
		}
	}
	return all
}

// siblings are the nodes of n's role in other layers.
func (r *wiring) siblings(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range r.g.Nodes {
		if x != n && x.Layer >= 0 && n.Layer >= 0 && x.Op == n.Op && role(x) == role(n) {
			all = append(all, x)
		}
	}
	return all
}

// inLayer finds a node of n's layer by role, nil if there is none.
func (r *wiring) inLayer(n *graph.Node, name string) *graph.Node {
	for _, x := range r.g.Nodes {
		if x.Layer == n.Layer && role(x) == name {
			return x
		}
	}
	return nil
}

// role is a node's name without its layer: attn_q of blk.3.attn_q.
func role(n *graph.Node) string {
	if n.Layer < 0 {
		return n.Name
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(n.Name, "blk."), ".")
	return name
}

// behind is the node that a view shows all of, or n.
func behind(n *graph.Node) *graph.Node {
	for n.Op == graph.Rows || n.Op == graph.View && n.Shape.Size() == n.In[0].Shape.Size() {
		n = n.In[0]
	}
	return n
}

// head is the product that makes the logits.
func (r *wiring) head() *graph.Node {
	n := r.g.Result()
	for n.Op != graph.Linear && len(n.In) > 0 {
		n = n.In[0]
	}
	return n
}

// headDim is the size of the heads that a product's features are cut into, 0 if they are not.
func (r *wiring) headDim(n *graph.Node) int {
	for _, x := range r.readers(n) {
		if x.Op == graph.View && len(x.Shape) == 2 {
			return x.Shape[1]
		}
	}
	return 0
}

// finalNorm is the norm before the head.
func (r *wiring) finalNorm() *graph.Node {
	n := r.head()
	if n == nil || n.Layer >= 0 { // an encoder has none
		n = r.g.Result()
	}
	for n != nil && n.Op != graph.RMSNorm && n.Op != graph.LayerNorm {
		if len(n.In) == 0 {
			return nil
		}
		n = n.In[0]
	}
	return n
}

// missingNorm is the cause of a norm that is left out.
func (r *wiring) missingNorm(n *graph.Node) string {
	switch name := role(n); {
	case strings.HasPrefix(name, "attn_q_norm"), strings.HasPrefix(name, "attn_k_norm"):
		return "qk_norm_missing"
	case strings.HasPrefix(name, "attn_v_norm"):
		return "v_norm_missing"
	case n == r.finalNorm() && n.Layer < 0: // an encoder whose norms come behind has none of its own
		return "final_norm_missing"
	case strings.HasPrefix(name, "ffn_gate_inp"):
		return "router_norm"
	}
	return "norm_missing"
}

// eps is the epsilon of the model's norms.
func (r *wiring) eps() float64 {
	for _, n := range r.g.Nodes {
		if a, ok := n.Attr.(graph.NormAttr); ok {
			return float64(a.Eps)
		}
	}
	return 1e-6
}

// rotations are the rope nodes of n's layer.
func (r *wiring) rotations(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range r.g.Nodes {
		if x.Op == graph.RoPE && x.Layer == n.Layer {
			all = append(all, x)
		}
	}
	return all
}

// turned is the rope that made n, queries or keys: a norm may come after it, and what does
// not turn may lie beside it. It is nil if there is none.
func turned(n *graph.Node) *graph.Node {
	switch n.Op {
	case graph.RoPE:
		return n
	case graph.Linear, graph.HeadLinear:
		return nil
	case graph.Concat:
		return cmp.Or(turned(n.In[0]), turned(n.In[1]))
	}
	if len(n.In) != 1 {
		return nil
	}
	return turned(n.In[0])
}

// readingFrom are the attentions that read a store.
func (r *wiring) readingFrom(store *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range r.g.Nodes {
		if x.Op == graph.Attention && r.model.Store(x) == store {
			all = append(all, x)
		}
	}
	return all
}

// sumOfPLE is where n's layer adds the per-layer embedding, nil if it has none.
func (r *wiring) sumOfPLE(n *graph.Node) *graph.Node {
	for _, x := range r.g.Nodes {
		if x.Layer == n.Layer && x.Op == graph.Add && len(x.In) == 2 && isPLE(x.In[1]) {
			return x
		}
	}
	return nil
}

func (r *wiring) hasGELU() bool {
	for _, n := range r.g.Nodes {
		if a, ok := n.Activates(); ok && a.Act == graph.GELUTanh {
			return true
		}
	}
	return false
}

// otherKind is a layer treated as one of the model's other kind: its window and its turning;
// nil where there is none of that shape.
func (r *wiring) otherKind(n *graph.Node) *hypothesis {
	kv := n.Attr.(graph.AttentionAttr).KV
	for _, x := range r.g.Nodes {
		a, ok := x.Attr.(graph.AttentionAttr)
		if !ok || a.KV.Window == kv.Window || a.KV.Dim != kv.Dim {
			continue
		}
		h := edit("layer_pattern", n, "is computed as a layer of another kind, like "+fmt.Sprint(x.Layer), detail{"kind": "another"}, func(s *reference.Spec) { s.Window = a.KV.Window })
		var freqs []float64 // of a kind that turns nothing
		if theirs := r.rotations(x); len(theirs) > 0 {
			freqs = theirs[0].Attr.(graph.RoPEAttr).Freqs
		}
		for _, y := range r.rotations(n) {
			h.edits[y] = []reference.Edit{func(s *reference.Spec) { s.Freqs = freqs }}
		}
		return h
	}
	return nil
}

// anotherKind is what rope's speeds are said to be of, where they are another kind of layers'.
const anotherKind = "of another kind"

func layers(g *graph.Graph) int {
	n := 0
	for _, x := range g.Nodes {
		n = max(n, x.Layer+1)
	}
	return n
}

func layersOf(n *graph.Node) []int {
	if n.Layer < 0 {
		return []int{}
	}
	return []int{n.Layer}
}

func union(a, b []int) []int {
	a = append(slices.Clone(a), b...)
	slices.Sort(a)
	return slices.Compact(a)
}

// opNames are the operations as findings name them.
var opNames = map[graph.Op]string{graph.Embed: "Embed", graph.Linear: "Linear", graph.RMSNorm: "RMSNorm", graph.RoPE: "RoPE", graph.StoreKV: "StoreKV",
	graph.Attention: "Attention", graph.Add: "Add", graph.Mul: "Mul", graph.Scale: "Scale", graph.GLU: "GLU", graph.Act: "Act", graph.Softcap: "Softcap",
	graph.Rows: "Rows", graph.View: "View", graph.Route: "Route", graph.Experts: "Experts", graph.LayerNorm: "LayerNorm", graph.L2Norm: "L2Norm",
	graph.Concat: "Concat", graph.Slice: "Slice", graph.EmbedPos: "EmbedPos", graph.ScalePos: "ScalePos",
	graph.Pool: "Pool", graph.HeadLinear: "HeadLinear", graph.Conv: "Conv", graph.SSMScan: "SSMScan", graph.DeltaScan: "DeltaScan"}

func opName(n *graph.Node) string { return opNames[n.Op] }
