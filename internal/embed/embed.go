// Package embed makes a vector from a model's rows for a text, by pooling, dense layers, shortening and normalizing.
//
// All sums are in float64 and in order of the rows or features, so a text's vector has the same bits on every machine.
package embed

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/rope"
)

// Pooling is the way from rows to a text's vector.
type Pooling string

// The poolings.
const (
	Mean Pooling = "mean" // the mean of all rows
	CLS  Pooling = "cls"  // the first row
	Last Pooling = "last" // the last row
	None Pooling = "none" // every row, in order
)

// Head holds the settings in a model's files for the way from rows to a vector. The zero value has none.
type Head struct {
	Pooling   Pooling // "" where the files do not say
	Dense     []Dense // in order
	Normalize bool    // the last step, to vectors of length 1
	Prompts   map[string]string
	Default   string // name of the default prompt, "" for none
	Apart     bool   // the prompt's rows are left out of pooling: unsupported
}

// Dense is a linear layer.
type Dense struct {
	In, Out int
	W       []float32 // [Out, In]
	Bias    []float32 // [Out], or nil
	Tanh    bool      // behind the product
}

// Check tells whether h's layers fit each other, and rows of so many features.
func (h *Head) Check(features int) error {
	for i, d := range h.Dense {
		if d.In != features || d.In < 1 || d.Out < 1 || len(d.W) != d.In*d.Out ||
			d.Bias != nil && len(d.Bias) != d.Out {
			return fmt.Errorf("dense layer %d is [%d, %d], of %d values and %d biases, and reads %d features",
				i+1, d.Out, d.In, len(d.W), len(d.Bias), features)
		}
		features = d.Out
	}
	return nil
}

// Features returns how many features a vector of rows of so many has.
func (h *Head) Features(rows int) int {
	if n := len(h.Dense); n > 0 {
		return h.Dense[n-1].Out
	}
	return rows
}

// Vector returns the vector of one or more rows: its first dimensions features, or all where dimensions is 0.
// With None the vector has the features of each row, in order.
func (h *Head) Vector(rows [][]float32, dimensions int) []float32 {
	switch h.Pooling {
	case Mean:
		return h.finish(mean(rows), dimensions)
	case Last:
		return h.finish(wide(rows[len(rows)-1]), dimensions)
	case None:
		var all []float32
		for _, r := range rows {
			all = append(all, h.finish(wide(r), dimensions)...)
		}
		return all
	}
	return h.finish(wide(rows[0]), dimensions)
}

func wide(row []float32) []float64 {
	x := make([]float64, len(row))
	for i, v := range row {
		x[i] = float64(v)
	}
	return x
}

func mean(rows [][]float32) []float64 {
	x := wide(rows[0])
	for _, r := range rows[1:] {
		for i, v := range r {
			x[i] += float64(v)
		}
	}
	for i := range x {
		x[i] /= float64(len(rows))
	}
	return x
}

// finish computes the steps behind the pooling.
func (h *Head) finish(x []float64, dimensions int) []float32 {
	for _, d := range h.Dense {
		x = d.apply(x)
	}
	if dimensions > 0 {
		x = x[:dimensions]
	}
	length := 1.
	if h.Normalize {
		length = max(norm(x), 1e-12) // as in PyTorch
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v / length)
	}
	return out
}

func norm(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v * v) // not fused
	}
	return math.Sqrt(sum)
}

func (d *Dense) apply(x []float64) []float64 {
	out := make([]float64, d.Out)
	for i := range out {
		var sum float64
		for j, w := range d.W[i*d.In : (i+1)*d.In] {
			sum += float64(x[j] * float64(w))
		}
		if d.Bias != nil {
			sum += float64(d.Bias[i])
		}
		if d.Tanh {
			sum = 1 - 2/(rope.Exp(float64(2*sum))+1)
		}
		out[i] = sum
	}
	return out
}

// Parse returns the pooling of a name.
func Parse(name string) (Pooling, error) {
	if p := Pooling(name); slices.Contains([]Pooling{Mean, CLS, Last, None}, p) {
		return p, nil
	}
	return "", fmt.Errorf("pooling %q, want mean, cls, last or none", name)
}
