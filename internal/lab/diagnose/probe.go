package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// probing is the stage that tells broken probes from broken engines.
type probing struct{ *measurement }

// judgeProbes finds taps that do not show what the engine goes on with: what comes
// after does not follow from the tap, and where it is computed from what lies before
// the tap, all is well. Such a tap is a broken probe, or shows the same function in
// another form; either way it says nothing of the engine, and is left out.
func (r probing) judgeProbes() error {
	r.misshapen()
	for _, judge := range []func() error{r.judgeRows, r.judgeIDs} {
		if err := judge(); err != nil || len(r.eqs) == 0 {
			return err
		}
	}
	if err := r.judgePrompts(); err != nil {
		return err
	}
	for {
		changed, err := r.judgeProbe()
		if err != nil || !changed {
			return err
		}
	}
}

// judgeProbe discards the first tap or taps that are of no use.
func (r probing) judgeProbe() (changed bool, err error) {
	for _, c := range r.eqs {
		if !c.flagged() {
			continue
		}
		for _, set := range r.suspects(c) {
			ok, err := r.holdsWithout(c, set)
			if err != nil {
				return false, err
			}
			if taps := r.differing(set); ok && len(taps) > 0 { // else none of them is to blame, and nothing would change
				return true, r.discard(taps, set, c)
			}
		}
	}
	for _, eq := range r.eqs {
		if !eq.flagged() || len(r.consumers(eq.target)) > 0 {
			continue
		}
		// Of logits other marks may be the engine's doing.
		if p := r.fingerprint(eq); p != nil && (eq.target != r.g.Result() && p.cause != "unknown" || p.cause == "probe_rows") {
			return true, r.discard([]*equation{eq}, []*equation{eq}, nil)
		}
	}
	return false, nil
}

// consumers are the equations that start at n.
func (r probing) consumers(n *graph.Node) []*equation {
	var all []*equation
	for _, eq := range r.eqs {
		if slices.Contains(eq.sources, n) {
			all = append(all, eq)
		}
	}
	return all
}

// suspects are sets of equations before c, at least one of them flagged, whose targets
// may be of no use: single ones, all that c starts at, and the ones before them.
func (r probing) suspects(c *equation) [][]*equation {
	byTarget := map[*graph.Node]*equation{}
	for _, eq := range r.eqs {
		byTarget[eq.target] = eq
	}
	var sets [][]*equation
	var flagged []*equation
	for _, x := range c.sources {
		if eq := byTarget[x]; eq != nil && eq.flagged() {
			flagged = append(flagged, eq)
			sets = append(sets, []*equation{eq})
		}
	}
	if len(flagged) > 1 {
		sets = append(sets, flagged)
	}
	set := []*equation{}
	front := []*equation{c}
	for range depthOfForms {
		var next []*equation
		for _, eq := range front {
			for _, x := range eq.sources {
				if y := byTarget[x]; y != nil && x.Layer == c.target.Layer && x.Layer >= 0 && !slices.Contains(set, y) && x.Op != graph.Add && x.Op != graph.Mul {
					set, next = append(set, y), append(next, y)
				}
			}
		}
		if front = next; len(next) == 0 {
			break
		}
		if slices.ContainsFunc(set, (*equation).flagged) {
			sets = append(sets, slices.Clone(set))
		}
	}
	return sets
}

// depthOfForms is how many taps may lie between the first one in another form and the
// first value in the right one: a projection, a norm and attention.
const depthOfForms = 3

// differing are those of a set whose values are not what they are without the set.
func (r probing) differing(set []*equation) []*equation {
	undo := r.hide(targets(set))
	defer undo()
	var out []*equation
	for _, eq := range set {
		if errors, err := r.measure(eq, nil, nil, r.sites(eq), nil); err != nil || worst(errors).ratio() > excess {
			out = append(out, eq)
		}
	}
	return out
}

func targets(set []*equation) []*graph.Node {
	var nodes []*graph.Node
	for _, eq := range set {
		nodes = append(nodes, eq.target)
	}
	return nodes
}

// holdsWithout reports whether c holds where the values of a set of targets are
// computed, not taken from the engine, and is much nearer so: its floor is wider then, within which c's own fault may lie.
func (r probing) holdsWithout(c *equation, set []*equation) (bool, error) {
	undo := r.hide(targets(set))
	defer undo()
	errors, ok, err := r.holds(c, nil, nil)
	if reference.Uncomputable(err) { // without them
		return false, nil
	}
	with := worst(c.errors)
	at := slices.IndexFunc(errors, func(x rowError) bool { return x.site == with.site })
	return ok && at >= 0 && !(errors[at].residual > with.residual/2), err
}

