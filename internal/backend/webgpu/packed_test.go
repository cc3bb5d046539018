package webgpu_test

import (
	"path/filepath"
	"slices"
	"strings"
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

// TestPackings: folders of each packing compute on the GPU what float64 does on the CPU, with the bits of their values in
// F32 unless columns lie in another order, and lie there as codes.
func TestPackings(t *testing.T) {
	d := open(t)
	floats := []string{"fp8-small-block-bf16", "mlx-5-bits"} // blocks, and scales, that no type has
	try := func(p packed.Packing, family string) {
		t.Run(family+"/"+p.Name, func(t *testing.T) {
			dir := t.TempDir()
			here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
			if err := packed.Folders(golden.Model(t, family), here, there, p, nil); err != nil {
				t.Fatal(err)
			}
			g, plain, b := load(t, here), load(t, there), webgpu.New(d, webgpu.Options{F32KV: true})
			defer b.Close()
			got := lastRow(t, g, b)
			if kl := lab.KL(lastRow(t, g, reference.Backend{}), got); !(kl <= 1e-9) {
				t.Errorf("KL %.3g", kl)
			}
			if !slices.Equal(got, lastRow(t, plain, b)) && !strings.Contains(p.Name, "order") {
				t.Error("the logits differ from those of values")
			}
			if n, all := b.Weights(g), b.Weights(plain); !slices.Contains(floats, p.Name) && 2*n > all && (family != "falcon" || 4*n > 3*all) { // half of whose linear layers are packed
				t.Errorf("%d bytes, of values %d", n, all)
			}
		})
	}
	for i, p := range packed.All {
		if golden.Slow() || i%4 == 0 { // the long ring has all
			try(p, "smollm3")
		}
		if slices.Contains([]string{"fp8-block", "modelopt-nvfp4", "gptq-act-order"}, p.Name) {
			try(p, "qwen3moe")
			try(p, "falcon") // whose rows of queries, keys and values are in another order
		}
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
