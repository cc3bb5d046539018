package karat_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
)

// TestPackedLogits runs folders with packed weights: in float64 and in float32 they have the bits of folders with the
// values, whose products they share.
func TestPackedLogits(t *testing.T) {
	families := map[string][]string{
		"qwen3moe":  {"fp8-block", "ct-int4-actorder", "ct-nvfp4", "gptq", "awq", "mlx-4-bits", "mlx-mxfp4"},
		"deepseek2": {"fp8-block", "gptq-act-order"}, "phi3": {"fp8-small-block-bf16", "mlx-6-bits"}}
	for family, names := range families {
		for _, p := range packed.All {
			if !slices.Contains(names, p.Name) {
				continue
			}
			t.Run(family+"/"+p.Name, func(t *testing.T) {
				dir := t.TempDir()
				here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
				if err := packed.Folders(golden.Model(t, family), here, there, p, nil); err != nil {
					t.Fatal(err)
				}
				for _, o := range []karat.Options{{Precision: karat.Float64}, {Precision: karat.Float32, Threads: 2},
					{Threads: 1}} {
					if got, want := packedLogits(t, here, o), packedLogits(t, there, o); !slices.Equal(got, want) {
						t.Errorf("%v: the logits differ", o.Precision)
					}
				}
			})
		}
	}
}

func packedLogits(t *testing.T, path string, o karat.Options) (all []uint32) {
	t.Helper()
	m, err := karat.Load(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rows, err := m.Logits(t.Context(), []int{5, 17, 300, 42, 8, 99, 123})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, v := range row {
			all = append(all, math.Float32bits(v))
		}
	}
	return all
}
