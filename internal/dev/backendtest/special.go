package backendtest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

var (
	nan  = float32(math.NaN())
	inf  = float32(math.Inf(1))
	zero = float32(math.Copysign(0, -1))
)

// specials are numbers at which functions go wrong.
var specials = []float32{0, zero, 1, -1, nan, inf, -inf, math.MaxFloat32, -math.MaxFloat32, 1e38, -1e38,
	math.SmallestNonzeroFloat32,
	-0x1p-126, 0x1p-126, 1e-30, 20, -20, 0.625, -0.625, 87, -87, 89, -89, 104, -104, 1e4, -1e4}

// special runs the operations on single numbers over specials, and those on
// rows over rows with a NaN, an infinity or nothing but zeros.
func (s *suite) special(t *testing.T) {
	var column [][]float32
	for _, v := range specials {
		column = append(column, []float32{v})
	}
	unary := map[string]func(k *sketch, x *graph.Node) *graph.Node{
		"scale":   func(k *sketch, x *graph.Node) *graph.Node { return k.Scale(x, 0.5) },
		"softcap": func(k *sketch, x *graph.Node) *graph.Node { return k.Softcap(x, 30) },
		"square":  func(k *sketch, x *graph.Node) *graph.Node { return k.node(graph.Mul, x.Shape, nil, x, x) },
		"double":  func(k *sketch, x *graph.Node) *graph.Node { return k.Add(x, x) },
		"rope": func(k *sketch, x *graph.Node) *graph.Node {
			return k.RoPE("q", k.Heads(pair(k, x), 2), graph.RoPEAttr{Freqs: []float64{1}})
		},
	}
	for _, a := range graph.Activations() {
		unary[a.String()] = act(a)
		unary["glu "+a.String()] = func(k *sketch, x *graph.Node) *graph.Node { return k.GLU(a, x, k.Scale(x, 1e-3)) }
	}
	for name, build := range unary {
		t.Run(name, func(t *testing.T) {
			s.specialRows(t, column, float, func(k *sketch) *graph.Node { return build(k, k.rows(column)) })
		})
	}
	rows := [][]float32{{1, 2, 3}, {0, zero, 0}, {1, nan, 2}, {1, inf, 2}, {-inf, 1, 2}, {1e-20, -1e-20, 0},
		{-1, -2, 3}}
	t.Run("norm", func(t *testing.T) {
		s.specialRows(t, rows, float, func(k *sketch) *graph.Node {
			return k.RMSNorm(k.weight(tensor.F32, 3), k.rows(rows), 1e-6, 1)
		})
	})
	t.Run("layer norm", func(t *testing.T) {
		s.specialRows(t, rows, float, func(k *sketch) *graph.Node {
			return k.LayerNorm(k.weight(tensor.F32, 3), k.weight(tensor.F32, 3), k.rows(rows), 1e-6)
		})
	})
	t.Run("l2 norm", func(t *testing.T) {
		s.specialRows(t, rows, float, func(k *sketch) *graph.Node { return k.L2Norm(k.rows(rows), 1e-6) })
	})
	t.Run("linear", func(t *testing.T) {
		s.specialRows(t, rows, float, func(k *sketch) *graph.Node { return k.linear(tensor.BF16, k.rows(rows), 5) })
	})
	s.lonelyNaN(t)
}

// act is an activation alone.
func act(a graph.Activation) func(k *sketch, x *graph.Node) *graph.Node {
	return func(k *sketch, x *graph.Node) *graph.Node {
		return k.node(graph.Act, x.Shape, graph.ActAttr{Act: a}, x)
	}
}

// pair is x beside its half, as a row of two.
func pair(k *sketch, x *graph.Node) *graph.Node {
	w := ofValues(k.name("pair"), [][]float32{{1}, {0.5}})
	return k.Linear(w, x, 2)
}

// specialRows compares one value at a time. Differences below 1e-36 do not
// count: near there, exponentials overflow and results turn zero early.
func (s *suite) specialRows(t *testing.T, rows [][]float32, bound func(Tolerances) float64,
	build func(k *sketch) *graph.Node) {
	k := newSketch(7)
	g := k.end(t, build(k))
	p := part{0, make([]int32, len(rows))}
	for i := range p.tokens {
		p.tokens[i] = int32(i)
	}
	got, want := start(t, s.open(), g, len(rows), all).forward(p), wanted(t, g, len(rows)).forward(p)
	width := len(want) / len(rows)
	for i, y := range want {
		x := got[i]
		if d := math.Abs(float64(x) - float64(y)); d <= 16*bound(s.tol)*math.Abs(float64(y)) ||
			d < 1e-36 && bound(s.tol) > 0 {
			continue
		}
		if !sameBits([]float32{x + 0}, []float32{y + 0}) { // zeros of either sign are equal
			t.Errorf("%v: %v, want %v", rows[i/width], x, y)
		}
	}
}

