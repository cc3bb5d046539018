package diagnose

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/sim"
)

// leftOver is what is said of an equation that no hypothesis explains: that its queries and
// keys turn at speeds that are on no list, if there are such, or nothing but where it is.
func (r *run) leftOver(eq *equation) error {
	if h := r.measuredTurns(eq); h != nil {
		return r.accept(eq, &attempt{hs: []*hypothesis{h}, edits: h.edits})
	}
	r.unknown(eq)
	return nil
}

// maxVain is how many equations are searched for speeds in vain, maxPairs how many pairs a head may have.
const maxVain, maxPairs = 3, 64

// turner looks for the speeds at which queries and keys turn under which an equation holds.
type turner struct {
	r     *run
	eq    *equation
	ropes []*graph.Node
	rows  [][]int // by prompt
	got   []float64
}

// measuredTurns is the hypothesis that queries and keys turn by speeds that are found from
// what attention gave, nil if there are none such. Early positions come first: there no pair
// has gone around, so that the way to the right speeds leads downhill.
func (r *run) measuredTurns(eq *equation) *hypothesis {
	t := &turner{r: r, eq: eq}
	attends := false
	for _, n := range eq.span {
		attends = attends || n.Op == graph.Attention
		if n.Op == graph.RoPE {
			t.ropes = append(t.ropes, n)
		}
	}
	if !attends || len(t.ropes) == 0 || len(eq.span) > small || eq.layers() > 1 || r.vain >= maxVain || t.ropes[0].Shape.Last()/2 > maxPairs {
		return nil
	}
	right := make([]float64, t.ropes[0].Shape.Last()/2)
	copy(right, t.ropes[0].Attr.(graph.RoPEAttr).Freqs)
	reversed, backwards := slices.Clone(right), times(right, -1)
	slices.Reverse(reversed)
	for _, start := range append(slices.Clone(r.speeds), right, backwards, reversed, make([]float64, len(right))) {
		if len(start) != len(right) {
			continue
		}
		if f := t.descend(start); f != nil {
			r.speeds = append(r.speeds, f)
			h := &hypothesis{cause: "unknown", node: t.ropes[0], detail: detail{"op": "RoPE", "role": role(t.ropes[0])}, edits: t.edits(f),
				computed: fmt.Sprintf("turns the pairs of queries and keys by other angles a position: %s, not %s", list(f), list(right))}
			return h
		}
	}
	r.vain++
	return nil
}

// list is the first of some numbers in words.
func list(x []float64) string {
	var words []string
	for _, v := range x[:min(len(x), 4)] {
		words = append(words, fmt.Sprintf("%.4g", v))
	}
	return strings.Join(words, ", ") + " ..."
}

func (t *turner) edits(f []float64) sim.Edits {
	edits := sim.Edits{}
	for _, n := range t.ropes {
		edits[n] = []sim.Edit{func(s *sim.Spec) { s.Freqs = f }}
	}
	return edits
}

// descend goes downhill from speeds, and is nil if the equation does not hold where that ends.
func (t *turner) descend(f []float64) []float64 {
	for _, last := range []int{3, 6, 12, 24, 48, 1 << 30} {
		t.until(last)
		var ok bool
		if f, ok = t.fit(f); !ok {
			return nil
		}
	}
	if _, ok, err := t.r.holds(t.eq, nil, t.edits(f)); err != nil || !ok {
		return nil
	}
	return f
}

// until takes the rows up to a position.
func (t *turner) until(last int) {
	t.rows, t.got = nil, nil
	for i, p := range t.r.prompts {
		rows := slices.DeleteFunc(t.eq.rows(i), func(row int) bool { return row > last || row == 0 })
		rows = rows[max(0, len(rows)-8):]
		t.rows = append(t.rows, rows)
		t.got = append(t.got, p.read(t.eq.target, rows)...)
	}
}

// off is how far the rows lie from what the speeds give, nil if that cannot be computed.
func (t *turner) off(f []float64) *mat.VecDense {
	var y []float64
	edits := t.edits(f)
	for i, p := range t.r.prompts {
		if len(t.rows[i]) == 0 {
			continue
		}
		want, err := p.center.With(edits).Compute(t.eq.target, t.rows[i])
		if err != nil {
			return nil
		}
		y = append(y, want...)
	}
	for i, v := range t.got {
		y[i] -= v
	}
	if len(y) == 0 {
		return nil
	}
	return mat.NewVecDense(len(y), y)
}

// nearEnough is the distance relative to the values from which on speeds are not far off.
const nearEnough = 1e-2

// fit is Levenberg and Marquardt's method; it reports whether it came near.
func (t *turner) fit(f []float64) ([]float64, bool) {
	e := t.off(f)
	if e == nil {
		return f, len(t.got) == 0
	}
	size := mat.Norm(mat.NewVecDense(len(t.got), t.got), 2)
	k, damping := len(f), 1e-3
	for range 25 {
		least := mat.Norm(e, 2)
		if least <= 1e-9*size {
			break
		}
		slope := mat.NewDense(e.Len(), k, nil)
		for i := range k {
			const step = 1e-5
			g := slices.Clone(f)
			g[i] += step
			d := t.off(g)
			d.SubVec(d, e)
			d.ScaleVec(1/step, d)
			slope.SetCol(i, d.RawVector().Data)
		}
		better := false
		for damping < 1e6 && !better {
			g := damped(slope, e, f, damping)
			if next := t.off(g); g != nil && next != nil && mat.Norm(next, 2) < least {
				better, damping, f, e = true, damping/10, g, next
			} else {
				damping *= 10
			}
		}
		if !better || mat.Norm(e, 2) > 0.9999*least {
			break
		}
	}
	return f, mat.Norm(e, 2) <= nearEnough*size
}

// damped is a step from f down the slope.
func damped(slope *mat.Dense, e *mat.VecDense, f []float64, damping float64) []float64 {
	var a mat.Dense
	var b, d mat.VecDense
	a.Mul(slope.T(), slope)
	k, trace := len(f), 0.0
	for i := range k {
		trace += a.At(i, i) / float64(k)
	}
	for i := range k {
		a.Set(i, i, a.At(i, i)*(1+damping)+1e-12*trace+math.SmallestNonzeroFloat32)
	}
	b.MulVec(slope.T(), e)
	if d.SolveVec(&a, &b) != nil {
		return slices.Clone(f)
	}
	g := slices.Clone(f)
	for i := range g {
		g[i] -= d.AtVec(i)
	}
	return g
}
