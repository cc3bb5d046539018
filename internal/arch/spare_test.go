package arch_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/tensor"
)

// TestZeroBiases: old GPTQ folders have a bias of zeros beside each linear layer, also where the family has none or the
// settings deny it. Another bias is an error.
func TestZeroBiases(t *testing.T) {
	p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == "gptq" })]
	for family, spoiled := range map[string]string{"tiny-llama": "model.layers.0.mlp.down_proj.bias",
		"qwen3moe": "model.layers.0.mlp.experts.1.up_proj.bias", "deepseek2": "model.layers.0.mlp.down_proj.bias"} {
		for _, value := range []byte{0, 1} {
			dir := t.TempDir()
			here := filepath.Join(dir, "packed")
			edit := func(parts map[string]tensor.Tensor) {
				for _, name := range slices.Collect(maps.Keys(parts)) {
					module, ok := strings.CutSuffix(name, ".scales")
					if n := parts[name].Shape.Last(); ok {
						parts[module+".bias"] = tensor.Tensor{DType: tensor.F16, Shape: tensor.Shape{n}, Data: make([]byte, 2*n)}
					}
				}
				parts[spoiled].Data[5] = value
			}
			if err := packed.Folders(golden.Model(t, family), here, filepath.Join(dir, "plain"), p, edit); err != nil {
				t.Fatal(err)
			}
			m, err := checkpoint.Open(here)
			if err != nil {
				t.Fatal(err)
			}
			_, notes, err := arch.Load(m)
			if note := strings.Contains(strings.Join(notes, "\n"), " biases of zeros"); value == 0 && (err != nil || !note) {
				t.Errorf("%s: %v, notes %q", family, err, notes)
			}
			if want := strings.Replace(spoiled, "experts.1.", "experts.", 1); value == 1 &&
				(err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s: %v", family, err)
			}
			m.Close()
		}
	}
}
