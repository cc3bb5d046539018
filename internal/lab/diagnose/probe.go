package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/matrix"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// probe tells broken probes from broken engines, and returns the measurement of the dump without taps that say
// nothing of the engine. Such a tap does not show the value the engine goes on with: the next values do not
// follow from the tap, and all is well where the value is computed from the taps before. The probe is broken, or
// shows the same function in another form.
func probe(m *measurement) (*measurement, error) {
	m.dump.progress("asking whether it is this model", 0, 0)
	if err := judgeModel(m); err != nil {
		return nil, err
	}
	m.dump.progress("testing the instrument", 0, 0)
	var err error
	for _, judge := range []func(*measurement) (*measurement, error){judgeRows, judgeIDs} {
		if m, err = judge(m); err != nil || len(m.eqs) == 0 {
			return m, err
		}
	}
	if m, err = judgePrompts(m); err != nil {
		return nil, err
	}
	for {
		less, err := judgeProbe(m)
		if err != nil || less == nil {
			return m, err
		}
		m = less
	}
}

// judgeProbe discards the first tap or taps without use, and returns nil if there are none.
func judgeProbe(m *measurement) (*measurement, error) {
	for _, c := range m.eqs {
		if !c.isFlagged() {
			continue
		}
		for _, set := range suspects(m, c) {
			ok, err := holdsWithout(m, c, set)
			if err != nil {
				return nil, err
			}
			// Else no tap is to blame, and nothing would change.
			if taps := differing(m, set); ok && len(taps) > 0 {
				return discard(m, taps, set, c)
			}
		}
	}
	for _, eq := range m.eqs {
		if !eq.isFlagged() || slices.ContainsFunc(m.eqs, func(x *equation) bool {
			return slices.Contains(x.sources, eq.target)
		}) {
			continue
		}
		// Of logits other marks may be the engine's doing.
		p := fingerprint(m, eq)
		if p != nil && (eq.target != m.dump.graph.Result() && p.cause != "unknown" ||
			p.cause == "probe_rows" && !m.dump.options.read) {
			return discard(m, []*equation{eq}, []*equation{eq}, nil)
		}
	}
	return nil, nil
}

// suspects returns sets of equations before c, at least one of them flagged, whose targets may be of no use: single
// equations, all equations that c starts at, and equations before these.
func suspects(m *measurement, c *equation) [][]*equation {
	byTarget := map[*graph.Node]*equation{}
	for _, eq := range m.eqs {
		byTarget[eq.target] = eq
	}
	var sets [][]*equation
	var flagged []*equation
	for _, x := range c.sources {
		if eq := byTarget[x]; eq != nil && eq.isFlagged() {
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
				if y := byTarget[x]; y != nil && x.Layer == c.target.Layer && x.Layer >= 0 &&
					!slices.Contains(set, y) && x.Op != graph.Add && x.Op != graph.Mul {
					set, next = append(set, y), append(next, y)
				}
			}
		}
		if front = next; len(next) == 0 {
			break
		}
		if slices.ContainsFunc(set, (*equation).isFlagged) {
			sets = append(sets, slices.Clone(set))
		}
	}
	return sets
}

// differing returns the equations of a set whose values change without the set.
func differing(m *measurement, set []*equation) []*equation {
	x := m.withEngine(m.engine.without(targets(set)))
	return slices.DeleteFunc(slices.Clone(set), func(eq *equation) bool {
		errors, err := x.measure(eq, nil, nil, x.sites(eq), nil)
		return err == nil && worst(errors).ratio() <= excess
	})
}

func targets(set []*equation) []*graph.Node {
	var nodes []*graph.Node
	for _, eq := range set {
		nodes = append(nodes, eq.target)
	}
	return nodes
}

