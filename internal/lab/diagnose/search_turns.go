package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/matrix"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/rope"
)

// turner looks for the speeds at which queries and keys turn under which an equation holds.
type turner struct {
	m     *measurement
	eq    *equation
	ropes []*graph.Node
	rows  [][]int // by prompt
	got   []float64
}

// measuredTurns returns the hypothesis that queries and keys turn by speeds found from attention's output, nil if
// no speeds fit. Early positions come first: there no pair has gone around, so that the way to the right speeds
// leads downhill.
func measuredTurns(r *search, eq *equation) *hypothesis {
	t := &turner{m: r.m, eq: eq}
	attends, alone := eq.target.Op == graph.RoPE, true
	for _, n := range eq.span {
		attends = attends || n.Op == graph.Attention
		if n.Op == graph.RoPE {
			t.ropes, alone = append(t.ropes, n), alone && n.Layer == eq.target.Layer
		}
	}
	if !attends || len(t.ropes) == 0 || len(eq.span) > small || !alone || r.vain >= maxVain ||
		t.ropes[0].Shape.Last()/2 > maxPairs || t.ropes[0].Attr.(graph.RoPEAttr).Dim > 0 {
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
			t.widen(f)
			return &hypothesis{Cause: "unknown", Node: t.ropes[0], Edits: t.edits(f),
				Detail: detail{"op": "RoPE", "role": role(t.ropes[0])}, Computed: "turns the pairs of " + t.whose() +
					" " + speedsOf(f, right, t.ropes[0].Shape.Last())}
		}
	}
	r.vain++
	return nil
}

// widen adds the layer's other ropes if their equations, which do not hold, hold with speeds f.
func (t *turner) widen(f []float64) {
	for _, n := range t.m.dump.wiring.Rotations(t.ropes[0]) {
		if eqs := t.m.byNode[n]; !slices.Contains(t.ropes, n) && len(eqs) > 0 && eqs[0].isFlagged() {
			other := &turner{m: t.m, ropes: []*graph.Node{n}}
			if _, ok, err := t.m.holds(eqs[0], nil, other.edits(f)); err == nil && ok {
				t.ropes = append(t.ropes, n)
			}
		}
	}
}

// whose returns whose pairs turn.
func (t *turner) whose() string {
	switch {
	case len(t.ropes) > 1:
		return "queries and keys"
	case role(t.ropes[0]) == "attn_k_rope":
		return "keys"
	}
	return "queries"
}

// speedsOf describes speeds: a base of powers, a number times as fast as the right speeds, or only the angles.
func speedsOf(f, right []float64, dim int) string {
	if base := theta(f, dim); base > 1 && !math.IsInf(base, 0) {
		if powers := rope.New(base, dim); mistake.Alike(f, powers[:min(len(powers), len(f))], 1e-3) {
			return fmt.Sprintf("as theta %.4g without a scaling does, not by %s", base, speeds(right, dim))
		}
	}
	if k := f[0] / right[0]; k != 0 && mistake.Alike(f, times(right, k), 1e-3) {
		return fmt.Sprintf("%.4g times as fast as %s does", k, speeds(right, dim))
	}
	return fmt.Sprintf("by other angles a position: %s, not %s", list(f), list(right))
}

func (t *turner) edits(f []float64) reference.Edits {
	edits := reference.Edits{}
	for _, n := range t.ropes {
		edits[n] = []reference.Edit{func(s *reference.Spec) { s.Rope.Freqs = f }}
	}
	return edits
}

// descend goes downhill from speeds. The result is nil if the equation does not hold at the end.
func (t *turner) descend(f []float64) []float64 {
	for _, last := range []int{3, 6, 12, 24, 48, 1 << 30} {
		t.takeRows(last)
		var ok bool
		if f, ok = t.fit(f); !ok {
			return nil
		}
	}
	if _, ok, err := t.m.holds(t.eq, nil, t.edits(f)); err != nil || !ok {
		return nil
	}
	return f
}

// takeRows takes the rows up to a position.
func (t *turner) takeRows(last int) {
	t.rows, t.got = nil, nil
	for i, p := range t.m.dump.prompts {
		rows, _ := errorsOf(t.eq.errors, i)
		rows = slices.DeleteFunc(rows, func(row int) bool { return row > last || row == 0 })
		rows = rows[max(0, len(rows)-8):]
		t.rows = append(t.rows, rows)
		t.got = append(t.got, p.read(t.eq.target, rows)...)
	}
}

// residuals returns the differences of the rows from the values the speeds give, nil if these cannot be
// computed.
func (t *turner) residuals(f []float64) []float64 {
	var y []float64
	edits := t.edits(f)
	for i, p := range t.m.dump.prompts {
		if len(t.rows[i]) == 0 {
			continue
		}
		want, err := t.m.engine.center[p].With(edits).Compute(t.eq.target, t.rows[i])
		if err != nil {
			return nil
		}
		y = append(y, want...)
	}
	if len(y) == 0 {
		return nil
	}
	return matrix.Minus(y, t.got)
}

// fit fits speeds by Levenberg and Marquardt's method, and reports whether they came near.
func (t *turner) fit(f []float64) ([]float64, bool) {
	e := t.residuals(f)
	if e == nil {
		return f, len(t.got) == 0
	}
	size := matrix.Norm(t.got)
	k, damping := len(f), 1e-3
	for range 25 {
		least := matrix.Norm(e)
		if least <= 1e-9*size {
			break
		}
		slope := matrix.New(len(e), k)
		for i := range k {
			const step = 1e-5
			g := slices.Clone(f)
			g[i] += step
			slope.SetColumn(i, times(matrix.Minus(t.residuals(g), e), 1/step))
		}
		better := false
		for damping < 1e6 && !better {
			g := damped(slope, e, f, damping)
			if next := t.residuals(g); g != nil && next != nil && matrix.Norm(next) < least {
				better, damping, f, e = true, damping/10, g, next
			} else {
				damping *= 10
			}
		}
		if !better || matrix.Norm(e) > 0.9999*least {
			break
		}
	}
	return f, matrix.Norm(e) <= nearEnough*size
}

// damped returns a step from f down the slope. A larger damping makes each part shorter.
func damped(slope *matrix.Matrix, e, f []float64, damping float64) []float64 {
	k, columns := len(f), slope.Transpose()
	squares, trace := make([]float64, k), 0.0
	for i := range k {
		squares[i] = matrix.Dot(columns.Row(i), columns.Row(i))
		trace += squares[i] / float64(k)
	}
	held := matrix.New(k, k) // rows below the slope's rows that hold the step back
	for i, s := range squares {
		held.Row(i)[i] = math.Sqrt(s*damping + 1e-12*trace + math.SmallestNonzeroFloat32)
	}
	d := matrix.Solve(matrix.Of(k, slices.Concat(slope.Data, held.Data)), slices.Concat(e, make([]float64, k)))
	if d == nil {
		return slices.Clone(f)
	}
	return matrix.Minus(f, d)
}
