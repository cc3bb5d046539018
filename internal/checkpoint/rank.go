package checkpoint

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/embed"
	"github.com/karat-run/karat/internal/tensor"
)

// rankHead lists the tensors of a reranker's head: a layer with tanh, and the layer making the score.
var rankHead = []struct{ gguf, hf string }{{"cls", "classifier.dense"}, {"cls.output", "classifier.out_proj"}}

// ranks reports whether the files have a reranker's whole head.
func (c *Checkpoint) ranks() bool {
	return !slices.ContainsFunc(rankHead, func(n struct{ gguf, hf string }) bool {
		_, ok := c.set.ByName[c.Name(n.gguf, n.hf)]
		return !ok
	})
}

// rankHF says how many scores the head makes. The library assumes two.
func (c *Checkpoint) rankHF(config map[string]any) {
	n, _ := settings.Rows(&c.set, rankHead[1].gguf).(float64)
	labels := map[string]string{}
	for i := range int(n) {
		labels[strconv.Itoa(i)] = fmt.Sprintf("LABEL_%d", i)
	}
	if n > 0 {
		config["id2label"] = labels
	}
}

// Ranking returns the files' instructions for making a score of the model's rows. The error names the missing part.
func (c *Checkpoint) Ranking() (*embed.Head, error) {
	h := &embed.Head{Pooling: embed.CLS}
	for i, n := range rankHead {
		name := c.Name(n.gguf, n.hf)
		t, ok := c.set.ByName[name]
		if !ok && i == 0 {
			continue // llama.cpp's converter leaves BERT's out
		}
		if !ok {
			return nil, fmt.Errorf("%s: it is no reranker: there is no tensor %s, which makes a score of the first row",
				c.Path, name)
		}
		var bias *tensor.Tensor
		if b, ok := c.set.ByName[name+".bias"]; ok {
			bias = &b
		}
		d, err := denseOf(t, bias)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Path, err)
		}
		d.Tanh = i == 0
		h.Dense = append(h.Dense, d)
	}
	if d := h.Dense[len(h.Dense)-1]; d.Out != 1 {
		return nil, fmt.Errorf("%s: it is no reranker: its head gives %d scores, by class, and not one", c.Path, d.Out)
	}
	return h, nil
}
