package diagnose

import (
	"math/rand/v2"

	"github.com/karat-run/karat/internal/backend/reference"
)

// setClass makes the evaluations of all prompts those of an engine of that class.
func (r *measurement) setClass(c class) {
	r.setCenter(c)
	r.setArms(c.arms())
	r.addStored(c)
}

func (r *measurement) setCenter(c class) {
	for _, p := range r.prompts {
		p.center = p.eval(r.model, p.known, c.center()).With(r.edits)
	}
}

func (r *measurement) setArms(arms []*reference.Numerics) {
	for _, p := range r.prompts {
		p.arms = nil
		for _, n := range arms {
			p.arms = append(p.arms, p.eval(r.model, p.known, n).With(r.edits))
		}
	}
}

// addStored adds the arms that values stored in 16 bits ask for, which a finer class may have.
func (r *measurement) addStored(c class) {
	for _, p := range r.prompts {
		if p.step <= 0x1p-24 || c.step() >= p.step {
			continue
		}
		for seed := range uint64(2) {
			n := c.center()
			n.Jitter, n.Random = p.step, rand.NewPCG(seed, 8)
			p.arms = append(p.arms, p.eval(r.model, p.known, n).With(r.edits))
		}
	}
}

// build makes edits part of the simulated engine.
func (r *measurement) build(edits reference.Edits) {
	r.edits = r.edits.And(edits)
	for _, p := range r.prompts {
		p.center = p.center.With(edits)
		for i, a := range p.arms {
			p.arms[i] = a.With(edits)
		}
	}
	r.findSpans()
}
