package engine

import (
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine/schedule"
	"github.com/karat-run/karat/internal/graph"
)

// Plan is a compiled form of the engine's graph. Its sequences are computed with it.
type Plan struct {
	e       *Engine
	run     backend.Executable
	kept    backend.Kept
	private bool                 // sequences share nothing
	tap     backend.Tap          // nil, or seen
	taps    bool                 // somebody sees values
	hooks   bool                 // Options.Hooks
	after   map[*graph.Node]bool // of a plan with hooks: the nodes behind Rows
	ahead   *ahead               // nil where tokens are chosen here, by their logits
	turn    *schedule.Plan
	until   time.Time // when its next step ceases to wait for the sequences of its last step; guarded by Engine.mu
}

// Plan compiles the engine's graph anew, by the fields of a plan in o. The fields that size an engine are New's.
func (e *Engine) Plan(o Options) (*Plan, error) {
	if o.Hooks && (o.Tap != nil || o.Want != nil) {
		return nil, errHooks
	}
	p := &Plan{e: e, kept: backend.NewKept(e.graph, o.Keep), hooks: o.Hooks, tap: e.step.see.watch(o.Tap),
		taps:    o.Tap != nil || o.Expert != nil || o.Hooks,
		private: o.Private || o.Tap != nil || o.Want != nil || o.Expert != nil || o.Hooks || e.entire}
	watched := o.Tap != nil || o.Want != nil
	if o.Hooks {
		o.Want, p.after, watched = func(*graph.Node) bool { return true }, e.graph.Live().After, true
	}
	var err error
	p.run, err = e.backend.Compile(e.graph, backend.Options{Rows: e.chunk, Outputs: e.schedule.Outputs,
		Tokens: e.tokens, Want: o.Want, Keep: o.Keep, Expert: o.Expert, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	if !watched {
		p.ahead = newAhead(p.run)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p.turn = e.schedule.NewPlan()
	e.plans = append(e.plans, p)
	return p, nil
}
