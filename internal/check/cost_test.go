package check

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// TestCosts quantizes normal weights, and weights with outliers, and wants the errors that the table expects: a limit
// that real quantizers break would call good files bad, one that is ten times too wide would miss bad ones.
func TestCosts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 64, 512
	for _, d := range slices.Sorted(maps.Keys(costs)) { // so that each type has the same numbers in each run
		k := costs[d]
		if !d.Quantized() {
			continue
		}
		for _, outliers := range []bool{false, true} {
			x := make([]float32, rows*cols)
			for i := range x {
				x[i] = float32(r.NormFloat64() * 0.05)
				if outliers && r.IntN(500) == 0 {
					x[i] *= 12
				}
			}
			data := make([]byte, d.RowBytes(len(x)))
			var even []float32 // importance, which some types need
			if d > tensor.MXFP4 {
				even = slices.Repeat([]float32{1}, cols)
			}
			if err := quant.Quantize(d, data, x, cols, even); err != nil {
				t.Fatal(err)
			}
			shape := tensor.Shape{rows, cols}
			source := tensor.Tensor{DType: tensor.F32, Shape: shape}
			store(&source, x)
			c := &checker{ctx: t.Context()}
			diff, err := differ(c, &pair{model: tensor.Tensor{DType: d, Shape: shape, Data: data}, source: source})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v outliers %v: %.4f, worst group %.3f", d, outliers, diff.relative, diff.worst)
			if diff.relative > k.limit || diff.far.n > 0 || math.Abs(diff.factor-1) > 0.03+math.Pow(max(k.usual, diff.relative), 2) {
				t.Errorf("%v: error %.4f of at most %.4f, %d of %d groups beyond %.3f, factor %.4f", d, diff.relative, k.limit, diff.far.n, diff.groups, k.group, diff.factor)
			}
			if !outliers && (diff.relative < k.usual/1.5 || diff.relative < k.limit/5) {
				t.Errorf("%v: error %.4f, the table expects %.4f", d, diff.relative, k.usual)
			}
		}
	}
}
