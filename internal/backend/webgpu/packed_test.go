package webgpu_test

import (
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// TestPackings: folders of each packing compute on the GPU what float64 does on the CPU.
func TestPackings(t *testing.T) {
	d := open(t)
	for i, p := range packed.All {
		if testing.Short() && i%4 > 0 {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			dir := t.TempDir()
			here := filepath.Join(dir, "packed")
			if err := packed.Folders(golden.Model(t, "tiny-llama"), here, filepath.Join(dir, "plain"), p, nil); err != nil {
				t.Fatal(err)
			}
			g, b := load(t, here), webgpu.New(d, webgpu.Options{F32KV: true})
			defer b.Close()
			if kl := lab.KL(lastRow(t, g, reference.Backend{}), lastRow(t, g, b)); !(kl <= 1e-9) {
				t.Errorf("KL %.3g", kl)
			}
		})
	}
}

// lastRow returns the logits behind a few tokens.
func lastRow(t *testing.T, g *graph.Graph, b backend.Backend) []float64 {
	t.Helper()
	e, err := engine.New(g, b, engine.Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	rows, err := s.Feed(t.Context(), []int32{5, 17, 300, 42, 8, 99, 123}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return wide(rows[0])
}
