package webgpu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
)

// planFor returns the plan for s.
func (e *executable) planFor(s *backend.Step) (*plan, error) {
	if slices.ContainsFunc(s.Adapters, func(b *backend.Blend) bool { return b != nil }) {
		var err error
		if e, err = e.adapted(); err != nil {
			return nil, err
		}
	}
	if len(s.Outputs) == len(s.Tokens) && len(s.Tokens) <= e.whole.rows {
		return e.whole, nil
	}
	return e.part, nil
}

// Run implements backend.Executable.
func (e *executable) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	p, err := e.planFor(s)
	if err != nil {
		return nil, err
	}
	return p.compute(ctx, s, tap)
}

// compute implements Run: one list, and with taps one more for each wanted node; several lists where one would take
// long.
func (e *plan) compute(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	c, err := e.begin(ctx, s)
	if err != nil {
		return nil, err
	}
	defer e.b.busy.Unlock()
	if err := e.reserve(c, 1); err != nil {
		return nil, err
	}
	c.recordTables(&e.recording.list, e.recording.steps)
	e.write(0, false)
	first, nodes := e.nodes[0].node, e.nodes
	if s.NoLogits {
		nodes = nodes[:e.enough]
	}
	for _, l := range nodes {
		if err := e.record(l, c); err != nil {
			return nil, fmt.Errorf("%v: %w", l.node, err)
		}
		if !l.want || tap == nil || !s.Sees(l.node) {
			if first, err = e.pause(ctx, first, l.node); err != nil {
				return nil, err
			}
			continue
		}
		out, err := e.read(l, first)
		if err != nil {
			return nil, err
		}
		e.show(tap, l, out, s.Write)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		first = l.node
	}
	e.readValues(s)
	if s.NoLogits {
		return nil, e.run(first, nodes[len(nodes)-1].node, 1)
	}
	return e.read(e.last, first)
}

// readValues reads the values of nodes that s asks for.
func (e *plan) readValues(s *backend.Step) {
	for _, v := range s.Values {
		from, _ := e.kept.Range(s, v)
		e.recording.list.Read(bytesIn(v.Out), e.values[v.Node].out, 4*from)
	}
}

// show calls tap, and takes over its writes, if allowed.
func (e *plan) show(tap backend.Tap, l *lowered, out []float32, write bool) {
	if !write {
		tap(l.node, out)
		return
	}
	had := slices.Clone(out)
	tap(l.node, out)
	if !bytes.Equal(bytesIn(had), bytesIn(out)) {
		e.recording.list.Write(l.out, 0, bytesIn(slices.Clone(out)))
	}
}

// begin begins the list of a step, with the backend's lock held if there is no error.
func (e *plan) begin(ctx context.Context, s *backend.Step) (*cache, error) {
	if len(s.Outputs) > e.results {
		return nil, fmt.Errorf("logits of %d rows, the plan has room for %d", len(s.Outputs), e.results)
	}
	if err := s.Check(e.rows, e.vocab); err != nil {
		return nil, err
	}
	if e.ahead {
		if err := s.Entire(); err != nil {
			return nil, err
		}
	}
	if err := cmp.Or(s.CheckEmbeddings(e.entry), e.kept.Check(s)); err != nil {
		return nil, err
	}
	c, ok := s.Cache.(*cache)
	if !ok || c.b != e.b {
		return nil, errors.New("the step's cache is not this backend's")
	}
	if err := e.b.busy.Take(ctx); err != nil {
		return nil, err
	}
	e.recording.steps = parts(s)
	e.recording.many = len(s.Tokens) >= 64
	e.reset()
	return c, nil
}

// reserve makes room for a number of steps, from the beginning one on.
func (e *plan) reserve(c *cache, steps int) error {
	if err := c.reserve(e.recording.steps, steps, e.splits); err != nil {
		return err
	}
	return e.tabulate()
}

// reset begins a list.
func (e *plan) reset() {
	e.recording.list.Reset()
	if e.b.meter != nil {
		e.recording.list.Stamp()
	}
}

