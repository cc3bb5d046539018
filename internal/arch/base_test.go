package arch_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// TestBase loads a file of all but the head, whose names lack the module's, with buffers that
// are no weights: as GPT-2 was published.
func TestBase(t *testing.T) {
	folder := golden.Model(t, "gpt2")
	path := filepath.Join(folder, "model.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []tensor.Tensor
	for _, x := range f.Tensors {
		x.Name, x.Data = strings.TrimPrefix(x.Name, "transformer."), bytes.Clone(x.Data)
		all = append(all, x)
	}
	f.Close()
	all = append(all, tensor.Tensor{Name: "h.0.attn.bias", DType: tensor.F32, Shape: tensor.Shape{1, 1, 2, 2}, Data: make([]byte, 16)})
	if err := safetensors.WriteFile(path, all, nil); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if g, notes, err := arch.Load(c); err != nil || len(notes) > 0 || len(g.Nodes) < 40 {
		t.Errorf("notes %v, %v", notes, err)
	}
}
