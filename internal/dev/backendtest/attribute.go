package backendtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// gates are a GLU's limits.
func gates() (list []operation) {
	for i, a := range []graph.ActAttr{{Limit: 0.7}, {Alpha: 1.702}, {Plus: 1}, {Limit: 0.7, Alpha: 1.702, Plus: 1},
		{Act: graph.GELUErf, Limit: 0.5}} {
		list = append(list, operation{name: fmt.Sprintf("glu/limits %d", i), bound: float,
			build: func(k *sketch) *graph.Node {
				return k.GLUWith(a, k.input(130), k.input(130))
			}})
	}
	return list
}

// routings are the rules of a Route.
func routings() (list []operation) {
	for i, a := range []graph.RouteAttr{
		{}, {Factor: 2.5}, {Weigh: graph.SoftmaxAll}, {Weigh: graph.SoftmaxAll, Normalize: true},
		{Weigh: graph.SigmoidEach},
		{Weigh: graph.SigmoidEach, Normalize: true, Factor: 1.5}, {Groups: 4, Kept: 2},
		{Weigh: graph.SigmoidEach, Normalize: true, Groups: 4, Kept: 2, Best: 2},
		{Weigh: graph.SigmoidEach, Normalize: true, Eps: 0.25},
		{Weigh: graph.SoftmaxAll, Groups: 2, Kept: 1, Best: 1, Factor: 16},
		{Weigh: graph.SparseMixer, Near: 0.5}, {Weigh: graph.SparseMixer},
	} {
		for _, with := range []string{"", "scale", "bias", "scale and bias"} {
			list = append(list, operation{name: fmt.Sprintf("route/rules %d %s", i, with), bound: float,
				build: func(k *sketch) *graph.Node {
					var scale, bias *graph.Weight
					if strings.Contains(with, "scale") {
						scale = k.weight(tensor.F32, 16)
					}
					if strings.Contains(with, "bias") {
						bias = k.weight(tensor.F32, 16)
					}
					return k.RouteWith(k.input(16), 4, a, scale, bias)
				}})
		}
	}
	return list
}

// expertForms are experts of all forms.
func expertForms() (list []operation) {
	limited := graph.ActAttr{Limit: 7, Alpha: 1.702, Plus: 1}
	for _, d := range []tensor.DType{tensor.F32, tensor.Q8_0, tensor.MXFP4} {
		for _, a := range []graph.ExpertsAttr{
			{Form: graph.Apart}, {Form: graph.Ungated, ActAttr: graph.ActAttr{Act: graph.ReLUSquared}},
			{Form: graph.Interleaved}, {OnInput: true},
			{Form: graph.Apart, Biased: true, ActAttr: limited},
			{Form: graph.Interleaved, Biased: true, ActAttr: limited}, {Biased: true, OnInput: true},
			{Form: graph.Ungated, Biased: true, ActAttr: graph.ActAttr{Act: graph.GELUErf}},
			{Form: graph.Apart, OnInput: true, ActAttr: graph.ActAttr{Act: graph.GELUTanh}},
		} {
			name := fmt.Sprintf("experts/%v/%v biased %v on input %v limit %v", d, a.Form, a.Biased, a.OnInput, a.Limit)
			list = append(list, operation{name: name, bound: products(d), heavy: d.Quantized(),
				build: func(k *sketch) *graph.Node {
					in, ff := max(19, 2*d.BlockSize()), max(23, d.BlockSize())
					rows := []int{2 * ff}
					switch a.Form {
					case graph.Apart:
						rows = []int{ff, ff}
					case graph.Ungated:
						rows = []int{ff}
					}
					var matrices, biases []*graph.Weight
					for _, n := range rows {
						matrices = append(matrices, k.weight(d, 3, n, in))
					}
					matrices = append(matrices, k.weight(d, 3, in, ff))
					if a.Biased {
						for _, n := range append(slices.Clone(rows), in) {
							biases = append(biases, k.weight(tensor.BF16, 3, n))
						}
					}
					return k.ExpertsWith(a, matrices, biases, k.input(in), k.Route(k.input(3), nil, 2), 3, ff)
				}})
		}
	}
	return list
}

