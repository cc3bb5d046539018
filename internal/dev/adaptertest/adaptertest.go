// Package adaptertest makes adapters for tests.
package adaptertest

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// Write makes the folder dir a PEFT adapter of rank 1 for the attention of the model at path. The numbers of its
// matrices are v and -v by turns.
func Write(ctx context.Context, dir, path string, v float32) error {
	c, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer c.Close()
	g, _, err := model.Graph(ctx, c, 0)
	if err != nil {
		return err
	}
	var tensors []tensor.Tensor
	add := func(name string, shape ...int) {
		x := tensor.Tensor{Name: "base_model.model." + name, DType: tensor.F32, Shape: shape}
		for i := range x.Shape.Size() {
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(v*float32(1-2*(i%2))))
		}
		tensors = append(tensors, x)
	}
	for _, n := range g.Nodes {
		if n.Op == graph.Linear && strings.Contains(n.W[0].HF, "self_attn") {
			add(n.W[0].HF+".lora_A.weight", 1, n.W[0].Shape[1])
			add(n.W[0].HF+".lora_B.weight", n.W[0].Shape[0], 1)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"),
		[]byte(`{"peft_type": "LORA", "r": 1, "lora_alpha": 1}`), 0o666); err != nil {
		return err
	}
	return safetensors.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), tensors, nil)
}