// holdsWithout reports whether c holds where the values of a set of targets are computed instead of taken from the
// engine. c must come much nearer so: without the set c's floor is wider, and c's own fault may lie within the
// floor.
func holdsWithout(m *measurement, c *equation, set []*equation) (bool, error) {
	errors, ok, err := m.withEngine(m.engine.without(targets(set))).holds(c, nil, nil)
	if reference.Uncomputable(err) { // without them
		return false, nil
	}
	with := worst(c.errors)
	at := slices.IndexFunc(errors, func(x rowError) bool { return x.site == with.site })
	return ok && at >= 0 && !(errors[at].residual > with.residual/2), err
}

// discard describes the faults of taps, and returns the measurement without the taps. c is the equation that holds
// without set, to which the taps belong, if they were found by c.
func discard(m *measurement, taps, set []*equation, c *equation) (*measurement, error) {
	x, d := m.withEngine(m.engine.without(targets(set))), m.dump.clone()
	for _, eq := range taps {
		if c != nil {
			if why := sameFunction(x, eq); why != "" {
				d.inferred.add("%s holds the same in another form (%s): what reads it follows from the model",
					eq.tap, why)
				continue
			}
		}
		// A finding on the difference from another tap goes.
		d.findings = slices.DeleteFunc(d.findings, func(f Finding) bool {
			return slices.Contains(f.Nodes, eq.target.Name)
		})
		d.findings = append(d.findings, brokenProbe(x, eq, c))
	}
	d.forget(targets(taps))
	return m.measureAgain(d)
}

// forget leaves out the values of nodes.
func (d *dump) forget(nodes []*graph.Node) {
	for _, p := range d.prompts {
		for _, n := range nodes {
			delete(p.known, n)
		}
	}
}

// mendProbe is the fix of taps that are wrong in a way without a name.
const mendProbe = "Look at the probe: which buffer it copies, how many values of which type, and whether the " +
	"engine has written them by then."

// brokenProbe returns the finding of a tap that shows another value.
func brokenProbe(m *measurement, eq, c *equation) Finding {
	w := worst(eq.errors)
	f := Finding{Cause: "unknown", Op: opName(eq.target), Layers: layersOf(eq.target), Tap: eq.tap,
		From: m.dump.tapNames(eq.sources), Nodes: []string{eq.target.Name},
		Detail: map[string]any{}, Residual: lab.Number(w.residual), Floor: lab.Number(w.floor),
		Computed: innocent + "the tap shows another value than the one that the engine goes on with"}
	if p := fingerprint(m, eq); p != nil {
		f.Cause, f.Detail, f.Computed = p.cause, p.detail, p.computed
	}
	if f.Cause == "unknown" {
		f.Fix = mendProbe
	}
	f.Evidence = fmt.Sprintf("the tap lies %s from what it follows from (floor %s)", lab.Digits(w.residual),
		lab.Digits(w.floor))
	if c != nil {
		f.Evidence += fmt.Sprintf("; without it %s follows from the taps before", c.tap)
	}
	return f
}

// sameFunction names the other form in which a tap holds the right value, "" if there is none: features scaled,
// each by its own number, or in another order.
func sameFunction(m *measurement, eq *equation) string {
	n, w := eq.target, eq.target.Shape.Size()
	how := ""
	for _, p := range m.dump.prompts {
		if p.known[n] == nil || !p.tapped {
			continue
		}
		rows := p.rows(n)
		if rows = rows[:min(len(rows), 16)]; len(rows) < 2 {
			continue
		}
		want, err := m.engine.center[p].Compute(n, rows)
		if err != nil {
			return ""
		}
		got := p.read(n, rows)
		limit := eq.tolerance()
		switch {
		case lab.RelativeL2(want, got) <= limit: // this prompt is right
		case how != "in another order" && isProportional(got, want, w, limit):
			how = "scaled"
		case how != "scaled" && mistake.Matching(got, want, len(rows), limit) != nil:
			how = "in another order"
		default:
			return ""
		}
	}
	return how
}

// isProportional reports whether each column of got is a number times the column of want.
func isProportional(got, want []float64, w int, limit float64) bool {
	norm := math.Sqrt(matrix.Dot(want, want) / float64(len(want)))
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
