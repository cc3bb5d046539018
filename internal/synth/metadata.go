package synth

import "github.com/karat-run/karat/internal/gguf"

// metadata is all keys but the tokenizer's.
func (s *shape) metadata(fileType uint32) []gguf.KeyValue {
	all := []gguf.KeyValue{
		{Key: "general.architecture", Value: s.arch},
		{Key: "general.type", Value: "model"},
		{Key: "general.name", Value: "Random " + s.arch + " " + s.name},
		{Key: "general.file_type", Value: fileType},
		{Key: "general.quantization_version", Value: uint32(2)},
	}
	put := func(key string, value any) { all = append(all, gguf.KeyValue{Key: s.arch + "." + key, Value: value}) }
	n := func(key string, value int) { put(key, uint32(value)) }
	dim := s.headDim
	if s.fullDim > 0 {
		dim = s.fullDim
	}
	n("block_count", s.layers)
	n("context_length", s.context)
	n("embedding_length", s.hidden)
	n("attention.head_count", s.heads)
	n("attention.key_length", dim)
	n("attention.value_length", dim)
	put("rope.freq_base", s.ropeBase)
	put("attention.layer_norm_rms_epsilon", s.epsilon)
	if s.arch == "llama" {
		n("vocab_size", s.vocab)
	}
	if s.arch == "llama" || s.arch == "gemma4" {
		n("rope.dimension_count", dim)
	}
	if s.window > 0 {
		n("attention.sliding_window", s.window)
		put("rope.freq_base_swa", float32(10000))
	}
	if s.arch == "gemma4" {
		return append(all, s.gemma4()...)
	}
	n("feed_forward_length", s.ff)
	n("attention.head_count_kv", s.kvHeads)
	if s.window > 0 {
		n("attention.sliding_window_pattern", s.every)
	}
	return all
}

// gemma4 is the keys that differ between layers, and those that only Gemma 4 has.
func (s *shape) gemma4() (all []gguf.KeyValue) {
	put := func(key string, value any) { all = append(all, gguf.KeyValue{Key: "gemma4." + key, Value: value}) }
	ff, kv, windowed := make([]int32, s.layers), make([]int32, s.layers), make([]bool, s.layers)
	for i := range s.layers {
		ff[i], kv[i], windowed[i] = int32(s.ffOf(i)), int32(s.kvHeads), !s.full(i)
		if s.full(i) {
			kv[i] = int32(s.fullKV)
		}
	}
	put("feed_forward_length", ff)
	put("attention.head_count_kv", kv)
	put("attention.sliding_window_pattern", windowed)
	put("final_logit_softcapping", float32(30))
	put("attention.shared_kv_layers", uint32(s.shared))
	put("embedding_length_per_layer_input", uint32(s.perLayer))
	put("attention.key_length_swa", uint32(s.headDim))
	put("attention.value_length_swa", uint32(s.headDim))
	put("rope.dimension_count_swa", uint32(s.headDim))
	if s.experts > 0 {
		put("expert_count", uint32(s.experts))
		put("expert_used_count", uint32(s.used))
		put("expert_feed_forward_length", uint32(s.expertFF))
	}
	return all
}
