package diagnose

import (
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// engine is the simulated engine: what an engine of a class computes from a dump's values, with edits. It does not
// change; an engine of another class, or with more edits, is another one.
type engine struct {
	dump   *dump
	class  class
	edits  reference.Edits
	center map[*prompt]*reference.Eval   // by the class, without chance
	arms   map[*prompt][]*reference.Eval // roundings that fall otherwise

	choices map[*prompt]reference.Edits // experts that near ties fell to, as far as equations have shown them
}

// newEngine returns an engine of a class with all of its arms. Engines in 16 bits may choose experts by rounded
// probabilities, in which near ties are ties.
func newEngine(d *dump, c class, edits reference.Edits) *engine {
	arms := c.arms()
	if n := c.center(); n.Store != nil && slices.ContainsFunc(d.graph.Nodes, func(n *graph.Node) bool {
		return n.Op == graph.Route
	}) {
		n.Ties = true
		arms = append(arms, n)
	}
	return simulate(d, c, edits, c.center(), arms).addStored(c)
}

// simulate returns an engine with a center and arms of its own.
func simulate(d *dump, c class, edits reference.Edits, center *reference.Numerics, arms []*reference.Numerics) *engine {
	e := &engine{d, c, edits, map[*prompt]*reference.Eval{}, map[*prompt][]*reference.Eval{},
		map[*prompt]reference.Edits{}}
	for _, p := range d.prompts {
		e.center[p] = p.eval(d.model, p.known, center).With(edits)
		for _, n := range arms {
			e.addArm(p, n)
		}
	}
	return e
}

func (e *engine) addArm(p *prompt, n *reference.Numerics) {
	e.arms[p] = append(e.arms[p], p.eval(e.dump.model, p.known, n).With(e.edits))
}

// addStored adds arms for values stored in 16 bits. The class may be finer.
func (e *engine) addStored(c class) *engine {
	for _, p := range e.dump.prompts {
		if p.step <= float32Step || c.step() >= p.step {
			continue
		}
		for seed := range uint64(2) {
			n := c.center()
			n.Jitter, n.Random = p.step, rand.NewPCG(seed, 8)
			e.addArm(p, n)
		}
	}
	return e
}

// with returns e with more edits.
func (e *engine) with(edits reference.Edits) *engine {
	x := e.each(func(v *reference.Eval) *reference.Eval { return v.With(edits) })
	x.edits = e.edits.And(edits)
	return x
}

// without returns e where the values of nodes are computed, not taken from the dump.
func (e *engine) without(nodes []*graph.Node) *engine {
	return e.each(func(v *reference.Eval) *reference.Eval { return v.Without(nodes...) })
}

func (e *engine) each(change func(*reference.Eval) *reference.Eval) *engine {
	x := &engine{e.dump, e.class, e.edits, map[*prompt]*reference.Eval{}, map[*prompt][]*reference.Eval{}, e.choices}
	for p, v := range e.center {
		x.center[p] = change(v)
		for _, arm := range e.arms[p] {
			x.arms[p] = append(x.arms[p], change(arm))
		}
	}
	return x
}

// forget drops the values computed for the layers before one, to bound memory.
func (e *engine) forget(layer int) {
	for p, v := range e.center {
		v.Forget(layer)
		for _, arm := range e.arms[p] {
			arm.Forget(layer)
		}
	}
}