// pause runs the recorded commands, of the nodes from first to last, if they take so long that the caller should be
// able to stop. It returns the first node of the next recording.
func (e *plan) pause(ctx context.Context, first, last *graph.Node) (*graph.Node, error) {
	if !e.recording.many || e.recording.pace*time.Duration(e.recording.list.Dispatches()) < longest {
		return first, nil
	}
	if err := e.run(first, last, 0); err != nil {
		return nil, err
	}
	e.reset()
	return last, ctx.Err()
}

// count returns the number of rows of l's value in the running step.
func (e *plan) count(l *lowered) int { return len(e.recording.steps[l.extent].Tokens) }

// kernels returns the number of rows for choosing l's kernels. On matrix units a row in a few has other bits, so rows
// for a tap take the kernels of the rows with wanted logits.
func (e *plan) kernels(l *lowered) int {
	if l.late && e.b.unit != nil && len(e.recording.steps[wanted].Tokens) < many {
		return min(e.count(l), few)
	}
	return e.count(l)
}

// read runs the recorded commands, from the node first on, and returns the value of l.
func (e *plan) read(l *lowered, first *graph.Node) ([]float32, error) {
	n := e.count(l) * l.node.Shape.Size()
	e.recording.out = slices.Grow(e.recording.out[:0], n)[:n]
	e.recording.list.Read(bytesIn(e.recording.out), l.out, 0)
	return e.recording.out, e.run(first, l.node, 1)
}

// run runs the recorded commands, of the nodes from first to last, of so many steps.
func (e *plan) run(first, last *graph.Node, steps int) error {
	dispatches := e.recording.list.Dispatches()
	if e.b.times != nil || e.b.meter != nil {
		e.recording.list.Stamp()
	}
	start := time.Now()
	err := e.b.d.gpu.Run(&e.recording.list)
	if e.recording.many {
		e.recording.pace = time.Since(start) / time.Duration(max(dispatches, 1))
	}
	for i, times := 0, e.recording.list.Times(); i+1 < len(times) && i < len(e.recording.timed); i++ {
		e.b.times[e.recording.timed[i]] += times[i+1] - times[i]
	}
	e.recording.timed = e.recording.timed[:0]
	e.b.measured(&e.recording.list, dispatches, steps)
	e.recording.list.Reset()
	if err != nil {
		return fmt.Errorf("%d dispatches from %v to %v: %w", dispatches, first, last, err)
	}
	return nil
}

// write records the step's inputs, except for inputs of single nodes; k is the number of likeliest tokens wanted. In a
// step after another only the positions are new.
func (e *plan) write(k int, after bool) {
	if !after {
		for x, s := range e.recording.steps {
			e.recording.list.Write(e.counts, x*e.params.align, bytesIn([]uint32{uint32(len(s.Tokens)), uint32(k)}))
		}
		s := e.recording.steps[every]
		var rows []uint32
		for _, r := range s.Outputs {
			rows = append(rows, uint32(r))
		}
		e.recording.list.Write(e.outputs, 0, bytesIn(rows))
		if e.chooser != nil {
			tokens := make([]uint32, 2*len(s.Tokens))
			for i, id := range s.Tokens {
				tokens[2*i] = uint32(id)
			}
			e.recording.list.Write(e.chooser.chosen(1), 0, bytesIn(tokens))
		}
	}
	for _, t := range e.turns {
		s := e.recording.steps[t.extent]
		positions := s.Pos
		e.recording.list.Fill(t.buffer, 0, 8*t.pairs*len(positions), func(to []byte) error {
			all := floatsIn(to)
			for row, pos := range positions {
				if s.Turn(t.attr, row, all[:t.pairs], all[t.pairs:2*t.pairs]) {
					all = all[2*t.pairs:]
					continue
				}
				cos, sin := t.table.Row(int(pos))
				all = all[copy(all, cos[:t.pairs]):]
				all = all[copy(all, sin[:t.pairs]):]
			}
			return nil
		})
	}
}

