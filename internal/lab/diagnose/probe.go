package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/sim"
)

// judgeProbes finds taps that do not show what the engine goes on with: what comes
// after does not follow from the tap, and where it is computed from what lies before
// the tap, all is well. Such a tap is a broken probe, or shows the same function in
// another form; either way it says nothing of the engine, and is left out.
func (r *run) judgeProbes() error {
	r.misshapen()
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
func (r *run) judgeProbe() (changed bool, err error) {
	for _, c := range r.eqs {
		if !c.flagged() {
			continue
		}
		for _, set := range r.suspects(c) {
			ok, err := r.holdsWithout(c, set)
			if err != nil {
				return false, err
			}
			if ok {
				return true, r.discard(r.differing(set), set, c)
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
func (r *run) consumers(n *graph.Node) []*equation {
	var all []*equation
	for _, eq := range r.eqs {
		if slices.Contains(eq.sources, n) {
			all = append(all, eq)
		}
	}
	return all
}

// suspects are sets of equations before c, at least one of them flagged, whose targets
// may be of no use: single ones, all of those that c starts at, and those before them.
func (r *run) suspects(c *equation) [][]*equation {
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
func (r *run) differing(set []*equation) []*equation {
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
// computed, not taken from the engine.
func (r *run) holdsWithout(c *equation, set []*equation) (bool, error) {
	undo := r.hide(targets(set))
	defer undo()
	_, ok, err := r.holds(c, nil, nil)
	if sim.Uncomputable(err) { // without them
		return false, nil
	}
	return ok, err
}

// hide makes values unknown, until undo.
func (r *run) hide(nodes []*graph.Node) (undo func()) {
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
func (r *run) discard(taps, set []*equation, c *equation) error {
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
func (r *run) brokenProbe(eq, c *equation) Finding {
	w := worst(eq.errors)
	f := Finding{Cause: "unknown", Op: opName(eq.target), Layers: layersOf(eq.target), Tap: eq.tap, From: r.names(eq.sources), Nodes: []string{eq.target.Name},
		Detail: map[string]any{}, Residual: lab.Number(w.residual), Floor: lab.Number(w.floor), Computed: "does nothing wrong: the tap shows something else than what the engine goes on with"}
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

// print is what a tap looks like.
type print struct {
	cause, computed string
	detail          detail
}

// fingerprint compares a tap with what it should be: the beginning of it, in another
// type, another row's, another tap's.
func (r *run) fingerprint(eq *equation) *print {
	n, w := eq.target, eq.target.Shape.Size()
	for i, p := range r.prompts {
		if p.known[n] == nil || !p.tapped {
			continue
		}
		first, count := p.known[n].Rows()
		rows := make([]int, count)
		for k := range rows {
			rows[k] = first + k
		}
		want, err := p.center.Compute(n, rows)
		if err != nil {
			return nil
		}
		got := p.read(n, rows)
		limit := max(1e-3, 30*worst(eq.errors).floor)
		if lab.RelativeL2(want, got) <= limit {
			continue // this prompt's is right
		}
		if x := reinterpreted(got, want, limit); x != nil {
			return x
		}
		if x := prefix(got, want, w, limit); x != nil {
			return x
		}
		if x := otherRows(got, want, w, limit); x != nil {
			return x
		}
		if x := unfilled(got, want); x != nil {
			return x
		}
		if x := cmp.Or(r.otherTap(i, n, got), r.otherValue(i, n, got, limit)); x != nil {
			return x
		}
	}
	return nil
}

// unfilled finds values that no arithmetic gave: zeros throughout, or not finite where
// what they follow from is.
func unfilled(got, want []float64) *print {
	zeros, broken := 0, 0
	for i, v := range got {
		if v == 0 {
			zeros++
		}
		if math.IsNaN(v-v) && !math.IsNaN(want[i]-want[i]) {
			broken++
		}
	}
	switch {
	case broken > 0:
		return &print{"unknown", fmt.Sprintf("does nothing wrong: %d of the tap's %d values are NaN or infinite, and what comes after is not", broken, len(got)), detail{"values": float64(broken)}}
	case zeros == len(got):
		return &print{"unknown", "does nothing wrong: the tap holds zeros alone, as of a buffer that was never written", detail{"values": float64(zeros)}}
	}
	return nil
}

// reinterpreted finds values of 16 bits that were read as float32: two in each.
func reinterpreted(got, want []float64, limit float64) *print {
	for _, format := range []struct {
		name string
		to   func(uint16) float64
	}{{"float16", func(b uint16) float64 { return float64(float16.F16(b)) }}, {"bfloat16", func(b uint16) float64 { return float64(float16.BF16(b)) }}} {
		var x []float64
		for _, v := range got {
			bits := math.Float32bits(float32(v))
			x = append(x, format.to(uint16(bits)), format.to(uint16(bits>>16)))
		}
		half := len(want) / 2
		if half > 0 && lab.RelativeL2(want, x[:half*2][:len(want)]) <= limit+0x1p-7 || near(x[:half], want[:half], limit+0x1p-7) {
			return &print{"probe_dtype", "does nothing wrong: the probe reads " + format.name + " values as float32", detail{"stored": format.name, "read": "float32"}}
		}
	}
	return nil
}

func near(a, b []float64, limit float64) bool { return len(a) > 0 && lab.RelativeL2(b, a) <= limit }

// prefix finds taps of which only the first values, of each row or of all, are there.
func prefix(got, want []float64, w int, limit float64) *print {
	for _, of := range []struct {
		what string
		size int
	}{{"row", w}, {"tensor", len(got)}} {
		end := 0
		for i, v := range got {
			if v != 0 && v == v {
				end = max(end, i%of.size+1)
			}
		}
		if end == 0 || end == of.size {
			continue
		}
		var a, b []float64
		for at := 0; at < len(got); at += of.size {
			a, b = append(a, got[at:at+end]...), append(b, want[at:at+end]...)
		}
		if near(a, b, limit) {
			return &print{"probe_prefix", fmt.Sprintf("does nothing wrong: the probe reads the first %d of %d values of the %s", end, of.size, of.what),
				detail{"values": float64(end), "of": of.what}}
		}
	}
	return nil
}

// otherRows finds rows at other positions.
func otherRows(got, want []float64, w int, limit float64) *print {
	n := len(got) / w
	for shift := 1; shift <= 2 && shift < n; shift++ {
		if near(got[shift*w:], want[:len(want)-shift*w], limit) {
			return &print{"probe_rows", fmt.Sprintf("does nothing wrong: the probe's rows lie %d too late", shift), detail{"shift": float64(shift)}}
		}
		if near(got[:len(got)-shift*w], want[shift*w:], limit) {
			return &print{"probe_rows", fmt.Sprintf("does nothing wrong: the probe's rows lie %d too early", shift), detail{"shift": float64(-shift)}}
		}
	}
	backward := make([]float64, 0, len(got))
	for i := n - 1; i >= 0; i-- {
		backward = append(backward, got[i*w:(i+1)*w]...)
	}
	if n > 1 && near(backward, want, limit) {
		return &print{"probe_rows", "does nothing wrong: the probe's rows are in reverse order", detail{"order": "reversed"}}
	}
	return nil
}

// otherTap finds the same values under another name, or in another prompt.
func (r *run) otherTap(i int, n *graph.Node, got []float64) *print {
	w := n.Shape.Size()
	for j, q := range r.prompts {
		for _, x := range r.g.Nodes {
			k := q.known[x]
			if k == nil || j == i && x == n || x.Shape.Size() != w {
				continue
			}
			first, count := k.Rows()
			count = min(count, len(got)/w)
			rows := make([]int, count)
			for t := range rows {
				rows[t] = first + t
			}
			if count == 0 || !slices.Equal(q.read(x, rows), got[:count*w]) {
				continue
			}
			if j != i {
				return &print{"probe_stale", fmt.Sprintf("does nothing wrong: the tap holds what %s was in prompt %d", r.tapName(x), q.Index), detail{"prompt": float64(q.Index), "tap": r.tapName(x)}}
			}
			return &print{"probe_duplicate", "does nothing wrong: the tap holds " + r.tapName(x), detail{"tap": r.tapName(x)}}
		}
	}
	return nil
}

// otherValue finds what n should be in another prompt, or what the same node of another
// layer should be: all taps may be broken in the same way, so that none holds what another shows.
func (r *run) otherValue(i int, n *graph.Node, got []float64, limit float64) *print {
	w := n.Shape.Size()
	shows := func(q *prompt, x *graph.Node) bool {
		rows := make([]int, min(len(q.IDs), len(got)/w))
		for t := range rows {
			rows[t] = t
		}
		want, err := q.center.Compute(x, rows)
		return err == nil && len(rows) > 1 && near(got[:len(want)], want, limit)
	}
	for j, q := range r.prompts {
		if j != i && q.tapped && shows(q, n) {
			return &print{"probe_stale", fmt.Sprintf("does nothing wrong: the tap holds what it should be in prompt %d", q.Index), detail{"prompt": float64(q.Index)}}
		}
	}
	for _, x := range r.siblings(n) {
		if x.Shape.Size() == w && shows(r.prompts[i], x) {
			return &print{"probe_duplicate", "does nothing wrong: the tap holds what " + r.tapName(x) + " should be", detail{"tap": r.tapName(x)}}
		}
	}
	return nil
}

// sameFunction says in which other form a tap holds what it should, "" if in none: its
// features scaled, each by a number of its own, or in another order.
func (r *run) sameFunction(eq *equation) string {
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
		limit := r.tolerance(eq)
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

// misshapen are taps that found their node, but not its width: a probe of a part.
func (r *run) misshapen() {
	for _, u := range r.misfit {
		if u.Width > u.Node.Shape.Size() || r.reported(u.Node) {
			continue
		}
		if u.Placed.Rows == u.Node.Shape.Size() {
			r.infers("%s is left out: its rows are features and its columns positions; write it the other way", u.Name)
			continue
		}
		r.findings = append(r.findings, Finding{Cause: "probe_prefix", Op: opName(u.Node), Layers: layersOf(u.Node), Tap: u.Name, From: []string{}, Nodes: []string{u.Node.Name},
			Detail:   detail{"values": float64(u.Width), "of": "row"},
			Computed: fmt.Sprintf("does nothing wrong: the probe reads %d of %d values", u.Width, u.Node.Shape.Size()), Evidence: u.Why})
	}
}

func (r *run) reported(n *graph.Node) bool {
	return slices.ContainsFunc(r.findings, func(f Finding) bool { return slices.Contains(f.Nodes, n.Name) })
}
