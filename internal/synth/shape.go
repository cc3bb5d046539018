package synth

import (
	"fmt"
	"maps"
	"slices"

	"github.com/karat-run/karat/internal/mix"
	"github.com/karat-run/karat/internal/tensor"
)

// shape is the sizes of a model. Of Gemma 4 some differ between layers that see
// all and those that see a window.
type shape struct {
	arch, name                     string
	hidden, layers, heads, kvHeads int
	headDim, ff, vocab, context    int
	window, every                  int // every so many layers, one sees all
	fullDim, fullKV                int // of those layers
	shared, perLayer               int // layers without keys of their own; inputs for each layer
	experts, used, expertFF        int
	ropeBase, epsilon              float32
}

// The published configurations, and small ones. Gemma 4's moe has the widths of
// 26B-A4B with 6 of its 30 layers and 32 of its 128 experts. Llama's 8b has one matrix for
// embeddings and head, as its 1b has; the published one has two.
var shapes = []shape{
	{arch: "llama", name: "1b", hidden: 2048, layers: 16, heads: 32, kvHeads: 8, headDim: 64, ff: 8192, vocab: 128256, context: 131072, ropeBase: 500000, epsilon: 1e-5},
	{arch: "llama", name: "8b", hidden: 4096, layers: 32, heads: 32, kvHeads: 8, headDim: 128, ff: 14336, vocab: 128256, context: 131072, ropeBase: 500000, epsilon: 1e-5},
	{arch: "llama", name: "tiny", hidden: 256, layers: 4, heads: 8, kvHeads: 2, headDim: 32, ff: 512, vocab: 2048, context: 4096, ropeBase: 500000, epsilon: 1e-5},
	{arch: "qwen3", name: "0.6b", hidden: 1024, layers: 28, heads: 16, kvHeads: 8, headDim: 128, ff: 3072, vocab: 151936, context: 40960, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "qwen3", name: "1.7b", hidden: 2048, layers: 28, heads: 16, kvHeads: 8, headDim: 128, ff: 6144, vocab: 151936, context: 40960, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "qwen3", name: "tiny", hidden: 256, layers: 4, heads: 4, kvHeads: 2, headDim: 96, ff: 512, vocab: 2048, context: 4096, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "gemma3", name: "1b", hidden: 1152, layers: 26, heads: 4, kvHeads: 1, headDim: 256, ff: 6912, vocab: 262144, context: 32768, window: 512, every: 6, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "gemma3", name: "tiny", hidden: 160, layers: 6, heads: 4, kvHeads: 1, headDim: 64, ff: 416, vocab: 2048, context: 4096, window: 64, every: 3, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "gemma4", name: "e2b", hidden: 1536, layers: 35, heads: 8, kvHeads: 1, headDim: 256, ff: 6144, vocab: 262144, context: 131072, window: 512, every: 5, fullDim: 512, fullKV: 1, shared: 20, perLayer: 256, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "gemma4", name: "moe", hidden: 2816, layers: 6, heads: 16, kvHeads: 8, headDim: 256, ff: 2112, vocab: 262144, context: 131072, window: 1024, every: 6, fullDim: 512, fullKV: 2, experts: 32, used: 8, expertFF: 704, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "gemma4", name: "tiny", hidden: 256, layers: 8, heads: 4, kvHeads: 1, headDim: 32, ff: 256, vocab: 2048, context: 4096, window: 64, every: 4, fullDim: 64, fullKV: 1, shared: 4, perLayer: 32, ropeBase: 1e6, epsilon: 1e-6},
	{arch: "gemma4", name: "tiny-moe", hidden: 256, layers: 4, heads: 4, kvHeads: 2, headDim: 32, ff: 256, vocab: 2048, context: 4096, window: 64, every: 2, fullDim: 64, fullKV: 1, experts: 4, used: 2, expertFF: 128, ropeBase: 1e6, epsilon: 1e-6},
}