// record records the dispatches of a node.
func (e *plan) record(l *lowered, c *cache) error {
	if g := l.given; g != nil {
		s := e.recording.steps[g.of]
		e.recording.list.Fill(g.buffer, 0, 4*(g.head+e.count(l)*g.width), func(to []byte) error {
			if err := g.fill(s, to); err != nil {
				return fmt.Errorf("%v: %w", l.node, err)
			}
			return nil
		})
	}
	rows, kernels := e.count(l), e.kernels(l)
	for _, d := range l.dispatches {
		if rows == 0 || kernels < d.from || d.below > 0 && kernels >= d.below {
			continue
		}
		if d.only != anyStep && (d.only == grouped) != (e.recording.steps[l.extent].Groups != nil) {
			continue
		}
		pages := 0
		if d.split != nil {
			if _, pages = d.split.size(e.recording.steps); pages > 0 != d.long {
				continue
			}
		}
		x, y, z := d.grid(rows)
		if x == 0 {
			continue
		}
		g := d.group
		if g == nil {
			var err error
			if g, err = e.held(d, c); err != nil {
				return err
			}
		}
		if z == 0 {
			z = pages
		}
		e.dispatch(l.node, d, g, x, y, z)
	}
	if l.node == e.entry.Node {
		for i, row := range e.recording.steps[every].Embeddings {
			size := l.node.Shape.Size()
			e.recording.list.Write(l.out, 4*i*size, bytesIn(row[:min(size, len(row))]))
		}
	}
	for _, b := range l.freed {
		if e.recording.nans != nil {
			e.recording.list.Copy(b, 0, e.recording.nans, 0, b.Size())
		}
	}
	return nil
}

// dispatch records a dispatch of a node.
func (e *plan) dispatch(n *graph.Node, d *dispatch, g gpu.Group, x, y, z int) {
	if e.b.times != nil {
		e.recording.list.Stamp()
		e.recording.timed = append(e.recording.timed, n.Op.String()+" "+d.pipe.name)
	}
	e.recording.list.Dispatch(d.pipe.Pipeline, g, x, y, z)
}

// held returns the group of a dispatch with buffers of c, or of adapters.
func (e *plan) held(d *dispatch, c *cache) (gpu.Group, error) {
	h, grown := e.recording.stale[d], c.grown+e.b.adapters.grown
	if h.group != nil && h.c == c && h.grown == grown {
		return h.group, nil
	}
	g, err := e.b.group(d, c)
	if err != nil {
		return nil, err
	}
	if h.group != nil {
		e.b.memory.free(h.group)
	}
	e.recording.stale[d] = held{c, grown, g}
	return g, nil
}

// readable returns an error if the weight of a node, a table, cannot be read.
func readable(n *graph.Node) error {
	return lookUp(make([]float32, n.W[0].Shape.Last()), n.W[0], 0)
}

// lookUp reads a row of a table.
func lookUp(row []float32, w *graph.Weight, at int) error {
	part, err := w.Part(at, at+1)
	if err != nil {
		return err
	}
	return quant.Dequantize(w.DType, row, part.Row(0))
}

// embeddings fills to with rows of the weight of n, an Embed or EmbedPos node.
func embeddings(to []byte, n *graph.Node, ids []int32, scale float32) error {
	return deal(to, n, len(ids), func(t int, _, row []float32) error {
		if err := lookUp(row, n.W[0], int(ids[t])); err != nil {
			return err
		}
		for i := range row {
			row[i] *= scale
		}
		return nil
	})
}

// deal fills to, perhaps memory slow to read, with rows of n made by fill, which may also write to a row of its own.
// Many rows are dealt to the processors in small pieces, since some processors may be late.
func deal(to []byte, n *graph.Node, count int, fill func(t int, spare, row []float32) error) error {
	d, rows := n.Shape.Size(), floatsIn(to)
	cuts := min(4*runtime.GOMAXPROCS(0), (count+15)/16)
	errs := make([]error, cuts)
	var wg sync.WaitGroup
	for c := range cuts {
		wg.Go(func() {
			spare, row := make([]float32, d), make([]float32, d)
			errs[c] = mmap.Guard(func() error {
				for t := count * c / cuts; t < count*(c+1)/cuts; t++ {
					if err := fill(t, spare, row); err != nil {
						return err
					}
					copy(rows[t*d:], row)
				}
				return nil
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
