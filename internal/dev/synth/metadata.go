package synth

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
)

// metadata is all keys but the tokenizer's.
func (s *shape) metadata(fileType uint32) []gguf.KeyValue {
	all := []gguf.KeyValue{
		{Key: "general.architecture", Value: s.Family.Name},
		{Key: "general.type", Value: "model"},
		{Key: "general.name", Value: "Random " + s.Shape.Name}, // llama.cpp wants Phi-3's tokens of a file with that in its name
		{Key: "general.file_type", Value: fileType},
		{Key: "general.quantization_version", Value: uint32(2)},
	}
	put := func(key string, value any) {
		all = append(all, gguf.KeyValue{Key: s.Family.Name + "." + key, Value: value})
	}
	n := func(key string, value int) { put(key, uint32(value)) }
	dim := s.HeadDim
	if s.FullDim > 0 {
		dim = s.FullDim
	}
	n("block_count", s.Layers)
	n("context_length", s.Context)
	n("embedding_length", s.Hidden)
	n("attention.head_count", s.Heads)
	if s.Synth.Learned {
		n("feed_forward_length", s.FF)
		put("attention.layer_norm_epsilon", s.Epsilon)
		s.keys(put)
		return all
	}
	if s.Heads > 0 {
		s.heads(put, dim)
		put("rope.freq_base", s.RopeBase)
	}
	if s.Lacks("rms_norm_eps") {
		put("attention.layer_norm_epsilon", s.Epsilon)
	} else {
		put("attention.layer_norm_rms_epsilon", s.Epsilon)
	}
	s.own(put, dim)
	if s.Window > 0 {
		n("attention.sliding_window", s.Window)
	}
	if s.Window > 0 && s.Rope.Sliding != nil {
		put("rope.freq_base_swa", float32(10000))
	}
	if s.Family.PerLayer {
		return append(all, s.byLayer()...)
	}
	put("feed_forward_length", s.widths())
	s.experts(n)
	if s.Window > 0 {
		n("attention.sliding_window_pattern", s.Every)
	}
	return all
}

// experts puts the keys of experts, whose width is another than the MLP's in some families.
func (s *shape) experts(n func(key string, value int)) {
	if s.Experts > 0 {
		n("expert_count", s.Experts)
		n("expert_used_count", s.Used)
	}
	if s.ExpertFF > 0 && s.Uses("moe_intermediate_size") {
		n("expert_feed_forward_length", s.ExpertFF)
	}
}

// own puts the keys that the family alone has; dim is the size of the heads of full layers.
func (s *shape) own(put func(key string, value any), dim int) {
	sizes := s.sizes()
	for _, k := range s.Keys {
		switch {
		case sizes[k.GGUF] != 0:
			put(k.GGUF, uint32(sizes[k.GGUF]))
		case k.Setting == "vocab_size":
			put("vocab_size", uint32(s.Vocab))
		case k.Kind == family.FullDim:
			put(k.GGUF, uint32(dim))
		case s.Synth.Numbers[k.Setting] != 0 && k.Kind == family.Count:
			put(k.GGUF, uint32(s.Synth.Numbers[k.Setting]))
		case k.Kind == family.Turning:
			put(k.GGUF, uint32(cmp.Or(s.Turning, dim)))
		case k.Scale != nil && s.Synth.Numbers[k.Setting] == 0:
			x := k.Scale.Absent(map[string]any{"head_dim": float64(s.HeadDim), "hidden_size": float64(s.Hidden), "num_hidden_layers": float64(s.Layers), "num_attention_heads": float64(s.Heads)})
			put(k.GGUF, float32(1/math.Sqrt(x)))
		case s.Synth.Numbers[k.Setting] != 0:
			put(k.GGUF, float32(s.Synth.Numbers[k.Setting]))
		}
	}
	s.keys(put)
}

// keys puts the keys of the family's Synth, and those of dense layers behind the pooling.
func (s *shape) keys(put func(key string, value any)) {
	for _, key := range slices.Sorted(maps.Keys(s.Synth.Keys)) {
		put(key, s.Synth.Keys[key])
	}
	in, out := s.Hidden, 4*s.Hidden
	for _, layer := range s.Beside {
		put("dense_"+layer[:1]+"_feat_in", uint32(in))
		put("dense_"+layer[:1]+"_feat_out", uint32(out))
		in, out = out, in
	}
}

// byLayer is the keys that differ between layers, and those of shared keys, inputs for
// each layer and experts.
func (s *shape) byLayer() (all []gguf.KeyValue) {
	put := func(key string, value any) {
		all = append(all, gguf.KeyValue{Key: s.Family.Name + "." + key, Value: value})
	}
	ff, kv, windowed := make([]int32, s.Layers), make([]int32, s.Layers), make([]bool, s.Layers)
	for i := range s.Layers {
		ff[i], kv[i], windowed[i] = int32(s.ffOf(i)), int32(s.KVHeads), !s.full(i)
		if s.full(i) {
			kv[i] = int32(s.FullKV)
		}
	}
	put("feed_forward_length", ff)
	put("attention.head_count_kv", kv)
	put("attention.sliding_window_pattern", windowed)
	put("final_logit_softcapping", float32(s.Expect.Softcap))
	put("attention.shared_kv_layers", uint32(s.Shared))
	put("embedding_length_per_layer_input", uint32(s.Shape.PerLayer))
	put("attention.key_length_swa", uint32(s.HeadDim))
	put("attention.value_length_swa", uint32(s.HeadDim))
	put("rope.dimension_count_swa", uint32(s.HeadDim))
	if s.Experts > 0 {
		put("expert_count", uint32(s.Experts))
		put("expert_used_count", uint32(s.Used))
		put("expert_feed_forward_length", uint32(s.ExpertFF))
	}
	return all
}
