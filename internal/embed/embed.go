// Package embed makes one vector of the rows that a model computes of a text: it pools them, multiplies by dense
// layers, shortens and normalizes.
//
// All sums are in float64 and in order of the rows or features, so that a text's vector has the same bits on every
// machine.
package embed

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/rope"
)

// Pooling is which rows stand for a text.
type Pooling string

// The poolings.
const (
	Mean Pooling = "mean" // the mean of all rows
	CLS  Pooling = "cls"  // the first row
	Last Pooling = "last" // the last row
	None Pooling = "none" // every row, one after the other
)

// Poolings returns all of them.
func Poolings() []Pooling { return []Pooling{Mean, CLS, Last, None} }

// Head is what a model's files say of the way from rows to a vector. The zero value says nothing.
type Head struct {
	Pooling   Pooling // "" where the files do not say
	Dense     []Dense // in order
	Normalize bool    // the last step, so that vectors have the length 1
	Prompts   map[string]string
	Default   string // name of the prompt that is used where none is asked for, "" for none
	Apart     bool   // the prompt's rows are left out when rows are pooled: nothing here does that
}

// Dense is a linear layer.
type Dense struct {
	In, Out int
	W       []float32 // [Out, In]
	Bias    []float32 // [Out], or nil
	Tanh    bool      // behind it
}

// Check tells whether h's layers fit each other, and rows of so many features.
func (h *Head) Check(features int) error {
	for i, d := range h.Dense {
		if d.In != features || d.In < 1 || d.Out < 1 || len(d.W) != d.In*d.Out || d.Bias != nil && len(d.Bias) != d.Out {
			return fmt.Errorf("dense layer %d is [%d, %d], of %d values and %d biases, and reads %d features", i+1, d.Out, d.In,
				len(d.W), len(d.Bias), features)
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

// Vector returns that of rows, of which there is one at least: its first features, of which there are as many as
// dimensions says, or all where that is 0. With None it has the features of each row, one after the other.
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

// finish computes what follows the pooling.
func (h *Head) finish(x []float64, dimensions int) []float32 {
	for _, d := range h.Dense {
		x = d.apply(x)
	}
	if dimensions > 0 {
		x = x[:dimensions]
	}
	length := 1.
	if h.Normalize {
		length = max(norm(x), 1e-12) // as PyTorch has it
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
	if p := Pooling(name); slices.Contains(Poolings(), p) {
		return p, nil
	}
	return "", fmt.Errorf("pooling %q, want mean, cls, last or none", name)
}
