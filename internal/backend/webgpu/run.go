package webgpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
)

// Run implements backend.Executable. It is one list, and with taps one more for each
// wanted node.
func (e *executable) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	if err := s.Check(e.rows, e.vocab); err != nil {
		return nil, err
	}
	if len(s.Outputs) > e.results {
		return nil, fmt.Errorf("webgpu: logits of %d rows, the plan has room for %d", len(s.Outputs), e.results)
	}
	c, ok := s.Cache.(*cache)
	if !ok || c.b != e.b {
		return nil, errors.New("webgpu: the step's cache is not this backend's")
	}
	e.b.busy.Lock()
	defer e.b.busy.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.list.Reset()
	if e.b.meter != nil {
		e.list.Stamp()
	}
	if err := c.prepare(&e.list, s); err != nil {
		return nil, fmt.Errorf("webgpu: %w", err)
	}
	e.write(s)
	first := e.nodes[0]
	for _, l := range e.nodes {
		if err := e.record(l, s, c); err != nil {
			return nil, fmt.Errorf("webgpu: %v: %w", l.node, err)
		}
		if !l.want || tap == nil {
			continue
		}
		out, err := e.read(l, s, first)
		if err != nil {
			return nil, err
		}
		tap(l.node, out)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		first = l
	}
	return e.read(e.last, s, first)
}

// count is the number of rows of n's value in a step.
func (e *executable) count(n *graph.Node, s *backend.Step) int {
	if e.after[n] {
		return len(s.Outputs)
	}
	return len(s.Tokens)
}

// read runs what is recorded, from the node first on, and returns the value of l.
func (e *executable) read(l *lowered, s *backend.Step, first *lowered) ([]float32, error) {
	n := e.count(l.node, s) * l.node.Shape.Size()
	e.out = slices.Grow(e.out[:0], n)[:n]
	e.list.Read(bytesIn(e.out), l.out, 0)
	dispatches := e.list.Dispatches()
	if e.b.times != nil || e.b.meter != nil {
		e.list.Stamp()
	}
	err := e.b.d.gpu.Run(&e.list)
	for i, times := 0, e.list.Times(); i+1 < len(times) && i < len(e.timed); i++ {
		e.b.times[e.timed[i]] += times[i+1] - times[i]
	}
	e.timed = e.timed[:0]
	e.b.measured(&e.list, dispatches)
	e.list.Reset()
	if err != nil {
		return nil, fmt.Errorf("webgpu: %d dispatches from %v to %v: %w", dispatches, first.node, l.node, err)
	}
	return e.out, nil
}

// write records the step's inputs but embeddings.
func (e *executable) write(s *backend.Step) {
	word := func(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }
	e.list.Write(e.counts, 0, word(len(s.Tokens)))
	e.list.Write(e.counts, e.counts.Size()-16, word(len(s.Outputs)))
	var rows []byte
	for _, r := range s.Outputs {
		rows = binary.LittleEndian.AppendUint32(rows, uint32(r))
	}
	e.list.Write(e.outputs, 0, rows)
	for _, t := range e.turns {
		all := make([]float32, 0, 2*t.pairs*len(s.Pos))
		for _, pos := range s.Pos {
			cos, sin := t.table.Row(int(pos))
			all = append(append(all, cos[:t.pairs]...), sin[:t.pairs]...)
		}
		e.list.Write(t.buffer, 0, bytesIn(all))
	}
}

// record records the dispatches of a node.
func (e *executable) record(l *lowered, s *backend.Step, c *cache) error {
	if l.embed {
		rows, err := embeddings(l.node, s.Tokens)
		if err != nil {
			return err
		}
		e.list.Write(l.out, 0, bytesIn(rows))
	}
	rows := e.count(l.node, s)
	for _, d := range l.dispatches {
		if rows < d.from || d.below > 0 && rows >= d.below {
			continue
		}
		g := d.group
		if d.kv != nil {
			var err error
			if g, err = e.held(d, c); err != nil {
				return err
			}
		}
		x, y, z := d.grid(rows)
		if e.b.times != nil {
			e.list.Stamp()
			e.timed = append(e.timed, l.node.Op.String()+" "+d.pipe.name)
		}
		e.list.Dispatch(d.pipe.Pipeline, g, x, y, z)
	}
	for _, b := range l.freed {
		if e.nans != nil {
			e.list.Copy(b, 0, e.nans, 0, b.Size())
		}
	}
	return nil
}

// held is the group of a dispatch with c's buffers.
func (e *executable) held(d *dispatch, c *cache) (gpu.Group, error) {
	h := e.stale[d]
	if h.group != nil && h.c == c && h.grown == c.grown {
		return h.group, nil
	}
	if c.stores[d.kv] == nil {
		return nil, fmt.Errorf("the cache has no keys and values of layer %d", d.kv.Layer)
	}
	if h.group != nil {
		e.b.free(h.group)
	}
	g, err := e.b.d.gpu.NewGroup(d.pipe.Pipeline, d.ranges(c)...)
	if err != nil {
		return nil, err
	}
	e.b.made = append(e.b.made, g)
	e.stale[d] = held{c, c.grown, g}
	return g, nil
}

// checkEmbed wants the weight of an Embed node to be one that can be read.
func (p *planner) checkEmbed(n *graph.Node) error {
	w := n.W[0]
	row, err := w.Part(0, 1)
	if err != nil {
		return err
	}
	return quant.Dequantize(w.DType, make([]float32, w.Shape.Last()), row.Row(0))
}

// embeddings are the rows of an Embed node's weight. Many are cut among the processors.
func embeddings(n *graph.Node, tokens []int32) ([]float32, error) {
	d, scale, w := n.Shape.Size(), n.Attr.(graph.EmbedAttr).Scale, n.W[0]
	rows := make([]float32, len(tokens)*d)
	cuts := min(runtime.GOMAXPROCS(0), (len(tokens)+15)/16)
	errs := make([]error, cuts)
	var wg sync.WaitGroup
	for c := range cuts {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error {
				for t := len(tokens) * c / cuts; t < len(tokens)*(c+1)/cuts; t++ {
					row := rows[t*d : (t+1)*d]
					part, err := w.Part(int(tokens[t]), int(tokens[t])+1)
					if err != nil {
						return err
					}
					if err := quant.Dequantize(w.DType, row, part.Row(0)); err != nil {
						return err
					}
					for i := range row {
						row[i] *= scale
					}
				}
				return nil
			})
		})
	}
	wg.Wait()
	return rows, errors.Join(errs...)
}

// poison makes the plan fill what is free with NaNs, where a test wants that.
func (p *planner) poison() error {
	if !p.e.b.poison {
		return nil
	}
	most := 0
	for _, l := range p.e.nodes {
		if l.out != nil {
			most = max(most, l.out.Size())
		}
	}
	all := make([]byte, most)
	for i := range all {
		all[i] = 0xff
	}
	b, err := p.e.b.buffer("poison", all)
	p.e.nans = b
	return err
}
