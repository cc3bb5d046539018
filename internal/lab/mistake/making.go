package mistake

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// maker says which forms of a mistake are built into engines, and where.
type maker struct {
	id      string
	ops     []graph.Op                                   // operations that have it; nil for all
	at      func(s *site, n *graph.Node) bool            // whether a node has it; nil for yes
	more    func(s *site, n *graph.Node) []*Hypothesis   // forms that no search lists
	words   map[string][]detail                          // values, and the details that forms have by them, the likelier first
	number  string                                       // detail that a number as a value means, where there is no fit
	usual   func(s *site, n *graph.Node, f *Fit) float64 // number for no value
	values  []string                                     // values besides none that are worth a test
	faint   string                                       // node where it is lost in the rounding of float32
	tokens  int                                          // tokens of a prompt that shows it
	outer   bool                                         // lies outside the layers only
	one     bool                                         // usual place is the first of several, not all
	apart   bool                                         // nodes of other operations are entries of their own in the answer key
	whole   bool                                         // is worth a test in all its layers and places at once only
	windows bool                                         // takes a prompt that is longer than the window
}

// strange reports whether a mistake is on no list: no search names it.
func (m *maker) strange() bool { return strings.HasPrefix(m.id, "x_") }

func making(id string) *maker {
	for _, m := range makers {
		if m.id == id {
			return m
		}
	}
	return nil
}

// has reports whether h has all details of d. A value of nil stands for any.
func (h *Hypothesis) has(d detail) bool {
	for k, v := range d {
		if x, ok := h.Detail[k]; !ok || v != nil && x != v {
			return false
		}
	}
	return true
}

// choose returns the form of a mistake that a value means, nil if it would change nothing.
func (m *maker) choose(s *site, n *graph.Node, list []*Hypothesis, value string) (*Hypothesis, error) {
	word := value
	if value == untapped && m.id == "bias_missing" && n.Op != graph.Add {
		return nil, nil // it has no tap of its own
	}
	if value == untapped && slices.Contains(m.values, untapped) {
		word = ""
	}
	if details, ok := m.words[word]; ok {
		for _, d := range details {
			for _, h := range list {
				if x, ok := h.at(h.guess()); ok && x.has(d) {
					return x, nil
				}
			}
		}
		return nil, nil
	}
	at := slices.IndexFunc(list, func(h *Hypothesis) bool { return h.Fit != nil })
	if word == "" && m.usual == nil {
		x, _ := list[0].at(list[0].guess())
		return x, nil
	}
	if m.usual == nil && at < 0 && m.number == "" {
		return nil, m.odd(value)
	}
	var f *Fit
	if at >= 0 {
		f = list[at].Fit
	}
	v, err := m.value(s, n, f, word)
	if err != nil {
		return nil, err
	}
	if m.number != "" {
		for _, h := range list {
			if h.has(detail{m.number: v}) {
				return h, nil
			}
		}
		return nil, nil
	}
	switch {
	case f == nil:
		return nil, nil
	case f.Right != 0 && math.Abs(v/f.Right-1) < 1e-6:
		return nil, nil
	case math.IsNaN(v) || f.Least < f.Most && !(v >= min(f.Least, 0) && v <= max(f.Most, 1e30)):
		return nil, fmt.Errorf("value %q: want a number from %g to %g", value, f.Least, f.Most)
	}
	x, _ := list[at].at(v)
	if x == nil {
		return nil, fmt.Errorf("value %q is not possible", value)
	}
	return x, nil
}

// value returns the number that a value says, or the usual one.
func (m *maker) value(s *site, n *graph.Node, f *Fit, value string) (float64, error) {
	if value == "" {
		return m.usual(s, n, f), nil
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		if len(m.words) > 0 {
			return 0, m.odd(value)
		}
		return 0, fmt.Errorf("value %q: want a number", value)
	}
	if m.id == "window_size" && strings.ContainsAny(value[:1], "+-") {
		v += f.Right
	}
	if m.id == "window_size" && (v < 1 || v != math.Trunc(v)) {
		return 0, fmt.Errorf("value %q: want a window, or with a sign how much is added", value)
	}
	return v, nil
}