// Archs lists the architectures.
func Archs() []string {
	all := map[string]bool{}
	for _, s := range shapes {
		all[s.arch] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// Shapes lists the names of an architecture's shapes.
func Shapes(arch string) (names []string) {
	for _, s := range shapes {
		if s.arch == arch {
			names = append(names, s.name)
		}
	}
	return names
}

func find(arch, name string) (*shape, error) {
	for _, s := range shapes {
		if s.arch == arch && s.name == name {
			return &s, nil
		}
	}
	if names := Shapes(arch); names != nil {
		return nil, fmt.Errorf("synth: shape %q of %s, possible are %v", name, arch, names)
	}
	return nil, fmt.Errorf("synth: architecture %q, possible are %v", arch, Archs())
}

// full reports whether a layer sees all of the context.
func (s *shape) full(layer int) bool { return s.every == 0 || layer%s.every == s.every-1 }

// ffOf is the width of a layer: Gemma 4's layers that share keys are twice as wide.
func (s *shape) ffOf(layer int) int {
	if layer >= s.layers-s.shared {
		return 2 * s.ff
	}
	return s.ff
}

// list gathers the tensors.
type list struct {
	s   *shape
	all []tensor.Tensor
}

func (l *list) add(name string, d tensor.DType, dims ...int) {
	l.all = append(l.all, tensor.Tensor{Name: name, DType: d, Shape: dims})
}

// weight adds a matrix, or one for each expert, whose type the mix chooses.
func (l *list) weight(prefix, name string, dims ...int) {
	l.add(prefix+name+".weight", tensor.BF16, dims...)
}

func (l *list) ones(prefix string, n int, names ...string) {
	for _, name := range names {
		l.add(prefix+name+".weight", tensor.F32, n)
	}
}

// tensors lists the tensors in the order of the file.
func (s *shape) tensors(m mix.Mix) ([]tensor.Tensor, error) {
	l := &list{s: s}
	l.weight("", "token_embd", s.vocab, s.hidden)
	l.ones("", s.hidden, "output_norm")
	if n := s.perLayer; n > 0 {
		l.weight("", "per_layer_token_embd", s.vocab, s.layers*n)
		l.add("per_layer_model_proj.weight", tensor.BF16, s.layers*n, s.hidden)
		l.ones("", n, "per_layer_proj_norm")
	}
	switch s.arch {
	case "llama":
		l.add(frequencies, tensor.F32, s.headDim/2)
	case "gemma4":
		l.add(frequencies, tensor.F32, s.fullDim/2)
	}
	for i := range s.layers {
		p := fmt.Sprintf("blk.%d.", i)
		l.attention(p, i)
		l.feedForward(p, i)
	}
	types, err := m.Types(s.model(), l.all)
	for i := range types {
		l.all[i].DType = types[i]
	}
	return l.all, err
}

func (l *list) attention(p string, i int) {
	s := l.s
	dim, kv := s.headDim, s.kvHeads
	if s.fullDim > 0 && s.full(i) {
		dim, kv = s.fullDim, s.fullKV
	}
	l.ones(p, s.hidden, "attn_norm")
	l.weight(p, "attn_q", s.heads*dim, s.hidden)
	if s.arch != "llama" {
		l.ones(p, dim, "attn_q_norm")
	}
	if i < s.layers-s.shared {
		l.weight(p, "attn_k", kv*dim, s.hidden)
		if s.experts == 0 || !s.full(i) { // else the keys are the values, too
			l.weight(p, "attn_v", kv*dim, s.hidden)
		}
		if s.arch != "llama" {
			l.ones(p, dim, "attn_k_norm")
		}
	}
	l.weight(p, "attn_output", s.hidden, s.heads*dim)
}

func (l *list) feedForward(p string, i int) {
	s, ff := l.s, l.s.ffOf(i)
	l.ones(p, s.hidden, "ffn_norm")
	l.weight(p, "ffn_gate", ff, s.hidden)
	l.weight(p, "ffn_up", ff, s.hidden)
	l.weight(p, "ffn_down", s.hidden, ff)
	if s.window > 0 {
		l.ones(p, s.hidden, "post_attention_norm", "post_ffw_norm")
	}
	if s.arch == "gemma4" {
		l.ones(p, 1, "layer_output_scale")
	}
	if n := s.perLayer; n > 0 {
		l.weight(p, "inp_gate", n, s.hidden)
		l.weight(p, "proj", s.hidden, n)
		l.ones(p, s.hidden, "post_norm")
	}
	if n := s.experts; n > 0 {
		l.ones(p, s.hidden, "post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2")
		l.add(p+"ffn_gate_inp.scale", tensor.F32, s.hidden)
		l.add(p+"ffn_gate_inp.weight", router, n, s.hidden)
		l.weight(p, "ffn_gate_up_exps", n, 2*s.expertFF, s.hidden)
		l.weight(p, "ffn_down_exps", n, s.hidden, s.expertFF)
		l.add(p+"ffn_down_exps.scale", tensor.F32, n)
	}
}

// router is the type of the experts' router: random, so not that of the norms.
const router = tensor.F16
