package diagnose

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/matrix"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// proposer lists what an engine may do instead of what the graph says.
type proposer struct {
	m     *measurement
	steps *steps
	base  *attempt // the assumptions so far; nil for none
	of    *mistake.Proposer
}

// proposer returns the proposer for an equation, under assumptions.
func (m *measurement) proposer(eq *equation, base *attempt, errors []rowError) *proposer {
	r := &proposer{m: m, steps: &steps{m.dump.prompts, m.byNode, errors}, base: base}
	r.of = &mistake.Proposer{Wiring: m.dump.wiring, Span: eq.span, Dump: mistake.Dump{
		Logits: r.lostLogits(), Sizes: r.steps.stepSizes, Size: r.steps.stepSize, Wrong: r.steps.firstWrong,
		Prefilled: r.steps.prefilled,
		Tapped:    func(n *graph.Node) bool { return m.dump.taps[n] != "" },
		Lacks: func(n *graph.Node, lost func(e *reference.Eval, at int) bool) bool {
			return r.lacksRows(n, eq) || r.losesFrom(eq, lost)
		},
	}}
	for _, p := range m.dump.prompts {
		if p.tapped {
			r.of.Longest = max(r.of.Longest, len(p.IDs))
		}
		r.of.Decodes = r.of.Decodes || p.decoded() > 0
	}
	return r
}

// lacksRows reports whether wrong rows of eq's target are as rows of n that are zeros make them: zeros, or a bias.
func (r *proposer) lacksRows(n *graph.Node, eq *equation) bool {
	x := eq.target
	for x != n && len(x.In) == 1 && slices.Contains([]graph.Op{graph.View, graph.Mul, graph.Add}, x.Op) {
		x = x.In[0]
	}
	if x != n {
		return false
	}
	var bias []float64
	if eq.target.Op == graph.Add && len(eq.target.W) > 0 {
		bias, _ = reference.Vector(eq.target.W[0])
	}
	return slices.ContainsFunc(eq.errors, func(x rowError) bool {
		got := r.m.dump.prompts[x.prompt].read(eq.target, []int{x.row})
		return x.ratio() > excess && (isGone(got) || len(bias) == len(got) && lab.RelativeL2(bias, got) < float32Step)
	})
}

// losesFrom reports whether eq holds up to a row that is lost, the first one.
func (r *proposer) losesFrom(eq *equation, lost func(e *reference.Eval, at int) bool) bool {
	done, held := -1, false
	for _, x := range eq.errors {
		bad := x.ratio() > excess
		if x.prompt != done && bad != lost(r.m.engine.center[r.m.dump.prompts[x.prompt]], x.row) {
			return false
		}
		if held = held || !bad; bad {
			done = x.prompt
		}
	}
	return done >= 0 && held
}

// lostLogits returns how many logits lie in front of the last ones, if an engine's last are always 0; else 0.
func (r *proposer) lostLogits() int {
	w, end := r.m.dump.graph.Result().Shape.Size(), 0
	for _, p := range r.m.dump.prompts {
		if p.known[r.m.dump.graph.Result()] == nil {
			continue
		}
		first, count := p.known[r.m.dump.graph.Result()].Rows()
		for _, row := range sample(first, count, maxRows) {
			got, last := p.read(r.m.dump.graph.Result(), []int{row}), w
			for last > end && got[last-1] == 0 {
				last--
			}
			end = last
		}
	}
	return end
}

// propose lists what the engine may do instead in the nodes of eq's span. A fault
// that is on no list fits none of them, and stays unknown.
func propose(m *measurement, eq *equation) ([]*hypothesis, error) {
	r := m.proposer(eq, nil, nil)
	all := r.of.OfSpan()
	everywhere := mistake.Everywhere(all, eq.target.Layer)
	if eq.layers() > 1 {
		return append(mistake.Systemic(all), everywhere...), nil
	}
	measured, err := r.measured(eq)
	return slices.Concat(all, everywhere, measured), err
}

