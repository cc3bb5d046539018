package engine

import (
	"errors"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// Hook sees values of a sequence's rows while they are computed, and may write to them.
type Hook struct {
	Nodes func(n *graph.Node) bool // reports whether See is called for a node; nil is all nodes
	Write bool                     // See may write: later nodes read the values that it leaves

	// See is called once a step for each node, in order, with the rows of the sequence that the node has in the step,
	// [len(pos)] and n.Shape, at positions pos. Behind Rows these are the rows whose logits are wanted. Both slices are
	// valid during the call. A sequence that was preempted is computed again, and See called again.
	See func(n *graph.Node, pos []int32, values []float32)
}

var errHooks = errors.New("hooks and a tap of all steps do not go together")

// wants reports whether h, which may be nil, is to see n.
func (h *Hook) wants(n *graph.Node) bool { return h != nil && (h.Nodes == nil || h.Nodes(n)) }

// Hook sets who sees the tokens to come; nil is nobody. The plan must have Options.Hooks, and the sequence be empty.
func (s *Sequence) Hook(h *Hook) error {
	switch {
	case !s.plan.hooks:
		return errors.New("the plan has no hooks")
	case len(s.tokens) > 0:
		return errors.New("a hook for a sequence that has tokens already")
	}
	s.hook = h
	return nil
}

// span is the rows of a sequence with a hook in the step that runs.
type span struct {
	hook         *Hook
	at           int // in the batch
	from, to     int // rows
	first, after int // of the outputs
}

// spans returns the tap of the step s, which shows the rows of the batch to the hooks of their sequences.
func (p *Plan) spans(s *backend.Step) backend.Tap {
	if !p.hooks {
		return p.tap
	}
	var all []span
	see, row, output := &p.e.step.see, 0, 0
	for i, w := range p.e.step.batch {
		x := span{hook: w.seq.hook, at: i, from: row, to: row + w.seat.Rows, first: output}
		for row = x.to; output < len(s.Outputs) && int(s.Outputs[output]) < row; output++ {
		}
		if x.after = output; x.hook != nil {
			all = append(all, x)
			s.Write = s.Write || x.hook.Write
		}
	}
	if len(all) == 0 {
		return nil
	}
	s.Watch = func(n *graph.Node) bool {
		return slices.ContainsFunc(all, func(x span) bool { return x.hook.wants(n) })
	}
	var positions []int32 // of the outputs
	for _, r := range s.Outputs {
		positions = append(positions, s.Pos[r])
	}
	return func(n *graph.Node, out []float32) {
		size := n.Shape.Size()
		for _, x := range all {
			from, to, pos := x.from, x.to, s.Pos
			if p.after[n] {
				from, to, pos = x.first, x.after, positions
			}
			if from == to || !x.hook.wants(n) {
				continue
			}
			see.runs, see.of = true, x.at
			x.hook.See(n, pos[from:to:to], out[from*size:to*size:to*size])
			see.runs = false
		}
	}
}