// odd returns the error of a value that a mistake does not have.
func (m *maker) odd(value string) error {
	var list []string
	for w := range m.words {
		if w != "" {
			list = append(list, w)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("value %q: it takes none", value)
	}
	slices.Sort(list)
	return fmt.Errorf("value %q, want %q", value, list)
}

// guess returns the likeliest number of a hypothesis, 0 if it takes none.
func (h *Hypothesis) guess() float64 {
	if h.Fit == nil || len(h.Fit.Guesses) == 0 {
		return 0
	}
	return h.Fit.Guesses[0]
}

// why returns why a node does not have the mistake of a value.
func (s *site) why(m *maker, f Fault, n *graph.Node) error {
	for _, h := range s.of(m, n) {
		if h.Fit != nil && h.Fit.Right != 0 && m.words[f.Value] == nil {
			return same(fmt.Sprintf("the model's own number is %.6g", h.Fit.Right))
		}
	}
	return same("the model has nothing that it would change")
}

// one-valued words: the form for no value has such details.
func plainly(d ...detail) map[string][]detail { return map[string][]detail{"": d} }

func isOp(ops ...graph.Op) []graph.Op { return ops }

func named(names ...string) func(*site, *graph.Node) bool {
	return func(_ *site, n *graph.Node) bool { return slices.Contains(names, Role(n)) }
}

// sliding reports whether n is attention with a window, and not one by chunks.
func sliding(_ *site, n *graph.Node) bool {
	a, ok := n.Attr.(graph.AttentionAttr)
	return ok && n.Op == graph.Attention && a.KV.Window > 0 && !a.KV.Chunked
}

// product reports whether n is a product other than the one that makes the logits.
func product(s *site, n *graph.Node) bool {
	return n.Op == graph.Linear && (n.Layer != outside || Role(n) != "output")
}

// carries reports whether a weight of its own makes n what it is.
func carries(s *site, n *graph.Node) bool {
	return product(s, n) || len(n.W) > 0 && (n.Op == graph.RMSNorm || n.Op == graph.Experts)
}

// residual reports whether n adds a half of a layer to the stream.
func residual(s *site, n *graph.Node) bool {
	nodes := s.layers[n.Layer+1].nodes
	if n.Layer == outside || n.Op != graph.Add || len(n.In) != 2 || len(nodes[0].In) == 0 {
		return false
	}
	stream := nodes[0].In[0] // what the first norm reads
	for _, x := range nodes {
		if x.Op == graph.Add && len(x.In) == 2 && x.In[0] == stream {
			if stream = x; x == n {
				return true
			}
		}
	}
	return false
}

// hasBias reports whether n adds a bias, or has one of its own.
func hasBias(_ *site, n *graph.Node) bool {
	e, _ := n.Attr.(graph.ExpertsAttr)
	return n.Op == graph.Add && len(n.W) > 0 || n.Op == graph.Experts && e.Biased || (n.Op == graph.LayerNorm || n.Op == graph.Conv) && len(n.W) > 1
}

// halved returns a number for a fit: half the right one.
func halved(_ *site, _ *graph.Node, f *Fit) float64 { return f.Right / 2 }

// fixed returns a number for a fit that is always the same.
func fixed(v float64) func(*site, *graph.Node, *Fit) float64 {
	return func(*site, *graph.Node, *Fit) float64 { return v }
}

// unscaled returns the factor of embeddings by another rule: none for a factor, the root of the width for none.
func unscaled(_ *site, n *graph.Node, f *Fit) float64 {
	if f.Right == 1 {
		return math.Sqrt(float64(n.Shape.Size()))
	}
	return 1
}

// otherScale returns a usual scale of scores that the model does not have.
func otherScale(s *site, n *graph.Node, f *Fit) float64 {
	a := n.Attr.(graph.AttentionAttr)
	for _, v := range []float64{1 / math.Sqrt(float64(a.KV.Dim)), 1 / math.Sqrt(float64(s.g.Nodes[0].Shape.Size())/float64(n.In[0].Shape[0]))} {
		if math.Abs(v/a.Scale-1) > 1e-6 {
			return v
		}
	}
	return 1
}

// makers is the mistakes that are built into engines, in the order of accusation.
var makers = slices.Concat([]*maker{
	{id: "weight_transposed", one: true, at: product},
	{id: "weight_permuted", more: permutedRows, at: named("attn_q", "attn_k"), words: map[string][]detail{"": {{"built": "pairs"}}, "heads": {{"built": "heads"}}}, values: []string{"heads"}, tokens: 2},
	{id: "weight_wrong_layer", one: true, at: carries, more: nextLayer, words: plainly(detail{"built": "layer"})},
	{id: "weight_layout", one: true, at: func(s *site, n *graph.Node) bool { return product(s, n) && n.W[0].Shape.Last()%Superblock != 0 }, more: pastTheEnd,
		words: map[string][]detail{"": {{"block": float64(Superblock), "read": "row-wise"}}, "packed": {{"block": float64(Superblock), "read": "packed"}}, "beyond": {{"built": "beyond"}}}, values: []string{"packed", "beyond"}},
	{id: "weight_scale", one: true, at: carries, more: decodedWrongly, words: map[string][]detail{"packing": {{"built": "packing"}}, "min": {{"built": "min"}}}, usual: fixed(2), values: []string{"packing", "min"}},
	{id: "weight_missing", one: true, at: carries, words: plainly(detail{"weight": "zero"}, detail{"weight": "one"})},

	{id: "norm_offset", words: plainly(detail{"offset": 0.0}, detail{"offset": 1.0})},
	{id: "norm_eps", usual: func(_ *site, _ *graph.Node, f *Fit) float64 {
		if f.Right > 5e-6 {
			return 1e-6
		}
		return 1e-5
	}, values: []string{"1e-3"}, faint: "output_norm"},
	{id: "norm_missing", one: true, at: func(_ *site, n *graph.Node) bool {
		return (n.Op == graph.RMSNorm || n.Op == graph.LayerNorm) && len(n.W) > 0
	}, values: []string{untapped}},
	{id: "norm_extra", one: true, words: plainly(detail{"of": nil})},
	{id: "norm_wrong_weight", one: true, at: func(_ *site, n *graph.Node) bool { return n.Layer != outside }},
	{id: "norm_order", one: true, at: named("attn_norm", "ffn_norm"), more: lastOf("norm_order"), words: plainly(detail{"built": "last"})},
	{id: "qk_norm_missing", ops: isOp(graph.RMSNorm), values: []string{untapped}},
	{id: "qk_norm_after_rope", at: named("attn_q_norm", "attn_k_norm"), more: lastOf("qk_norm_after_rope"), words: plainly(detail{"built": "last"}), tokens: 2},
	{id: "v_norm_missing", ops: isOp(graph.RMSNorm), values: []string{untapped}},
	{id: "final_norm_missing", outer: true, at: named("output_norm")},

	{id: "rope_style", at: turns, tokens: 2},
	{id: "rope_theta", at: turns, tokens: 2, more: rootOfBase, words: map[string][]detail{"root": {{"built": "root"}}}, usual: func(_ *site, _ *graph.Node, f *Fit) float64 {
		if f.Right < 2e4 {
			return 1e6
		}
		return 1e4
	}, values: []string{"5e5", "root"}},
	{id: "rope_scaling", at: turns, tokens: 2, words: plainly(detail{"scaling": "none"}), number: "slowed", more: slowed, values: []string{"4"}},
	{id: "rope_factors", at: turns, tokens: 2, words: plainly(detail{"factors": "inverse"}, detail{"factors": AnotherKind}, detail{"built": "borrowed"}), more: borrowedFactors},
	{id: "rope_partial", at: turns, tokens: 2, words: plainly(detail{"part": 1.0}, detail{"pairs": "all"}, detail{"pairs": 0.25}), number: "pairs"},
	{id: "rope_magnitude", at: turns, tokens: 1},
	{id: "rope_sections", at: turns, tokens: 2, values: []string{"order", "swapped", "text"}, words: map[string][]detail{"": {{"parts": "time alone"}},
		"order": {{"order": "by turns"}, {"order": "one run after another"}}, "swapped": {{"order": "width before height"}}, "text": {{"parts": "of text"}}}},
	{id: "rope_position", at: turns, one: true, tokens: 2, more: ringSlot, words: map[string][]detail{slot: {{"built": "slot"}}, "bos": {{"position": "without the first", "side": nil}, {"position": "without the first"}}},
		usual: fixed(1), values: []string{"-1", slot, "bos"}},
	{id: "rope_missing", at: turns, tokens: 2, values: []string{untapped}},

	{id: "attention_scale", usual: otherScale, tokens: 2},
	{id: "window_size", at: sliding, usual: func(_ *site, _ *graph.Node, f *Fit) float64 { return f.Right - 1 }, values: []string{"+1"}, windows: true},
	{id: "window_per_chunk", at: sliding, more: anyChunk, windows: true, number: "chunk", usual: func(_ *site, n *graph.Node, _ *Fit) float64 {
		usual := 32
		for usual > 2 && usual > window(n)/2 {
			usual /= 2
		}
		return float64(usual)
	}},
	{id: "window_missing", at: sliding, windows: true},
	{id: "layer_pattern", tokens: 2, windows: true, words: plainly(detail{"kind": "another"})},
	{id: "mask", more: unbounded, words: map[string][]detail{"": {{"mask": "causal"}, {"mask": "one ahead"}}, "future": {{"mask": "one ahead"}}, "none": {{"mask": "none"}, {"built": "none"}}, "self": {{"mask": "not its own"}}}, values: []string{"none", "self"}, tokens: 3},
	{id: "gqa_map", tokens: 1, words: plainly(detail{"map": "modulo"})},
	{id: "k_as_v", words: plainly(detail{"of": "one layer"}, detail{"values": nil})},
	{id: "kv_share_source", at: func(s *site, n *graph.Node) bool {
		return n.Op == graph.Attention && s.layers[n.Layer+1].first(graph.StoreKV) == nil
	}, more: nearestStore, number: "layer", words: map[string][]detail{"": {{"built": "nearest"}}, "flat": {{"built": "flat"}}}, values: []string{"flat"}},
	{id: "kv_cache_position", number: "shift", usual: fixed(1), words: map[string][]detail{"fresh": {{"decode": "new in each step"}}}, values: []string{"2", "fresh"}, tokens: 2},
	{id: "softmax_axis", tokens: 2, ops: isOp(graph.Attention), at: func(_ *site, n *graph.Node) bool { return n.In[0].Shape[0] > 1 }, words: plainly(detail{"axis": "heads"})},

	{id: "embed_scale", outer: true, ops: isOp(graph.Embed), usual: unscaled},
	{id: "bias_missing", apart: true, at: hasBias, values: []string{untapped}},
	{id: "residual_order", one: true},
	{id: "residual_missing", one: true, words: plainly(detail{"lost": "stream"}), at: residual},
	{id: "activation", one: true, apart: true, words: activationWords(), values: []string{"gelu_erf", "relu"}},
	{id: "gelu_constant", one: true, usual: fixed(0.047415)},
	{id: "gate_up_swapped", one: true, apart: true, ops: isOp(graph.GLU, graph.Experts)},
	{id: "ple_missing", words: plainly(detail{"lost": "branch"})},
	{id: "ple_scale", outer: true, one: true, at: func(_ *site, n *graph.Node) bool {
		return n.Op == graph.Embed || len(n.In) > 0 && n.In[0].Op == graph.Add
	}, usual: func(s *site, n *graph.Node, f *Fit) float64 {
		if n.Op == graph.Embed {
			return unscaled(s, n, f)
		}
		return 1
	}},
	{id: "ple_position", words: map[string][]detail{"": {{"place": "before the MLP"}}, "after": {{"place": "after the scalar", "gate": nil}}}, values: []string{"after"}},
	{id: "layer_scalar", words: map[string][]detail{"": {{"scalar": "on what the layer adds"}}, "missing": {{"scalar": "one"}}}, values: []string{"missing"}},
	{id: "softcap_missing", outer: true},
	{id: "softcap_value", outer: true, usual: halved},
	{id: "head_wrong", outer: true, at: named("output"), more: displacedHead, words: map[string][]detail{"": {{"weight": "token_embd"}, {"built": "rows"}}, "embed": {{"weight": "token_embd"}}, "rows": {{"built": "rows"}}, "tail": {{"built": "tail"}}}, values: []string{"tail", "embed", "rows"}},
	{id: "logits_scale", outer: true, ops: isOp(graph.Linear), usual: func(_ *site, n *graph.Node, _ *Fit) float64 { return 1 / math.Sqrt(float64(n.In[0].Shape.Size())) }},

	{id: "router_softmax", ops: isOp(graph.Route), at: func(_ *site, n *graph.Node) bool { return n.In[0].Shape.Size() > 1 }, words: map[string][]detail{"": {{"over": "probabilities"}},
		"sigmoid": {{"over": "sigmoids"}, {"over": graph.SigmoidEach.String(), "normalize": true}, {"over": graph.SigmoidEach.String()}}}, values: []string{"sigmoid"}},
	{id: "router_norm", ops: isOp(graph.Route)},
	{id: "router_topk", number: "k", usual: func(_ *site, n *graph.Node, _ *Fit) float64 {
		if k := n.Shape[0]; k > 1 {
			return float64(k - 1)
		}
		return 2
	}},
	{id: "expert_order", ops: isOp(graph.Experts), words: map[string][]detail{"": {{"order": "+1"}}, "reverse": {{"order": "reversed"}}}, values: []string{"reverse"}, at: func(_ *site, n *graph.Node) bool { return n.W[0].Shape[0] > 1 }},

	{id: "norm_mean"},
	{id: "position_embedding", words: map[string][]detail{"": {{"shift": 2.0}}, "missing": {{}}}, values: []string{"missing"}},
	{id: "position_scale", words: map[string][]detail{"": {{"shift": nil}}, "missing": {{}}}, values: []string{"missing"}, tokens: 2},
	{id: "parts_swapped"},
	{id: "slice_part", ops: isOp(graph.Slice), one: true, more: neighbour, words: plainly(detail{"built": "neighbour"})},
	{id: "gate_missing", one: true, words: map[string][]detail{"": {{"lost": "second"}}, "gate": {{"lost": "first"}}}, values: []string{"gate"}},
	{id: "norm_length"},
	{id: "heads_exchanged"},
	{id: "pooling", outer: true, tokens: 2},
	{id: "conv_order"},
	{id: "scan_decay", more: lastOf("scan_decay"), words: map[string][]detail{"": {{"bias": 0.0}}, "log": {{"built": "last"}}}, values: []string{"log"}, tokens: 2},
	{id: "scan_skip"},
	{id: "state_lost", apart: true, tokens: 2},

	{id: "attention_sink"},
	{id: "attention_cap", tokens: 2},
	{id: "chunk_missing", words: map[string][]detail{"": {{"chunk": "none"}}, "window": {{"chunk": "window"}}}, values: []string{"window"}, windows: true},
	{id: "latent_part"},
	{id: "activation_limit", words: map[string][]detail{"": {{"without": "all"}, {"without": nil}}, "limit": {{"without": "limit"}}, "alpha": {{"without": "alpha"}}, "plus": {{"without": "plus"}}}, values: []string{"limit", "alpha", "plus"}},
	{id: "gate_up_layout"},
	{id: "expert_input"},
	{id: "router_factor"},
	{id: "router_eps", at: func(_ *site, n *graph.Node) bool {
		a, _ := n.Attr.(graph.RouteAttr)
		return a.Eps >= 1e-4 // the chosen scores add up to about 1: less is rounding
	}},
	{id: "router_groups", words: map[string][]detail{"": {{"groups": 1.0}}, "best": {{"best": 1.0}}}, values: []string{"best"}},
	{id: "scale_factor", more: scaledTwice, words: map[string][]detail{"": {{"built": "without"}}, "twice": {{"built": "twice"}}}, values: []string{"twice"}},
	{id: "router_bias", words: map[string][]detail{"": {{"bias": "in weights"}}, "none": {{"bias": "none"}}}, values: []string{"none"}},
}, strange, equals)

// activationWords returns the values of the mistake activation; the form for none is a usual one.
func activationWords() map[string][]detail {
	all := plainly(detail{"activation": "silu"}, detail{"activation": "gelu_tanh"})
	for _, a := range activations {
		all[a.name] = []detail{{"activation": a.name}}
	}
	return all
}

// OpOf returns the operation that a mistake at a node is about, as findings name it.
func OpOf(id string, n *graph.Node) string {
	switch c, _ := Find(id); {
	case c.Op == "" || c.Kind == Weights || slices.Contains([]string{"activation", "gelu_constant", "gate_up_swapped", "ple_scale", "activation_limit", "scan_decay", "state_lost"}, id):
		return OpName(n.Op)
	case slices.Contains([]string{"bias_missing", "norm_missing", "norm_eps", "norm_order", "final_norm_missing"}, id) && slices.Contains([]graph.Op{graph.LayerNorm, graph.L2Norm, graph.Conv, graph.Experts}, n.Op):
		return OpName(n.Op)
	default:
		return cmp.Or(c.Op, OpName(n.Op))
	}
}

// OpName returns an operation as findings name it: rms_norm is RMSNorm.
func OpName(o graph.Op) string {
	return [...]string{"Embed", "Linear", "RMSNorm", "RoPE", "StoreKV", "Attention", "Add", "Mul",
		"Scale", "GLU", "Act", "Softcap", "Rows", "View", "Route", "Experts", "LayerNorm", "L2Norm", "Concat", "Slice", "EmbedPos", "ScalePos", "Pool", "HeadLinear",
		"Conv", "SSMScan", "DeltaScan"}[o]
}
