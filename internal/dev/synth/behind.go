package synth

import (
	"fmt"

	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// behind is tensors with norms behind the embeddings and behind each part, and biases everywhere,
// after the embedding of tokens.
func (l *list) behind(m quantmix.Mix) ([]tensor.Tensor, error) {
	s := l.s
	norm := func(p, name string) {
		l.ones(p, s.Hidden, name)
		l.biases(p, s.Hidden, name)
	}
	linear := func(p, name string, rows, columns int) {
		l.weight(p, name, rows, columns)
		l.biases(p, rows, name)
	}
	l.add("position_embd.weight", unmixed, s.Context, s.Hidden)
	l.add("token_types.weight", tensor.F32, 2, s.Hidden) // llama.cpp adds no other
	norm("", "token_embd_norm")
	for i := range s.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			linear(p, name, s.Hidden, s.Hidden)
		}
		norm(p, "attn_output_norm")
		linear(p, "ffn_up", s.FF, s.Hidden)
		linear(p, "ffn_down", s.Hidden, s.FF)
		norm(p, "layer_output_norm")
	}
	return l.mixed(m)
}
