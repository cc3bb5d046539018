package synth

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// shape is the sizes of a model of a family.
type shape struct {
	*family.Family
	family.Shape
}

// Archs lists the families that have shapes.
func Archs() (names []string) {
	for _, name := range registry.Names() {
		if len(Shapes(name)) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// Shapes lists the names of a family's shapes.
func Shapes(arch string) (names []string) {
	if f := registry.Find(arch); f != nil {
		for _, s := range f.Synth.Shapes {
			names = append(names, s.Name)
		}
	}
	return names
}

func find(arch, name string) (*shape, error) {
	names := Shapes(arch)
	if names == nil {
		return nil, fmt.Errorf("architecture %q, want %v", arch, Archs())
	}
	f, i := registry.Find(arch), slices.Index(names, name)
	if i < 0 {
		return nil, fmt.Errorf("shape %q of %s, want %v", name, arch, names)
	}
	return &shape{f, f.Synth.Shapes[i]}, nil
}

// full reports whether a layer sees all of the context.
func (s *shape) full(layer int) bool { return s.Every == 0 || layer%s.Every == s.Every-1 }

// ffOf is the width of a layer: layers that share keys are twice as wide.
func (s *shape) ffOf(layer int) int {
	if layer >= s.Layers-s.Shared {
		return 2 * s.FF
	}
	return s.FF
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
	l.bias(prefix, name, dims)
}

// bias adds that of a weight, where it has one.
func (l *list) bias(prefix, name string, dims []int) {
	if slices.Contains(l.s.Synth.Biased, name) {
		l.add(prefix+name+".bias", tensor.F32, dims[:len(dims)-1]...)
	}
}

func (l *list) ones(prefix string, n int, names ...string) {
	for _, name := range names {
		end := ".weight"
		if slices.Contains(l.s.BareGGUF, "."+name) {
			end = ""
		}
		l.add(prefix+name+end, tensor.F32, n)
		l.bias(prefix, name, []int{n, 1})
	}
}

// biases adds a bias to each of some tensors.
func (l *list) biases(prefix string, n int, names ...string) {
	for _, name := range names {
		l.add(prefix+name+".bias", tensor.F32, n)
	}
}

// tensors lists the tensors in the order of the file.
func (s *shape) tensors(m quantmix.Mix) ([]tensor.Tensor, error) {
	l := &list{s: s}
	l.weight("", "token_embd", s.Vocab, s.Hidden)
	if s.Synth.Behind {
		return l.behind(m)
	}
	l.ones("", s.Hidden, cmp.Or(s.Synth.Last, "output_norm"))
	if s.Synth.Head {
		l.weight("", "output", s.Vocab, s.Hidden)
	}
	if s.Synth.EmbedNorm {
		l.ones("", s.Hidden, "token_embd_norm")
	}
	for _, layer := range s.Beside { // as wide between them as four embeddings
		name := "dense_" + layer[:1]
		wide := []int{4 * s.Hidden, s.Hidden}
		if layer != s.Beside[0] {
			slices.Reverse(wide)
		}
		l.weight("", name, wide...)
	}
	if s.Synth.Learned {
		l.add("position_embd.weight", unmixed, s.Context, s.Hidden)
		l.biases("", s.Hidden, "output_norm")
	}
	if n := s.Shape.PerLayer; n > 0 {
		l.weight("", "per_layer_token_embd", s.Vocab, s.Layers*n)
		l.add("per_layer_model_proj.weight", tensor.BF16, s.Layers*n, s.Hidden)
		l.ones("", n, "per_layer_proj_norm")
	}
	if s.Synth.RopeFreqs && !(s.Synth.Apart && s.Experts > 0) { // such models turn unscaled
		l.add(frequencies, tensor.F32, max(s.HeadDim, s.FullDim)/2)
	}
	for i := range s.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		if l.mixer(p, i); !s.Synth.Alone {
			l.feedForward(p, i)
		}
	}
	return l.mixed(m)
}

// mixed is the tensors with the types that the mix chooses.
func (l *list) mixed(m quantmix.Mix) ([]tensor.Tensor, error) {
	types, err := m.Types(l.s.model(), l.all)
	for i := range types {
		l.all[i].DType = types[i]
	}
	return l.all, err
}

// mixer adds a layer's first part, or its only one.
func (l *list) mixer(p string, i int) {
	if (l.s.Synth.Norms == nil || l.s.Synth.EmbedNorm) && (i > 0 || !l.s.Synth.EmbedNorm) {
		l.ones(p, l.s.Hidden, "attn_norm")
	}
	switch l.s.is(i) {
	case scans:
		l.scan(p)
	case attends:
		l.attention(p, i)
	case both:
		l.attention(p, i)
		l.scan(p)
	case experts:
		l.plainExperts(p)
	}
}

func (l *list) attention(p string, i int) {
	s := l.s
	dim, kv := s.HeadDim, s.KVHeads
	if s.FullDim > 0 && s.full(i) {
		dim, kv = s.FullDim, s.FullKV
	}
	if s.Synth.Learned {
		l.weight(p, "attn_qkv", 3*s.Hidden, s.Hidden)
		l.weight(p, "attn_output", s.Hidden, s.Hidden)
		l.biases(p, 3*s.Hidden, "attn_qkv")
		l.biases(p, s.Hidden, "attn_norm", "attn_output")
		return
	}
	if s.Rank > 0 {
		l.latent(p)
		return
	}
	if s.Synth.Fused {
		l.weight(p, "attn_qkv", (s.Heads+2*kv)*dim, s.Hidden)
		l.weight(p, "attn_output", s.Hidden, s.Heads*dim)
		return
	}
	queries := s.Heads * dim
	if s.Synth.Delta { // and their gates
		queries *= 2
	}
	l.weight(p, "attn_q", queries, s.Hidden)
	if s.Synth.QKNorm {
		l.ones(p, dim, "attn_q_norm")
	}
	if s.Synth.WideNorms {
		l.ones(p, s.Heads*dim, "attn_q_norm")
		l.ones(p, kv*dim, "attn_k_norm")
	}
	if i < s.Layers-s.Shared {
		l.weight(p, "attn_k", kv*dim, s.Hidden)
		if s.Experts == 0 || s.Synth.Apart || !s.full(i) { // else the keys are the values, too
			l.weight(p, "attn_v", kv*dim, s.Hidden)
		}
		if s.Synth.QKNorm {
			l.ones(p, dim, "attn_k_norm")
		}
	}
	l.weight(p, "attn_output", s.Hidden, s.Heads*dim)
	if s.Synth.Sinks {
		l.ones(p, s.Heads, "attn_sinks")
	}
}

func (l *list) feedForward(p string, i int) {
	s, ff := l.s, l.s.ffOf(i)
	if s.Synth.Norms == nil {
		l.ones(p, s.Hidden, "ffn_norm")
	}
	l.ones(p, s.Hidden, s.Synth.Norms...)
	switch {
	case s.Synth.Learned:
		l.weight(p, "ffn_up", ff, s.Hidden)
		l.weight(p, "ffn_down", s.Hidden, ff)
		l.biases(p, ff, "ffn_up")
		l.biases(p, s.Hidden, "ffn_norm", "ffn_down")
		return
	case s.Synth.Apart && s.Experts > 0 && i >= s.Dense:
		l.apart(p, cmp.Or(s.ExpertFF, ff))
		return
	}
	switch {
	case s.Synth.Paired:
		l.weight(p, "ffn_up", 2*ff, s.Hidden)
	case s.Synth.Ungated:
		l.weight(p, "ffn_up", ff, s.Hidden)
	default:
		l.weight(p, "ffn_gate", ff, s.Hidden)
		l.weight(p, "ffn_up", ff, s.Hidden)
	}
	l.weight(p, "ffn_down", s.Hidden, ff)
	if s.Window > 0 && s.Synth.Norms == nil {
		l.ones(p, s.Hidden, "post_attention_norm", "post_ffw_norm")
	}
	if s.Synth.LayerScale {
		l.ones(p, 1, "layer_output_scale")
	}
	if n := s.Shape.PerLayer; n > 0 {
		l.weight(p, "inp_gate", n, s.Hidden)
		l.weight(p, "proj", s.Hidden, n)
		l.ones(p, s.Hidden, "post_norm")
	}
	if n := s.Experts; n > 0 && !s.Synth.Apart {
		l.ones(p, s.Hidden, "post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2")
		l.add(p+"ffn_gate_inp.scale", tensor.F32, s.Hidden)
		l.add(p+"ffn_gate_inp.weight", unmixed, n, s.Hidden)
		l.weight(p, "ffn_gate_up_exps", n, 2*s.ExpertFF, s.Hidden)
		l.weight(p, "ffn_down_exps", n, s.Hidden, s.ExpertFF)
		l.add(p+"ffn_down_exps.scale", tensor.F32, n)
	}
}

// apart adds a router, its experts, whose gates and ups are two tensors, and the MLP beside them.
func (l *list) apart(p string, width int) {
	s := l.s
	l.add(p+"ffn_gate_inp.weight", unmixed, s.Experts, s.Hidden)
	l.bias(p, "ffn_gate_inp", []int{s.Experts, s.Hidden})
	l.weight(p, "ffn_gate_exps", s.Experts, width, s.Hidden)
	l.weight(p, "ffn_up_exps", s.Experts, width, s.Hidden)
	l.weight(p, "ffn_down_exps", s.Experts, s.Hidden, width)
	l.bias(p, "exp_probs_b", []int{s.Experts, s.Hidden})
	if n := s.CommonFF; n > 0 {
		l.weight(p, "ffn_gate_shexp", n, s.Hidden)
		l.weight(p, "ffn_up_shexp", n, s.Hidden)
		l.weight(p, "ffn_down_shexp", s.Hidden, n)
	}
	if s.Synth.Scored {
		l.add(p+"ffn_gate_inp_shexp.weight", unmixed, 1, s.Hidden)
	}
}

// unmixed is the type of weights that no mix changes, routers and positions: random, so not
// that of the norms.
const unmixed = tensor.F16
