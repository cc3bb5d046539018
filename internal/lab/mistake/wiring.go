package mistake

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// Wiring answers questions about a graph.
type Wiring struct {
	g     *graph.Graph
	model *reference.Model
}

// Wire returns the wiring of a graph.
func Wire(g *graph.Graph) *Wiring { return &Wiring{g, reference.Of(g)} }

// Model returns the graph's model for computing values.
func (w *Wiring) Model() *reference.Model { return w.model }

// Readers returns the readers of n.
func (w *Wiring) Readers(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range w.g.Nodes {
		if slices.Contains(x.In, n) {
			all = append(all, x)
		}
	}
	return all
}

// biasOf returns the sum of n with its bias; nil if n has none.
func (w *Wiring) biasOf(n *graph.Node) *graph.Node {
	for _, x := range w.Readers(n) {
		if x.Op == graph.Add && len(x.W) > 0 && len(x.In) == 1 {
			return x
		}
	}
	return nil
}

// readersOf returns the edits by which the readers of x read y.
func (w *Wiring) readersOf(x, y *graph.Node) reference.Edits {
	edits := reference.Edits{}
	for _, r := range w.Readers(x) {
		for i, in := range r.In {
			if in == x {
				edits[r] = append(edits[r], reads(i, y))
			}
		}
	}
	return edits
}

// Siblings returns the nodes of n's Role in other layers.
func (w *Wiring) Siblings(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range w.g.Nodes {
		if x != n && x.Layer >= 0 && n.Layer >= 0 && x.Op == n.Op && Role(x) == Role(n) {
			all = append(all, x)
		}
	}
	return all
}

// inLayer finds a node of n's layer by Role, nil if there is none.
func (w *Wiring) inLayer(n *graph.Node, name string) *graph.Node {
	for _, x := range w.g.Nodes {
		if x.Layer == n.Layer && Role(x) == name {
			return x
		}
	}
	return nil
}

// Role returns a node's name without its layer: attn_q of blk.3.attn_q, and of a tower's v.blk.3.attn_q.
func Role(n *graph.Node) string {
	if n.Layer < 0 {
		return n.Name
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(n.Name, "v."), "blk."), ".")
	return name
}

// Behind returns the node behind a view of all its values, or n.
func Behind(n *graph.Node) *graph.Node {
	for n.Op == graph.Rows || n.Op == graph.View && n.Shape.Size() == n.In[0].Shape.Size() {
		n = n.In[0]
	}
	return n
}

// isTower reports whether the graph is of the seeing part, without tokens and logits.
func (w *Wiring) isTower() bool { return w.g.Nodes[0].Op == graph.Patches }

// Head returns the product behind the logits; nil in a tower.
func (w *Wiring) Head() *graph.Node {
	if w.isTower() {
		return nil
	}
	n := w.g.Result()
	for n.Op != graph.Linear && len(n.In) > 0 {
		n = n.In[0]
	}
	return n
}

// HeadDim returns the size of the heads of a product's features, 0 for none.
func (w *Wiring) HeadDim(n *graph.Node) int {
	for _, x := range w.Readers(n) {
		if x.Op == graph.View && len(x.Shape) == 2 {
			return x.Shape[1]
		}
	}
	return 0
}

// finalNorm returns the norm before the Head.
func (w *Wiring) finalNorm() *graph.Node {
	if w.isTower() {
		return nil
	}
	n := w.Head()
	if n == nil || n.Layer >= 0 { // an encoder has none
		n = w.g.Result()
	}
	for n != nil && n.Op != graph.RMSNorm && n.Op != graph.LayerNorm {
		if len(n.In) == 0 {
			return nil
		}
		n = n.In[0]
	}
	return n
}

// MissingNorm returns the cause of a norm left out.
func (w *Wiring) MissingNorm(n *graph.Node) string {
	switch name := Role(n); {
	case n.Op == graph.L2Norm:
		return "norm_missing"
	case strings.HasPrefix(name, "attn_q_norm"), strings.HasPrefix(name, "attn_k_norm"):
		return "qk_norm_missing"
	case strings.HasPrefix(name, "attn_v_norm"):
		return "v_norm_missing"
	case n == w.finalNorm() && n.Layer < 0: // an encoder with norms behind has no final norm
		return "final_norm_missing"
	case strings.HasPrefix(name, "ffn_gate_inp"):
		return "router_norm"
	}
	return "norm_missing"
}

