package lab

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// Nodes of a layer by llama.cpp's names of the values. An entry that ends in
// < is what that node reads.
var llamaCppLayer = map[string]string{
	"attn_norm":          "attn_norm",
	"Qcur_normed":        "attn_q_norm",
	"Kcur_normed":        "attn_k_norm",
	"Vcur_normed":        "attn_v_norm",
	"Qcur_pos":           "attn_q_rope",
	"Kcur_pos":           "attn_k_rope",
	"Qcur_rope":          "attn_q_rope",
	"Kcur_rope":          "attn_k_rope",
	"kqv_out":            "attn_output<",
	"kqv":                "attn_output<", // heads first
	"attn_post_norm":     "post_attention_norm",
	"ffn_inp":            "ffn_norm<",
	"sa_out":             "ffn_norm<",
	"ffn_norm":           "ffn_norm",
	"ffn_norm_1":         "ffn_norm",
	"ffn_gate":           "ffn_gate",
	"ffn_up":             "ffn_up",
	"ffn_gate_par":       "ffn_down<",
	"ffn_swiglu":         "ffn_down<",
	"ffn_geglu":          "ffn_down<",
	"ffn_down":           "ffn_down",
	"ffn_out":            "ffn_down",
	"ffn_mlp":            "post_ffw_norm_1",
	"ffn_norm_2":         "pre_ffw_norm_2",
	"ffn_moe_logits":     "ffn_gate_inp",
	"ffn_moe_out":        "ffn_experts",
	"ffn_moe":            "post_ffw_norm_2",
	"ffn_moe_combined":   "post_ffw_norm<",
	"ffn_post_norm":      "post_ffw_norm",
	"pe_in":              "inp_gate<",
	"per_layer_embd_out": "post_norm",
	"out_scaled":         "out",
	"l_out":              "out",
}

// Nodes outside the layers.
var llamaCppModel = map[string]string{
	"inp_scaled":             "token_embd",
	"inp_per_layer_selected": "per_layer_token_embd",
	"per_layer_proj":         "per_layer_proj_norm",
	"h_nextn":                "output_norm",
	"result_norm":            "output_norm",
}

// Why some of llama.cpp's values have no place, by the beginning of the name.
var llamaCppInside = []struct{ prefix, why string }{
	{"norm", "a norm before its weight, which is inside the graph's norms"},
	{"kq", "inside the graph's attention"},
	{"ffn_moe_", "inside the graph's routing or experts"},
	{"ffn_gelu", "the activation alone, inside the graph's product with the gate"},
	{"ffn_silu", "the activation alone, inside the graph's product with the gate"},
}

// llamaCpp finds a value by the name that llama.cpp's graph callback gives it,
// NAME-LAYER or NAME, with or without #K.OP: the K-th use of the name, by that operation.
func (l *placer) llamaCpp(name string) spot {
	base, op, _ := strings.Cut(name, "#")
	_, op, _ = strings.Cut(op, ".")
	layer := -1
	if i := strings.LastIndexByte(base, '-'); i >= 0 {
		if n, err := strconv.Atoi(base[i+1:]); err == nil {
			base, layer = base[:i], n
		}
	}
	if layer < 0 {
		return l.llamaCppOutside(base, op)
	}
	var s spot
	switch base {
	case "Qcur", "Kcur", "Vcur":
		s = l.llamaCppHeads(base, op, layer, name)
	case "attn_out":
		at := "attn_output"
		if l.node(layer, "post_attention_norm") != nil && op != "MUL_MAT" {
			at = "ffn_norm<" // behind the residual sum
		}
		s.node = l.node(layer, at)
	default:
		s.node, s.headsFirst = l.node(layer, llamaCppLayer[base]), base == "kqv"
	}
	if s.node == nil {
		if s.why = llamaCppWhy(base); l.isBeyond(layer) {
			s.why = noLayer
		}
	}
	return s
}

func llamaCppWhy(base string) string {
	for _, x := range llamaCppInside {
		if strings.HasPrefix(base, x.prefix) {
			return x.why
		}
	}
	return noValue
}

// node returns a layer's node by the node's name in the layer; "" means no node.
func (l *placer) node(layer int, name string) *graph.Node {
	name, reads := strings.CutSuffix(name, "<")
	n := l.byName[fmt.Sprintf("blk.%d.%s", layer, name)]
	if n == nil || !reads {
		return n
	}
	return source(n.In[0])
}

func (l *placer) llamaCppOutside(base, op string) spot {
	embedding := l.byName["token_embd"]
	switch result := l.g.Result(); base {
	case "embd", "inp_embd":
		if embedding == nil {
			break
		}
		if a, ok := embedding.Attr.(graph.EmbedAttr); ok && a.Scale == 1 {
			return spot{node: embedding}
		}
		return spot{why: "the embedding before its scale, which is inside the graph's embedding"}
	case "result_output":
		if result.Op == graph.Softcap && op == "MUL_MAT" {
			result = source(result.In[0])
		}
		return spot{node: result}
	case "inp_per_layer": // what the layers' slices are of
		for _, n := range l.g.Nodes {
			if n.Op == graph.View && n.Layer == 0 && n.In[0].Layer < 0 {
				return spot{node: n.In[0]}
			}
		}
	}
	if n := l.byName[llamaCppModel[base]]; n != nil {
		return spot{node: n}
	}
	return spot{why: llamaCppWhy(base)}
}

// llamaCppHeads finds Qcur, Kcur and Vcur: names of the projection, of the sum with its bias and of the rotated
// heads, and in graphs with a reshaping of the reshaped heads.
func (l *placer) llamaCppHeads(base, op string, layer int, name string) spot {
	role := strings.ToLower(base[:1])
	linear := l.node(layer, "attn_"+role)
	if linear == nil && role == "v" { // keys and values are one projection
		linear = l.node(layer, "attn_k")
	}
	rope := l.node(layer, "attn_"+role+"_rope")
	s := spot{node: linear}
	switch {
	case op == "ROPE":
		s.node = rope
	case op == "" && rope != nil && len(l.p.Taps[name].Shape) == 3 &&
		l.p.Taps[fmt.Sprintf("%s_pos-%d", base, layer)] == nil:
		s.node = rope // the last use of the name
		l.out.Inferred = append(l.out.Inferred, fmt.Sprintf("%s: of the values of that name, the one after "+
			"the rotation", name))
	case op != "MUL_MAT" && linear != nil:
		if sum := l.byName[linear.Name+".bias"]; sum != nil {
			s.node = sum
		}
	}
	return s
}
