package lab

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// module returns a PyTorch name without the names before the decoder's own modules.
func module(name string) string {
	for {
		rest := name
		for _, prefix := range []string{"model.", "language_model.", "text_model.", "module.", "_orig_mod.",
			"backbone."} {
			rest = strings.TrimPrefix(rest, prefix)
		}
		if rest == name {
			return name
		}
		name = rest
	}
}

// rootOf returns the module of g that holds all layers and the modules before them, with a dot; "" if the names
// have no such module. Names of the bare model lack the module, and a model for another purpose may have another.
func rootOf(g *graph.Graph) string {
	var root string
	for _, n := range g.Nodes {
		if n.HF == "" {
			continue
		}
		first, _, _ := strings.Cut(module(n.HF), ".")
		if root == "" {
			root = first + "."
		}
		if n.Layer >= 0 && first+"." != root {
			return ""
		}
	}
	return root
}

// bareName returns a module's name as byModule has the name.
func (l *placer) bareName(name string) string {
	m := strings.TrimPrefix(module(name), l.root)
	if first, rest, ok := strings.Cut(m, "."); ok && l.root != "" && !l.tops[first] {
		return rest
	}
	return m
}

// sameOut are modules that give what one of theirs does.
var sameOut = map[string]string{"self_attn": "self_attn.o_proj", "mlp": "mlp.down_proj",
	"feed_forward": "feed_forward.w2"}

// sameIn are modules that read what one of theirs does.
var sameIn = map[string]string{"self_attn": "self_attn.q_proj", "mlp": "mlp.gate_proj",
	"feed_forward": "feed_forward.w1", "": "input_layernorm"}

// moduleIndex matches a module of a list as nnsight has it: layers[0].
var moduleIndex = regexp.MustCompile(`\[(\d+)\]`)

// unsettled are modules whose output depends on how they are called.
var unsettled = []string{"act_fn", "rotary_emb", "pos_emb", "router"}

// hf finds PyTorch's MODULE.out and MODULE.in. A module's name alone means its output.
func (l *placer) hf(name string) spot {
	name = moduleIndex.ReplaceAllString(name, ".$1")
	m, reads := strings.CutSuffix(l.bareName(name), ".in")
	if input, ok := strings.CutSuffix(m, ".input"); ok { // nnsight's words
		m, reads = input, true
	}
	m = strings.TrimSuffix(strings.TrimSuffix(m, ".output"), ".out")
	m = strings.Replace(m, ".mtp_block", "", 1) // vLLM's word for the layer of a head
	for _, u := range unsettled {
		// a graph may have a node of it
		if own := u == "act_fn" && l.byModule[m] != nil; !own && (m == u || strings.HasSuffix(m, "."+u)) {
			return spot{why: "what " + u + " gives depends on how it is called"}
		}
	}
	if reads {
		s := l.moduleInput(m)
		if s.why == noModule {
			s.why = l.whyNoModule(name)
		}
		return s
	}
	n := l.byModule[m]
	for _, table := range []map[string]string{sameOut,
		{"mlp": "mlp.experts", "feed_forward": "feed_forward.experts"}} {
		if n == nil {
			n = l.byModule[standIn(m, table)]
		}
	}
	// of modules of any name
	for _, last := range []string{".out_proj", ".o_proj", ".output_linear", ".experts", ".down_proj", ".c_proj",
		".dense", ".dense_4h_to_h", ".fc2"} {
		if n == nil {
			n = l.byModule[m+last]
		}
	}
	if n == nil {
		return spot{why: l.whyNoModule(name)}
	}
	return spot{node: n}
}

// isBeyond reports whether the model has no such layer. The one behind the last may be its head for drafts.
func (l *placer) isBeyond(layer int) bool { return layer > l.last+1 }

// whyNoModule says why a name of a module, or the graph's name of a value, has no place.
func (l *placer) whyNoModule(name string) string {
	m := strings.TrimPrefix(module(name), l.root)
	for _, list := range []string{l.list, "blk."} {
		rest, ok := strings.CutPrefix(m, list)
		number, rest, _ := strings.Cut(rest, ".")
		layer, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		part, rest, _ := strings.Cut(rest, ".")
		whole := slices.Contains([]string{"", "in", "out", "input", "output"}, rest)
		switch {
		case l.isBeyond(layer):
			return noLayer
		case list == l.list && l.byName[fmt.Sprintf("blk.%d.out", layer)] != nil && !whole && !l.parts[part]:
			return noPart
		}
	}
	return noModule
}

// standIn returns the module that table has in place of m, a module of a layer.
func standIn(m string, table map[string]string) string {
	before, layer, ok := strings.Cut(m, "layers.")
	number, path, _ := strings.Cut(layer, ".")
	other, known := table[path]
	if !ok || !known {
		return ""
	}
	return before + "layers." + number + "." + other
}

// moduleInput finds the input of a module with a weight.
func (l *placer) moduleInput(m string) spot {
	if other := l.byModule[standIn(m, sameIn)]; other != nil {
		return spot{node: source(input(other))}
	}
	n := l.byModule[m]
	if n == nil || len(n.In) == 0 {
		return spot{why: noModule}
	}
	switch n.Op {
	case graph.Linear, graph.RMSNorm, graph.Experts, graph.RoPE:
	case graph.Add:
		if len(n.W) == 0 {
			return spot{why: fmt.Sprintf("%s is a sum, and reads two values", n.Name)}
		}
	default:
		return spot{why: fmt.Sprintf("the input of %s is not one value", n.Name)}
	}
	return spot{node: source(input(n))}
}