// eps returns the epsilon of the model's norms.
func (w *Wiring) eps() float64 {
	for _, n := range w.g.Nodes {
		if a, ok := n.Attr.(graph.NormAttr); ok {
			return float64(a.Eps)
		}
	}
	return 1e-6
}

// Rotations returns the rope nodes of n's layer: of its indexer, if n is one of these.
func (w *Wiring) Rotations(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range w.g.Nodes {
		if x.Op == graph.RoPE && x.Layer == n.Layer && w.indexes(x) == w.indexes(n) {
			all = append(all, x)
		}
	}
	return all
}

// indexes reports whether n is a rope of an indexer.
func (w *Wiring) indexes(n *graph.Node) bool {
	return n.Op == graph.RoPE && slices.ContainsFunc(w.g.Nodes, func(x *graph.Node) bool {
		kv, _ := x.Attr.(*graph.KV)
		return x.Layer == n.Layer && (x.Op == graph.Choose || kv != nil && kv.Index) && Turned(x.In[0]) == n
	})
}

// Turned returns the rope of n, queries or keys: a norm may come after the rope, and unturned features may lie beside.
// The result is nil for none.
func Turned(n *graph.Node) *graph.Node {
	switch n.Op {
	case graph.RoPE:
		return n
	case graph.Linear, graph.HeadLinear:
		return nil
	case graph.Concat:
		return cmp.Or(Turned(n.In[0]), Turned(n.In[1]))
	}
	if len(n.In) != 1 {
		return nil
	}
	return Turned(n.In[0])
}

// ReadingFrom returns the attentions of a store.
func (w *Wiring) ReadingFrom(store *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range w.g.Nodes {
		if x.Op == graph.Attention && w.model.Store(x) == store {
			all = append(all, x)
		}
	}
	return all
}

// isPLE reports whether a value is the end of a layer's per-layer embedding.
func isPLE(n *graph.Node) bool { return strings.HasPrefix(Role(n), "post_norm") && n.Layer >= 0 }

// sumOfPLE returns the sum of n's layer with the per-layer embedding, nil for none.
func (w *Wiring) sumOfPLE(n *graph.Node) *graph.Node {
	for _, x := range w.g.Nodes {
		if x.Layer == n.Layer && x.Op == graph.Add && len(x.In) == 2 && isPLE(x.In[1]) {
			return x
		}
	}
	return nil
}

// OtherKind returns a layer treated as a layer of the model's other kind: its window and its turning; nil without a
// kind of the same shape.
func (w *Wiring) OtherKind(n *graph.Node) *Hypothesis {
	kv := n.Attr.(graph.AttentionAttr).KV
	for _, x := range w.g.Nodes {
		a, ok := x.Attr.(graph.AttentionAttr)
		if !ok || a.KV.Window == kv.Window || a.KV.Dim != kv.Dim {
			continue
		}
		h := edit(n, "is computed as a layer of another kind, like "+fmt.Sprint(x.Layer), detail{"kind": "another"},
			func(s *reference.Spec) { s.Attention.Window = a.KV.Window })
		h.Cause = "layer_pattern"
		var freqs []float64 // nil for a kind without rope
		if theirs := w.Rotations(x); len(theirs) > 0 {
			freqs = theirs[0].Attr.(graph.RoPEAttr).Freqs
		}
		for _, y := range w.Rotations(n) {
			h.Edits[y] = []reference.Edit{func(s *reference.Spec) { s.Rope.Freqs = freqs }}
		}
		return h
	}
	return nil
}

// AnotherKind is the detail of rope's speeds from another kind of layers.
const AnotherKind = "of another kind"

func LayersOf(n *graph.Node) []int {
	if n.Layer < 0 {
		return []int{}
	}
	return []int{n.Layer}
}

func Union(a, b []int) []int {
	a = append(slices.Clone(a), b...)
	slices.Sort(a)
	return slices.Compact(a)
}
