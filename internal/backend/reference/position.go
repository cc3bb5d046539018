package reference

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// LayerNorm returns x [rows, shape...] less the mean, by the deviation, with the node's weight and bias, if any.
func (s *Spec) LayerNorm(e *Eval, x []float64) ([]float64, error) {
	var w [2][]float64
	for i := range s.W {
		var err error
		if w[i], err = e.vector(s.W[i]); err != nil {
			return nil, err
		}
	}
	d := s.Node.Shape.Last()
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += d {
		y, mean := y[r:r+d], 0.0
		for _, v := range x[r : r+d] {
			mean = e.num.round(mean + v)
		}
		if mean /= float64(d); s.KeepMean {
			mean = 0
		}
		for j := range y {
			y[j] = x[r+j] - mean
		}
		q := 1 / math.Sqrt(e.num.dot(y, y)/float64(d)+s.Eps)
		for j := range y {
			if y[j] *= q; w[0] != nil {
				y[j] *= w[0][j]
			}
			if w[1] != nil {
				y[j] += w[1][j]
			}
		}
	}
	e.num.store(y)
	return y, nil
}

// beyond is the error of a position outside the model's table.
type beyond struct{ at, count int }

func (b beyond) Error() string   { return fmt.Sprintf("position %d, the model has %d", b.at, b.count) }
func (beyond) Is(err error) bool { return err == errNoInput }

// positions returns rows of an EmbedPos.
func (s *Spec) positions(e *Eval, rows []int) ([]float64, error) {
	y := make([]float64, 0, len(rows)*s.Node.Shape.Size())
	for _, r := range rows {
		at := r + s.Shift
		if at < 0 || at >= s.W[0].Rows() {
			return nil, beyond{at, s.W[0].Rows()}
		}
		row, err := Row(s.W[0], at)
		if err != nil {
			return nil, err
		}
		y = append(y, row...)
	}
	e.num.store(y)
	return y, nil
}

// scalePos multiplies rows of x by the factors that a node has for the positions, plus a shift.
func scalePos(n *graph.Node, x []float64, rows []int, shift int) []float64 {
	a, d := n.Attr.(graph.ScalePosAttr), n.Shape.Size()
	y := make([]float64, len(x))
	for t, r := range rows {
		by := rope.Temperature(max(r+shift, 0), a.Beta, a.Every, a.Shift)
		for j := range d {
			y[t*d+j] = x[t*d+j] * by
		}
	}
	return y
}

// Shares appends the shares of rows of a table of places, for the patch at a place of a grid.
type Shares = func(all []graph.Share, row, col int, g graph.Grid) []graph.Share

// Interpolate returns rows of an Interpolate node, by shares, for a picture that is all of the prompt.
func Interpolate(e *Eval, s *Spec, rows []int, shares Shares) (y []float64, err error) {
	if e.parts == nil {
		return nil, errNoInput
	}
	var g graph.Grid
	for _, p := range e.parts {
		g.Height, g.Width = max(g.Height, int(p[1])+1), max(g.Width, int(p[2])+1)
	}
	for _, r := range rows {
		if y, err = place(e, s, y, shares, e.parts[r], g); err != nil {
			return nil, err
		}
	}
	e.num.store(y)
	return y, nil
}

// place appends the value at a place of a grid: shares of rows of the table.
func place(e *Eval, s *Spec, y []float64, shares Shares, at [3]int32, g graph.Grid) ([]float64, error) {
	first := len(y)
	y = append(y, make([]float64, s.Node.Shape.Size())...)
	for _, share := range shares(nil, int(at[1]), int(at[2]), g) {
		row, err := Row(s.W[0], share.Row)
		if err != nil {
			return nil, err
		}
		for j, v := range row {
			y[first+j] = e.num.round(y[first+j] + float64(share.Weight*v))
		}
	}
	return y, nil
}
