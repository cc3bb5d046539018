package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// experts writes a folder whose layer has experts with the given numbers, each of so many rows.
func experts(t *testing.T, rows map[int]int) string {
	t.Helper()
	dir := t.TempDir()
	config := `{"model_type": "qwen3_moe", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1,
		"num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 3, "norm_topk_prob": true}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var all []tensor.Tensor
	for i, n := range rows {
		data := make([]byte, 2*4*n)
		for j := range data {
			data[j] = byte(16*i + j)
		}
		all = append(all, tensor.Tensor{Name: fmt.Sprintf("model.layers.0.mlp.experts.%d.up_proj.weight", i), DType: tensor.F16, Shape: tensor.Shape{n, 4}, Data: data})
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), all, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestJoined: the tensors of a folder's experts are one, of which nothing is copied, and files
// list them as they are.
func TestJoined(t *testing.T) {
	const name = "model.layers.0.mlp.experts.up_proj"
	c, err := Open(experts(t, map[int]int{0: 3, 1: 3}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !slices.Equal(c.Names(), []string{name}) || len(c.Tensors()) != 2 || c.Bytes() != 48 {
		t.Errorf("names %v, %d tensors, %d bytes", c.Names(), len(c.Tensors()), c.Bytes())
	}
	x, ok := c.Tensor("blk.0.ffn_up_exps", name)
	if !ok || !slices.Equal(x.Shape, tensor.Shape{2, 3, 4}) || x.Data != nil {
		t.Fatalf("%v: %+v", ok, x)
	}
	if m := x.Matrix(1); &m.Data[0] != &c.Tensors()[1].Data[0] && &m.Data[0] != &c.Tensors()[0].Data[0] {
		t.Error("a part was copied")
	}
	h := c.Habit("blk.0.ffn_up_exps")
	if got := h.PartName(name, 1); got != "model.layers.0.mlp.experts.1.up_proj" {
		t.Errorf("part 1 is %s", got)
	}
	for why, rows := range map[string]map[int]int{"part 1 is missing, of 3 or more": {0: 3, 2: 3}, "expected F16 [3 4]": {0: 3, 1: 2}, "part 0 is missing": {7: 3}} {
		if c, err := Open(experts(t, rows)); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), name) {
			t.Errorf("experts %v: %v, want %q", rows, err, why)
			if err == nil {
				c.Close()
			}
		}
	}
}
