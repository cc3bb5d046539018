package engine

import (
	"context"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/sample"
)

// burst is the maximum time of steps computed at once: a bound on the time between two pieces of a text.
const burst = 40 * time.Millisecond

// ahead is a compiled plan that chooses tokens itself, and so may go on without waiting.
type ahead struct {
	backend.Chooser
	pace time.Duration // of a step of a row each; 0 is not known yet
}

// choice is the output wanted instead of logits.
type choice struct {
	top   int                    // how many of the likeliest tokens; 0 wants logits
	steps int                    // how many tokens may be chosen at once, if each is the likeliest
	node  *graph.Node            // node with wanted values; nil for none
	see   func(logits []float32) // sees logits in place of copies; nil for none
	odds  []float32              // of the last tokens, a draft (schedule.Work.Odds)

	states  bool // the head is to draft behind the outputs
	guessed bool // the draft is the head's, to be made
}

// newAhead returns nil if the plan cannot choose tokens.
func newAhead(plan backend.Executable) *ahead {
	c, ok := plan.(backend.Chooser)
	if !ok {
		return nil
	}
	if most, _ := c.Most(); most == 0 {
		return nil
	}
	return &ahead{Chooser: c}
}

// choice returns the number of likeliest tokens sufficient for a batch, and the number of steps that may be computed at
// once; 0 if the batch needs logits.
func (p *Plan) choice(batch []*work) (k, steps int) {
	if p.ahead == nil {
		return 0, 0
	}
	most, steps := p.ahead.Most()
	steps = min(steps, int(burst/max(p.ahead.pace, 1)))
	if p.ahead.pace == 0 {
		steps = 1
	}
	for _, w := range batch {
		outputs, b := w.seat.Outputs, &w.seq.extras
		steps = min(steps, max(w.seq.seat.Pages.Droppable(), 1))
		if outputs > 0 && (w.choice.top == 0 || w.choice.top > most) {
			return 0, 0
		}
		steps = min(steps, w.choice.steps)
		if w.seat.Rows > 1 || outputs == 0 || b.embedding(w.seat.At) != nil || b.Parts != nil || w.choice.states {
			steps = 1
		}
		if outputs > 0 {
			k = max(k, w.choice.top)
		}
	}
	if k > 1 || steps < 1 || !grow(batch, steps-1) {
		steps = 1
	}
	return k, steps
}

// grow makes room for n more positions of each sequence, or of none.
func grow(batch []*work, n int) bool {
	for i, w := range batch {
		if w.seq.seat.Pages.Grow(n) != nil {
			for _, w := range batch[:i] {
				pages := w.seq.seat.Pages
				pages.Truncate(pages.Len() - n)
			}
			return false
		}
	}
	return true
}

// computeAhead computes steps of the batch and hands each work its likeliest tokens.
func (p *Plan) computeAhead(ctx context.Context, k, steps int) error {
	s, start := &p.e.step.next, time.Now()
	found, err := p.ahead.Choose(ctx, s, k, steps)
	if err != nil {
		return err
	}
	if len(s.Tokens) == len(p.e.step.batch) {
		p.ahead.pace = time.Since(start) / time.Duration(steps)
	}
	row := 0
	for _, w := range p.e.step.batch {
		for range w.seat.Outputs { // of a draft, in a single step
			for i := range steps {
				of := found[(i*len(s.Outputs)+row)*k:][:w.choice.top]
				w.found = append(w.found, likely(of))
				if i == steps-1 || int(of[0].ID) >= p.e.ids { // the next step cannot embed the token
					break
				}
				w.ahead = append(w.ahead, of[0].ID)
			}
			row++
		}
	}
	return nil
}

// found are the likeliest tokens of each step.
type found [][]sample.Likely

// likely returns tokens in the sampler's form.
func likely(of []backend.Likely) []sample.Likely {
	all := make([]sample.Likely, len(of))
	for i, x := range of {
		all[i] = sample.Likely{ID: int(x.ID), Logit: x.Logit}
	}
	return all
}
