package reference

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// TestLinear wants each sum of a product to run along k in order, however many rows and outputs run side by side.
func TestLinear(t *testing.T) {
	const k, n = 33, 7
	r := rand.New(rand.NewPCG(1, 2))
	w := &graph.Weight{Tensor: tensor.Tensor{Name: "w", DType: tensor.F32, Shape: tensor.Shape{n, k}}}
	for range n * k {
		w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(float32(r.NormFloat64())))
	}
	for _, class := range []round.Class{{}, {Activations: round.F32}, {Activations: round.F32, Lanes: 8}} {
		a := newArith(class)
		rows, err := a.weight(w)
		if err != nil {
			t.Fatal(err)
		}
		for _, rowsOfX := range []int{1, 2, 15, 16, 17, 33} {
			x := make([]float64, rowsOfX*k)
			for i := range x {
				x[i] = a.store(r.NormFloat64())
			}
			var want []float64
			for i := range rowsOfX * n {
				want = append(want, a.dot(x[i/n*k:][:k], rows[i%n*k:][:k]))
			}
			for threads := 1; threads <= 3; threads++ {
				if got, err := a.linear(x, w, threads); err != nil || !slices.Equal(got, want) {
					t.Errorf("%v: %d rows with %d threads: %v, want %v (%v)", class, rowsOfX, threads, got, want, err)
				}
			}
		}
	}
}
