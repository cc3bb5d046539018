package quant

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// zeros are the columns of an importance of zero, each as the remainder that a column
// over a divisor has.
var zeros = []struct {
	name string
	zero func(column int) bool
}{
	{"one in eight", func(c int) bool { return c%8 == 3 }},
	{"half", func(c int) bool { return c%2 == 0 }},
	{"groups of 16", func(c int) bool { return c/16%3 == 1 }},
	{"groups of 32", func(c int) bool { return c/32%3 == 1 }},
	{"a block", func(c int) bool { return c/256 == 1 }},
	{"all", func(int) bool { return true }},
	{"all but one in 21", func(c int) bool { return c%21 != 5 }},
}

// TestZeroImportance: an importance of zero says that a weight does not matter, and the
// blocks are those of llama.cpp's ggml_quantize_chunk, for every type and every pattern
// of zeros. The last pattern leaves groups one weight or two, whose best scale may be
// negative: these are not compared for Q4_K and Q5_K, see TestNegativeScale.
func TestZeroImportance(t *testing.T) {
	for _, d := range blockTypes() {
		sum := sha256.New()
		for _, z := range zeros {
			if z.name == "all but one in 21" && (d == tensor.Q4_K || d == tensor.Q5_K) {
				continue
			}
			for _, r := range rows(512) {
				for c := range r.importance {
					if z.zero(c) {
						r.importance[c] = 0
					}
				}
				blocks := make([]byte, d.RowBytes(512))
				if err := Quantize(d, blocks, r.x, 512, r.importance); err != nil {
					t.Fatalf("%v of %s, %s: %v", d, r.name, z.name, err)
				}
				sum.Write(blocks)
			}
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)[:8]); got != zeroSums[d] {
			t.Errorf("%v: %s, want %s", d, got, zeroSums[d])
		}
	}
}

// zeroSums is the beginning of SHA-256 over the blocks that llama.cpp makes of the rows
// of TestZeroImportance.
var zeroSums = map[tensor.DType]string{
	tensor.Q4_0:   "a87757d3db3fb397",
	tensor.Q4_1:   "3f2625f83d41edbd",
	tensor.Q5_0:   "0a385f6b16aae575",
	tensor.Q5_1:   "0275421520774d7f",
	tensor.Q8_0:   "88c32cf15e2866ac",
	tensor.Q2_K:   "2b74a7fffba4b105",
	tensor.Q3_K:   "8b4c43e8c39cbf40",
	tensor.Q4_K:   "2e35d684aa07ebf4",
	tensor.Q5_K:   "708b55abef7b722f",
	tensor.Q6_K:   "5740dfab7a3523cd",
	tensor.IQ4_NL: "f640e4ed2637e6d1",
	tensor.IQ4_XS: "a5a2939026a70ccc",
	tensor.MXFP4:  "bfd43a75097fe32c",
}

// TestUnimportant: a weight of no importance costs the others nothing.
func TestUnimportant(t *testing.T) {
	x, w := make([]float32, 256), make([]float32, 256)
	for i := range x {
		x[i], w[i] = -0.4, 1
		if i%16 == 5 {
			x[i], w[i] = 0.22, 0
		}
	}
	b, y := make([]byte, tensor.Q2_K.BlockBytes()), make([]float32, 256)
	if err := Quantize(tensor.Q2_K, b, x, 256, w); err != nil {
		t.Fatal(err)
	}
	if err := Dequantize(tensor.Q2_K, y, b); err != nil {
		t.Fatal(err)
	}
	for i, v := range y {
		if far := v + 0.4; w[i] > 0 && (far > 1e-3 || far < -1e-3) {
			t.Errorf("weight %d of -0.4 is %v", i, v)
		}
	}
}

// TestNegativeScale: a group with one weight that matters can have a best scale below
// zero. Its integer is 0, where llama.cpp stores the low bits of a negative one.
func TestNegativeScale(t *testing.T) {
	r := rows(512)[8]
	for c := range r.importance {
		if c%21 != 5 {
			r.importance[c] = 0
		}
	}
	b := make([]byte, tensor.Q4_K.RowBytes(512))
	if err := Quantize(tensor.Q4_K, b, r.x, 512, r.importance); err != nil {
		t.Fatal(err)
	}
	var h Header
	h.Read(tensor.Q4_K, b)
	if h.Scales[7] != 0 || h.Scales[6] == 0 {
		t.Errorf("the %s row's scales are %d, llama.cpp's have 62 at the end", r.name, h.Scales[:8])
	}
}
