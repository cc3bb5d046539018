package synth

// latent adds the tensors of latent attention, whose queries are made directly.
func (l *list) latent(p string) {
	s := l.s
	l.weight(p, "attn_q", s.Heads*(s.Plain+s.Turning), s.Hidden)
	l.weight(p, "attn_kv_a_mqa", s.Rank+s.Turning, s.Hidden)
	l.ones(p, s.Rank, "attn_kv_a_norm")
	l.weight(p, "attn_k_b", s.Heads, s.Rank, s.Plain)
	l.weight(p, "attn_v_b", s.Heads, s.Value, s.Rank)
	l.weight(p, "attn_output", s.Hidden, s.Heads*s.Value)
}

// heads is the keys of heads' sizes; dim is that of full layers, where there are no latents.
func (s *shape) heads(put func(key string, value any), dim int) {
	n := func(key string, value int) { put(key, uint32(value)) }
	if s.Rank == 0 {
		n("attention.key_length", dim)
		n("attention.value_length", dim)
		if !s.Family.PerLayer {
			put("attention.head_count_kv", s.keyHeads())
		}
		return
	}
	n("attention.head_count_kv", 1)
	n("attention.key_length", s.Rank+s.Turning)
	n("attention.value_length", s.Rank)
	n("attention.key_length_mla", s.Plain+s.Turning)
	n("attention.value_length_mla", s.Value)
	n("attention.kv_lora_rank", s.Rank)
	n("leading_dense_block_count", s.Dense)
}