// hide makes values unknown, until undo.
func (r probing) hide(nodes []*graph.Node) (undo func()) {
	type state struct {
		p *prompt
		x prompt
	}
	var was []state
	for _, p := range r.prompts {
		was = append(was, state{p, *p})
		p.center = p.center.Without(nodes...)
		arms := p.arms
		p.arms = nil
		for _, a := range arms {
			p.arms = append(p.arms, a.Without(nodes...))
		}
	}
	return func() {
		for _, s := range was {
			s.p.center, s.p.arms = s.x.center, s.x.arms
		}
	}
}

// discard says what taps are, and leaves them out from here on. c is the equation that
// holds without a set that they are of, if that is how they were found.
func (r probing) discard(taps, set []*equation, c *equation) error {
	undo := r.hide(targets(set))
	for _, eq := range taps {
		why := ""
		if c != nil {
			why = r.sameFunction(eq)
		}
		if why == "" {
			r.findings = slices.DeleteFunc(r.findings, func(f Finding) bool { return slices.Contains(f.Nodes, eq.target.Name) }) // that it differs from another tap
			r.findings = append(r.findings, r.brokenProbe(eq, c))
		} else {
			r.infers("%s holds the same in another form (%s): what reads it follows from the model", eq.tap, why)
		}
	}
	undo()
	for _, n := range targets(taps) {
		for _, p := range r.prompts {
			delete(p.known, n)
		}
	}
	r.setClass(r.class)
	r.equations()
	return r.check(r.eqs)
}

// brokenProbe is the finding of a tap that shows something else.
func (r probing) brokenProbe(eq, c *equation) Finding {
	w := worst(eq.errors)
	f := Finding{Cause: "unknown", Op: opName(eq.target), Layers: layersOf(eq.target), Tap: eq.tap, From: r.names(eq.sources), Nodes: []string{eq.target.Name},
		Detail: map[string]any{}, Residual: lab.Number(w.residual), Floor: lab.Number(w.floor), Computed: "does nothing wrong: the tap shows another value than the one that the engine goes on with"}
	if p := r.fingerprint(eq); p != nil {
		f.Cause, f.Detail, f.Computed = p.cause, p.detail, p.computed
	}
	if f.Cause == "unknown" {
		f.Fix = "Look at the probe: which buffer it copies, how many values of which type, and whether the engine has written them by then."
	}
	f.Evidence = fmt.Sprintf("the tap lies %s from what it follows from (floor %s)", lab.Digits(w.residual), lab.Digits(w.floor))
	if c != nil {
		f.Evidence += fmt.Sprintf("; without it %s follows from the taps before", c.tap)
	}
	return f
}

// sameFunction says in which other form a tap holds what it should, "" if in none: its
// features scaled, each by a number of its own, or in another order.
func (r probing) sameFunction(eq *equation) string {
	n, w := eq.target, eq.target.Shape.Size()
	how := ""
	for _, p := range r.prompts {
		if p.known[n] == nil || !p.tapped {
			continue
		}
		first, count := p.known[n].Rows()
		if count < 2 {
			continue
		}
		var rows []int
		for k := range min(count, 16) {
			rows = append(rows, first+k)
		}
		want, err := p.center.Compute(n, rows)
		if err != nil {
			return ""
		}
		got := p.read(n, rows)
		limit := eq.tolerance()
		switch {
		case lab.RelativeL2(want, got) <= limit: // this prompt's is as it should be
		case how != "in another order" && proportional(got, want, w, limit):
			how = "scaled"
		case how != "scaled" && matching(got, want, len(rows), limit) != nil:
			how = "in another order"
		default:
			return ""
		}
	}
	return how
}

// proportional reports whether each column of got is one number times want's.
func proportional(got, want []float64, w int, limit float64) bool {
	norm := 0.0
	for _, v := range want {
		norm += v * v
	}
	norm = math.Sqrt(norm / float64(len(want)))
	for j := range w {
		var ww, gw, scale float64
		for i := j; i < len(want); i += w {
			ww += want[i] * want[i]
			gw += got[i] * want[i]
		}
		if ww == 0 {
			continue
		}
		scale = gw / ww
		for i := j; i < len(want); i += w {
			if !(math.Abs(got[i]-scale*want[i]) <= limit*max(norm, math.Abs(scale)*norm)*4) { // or NaN
				return false
			}
		}
		if scale == 0 {
			return false
		}
	}
	return true
}
