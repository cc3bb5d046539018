package convert_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/quant"
)

// TestTurned takes quantized matrices, whose blocks lie the other way, to a folder that has
// them transposed, and quantized experts to one that has them apart: values as in the file.
func TestTurned(t *testing.T) {
	for name, weights := range map[string][][2]string{
		"gpt2": {{"blk.0.attn_qkv", "transformer.h.0.attn.c_attn"}, {"blk.2.ffn_down", "transformer.h.2.mlp.c_proj"}},
		"llama4": {{"blk.1.ffn_gate_exps", "model.layers.1.feed_forward.experts.gate_proj"}, {"blk.1.ffn_up_exps", "model.layers.1.feed_forward.experts.up_proj"},
			{"blk.3.ffn_down_exps", "model.layers.3.feed_forward.experts.down_proj"}},
		"qwen3moe": {{"blk.1.ffn_up_exps", "model.layers.1.mlp.experts.up_proj"}, {"blk.3.ffn_down_exps", "model.layers.3.mlp.experts.down_proj"}},
	} {
		dir := t.TempDir()
		file, folder := filepath.Join(dir, name+".gguf"), filepath.Join(dir, name)
		run(t, golden.Model(t, name), file, convert.Options{Type: "Q8_0"})
		run(t, file, folder, convert.Options{Type: "F32"})
		for _, w := range weights {
			a, b := values(t, file, w), values(t, folder, w)
			if len(a) == 0 || !slices.Equal(a, b) {
				t.Errorf("%s: %s: %d values, and other ones in the folder", name, w[0], len(a))
			}
		}
	}
}

// values are those of a tensor as the model multiplies it.
func values(t *testing.T, path string, name [2]string) []float32 {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, ok := c.Tensor(name[0], name[1])
	if !ok {
		t.Fatalf("%s: no %s", path, name[0])
	}
	if x, err = x.Whole(); err != nil {
		t.Fatal(err)
	}
	v := make([]float32, x.Shape.Size())
	if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
		t.Fatal(err)
	}
	return v
}