// attends are attention's attributes. In steps of one row, of sequences that have others, those
// that look ahead are another thing, and refused (see ahead).
func attends() (list []operation) {
	for i, x := range []struct {
		heads int
		kv    graph.KV
		graph.AttentionAttr
		sinks bool
	}{
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 16}, sinks: true},
		{heads: 3, kv: graph.KV{Heads: 3, Dim: 8, Window: 65}, sinks: true, AttentionAttr: graph.AttentionAttr{Cap: 2}},
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 30}, AttentionAttr: graph.AttentionAttr{Cap: 5}},
		{heads: 4, kv: graph.KV{Heads: 1, Dim: 8, Window: 5, Chunked: true}},
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 16, Window: 70, Chunked: true}, sinks: true},
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 24, ValueDim: 16}},
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 16, ValueDim: 40}, sinks: true},
		{heads: 5, kv: graph.KV{Heads: 1, Dim: 72, ValueDim: 64, Latent: true},
			AttentionAttr: graph.AttentionAttr{Cap: 3}},
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 20, ValueDim: 12, Latent: true, Window: 9}},
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 16}, AttentionAttr: graph.AttentionAttr{Bidirectional: true}},
		{heads: 4, kv: graph.KV{Heads: 2, Dim: 16, Window: 33}, AttentionAttr: graph.AttentionAttr{Bidirectional: true},
			sinks: true},
	} {
		name := fmt.Sprintf("attention/attributes %d: %v cap %v sinks %v bidirectional %v", i, &x.kv, x.Cap, x.sinks,
			x.Bidirectional)
		list = append(list, operation{name: name, bound: attention, heavy: true, entire: x.Bidirectional,
			build: func(k *sketch) *graph.Node {
				kv := x.kv
				var value *graph.Node
				if !kv.Latent {
					value = k.input(kv.Heads, kv.Values())
				}
				k.StoreKV(&kv, k.input(kv.Heads, kv.Dim), value)
				a := x.AttentionAttr
				a.KV, a.Scale = &kv, 0.4
				var sinks *graph.Weight
				if x.sinks {
					sinks = k.weight(tensor.F32, x.heads)
				}
				return k.AttentionWith(k.input(x.heads, kv.Dim), a, sinks)
			}})
	}
	return list
}

// choices are attention to positions chosen by an indexer, whose numbers are whole: scores are exact, and many are
// equal.
func choices() (list []operation) {
	for i, x := range []struct {
		heads, dim, k int
		kv            graph.KV
	}{
		{heads: 1, dim: 2, k: 1, kv: graph.KV{Heads: 1, Dim: 8, ValueDim: 6, Latent: true}},
		{heads: 4, dim: 8, k: 5, kv: graph.KV{Heads: 2, Dim: 16}},
		{heads: 3, dim: 30, k: 70, kv: graph.KV{Heads: 1, Dim: 72, ValueDim: 64, Latent: true}},
		{heads: 9, dim: 32, k: 300, kv: graph.KV{Heads: 1, Dim: 24, ValueDim: 16, Latent: true}},
	} {
		name := fmt.Sprintf("choose/%d: %d by %dx%d", i, x.k, x.heads, x.dim)
		list = append(list, operation{name: name, bound: attention, heavy: x.k < 300,
			build: func(k *sketch) *graph.Node {
				kv, index := x.kv, &graph.KV{Heads: 1, Dim: x.dim, Latent: true, Index: true}
				k.StoreKV(index, k.whole(1, x.dim), nil)
				chosen := k.Choose(k.whole(x.heads, x.dim), k.whole(x.heads, 1), index, x.k)
				var value *graph.Node
				if !kv.Latent {
					value = k.input(kv.Heads, kv.Values())
				}
				k.StoreKV(&kv, k.input(kv.Heads, kv.Dim), value)
				return k.Over(k.Attention(k.input(4, kv.Dim), &kv, 0.4), chosen)
			}})
	}
	return list
}

// whole is an activation of whole numbers.
func (k *sketch) whole(heads, dim int) *graph.Node {
	rows := make([][]float32, Vocab)
	for i := range rows {
		for range heads * dim {
			rows[i] = append(rows[i], float32(k.r.IntN(5)-2))
		}
	}
	return k.Heads(k.rows(rows), dim)
}

// decoder runs the model of Attributes in common steps of three sequences, as sequences does.
func (s *suite) decoder(t *testing.T) {
	g := Attributes(t, 8) // a seed at which rounding chooses no other expert
	lengths := []int{90, 30, 20}
	if s.tol.Short {
		lengths = []int{30, 12, 7}
	}
	s.together(t, g, lengths, 1, 7, 310)
}

// ahead: what sees later positions takes all rows of a sequence in one step, and gives an
// error for others.
func (s *suite) ahead(t *testing.T) {
	k := newSketch(5)
	kv := &graph.KV{Heads: 1, Dim: 8}
	k.StoreKV(kv, k.input(1, 8), k.input(1, 8))
	g := k.end(t, k.AttentionWith(k.input(2, 8), graph.AttentionAttr{KV: kv, Scale: 1, Bidirectional: true}, nil))
	m := start(t, s.open(), g, 16, nil)
	m.forward(part{0, []int32{1, 2, 3}}, part{1, []int32{4}})
	if _, err := m.plan.Run(t.Context(), m.step(part{0, []int32{5}}), nil); err == nil ||
		!strings.Contains(err.Error(), "in one step") {
		t.Errorf("a row behind others: %v", err)
	}
}
