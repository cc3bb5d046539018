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

// TestLinear wants each product as it is alone, however many rows, outputs and threads run side by side.
func TestLinear(t *testing.T) {
	const k, n = 257, 70
	r := rand.New(rand.NewPCG(1, 2))
	w := &graph.Weight{Tensor: tensor.Tensor{Name: "w", DType: tensor.F32, Shape: tensor.Shape{n, k}}}
	for range n * k {
		w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(float32(r.NormFloat64())))
	}
	rows, err := Vector(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []round.Class{{}, {Activations: round.F32}, {Activations: round.F32, Lanes: 8}, {Activations: round.Q8_32}} {
		num := Rounds(class)
		for _, rowsOfX := range []int{1, 2, 15, 16, 17, 33} {
			x := make([]float64, rowsOfX*k)
			for i := range x {
				x[i] = r.NormFloat64()
			}
			num.store(x)
			read := num.quantize(x, k, w.DType)
			var want []float64
			for i := range rowsOfX * n {
				y := []float64{num.dot(read[i/n*k:][:k], rows[i%n*k:][:k])}
				if class.Activations == round.Q8_32 {
					dotBlocks(y, 1, rows[i%n*k:][:k], read[i/n*k:][:k], k)
				}
				want = append(want, y...)
			}
			for threads := 1; threads <= 3; threads++ {
				m := &Model{threads: threads, weights: map[*graph.Weight]matrix{}}
				e := m.Eval(nil, nil, num)
				matrix, err := m.altered(w, nil, n)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := e.product(x, matrix, 0, n); err != nil || !slices.Equal(got, want) {
					t.Errorf("%v: %d rows with %d threads: %v", class, rowsOfX, threads, err)
				}
			}
		}
	}
}
