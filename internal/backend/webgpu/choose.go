package webgpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

const (
	likeliest = 256 // maximum of tokens found for a row
	choosing  = 64  // and most rows
	ahead     = 16  // most steps of a list
)

// topVariant is a form of top.wgsl.
type topVariant struct {
	First bool // reads logits
}

// slice is SLICE of top.wgsl.
const slice = 2048

// chooser finds the likeliest tokens in passes, until one slice is left: the first pass reads logits, and each leaves
// candidates for the next.
type chooser struct {
	size   int           // logits of a row
	tokens int           // number of logits belonging to tokens
	rows   int           // at most
	steps  int           // at most
	leaves [2]gpu.Buffer // of the passes, in turns: [rows, slices, k, 2]
}

// slices returns how many each pass has for k tokens.
func (c *chooser) slices(k int) (all []int) {
	for n := c.size; len(all) == 0 || all[len(all)-1] > 1; n = k * all[len(all)-1] {
		all = append(all, (n+slice-1)/slice)
	}
	return all
}

// chosen returns the buffer of the likeliest k tokens: [rows, k, 2]. The buffer for k = 1 also takes the host's tokens
// of a step, for Embed.
func (c *chooser) chosen(k int) gpu.Buffer { return c.leaves[(len(c.slices(k))+1)%2] }

// newChooser makes the buffers for finding the likeliest tokens. It returns nil on a software GPU: waits between
// invocations cost much there, and logits are near.
func (p *planner) newChooser(g *graph.Graph, tokens int) *chooser {
	if p.b.o.Software {
		return nil
	}
	logits := g.Result()
	c := &chooser{size: logits.Shape.Size(), tokens: cmp.Or(tokens, logits.Shape.Size()),
		rows: min(p.most(logits), choosing), steps: ahead}
	for _, n := range g.Nodes {
		if n.Op == graph.Embed && !p.tables[weights{n.W[0]}] {
			c.steps = 1
		}
	}
	for i, slices := range c.slices(likeliest) {
		if i < len(c.leaves) {
			c.leaves[i] = must(p.b.memory.empty("likeliest", max(c.rows*slices*likeliest, p.e.rows)*8))
		}
	}
	return c
}

// addChooser lowers the passes of choosing tokens.
func (p *planner) addChooser() {
	c := p.common.chooser
	if c == nil {
		return
	}
	p.e.passes.node, p.e.passes.extent = p.e.last.node, p.e.last.extent
	from := p.e.last.out
	for i, slices := range c.slices(likeliest) {
		grid := func(int) (x, y, z int) { return slices, c.rows, 1 }
		numbers := params{"size": c.size, "before": i, "tokens": c.tokens}
		p.add(&p.e.passes, "top", topVariant{First: i == 0}, numbers, grid, c.leaves[i%2], from)
		from = c.leaves[i%2]
	}
}

// tables returns g's tables of embeddings kept on the GPU: weights of products, and other tables if together an eighth
// of the weights' size.
func (b *Backend) tables(g *graph.Graph, stacks map[*graph.Node]*stack) map[weights]bool {
	var products, more int64
	there, others := map[weights]bool{}, map[weights]bool{}
	for _, n := range g.Nodes {
		if s := stacks[n]; s != nil {
			there[s.key] = true
		}
		if n.Op == graph.Linear || n.Op == graph.Experts {
			for _, w := range n.W {
				products += int64(w.Size())
			}
		}
	}
	for _, n := range g.Nodes {
		if n.Op != graph.Embed {
			continue
		}
		key := weights{n.W[0]}
		if columnsOf(n.W[0]) != nil {
			delete(there, key)
			continue
		}
		if _, err := layoutOf(n.W[0].DType, n.W[0].Shape.Last()); err != nil {
			continue
		}
		if !there[key] && !others[key] {
			others[key], more = true, more+int64(n.W[0].Size())
		}
	}
	if more <= products/8 || b.all {
		maps.Copy(there, others)
	}
	return there
}

