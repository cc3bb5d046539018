package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// Names holds other engines' names for the values of a graph's nodes, as far as there are any.
type Names struct {
	Torch    map[*graph.Node]string // a module's output, or the input of one: model.layers.0.mlp.down_proj.in
	LlamaCpp map[*graph.Node]string // as its graph's callback has it: ffn_out-0
}

// llamaCppUsual are the names in llamaCppLayer that most of llama.cpp's models have. Of several
// names of one value the first counts.
var llamaCppUsual = []string{"attn_norm", "Qcur_normed", "Kcur_normed", "Vcur_normed", "kqv_out", "attn_post_norm",
	"ffn_inp", "ffn_norm", "ffn_gate", "ffn_up",
	"ffn_swiglu", "ffn_out", "ffn_mlp", "ffn_norm_2", "ffn_moe_logits", "ffn_moe_out", "ffn_moe", "ffn_moe_combined",
	"ffn_post_norm", "pe_in", "per_layer_embd_out", "l_out"}

// NamesOf returns the names of g's values.
func NamesOf(g *graph.Graph) Names {
	l := newPlacer(g, &Prompt{})
	names := Names{map[*graph.Node]string{}, map[*graph.Node]string{}}
	last := -1
	for _, n := range g.Nodes {
		if name := cmp.Or(n.HF, l.taps[n]); name != "" {
			names.Torch[n] = name
		}
		last = max(last, n.Layer)
	}
	for layer := range last + 1 {
		name := func(n *graph.Node, as string) {
			if n != nil && names.LlamaCpp[n] == "" {
				names.LlamaCpp[n] = fmt.Sprintf("%s-%d", as, layer)
			}
		}
		for _, as := range llamaCppUsual {
			n := l.node(layer, llamaCppLayer[as])
			if a, ok := activates(n); ok && a.Act != graph.SiLU && as == "ffn_swiglu" {
				as = "ffn_geglu"
			}
			name(n, as)
		}
		for role, as := range map[string]string{"attn_q": "Qcur", "attn_k": "Kcur", "attn_v": "Vcur",
			"attn_output": "attn_out"} {
			name(l.node(layer, role), as)
		}
	}
	return names
}

func activates(n *graph.Node) (a graph.ActAttr, ok bool) {
	if n == nil {
		return a, false
	}
	return n.Activates()
}

// hiddenStates numbers the embedding, the outputs of all layers except the last, and the final norm; the result is
// nil for a graph without one of them.
func hiddenStates(g *graph.Graph) map[*graph.Node]int {
	last := 0
	for _, n := range g.Nodes {
		last = max(last, n.Layer)
	}
	places := map[*graph.Node]int{}
	var embedding *graph.Node
	for _, n := range g.Nodes {
		switch {
		case n.Name == "token_embd" || n.Name == "inp_embd": // with positions
			embedding = n
		case n.Name == "output_norm":
			places[n] = last + 1
		case n.Layer >= 0 && n.Layer < last && n.Name == fmt.Sprintf("blk.%d.out", n.Layer):
			places[n] = n.Layer + 1
		}
	}
	if embedding != nil {
		places[embedding] = 0
	}
	if len(places) != last+2 { // PyTorch has all of them, or none
		return nil
	}
	return places
}

// projection returns the PyTorch name, without .out, of a module whose input is recorded as well: attention's and
// the MLP's last projection, or all of an MLP's experts.
func projection(n *graph.Node) string {
	name, ok := strings.CutSuffix(n.HF, ".out")
	last := func(end string) bool { return strings.HasSuffix(name, end) }
	if ok && slices.ContainsFunc([]string{".o_proj", ".down_proj", ".c_proj", ".out_proj", ".output_linear", ".dense",
		".dense_4h_to_h", ".fc2", ".feed_forward.w2", ".experts"}, last) {
		return name
	}
	return ""
}

// input returns the input of a projection's product, behind the bias if there is one.
func input(n *graph.Node) *graph.Node {
	if n.Op == graph.Add {
		n = n.In[0]
	}
	return n.In[0]
}
