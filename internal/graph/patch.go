package graph

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/tensor"
)

// Rule is how a row's place in a grid chooses rows of a table.
type Rule uint8

const (
	Lookup  Rule = iota // the row at the place itself
	Corners             // between four rows, the corners of grid and table being one
	Area                // between all rows below the place, as an antialiased bilinear resizing makes them
	Axes                // a row of the column's table, and a row of the row's table behind it, both whole
)

func (r Rule) String() string { return [...]string{"lookup", "corners", "area", "axes"}[r] }

// PlaceAttr is a table of places: Height rows of Width places, or by Axes Width columns and then Height rows.
type PlaceAttr struct {
	Rule          Rule
	Height, Width int
}

// String returns the attribute in Print's form.
func (a PlaceAttr) String() string {
	return "rule=" + a.Rule.String() + set("height", a.Height) + set("width", a.Width)
}

// Rows returns the number of rows of the table.
func (a PlaceAttr) Rows() int {
	if a.Rule == Axes {
		return a.Height + a.Width
	}
	return a.Height * a.Width
}

// Has reports whether a grid is allowed.
func (a PlaceAttr) Has(g Grid) bool {
	whole := a.Rule == Lookup || a.Rule == Axes
	return !whole || g.Height <= a.Height && g.Width <= a.Width
}

// Grid is the places of a picture's patches.
type Grid struct{ Height, Width int }

// Share is a row of a table and its weight.
type Share struct {
	Row    int
	Weight float64
}

// Shares appends the shares of the patch at a row and a column of grid g, in order of the table's rows.
func (a PlaceAttr) Shares(all []Share, row, col int, g Grid) []Share {
	switch a.Rule {
	case Lookup:
		return append(all, Share{row*a.Width + col, 1})
	case Axes:
		return append(all, Share{col, 1}, Share{a.Width + row, 1})
	}
	along := corners
	if a.Rule == Area {
		along = area
	}
	firstRow, rows := along(row, g.Height, a.Height)
	firstCol, cols := along(col, g.Width, a.Width)
	for i, v := range rows {
		for j, w := range cols {
			if v*w != 0 {
				all = append(all, Share{(firstRow+i)*a.Width + firstCol + j, v * w})
			}
		}
	}
	return all
}

// corners returns the first of the places of a side used by place at of n, and the weights.
func corners(at, n, side int) (first int, weights []float64) {
	x := 0.0
	if n > 1 {
		x = float64(at) * float64(side-1) / float64(n-1)
	}
	first = int(x)
	return first, []float64{1 - (x - float64(first)), x - float64(first)}[:min(2, side-first)]
}

// area returns the same for a triangle as wide as two places of the coarser side. (torch's upsample_bilinear2d_aa)
func area(at, n, side int) (first int, weights []float64) {
	scale := float64(side) / float64(n)
	support := math.Max(scale, 1)
	center := scale * (float64(at) + 0.5)
	first = max(int(center-support+0.5), 0)
	sum := 0.0
	for i := first; i < min(int(center+support+0.5), side); i++ {
		w := math.Max(0, 1-math.Abs(float64(i)-center+0.5)/support)
		weights, sum = append(weights, w), sum+w
	}
	for i := range weights {
		weights[i] /= sum
	}
	return first, weights
}

// Patches returns the rows of a step's embeddings, all of them given: the numbers of a picture's patches.
func (b Builder) Patches(size int) *Node {
	n := b.add(&Node{Op: Patches, Name: "patches", Shape: tensor.Shape{size}})
	if size < 1 {
		n.Shape = tensor.Shape{1}
		b.errorf(n, "patches of %d numbers", size)
	}
	return n
}

// DeepstackAttr is the number of a row's features, which lie one after another behind the row's embedding.
type DeepstackAttr struct{ Index int }

// String returns the attribute in Print's form.
func (a DeepstackAttr) String() string { return fmt.Sprintf("index=%d", a.Index) }

// Deepstack returns the index-th features of each row, zeros for a token. (Meng et al. 2024, arXiv:2406.04334)
func (b Builder) Deepstack(index, dim int) *Node {
	return b.add(&Node{Op: Deepstack, Shape: tensor.Shape{dim}, Attr: DeepstackAttr{index}})
}

// Stacked returns the numbers of a row of g's features, of all Deepstack nodes.
func (g *Graph) Stacked() (n int) {
	for _, x := range g.Nodes {
		if x.Op == Deepstack {
			n += x.Shape.Size()
		}
	}
	return n
}

// Interpolate adds, for each row, shares of rows of w [a.Rows(), dim] by the row's place, the last two of the three
// parts of a position, in the grid of the sequence. All rows of the sequence are in the step.
func (b Builder) Interpolate(w *Weight, a PlaceAttr, dim int) *Node {
	n := b.weighted(Interpolate, w, tensor.Shape{a.Rows(), dim}, tensor.Shape{dim}, a)
	if a.Height < 1 || a.Width < 1 || a.Height > 1<<16 || a.Width > 1<<16 {
		b.errorf(n, "a table of %dx%d places", a.Width, a.Height)
	}
	return n
}

// Clamp returns x between the numbers low and high, weights of one element.
func (b Builder) Clamp(low, high *Weight, x *Node) *Node {
	n := b.add(&Node{Op: Clamp, Shape: x.Shape, In: []*Node{x}, W: []*Weight{low, high}})
	for _, w := range n.W {
		if w.There() && w.Shape.Size() == 1 {
			w.Shape = tensor.Shape{1}
		}
		b.check(n, w, tensor.Shape{1})
	}
	return n
}