// proposeUnder lists what the engine may do besides what base assumes, as far as that shows only
// with base: values read off errors and taps, which two faults at once make others.
func proposeUnder(m *measurement, eq *equation, base *attempt) ([]*hypothesis, error) {
	if eq.layers() > 1 || !slices.ContainsFunc(eq.span, func(n *graph.Node) bool {
		return n.Op == graph.Attention || n.Op == graph.Linear
	}) {
		return nil, nil
	}
	errors, err := m.remeasure(eq, base, nil, eq.errors)
	if err != nil {
		return nil, nil // base cannot be computed at all rows
	}
	r := m.proposer(eq, base, errors)
	var all []*hypothesis
	for _, n := range eq.span {
		a, ok := n.Attr.(graph.AttentionAttr)
		if !ok || n.Op != graph.Attention || a.KV.Latent {
			continue
		}
		all = append(all, r.of.OfErrors(n)...)
	}
	measured, err := r.measured(eq)
	return append(all, measured...), err
}

// measured returns mistakes of a product that the engine's own inputs and outputs suggest.
func (r *proposer) measured(eq *equation) ([]*hypothesis, error) {
	o, err := r.observe(eq)
	if o == nil || err != nil {
		return nil, err
	}
	return r.of.Measured(o)
}

// maxObserved bounds the rows and the features of a product that is looked into.
const maxObserved, maxFeatures = 128, 1 << 10

// observe returns eq as a product alone, nil if it is not one, or holds. What comes before it has to have a tap, or
// a known fault.
func (r *proposer) observe(eq *equation) (*mistake.Product, error) {
	o := &mistake.Product{Node: eq.target, Tolerance: eq.tolerance()}
	if len(eq.target.W) > 0 && eq.target.Op == graph.Add {
		o.Node, o.Bias = eq.target.In[0], eq.target
	}
	assumed := func(x *graph.Node) bool { return r.base != nil && r.base.edits[x] != nil }
	between := func(x *graph.Node) bool {
		return x != o.Node && x != o.Bias && (len(x.W) > 0 || x.Op == graph.Attention) && r.m.engine.edits[x] == nil &&
			!assumed(x)
	}
	if o.Node.Op != graph.Linear || !eq.isFlagged() || !slices.Contains(eq.span, o.Node) ||
		slices.ContainsFunc(eq.span, between) {
		return nil, nil
	}
	k, m := o.Node.W[0].Shape.Last(), o.Node.W[0].Rows()
	if max(k, m) > maxFeatures && o.Node != r.m.dump.wiring.Head() || r.m.engine.edits[o.Node] != nil ||
		r.m.engine.edits[eq.target] != nil || assumed(o.Node) {
		return nil, nil
	}
	if o.Bias != nil && assumed(o.Bias) { // without its bias it is the product itself
		if slices.ContainsFunc(r.base.hs, func(h *hypothesis) bool {
			return h.Node == o.Bias && h.Cause != "bias_missing"
		}) {
			return nil, nil
		}
		o.Bias = nil
	}
	var x, got, want []float64
	for i, p := range r.m.dump.prompts {
		rows, _ := errorsOf(eq.errors, i)
		rows = rows[:min(len(rows), max(0, maxObserved-len(x)/k))]
		e := r.base.on(r.m.engine.center[p])
		in, err := e.Value(o.Node.In[0], rows)
		if err != nil {
			return nil, err
		}
		y, err := e.Compute(o.Node, rows)
		if err != nil {
			return nil, err
		}
		x, want, got = append(x, in...), append(want, y...), append(got, p.read(eq.target, rows)...)
	}
	if o.Bias != nil {
		b, err := reference.Vector(o.Bias.W[0])
		if err != nil {
			return nil, err
		}
		for i := range got {
			got[i] -= b[i%m]
		}
	}
	if len(x) < 3*k || slices.ContainsFunc(got, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return nil, nil
	}
	o.X, o.Got, o.Want = matrix.Of(k, x), matrix.Of(m, got), matrix.Of(m, want)
	return o, nil
}
