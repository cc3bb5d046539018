package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tensor"
)

// Recorder computes prompts for a record.
type Recorder struct {
	g      *graph.Graph
	engine *engine.Engine
	keep   int
	pooled bool                 // rows are pooled: the last position alone has a result
	hidden map[*graph.Node]int  // a node's place among the hidden states
	inputs map[*graph.Node]bool // nodes that projections read
	behind map[*graph.Node]bool // nodes without a row of position 0: of a head for drafts
	all    bool                 // take every tap of the prompt that runs

	// What the taps have seen of it.
	seen map[*graph.Node][]float32
}

// NewRecorder compiles g on b for prompts of at most context tokens, and records the last keep positions. The
// preparation of weights ends with ctx.
func NewRecorder(ctx context.Context, g *graph.Graph, b backend.Backend, context, keep int) (*Recorder, error) {
	r := &Recorder{g: g, keep: keep, hidden: hiddenStates(g), inputs: map[*graph.Node]bool{},
		behind: map[*graph.Node]bool{}}
	if slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == graph.Pool }) {
		r.keep, r.pooled = 1, true
	}
	for _, n := range g.Nodes {
		if projection(n) != "" {
			r.inputs[input(n)] = true
		}
		r.behind[n] = n.State != nil && n.State.Recycles != "" ||
			slices.ContainsFunc(n.In, func(x *graph.Node) bool { return r.behind[x] })
	}
	var err error
	x, _ := b.(reference.Backend) // whose edits may ask for images
	r.engine, err = model.Compile(ctx, g, b, engine.Options{Context: context, Want: r.want, Tap: r.tap,
		Groups: x.Edits != nil})
	return r, err
}

// Close frees the engine.
func (r *Recorder) Close() error { return r.engine.Close() }

// want reports whether a record has n's value: the nodes with a PyTorch name, the inputs of projections whose input
// PyTorch's hooks see, and hidden states.
func (r *Recorder) want(n *graph.Node) bool {
	_, state := r.hidden[n]
	return n.HF != "" || r.inputs[n] || state
}

func (r *Recorder) tap(n *graph.Node, out []float32) {
	if _, ok := r.hidden[n]; !ok && !r.all {
		return
	}
	if r.behind[n] && r.seen[n] == nil {
		r.seen[n], out = []float32{}, out[n.Shape.Size():]
	}
	r.seen[n] = append(r.seen[n], out...)
}

// Record computes p, of which index, input, text, ids and decode are set, and sets
// the rest: logits, hidden states, the next token and, if asked for, the taps.
func (r *Recorder) Record(ctx context.Context, p *Prompt, taps bool) error {
	r.all, r.seen = taps, map[*graph.Node][]float32{}
	p.PositionsKept = min(r.keep, len(p.IDs))
	if r.behind[r.g.Result()] {
		p.PositionsKept = min(r.keep, len(p.IDs)-1)
	}
	outputs := p.PositionsKept
	if taps && !r.pooled {
		outputs = len(p.IDs)
	}
	if err := p.check(); err != nil {
		return err
	}
	if len(p.IDs) == 0 || outputs == 0 {
		return fmt.Errorf("prompt %d: too few tokens", p.Index)
	}
	rows, err := r.feed(ctx, p, outputs)
	if err != nil {
		return fmt.Errorf("prompt %d: %w", p.Index, err)
	}
	var logits []float32
	for _, row := range rows[len(rows)-p.PositionsKept:] {
		logits = append(logits, row...)
	}
	p.Logits = newF32(logits, p.PositionsKept, r.engine.VocabSize())
	p.next(rows[len(rows)-1])
	p.Hidden = r.states(p.PositionsKept)
	if taps {
		was := p.Taps // the tower's
		p.Taps = r.taps()
		maps.Copy(p.Taps, was)
	}
	return nil
}

// feed computes p's tokens, and returns the logits of the last outputs of them.
func (r *Recorder) feed(ctx context.Context, p *Prompt, outputs int) (rows [][]float32, err error) {
	s := r.engine.NewSequence()
	defer s.Close()
	if r.engine.Turns() && p.Parts == nil {
		p.Parts = p.mixed.Parts
	}
	mixed := engine.Mixed{Parts: p.Parts, Embeddings: p.mixed.Embeddings, Groups: p.mixed.Groups}
	if _, err := s.Mix(p.IDs, mixed, ""); err != nil {
		return nil, err
	}
	for at, n := 0, len(p.IDs)-p.Decode; at < len(p.IDs); at, n = at+n, 1 {
		wanted := at + n - max(at, len(p.IDs)-outputs)
		more, err := s.Feed(ctx, p.IDs[at:at+n], max(0, wanted))
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// next describes the distribution of the token after the prompt.
func (p *Prompt) next(logits []float32) {
	p.NextID = TopIDs(logits, 1)[0]
	p.NextProbability = Number(math.Exp(float64(logits[p.NextID]) - LogSumExp(logits)))
	p.Entropy = Number(Entropy(logits))
}

// states gathers the hidden states of the last keep positions.
func (r *Recorder) states(keep int) *tensor.Tensor {
	byPlace := map[int][]float32{}
	width := 0
	for n, out := range r.seen {
		if i, ok := r.hidden[n]; ok {
			width = n.Shape.Size()
			byPlace[i] = out[len(out)-keep*width:]
		}
	}
	var all []float32
	for i := range len(byPlace) {
		all = append(all, byPlace[i]...)
	}
	return newF32(all, len(byPlace), keep, width)
}

// taps names values as PyTorch does. A module that ends in a projection
// has its output.
func (r *Recorder) taps() map[string]*tensor.Tensor {
	taps := map[string]*tensor.Tensor{}
	for _, n := range r.g.Nodes {
		out := r.seen[n]
		if n.HF == "" || out == nil {
			continue
		}
		rows := len(out) / n.Shape.Size()
		t := newF32(out, append([]int{rows}, n.Shape...)...)
		taps[n.HF] = t
		if name := projection(n); name != "" {
			taps[name[:strings.LastIndex(name, ".")]+".out"] = t
			in := input(n)
			taps[name+".in"] = newF32(r.seen[in], rows, in.Shape.Size())
		}
	}
	return taps
}

// newF32 returns x as a tensor.
func newF32(x []float32, shape ...int) *tensor.Tensor {
	t := &tensor.Tensor{DType: tensor.F32, Shape: shape, Data: make([]byte, 0, 4*len(x))}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}
