package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// judgeProbes finds taps that do not show what the engine goes on with: the tap does
// not follow from what is before it, what comes after does not follow from the tap,
// and without it all is well. Such a tap is a broken probe, or shows the same function
// in another form; either way it says nothing of the engine, and is left out.
func (r *run) judgeProbes() error {
	r.misshapen()
	for _, eq := range slices.Clone(r.eqs) {
		if !eq.flagged() || eq.target == r.g.Result() {
			continue
		}
		suspects, eqs, err := r.suspects(eq)
		if err != nil {
			return err
		}
		if len(suspects) == 0 {
			f := r.fingerprint(eq)
			if f == nil || len(r.consumers(eq.target)) > 0 {
				continue
			}
			suspects, eqs = []*equation{eq}, nil
		}
		if err := r.discard(suspects, eqs); err != nil {
			return err
		}
	}
	return nil
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

// suspects are eq and other flagged equations whose targets, left out together, make
// consumers hold that do not hold with them. eqs are those consumers.
func (r *run) suspects(eq *equation) (taps, eqs []*equation, err error) {
	for _, c := range r.consumers(eq.target) {
		if !c.flagged() {
			continue
		}
		alone := []*equation{eq}
		together := slices.Clone(alone)
		for _, other := range r.eqs {
			if other != eq && other.flagged() && slices.Contains(c.sources, other.target) {
				together = append(together, other)
			}
		}
		for _, set := range [][]*equation{alone, together} {
			ok, err := r.holdsWithout(c, set)
			if err != nil {
				return nil, nil, err
			}
			if ok {
				return set, []*equation{c}, nil
			}
			if len(together) == 1 {
				break
			}
		}
	}
	return nil, nil, nil
}

// holdsWithout reports whether c holds where the values of a set of targets are
// computed, not taken from the engine.
func (r *run) holdsWithout(c *equation, set []*equation) (bool, error) {
	var nodes []*graph.Node
	for _, eq := range set {
		nodes = append(nodes, eq.target)
	}
	undo := r.hide(nodes)
	defer undo()
	errors, err := r.measure(c, r.edits, r.sites(c), nil)
	if err != nil {
		return false, nil // then it cannot be computed without them
	}
	return worst(errors).ratio() <= excess, nil
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

// discard says what the taps are, and leaves them out from here on.
func (r *run) discard(taps, eqs []*equation) error {
	var nodes []*graph.Node
	for _, eq := range taps {
		nodes = append(nodes, eq.target)
		if why := r.sameFunction(eq); why != "" && len(eqs) > 0 {
			r.infers("%s holds the same in another form (%s): what reads it follows from the model", eq.tap, why)
			continue
		}
		r.findings = append(r.findings, r.brokenProbe(eq, eqs))
	}
	for _, n := range nodes {
		for _, p := range r.prompts {
			delete(p.known, n)
		}
	}
	r.equations()
	r.setClass(r.class)
	return r.check(r.eqs)
}

// brokenProbe is the finding of a tap that shows something else.
func (r *run) brokenProbe(eq *equation, eqs []*equation) Finding {
	w := worst(eq.errors)
	f := Finding{Cause: "unknown", Op: opName(eq.target), Layers: layersOf(eq.target), Tap: eq.tap, From: r.names(eq.sources), Nodes: []string{eq.target.Name},
		Detail: map[string]any{}, Confidence: 0.7, Residual: w.residual, Floor: w.floor, Computed: "nothing wrong: the tap shows something else than what the engine goes on with"}
	if p := r.fingerprint(eq); p != nil {
		f.Cause, f.Detail, f.Computed, f.Confidence = p.cause, p.detail, p.computed, 0.98
	}
	f.Evidence = fmt.Sprintf("the tap lies %.2g from what it follows from (floor %.2g)", w.residual, w.floor)
	if len(eqs) > 0 {
		f.Evidence += fmt.Sprintf("; without it %s follows from the taps before", eqs[0].tap)
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
		if relative(got, want) <= limit {
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
		if x := r.otherTap(i, n, got); x != nil {
			return x
		}
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
		if half > 0 && relative(x[:half*2][:len(want)], want) <= limit+0x1p-7 || near(x[:half], want[:half], limit+0x1p-7) {
			return &print{"probe_dtype", "nothing wrong: the probe reads " + format.name + " values as float32", detail{"stored": format.name, "read": "float32"}}
		}
	}
	return nil
}

func near(a, b []float64, limit float64) bool { return len(a) > 0 && relative(a, b) <= limit }

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
			return &print{"probe_prefix", fmt.Sprintf("nothing wrong: the probe reads the first %d of %d values of the %s", end, of.size, of.what),
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
			return &print{"probe_rows", fmt.Sprintf("nothing wrong: the probe's rows lie %d too late", shift), detail{"shift": float64(shift)}}
		}
		if near(got[:len(got)-shift*w], want[shift*w:], limit) {
			return &print{"probe_rows", fmt.Sprintf("nothing wrong: the probe's rows lie %d too early", shift), detail{"shift": float64(-shift)}}
		}
	}
	backward := make([]float64, 0, len(got))
	for i := n - 1; i >= 0; i-- {
		backward = append(backward, got[i*w:(i+1)*w]...)
	}
	if n > 1 && near(backward, want, limit) {
		return &print{"probe_rows", "nothing wrong: the probe's rows are in reverse order", detail{"order": "reversed"}}
	}
	return nil
}

// otherTap finds the same values under another name, or in another prompt.
func (r *run) otherTap(i int, n *graph.Node, got []float64) *print {
	w := n.Shape.Size()
	for j, q := range r.prompts {
		for x, k := range q.known {
			if j == i && x == n || x.Shape.Size() != w {
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
				return &print{"probe_stale", fmt.Sprintf("nothing wrong: the tap holds what %s was in prompt %d", r.tapName(x), q.Index), detail{"prompt": float64(q.Index), "tap": r.tapName(x)}}
			}
			return &print{"probe_duplicate", "nothing wrong: the tap holds " + r.tapName(x), detail{"tap": r.tapName(x)}}
		}
	}
	return nil
}

// sameFunction says in which other form a tap holds what it should, "" if in none: its
// features scaled, each by a number of its own, or in another order.
func (r *run) sameFunction(eq *equation) string {
	n, w := eq.target, eq.target.Shape.Size()
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
		if proportional(got, want, w, limit) {
			return "scaled"
		}
		if matching(got, want, len(rows), limit) != nil {
			return "in another order"
		}
		return ""
	}
	return ""
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
			if math.Abs(got[i]-scale*want[i]) > limit*max(norm, math.Abs(scale)*norm)*4 {
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
	for _, p := range r.Dump.Prompts {
		if len(p.IDs) == 0 {
			continue
		}
		found, err := lab.Place(r.g, r.schema(), p)
		if err != nil {
			return
		}
		for _, u := range found.Unplaced {
			if u.Node == nil || u.Width >= u.Node.Shape.Size() || r.reported(u.Node) {
				continue
			}
			r.findings = append(r.findings, Finding{Cause: "probe_prefix", Op: opName(u.Node), Layers: layersOf(u.Node), Tap: u.Name, From: []string{}, Nodes: []string{u.Node.Name},
				Detail: detail{"values": float64(u.Width), "of": "row"}, Confidence: 0.9,
				Computed: fmt.Sprintf("nothing wrong: the probe reads %d of %d values", u.Width, u.Node.Shape.Size()), Evidence: u.Why})
		}
	}
}

func (r *run) reported(n *graph.Node) bool {
	return slices.ContainsFunc(r.findings, func(f Finding) bool { return slices.Contains(f.Nodes, n.Name) })
}