// lonelyNaN: a row that is not a number spoils its own results, in products of
// every type, and no others.
func (s *suite) lonelyNaN(t *testing.T) {
	for _, d := range append(slices.Clone(plain), blocks...) {
		t.Run(fmt.Sprintf("NaN/%v", d), func(t *testing.T) {
			k := newSketch(8)
			rows := make([][]float32, 9)
			for i := range rows {
				rows[i] = make([]float32, 256)
				for j := range rows[i] {
					rows[i][j] = float32(k.r.NormFloat64())
				}
			}
			clean := k.end(t, k.linear(d, k.rows(rows), 17))
			p := part{0, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8}}
			want := start(t, s.open(), clean, len(rows), nil).forward(p)

			rows[4][200] = nan
			k = newSketch(8)
			for range rows {
				for range rows[0] {
					k.r.NormFloat64()
				}
			}
			got := start(t, s.open(), k.end(t, k.linear(d, k.rows(rows), 17)), len(rows), nil).forward(p)
			for i := range 17 {
				want[4*17+i] = nan
			}
			if !sameBits(got, want) {
				t.Errorf("row 4 must be NaN and the others as without it")
			}
		})
	}
}

// routes tells which experts rows of ties, NaNs and infinities go to.
func (s *suite) routes(t *testing.T) {
	cases := []struct {
		scores []float32
		ids    []int
	}{
		{[]float32{1, 2, 3, 4}, []int{3, 2, 1}},
		{[]float32{4, 3, 2, 1}, []int{0, 1, 2}},
		{[]float32{1, 3, 3, 3}, []int{1, 2, 3}},
		{[]float32{2, 2, 2, 2}, []int{0, 1, 2}},
		{[]float32{0, zero, -1, 0}, []int{0, 1, 3}},
		{[]float32{nan, 1, nan, 2}, []int{3, 1, 0}},
		{[]float32{nan, nan, nan, -inf}, []int{3, 0, 1}},
		{[]float32{nan, nan, nan, nan}, []int{0, 1, 2}},
		{[]float32{-inf, 1, -inf, 0}, []int{1, 3, 0}},
		{[]float32{inf, 1, inf, 0}, []int{0, 2, 1}},
		{[]float32{-100, -200, -300, 100}, []int{3, 0, 1}},
		{[]float32{math.MaxFloat32, -math.MaxFloat32, 0, 1}, []int{0, 3, 2}},
	}
	k := newSketch(9)
	p := part{}
	var rows [][]float32
	for i, c := range cases {
		rows, p.tokens = append(rows, c.scores), append(p.tokens, int32(i))
	}
	scale := ofValues("scale", [][]float32{{1, 2, 3, -4}})
	scale.Shape = tensor.Shape{4}
	g := k.end(t, k.Route(k.rows(rows), scale, 3))
	got, want := start(t, s.open(), g, len(rows), all).forward(p), wanted(t, g, len(rows)).forward(p)
	for i, c := range cases {
		var ids []int
		for j := range 3 {
			ids = append(ids, int(got[(i*3+j)*2]))
		}
		if !slices.Equal(ids, c.ids) {
			t.Errorf("%v go to %v, want %v", c.scores, ids, c.ids)
		}
		row := got[i*6 : (i+1)*6]
		if d := distance(row, want[i*6:(i+1)*6]); !(d <= s.tol.Float) {
			t.Errorf("%v: %v, want %v", c.scores, row, want[i*6:(i+1)*6])
		}
	}
}

// wild: weights of random bytes, NaN and infinite scales among them, and huge
// activations are computed without an error.
func (s *suite) wild(t *testing.T) {
	for _, d := range append(slices.Clone(plain), blocks...) {
		t.Run(d.String(), func(t *testing.T) {
			k := newSketch(10)
			x := k.input(512)
			x = k.Add(x, k.Scale(k.input(512), 1e30))
			var sum *graph.Node
			for range 4 {
				w := k.weight(d, 65, 512)
				wild(k.r, w.Data)
				y := k.Linear(w, x, 65)
				if sum != nil {
					y = k.Add(sum, y)
				}
				sum = y
			}
			m := start(t, s.open(), k.end(t, sum), 3, nil)
			m.forward(part{0, []int32{1, 2, 3}})
		})
	}
}
