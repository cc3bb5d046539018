package engine

import (
	"errors"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// Hook sees values of a sequence's rows while they are computed, and may write to them.
type Hook struct {
	Nodes func(n *graph.Node) bool // that See is called for; nil is all
	Write bool                     // See may write: what it leaves is what later nodes read

	// See is called once a step for each node, in order, with the rows of the sequence that the node has in
	// the step, [len(pos)] and n.Shape, at positions pos. Behind Rows these are the rows whose logits are
	// wanted. Both are valid during the call. A sequence that was preempted is computed again, and See called again.
	See func(n *graph.Node, pos []int32, values []float32)
}

var errHooks = errors.New("hooks and a tap of all steps do not go together")

// wants reports whether h, which may be nil, is to see n.
func (h *Hook) wants(n *graph.Node) bool { return h != nil && (h.Nodes == nil || h.Nodes(n)) }

// Hook sets who sees the tokens to come; nil is nobody. Options.Hooks must be set, and the sequence be empty.
func (s *Sequence) Hook(h *Hook) error {
	switch {
	case !s.e.hooks:
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

// spans are those of a batch, and they make s show them.
func (e *Engine) spans(batch []*work, s *backend.Step) backend.Tap {
	if !e.hooks {
		return e.tap
	}
	var all []span
	row, output := 0, 0
	for i, w := range batch {
		x := span{hook: w.seq.hook, at: i, from: row, to: row + w.rows, first: output}
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
		for _, x := range all {
			if x.hook.wants(n) {
				return true
			}
		}
		return false
	}
	var positions []int32 // of the outputs
	for _, r := range s.Outputs {
		positions = append(positions, s.Pos[r])
	}
	return func(n *graph.Node, out []float32) {
		size := n.Shape.Size()
		for _, x := range all {
			from, to, pos := x.from, x.to, s.Pos
			if e.after[n] {
				from, to, pos = x.first, x.after, positions
			}
			if from == to || !x.hook.wants(n) {
				continue
			}
			e.see.runs, e.see.of = true, x.at
			x.hook.See(n, pos[from:to:to], out[from*size:to*size:to*size])
			e.see.runs = false
		}
	}
}