// lowerEmbed lowers an Embed node: the host writes rows of a table not on the GPU.
func lowerEmbed(p *planner, l *lowered) {
	n, scale := l.node, l.node.Attr.(graph.EmbedAttr).Scale
	if !p.tables[weights{n.W[0]}] {
		l.given = &given{p.values[n], 0, n.Shape.Size(), l.extent, func(s *backend.Step, to []byte) error {
			return embeddings(to, n, s.Tokens, scale)
		}}
		check(readable(n))
		return
	}
	w := p.b.weights[weights{n.W[0]}]
	for _, s := range w.shards {
		numbers := params{"n": s.n, "k": w.k, "first": s.first, "rows": w.rows, "scale": float32(scale)}
		p.add(l, "embed", w.layout, numbers, elements((w.k+31)/32*4), p.values[n], p.common.chooser.chosen(1), s.buffer)
	}
}

// Most implements backend.Chooser.
func (e *executable) Most() (k, steps int) {
	if c := e.whole.chooser; c != nil {
		return likeliest, c.steps
	}
	return 0, 0
}

// Choose implements backend.Chooser.
func (e *executable) Choose(ctx context.Context, s *backend.Step, k, steps int) ([]backend.Likely, error) {
	if most, far := e.Most(); k < 1 || k > most || steps < 1 || steps > far || steps > 1 && k > 1 {
		return nil, fmt.Errorf("the %d likeliest tokens of %d steps; at most %d and %d are possible, one of them 1",
			k, steps, most, far)
	}
	p, err := e.planFor(s)
	if err != nil {
		return nil, err
	}
	return p.choose(ctx, s, k, steps)
}

// choose implements Choose: one list, reading back a few bytes.
func (e *plan) choose(ctx context.Context, s *backend.Step, k, steps int) ([]backend.Likely, error) {
	if err := e.mayChoose(s, steps); err != nil {
		return nil, err
	}
	c, err := e.begin(ctx, s)
	if err != nil {
		return nil, err
	}
	defer e.b.busy.Unlock()
	if err := e.reserve(c, steps); err != nil {
		return nil, err
	}
	rows := e.count(e.last)
	out := make([]uint32, 2*rows*k*steps)
	first := e.nodes[0].node
	for i := range steps {
		if i > 0 {
			e.recording.list.Cut()
		}
		e.recording.steps = parts(later(s, i))
		c.recordTables(&e.recording.list, e.recording.steps)
		e.write(k, i > 0)
		for _, l := range e.nodes {
			if err := e.record(l, c); err != nil {
				return nil, fmt.Errorf("%v: %w", l.node, err)
			}
			if first, err = e.pause(ctx, first, l.node); err != nil {
				return nil, err
			}
		}
		for j, slices := range e.chooser.slices(k) {
			d := e.passes.dispatches[j]
			e.dispatch(e.last.node, d, d.group, slices, rows, 1)
		}
		e.recording.list.Read(bytesIn(out[2*rows*k*i:][:2*rows*k]), e.chooser.chosen(k), 0)
	}
	e.readValues(s)
	if err := e.run(first, e.last.node, steps); err != nil {
		return nil, err
	}
	found := make([]backend.Likely, rows*k*steps)
	for i := range found {
		found[i] = backend.Likely{ID: int32(out[2*i]), Logit: math.Float32frombits(out[2*i+1])}
	}
	return found, nil
}

// mayChoose returns an error if choose cannot do s in a number of steps.
func (e *plan) mayChoose(s *backend.Step, steps int) error {
	switch {
	case s.NoLogits:
		return errors.New("a step without logits chooses no tokens")
	case len(s.Values) > 0 && steps > 1:
		return errors.New("values of nodes are of one step")
	}
	n := len(s.Tokens)
	if e.last.extent == wanted {
		n = len(s.Outputs)
	}
	if n > e.chooser.rows {
		return fmt.Errorf("the likeliest tokens of %d rows, at most %d are possible", n, e.chooser.rows)
	}
	if steps == 1 {
		return nil
	}
	if s.Embeddings != nil || s.Parts != nil {
		return errors.New("several steps are of tokens of text, not of embeddings")
	}
	if n != len(s.Tokens) {
		return errors.New("several steps need the logits of all rows")
	}
	for i, pos := range s.Pos {
		if i > 0 && s.Seqs[i] == s.Seqs[i-1] {
			return errors.New("several steps are of one row of each sequence")
		}
		if room := s.Seqs[i].Len(); int(pos)+steps > room {
			return fmt.Errorf("%d steps from position %d on, the sequence has room for %d", steps, pos, room)
		}
	}
	return nil
}
