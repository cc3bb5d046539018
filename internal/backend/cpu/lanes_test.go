package cpu

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// TestLanes: products whose kernels are recorded for threads have the bits of others, of every type, of one row, few and
// many, and whatever the number of lanes. simd's TestWasm runs it where there are threads for kernels.
func TestLanes(t *testing.T) {
	if simd.Lanes() == 0 {
		t.Skip("no threads for kernels")
	}
	glu := &graph.Node{Op: graph.GLU, Attr: graph.ActAttr{Act: graph.SiLU}, In: make([]*graph.Node, 2)}
	recorded := 0
	for _, d := range tensor.QuantizedTypes() {
		if !panel.HasPlanes(d) || quant.Quantize(d, make([]byte, d.RowBytes(d.BlockSize())), make([]float32, d.BlockSize()), d.BlockSize(), nil) != nil {
			continue
		}
		const n, most = 300, 40
		k := 2*panel.Chunk + d.BlockSize()
		b := New(Options{Threads: 1})
		e := &executable{b: b, rows: most, scratch: make([]scratch, 64)}
		products := newProducts(t, e, d, n, k, 2)
		if err := b.repack(t.Context(), b.inPlace); err != nil {
			t.Fatal(err)
		}
		both := newGated(e, products[0], products[1], 0, glu)
		x := make([]float32, most*k)
		for i := range x {
			x[i] = float32(i%977)/100 - 4.8
		}
		for _, rows := range []int{1, 3, most} {
			var want []float32
			for _, lanes := range []int{0, 2, simd.Lanes(), 64} {
				b.pool.lanes, e.x.node = lanes, nil
				out := make([]float32, 2*rows*n)
				if err := products[0].run(nil, out[:rows*n], x[:rows*k], rows); err != nil {
					t.Fatal(err)
				}
				if err := both.run(nil, out[rows*n:], x[:rows*k], rows); err != nil {
					t.Fatal(err)
				}
				if lanes == 0 {
					want = out
				} else if !slices.Equal(out, want) || slices.Max(want) == slices.Min(want) {
					t.Errorf("%v: %d rows in %d lanes: other bits", d, rows, lanes)
				}
			}
		}
		if products[0].records {
			recorded++
		}
		b.Close()
	}
	if recorded < 12 {
		t.Errorf("%d types are recorded", recorded)
	}
}
