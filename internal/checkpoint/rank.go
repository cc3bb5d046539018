package checkpoint

import (
	"fmt"

	"github.com/karat-run/karat/internal/embed"
	"github.com/karat-run/karat/internal/tensor"
)

// rankHead are the tensors of a reranker's head: a layer with tanh, and the one that makes the score.
var rankHead = []struct{ gguf, hf string }{{"cls", "classifier.dense"}, {"cls.output", "classifier.out_proj"}}

// Ranking is what the files say of the way from the model's rows to one score. The error says what they lack.
func (c *Checkpoint) Ranking() (*embed.Head, error) {
	h := &embed.Head{Pooling: embed.CLS}
	for i, n := range rankHead {
		name := c.Name(n.gguf, n.hf)
		t, ok := c.tensors[name]
		if !ok && i == 0 {
			continue // llama.cpp's converter leaves BERT's out
		}
		if !ok {
			return nil, fmt.Errorf("checkpoint: %s: it is no reranker: there is no tensor %s, which makes a score of the first row", c.Path, name)
		}
		var bias *tensor.Tensor
		if b, ok := c.tensors[name+".bias"]; ok {
			bias = &b
		}
		d, err := denseOf(t, bias)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: %w", c.Path, err)
		}
		d.Tanh = i == 0
		h.Dense = append(h.Dense, d)
	}
	if d := h.Dense[len(h.Dense)-1]; d.Out != 1 {
		return nil, fmt.Errorf("checkpoint: %s: it is no reranker: its head gives %d scores, by class, and not one", c.Path, d.Out)
	}
	return h, nil
}
