package diagnose

import (
	"context"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// subject is a dump and its model, as placement leaves them and as all that follows reads them.
type subject struct {
	Options
	*wiring
	ctx      context.Context
	prompts  []*prompt
	blackBox bool           // there are only logits
	misfit   []lab.Unplaced // taps that have a place, but not its width
	unplaced []string       // taps without a place, and why
	findings []Finding      // of the dump itself, not of the engine
	inferred []string       // what the dump does not say, a sentence each
}

func (r *subject) progress(stage string, done, total int) {
	if r.Progress != nil {
		r.Progress(stage, done, total)
	}
}

func (r *subject) infers(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(r.inferred, s) {
		r.inferred = append(r.inferred, s)
	}
}

// prompt is one of the dump's, with its known values.
type prompt struct {
	*lab.Prompt
	tapped  bool    // there are more values than logits, and these are used
	given   bool    // its ids are not the dump's own
	outline bool    // there are the hidden states of the last positions
	step    float64 // the largest relative error of the form that values are stored in
	known   map[*graph.Node]reference.Known
	placed  map[*graph.Node]lab.Placed
	twice   [][2]lab.Placed   // taps of the same value
	center  *reference.Eval   // what an engine of the class computes, with the accepted edits
	arms    []*reference.Eval // and with its roundings falling otherwise
}

// eval is an evaluation of m for the prompt.
func (p *prompt) eval(m *reference.Model, known map[*graph.Node]reference.Known, num *reference.Numerics) *reference.Eval {
	return m.Eval(p.IDs, known, num).At(p.Parts)
}

// hidden begins the names of hidden states.
const hidden = "hidden."

// logitsName is what the placement calls a prompt's logits.
const logitsName = "logits"

// read is the engine's rows of n.
func (p *prompt) read(n *graph.Node, rows []int) []float64 {
	w := n.Shape.Size()
	x := make([]float64, len(rows)*w)
	for i, row := range rows {
		p.known[n].Read(x[i*w:(i+1)*w], row)
	}
	return x
}

// written reports whether any value is not 0.
func (p *prompt) written() bool {
	for _, k := range p.known {
		first, n := k.Rows()
		x := make([]float64, k.(tap).Width)
		for i := range n {
			k.Read(x, first+i)
			if slices.ContainsFunc(x, func(v float64) bool { return v != 0 }) {
				return true
			}
		}
	}
	return false
}

// stored is the largest relative error of the form that values are stored in. Products tell it. Where none is
// tapped all sums and norms have to say the same, since one that is wrong may hold a copy of a weight.
func (p *prompt) stored() float64 {
	step, least, products := 0x1p-24, 1.0, false
	for n, t := range p.placed {
		step, products = max(step, t.Step()), products || n.Op == graph.Linear
		switch n.Op {
		case graph.Add, graph.Mul, graph.RMSNorm, graph.LayerNorm, graph.Softcap:
			least = min(least, t.Held())
		}
	}
	if !products && least < 1 {
		step = max(step, least)
	}
	return step
}

// decoded is how many of the prompt's last tokens were decoded one by one.
func (p *prompt) decoded() int { return p.Decode }

// tap makes a placed tap a known value.
type tap struct{ lab.Placed }

func (t tap) Rows() (first, n int)        { return t.First, t.Placed.Rows }
func (t tap) Read(dst []float64, row int) { t.Placed.Read(dst, row-t.First) }
