package lab

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/safetensors"
)

// TestChosen compares the positions chosen by indexers with PyTorch's, which the records have of the last positions
// of longer prompts, in float64 and in float32. (Keys in binary16 let nearly equal scores change places.)
func TestChosen(t *testing.T) {
	backends := map[string]backend.Backend{"f64": reference.Backend{},
		"f32": cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32})}
	for _, name := range []string{"deepseek32", "glmdsa"} {
		path := golden.Record(t, name).Tensors(t)
		gold := open(t, path)
		file, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for kind, b := range backends {
			t.Run(name+"/"+kind, func(t *testing.T) {
				r, err := NewRecorder(t.Context(), graphOf(t, golden.Model(t, name), false), b, 4096, 24)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				compared := 0
				for _, p := range gold.Prompts {
					q := &Prompt{Index: p.Index, Input: p.Input, Text: p.Text, IDs: p.IDs}
					if err := r.Record(t.Context(), q, true); err != nil {
						t.Fatal(err)
					}
					for _, want := range file.Tensors {
						var index, layer int
						if n, _ := fmt.Sscanf(want.Name, "%d.chosen.model.layers.%d.self_attn.indexer", &index, &layer); n < 2 || index != p.Index {
							continue
						}
						tap := rowsOf(q.Taps[fmt.Sprintf("model.layers.%d.self_attn.indexer.out", layer)])
						row := make([]float64, tap.width)
						for i := range want.Shape[0] {
							tap.read(row, tap.n-want.Shape[0]+i)
							var right []float64
							for j := range tap.width {
								right = append(right, float64(binary.LittleEndian.Uint32(want.Data[4*(i*tap.width+j):])))
							}
							if !slices.Equal(row, right) {
								t.Errorf("prompt %d, layer %d, row %d:\n got %v\nwant %v", p.Index, layer, i, row, right)
							}
							compared++
						}
					}
				}
				if compared < 32 {
					t.Errorf("%d rows compared", compared)
				}
			})
		}
	}
}
