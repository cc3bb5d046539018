package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/simd"
)

// packed is a weight as kernels read it, a panel.Weight for each of its matrices:
// in panels, or in place.
type packed struct {
	matrices []*panel.Weight
	memory   []byte // of the panels
}

// ready makes the quantized weights of g's products what kernels read. What these can
// read in place stays there for now, so that the first token does not wait for it;
// the others are repacked. Plans of one graph share them.
func (b *Backend) ready(g *graph.Graph, progress func(done, total int64) error) error {
	var now []*graph.Weight
	for _, w := range quantized(g) {
		switch {
		case b.packed[w] != nil:
		case inPlace(w):
			m, err := newInPlace(w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
			b.packed[w], b.later = m, append(b.later, w)
		default:
			now = append(now, w)
		}
	}
	return b.repack(now, progress)
}

// settleSteps is how many steps share the work of settle.
const settleSteps = 8

// settle repacks weights that are in place: all before a step that has tiles, which want
// panels, else some at each step of a few rows after the first one: what decodes on reads
// large pages faster than a file's. Without memory for that they stay in place.
func (b *Backend) settle(ctx context.Context, rows int) {
	n := min(b.portion, len(b.later))
	switch {
	case len(b.later) == 0 || ctx.Err() != nil:
		return
	case simd.HasTiles(rows):
		n = len(b.later)
	case rows > fewRows:
		return
	case b.portion == 0:
		b.portion = (len(b.later) + settleSteps - 1) / settleSteps
		return
	}
	err := guard(func() error { return b.repack(b.later[:n], func(int64, int64) error { return ctx.Err() }) })
	b.later = slices.DeleteFunc(b.later, func(w *graph.Weight) bool { return b.packed[w].memory != nil })
	if err != nil && ctx.Err() == nil {
		b.later = nil
	}
}

// repack puts weights into panels, threads sharing each, and lets go of the file's
// pages behind them: the model is in memory once. The panels lie in one piece, so
// that large pages hold all of it: a weight alone may be smaller than such a page.
func (b *Backend) repack(weights []*graph.Weight, progress func(done, total int64) error) error {
	var done, total int64
	size := 0
	for _, w := range weights {
		total += int64(len(w.Data))
		n, err := packedSize(w)
		if size += n; err != nil || size < n {
			return fmt.Errorf("%s: %w", w.Name, cmp.Or(err, errors.New("weights are more than this machine can address")))
		}
	}
	if size == 0 {
		return nil
	}
	memory, err := b.panels.add(mmap.Anonymous(size))
	if err != nil {
		return err
	}
	for _, w := range weights {
		if progress != nil {
			if err := progress(done, total); err != nil {
				return err
			}
		}
		n, _ := packedSize(w)
		m, err := newPacked(w, memory[:n:n], b.pool)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		b.keep(w, m)
		memory = memory[n:]
		mmap.Drop(w.Data)
		done += int64(len(w.Data))
	}
	if progress != nil {
		return progress(done, total)
	}
	return nil
}

// keep makes w what m is, for products, too, that have it in place.
func (b *Backend) keep(w *graph.Weight, m *packed) {
	if old := b.packed[w]; old != nil {
		for i, x := range m.matrices {
			*old.matrices[i] = *x
		}
		old.memory = m.memory
		return
	}
	b.packed[w] = m
}

// release lets go of the pages of weights that are in panels once more: the system may
// have mapped them again with what lies beside them.
func (b *Backend) release() {
	for w, m := range b.packed {
		if m.memory != nil {
			mmap.Drop(w.Data)
		}
	}
}

// quantized lists the quantized weights of g's products.
func quantized(g *graph.Graph) (weights []*graph.Weight) {
	for _, n := range g.Nodes {
		if n.Op != graph.Linear && n.Op != graph.Experts {
			continue
		}
		for _, w := range n.W {
			if w.DType.Quantized() && len(w.Data) > 0 && !slices.Contains(weights, w) {
				weights = append(weights, w)
			}
		}
	}
	return weights
}

// Repacked is how many bytes more g's weights take in panels than in the file.
func Repacked(g *graph.Graph) (more int64) {
	for _, w := range quantized(g) {
		count, n, k := matrices(w)
		more += int64(count*panel.Size(w.DType, n, k) - len(w.Data))
	}
	return more
}

// matrices tells that w is count matrices [n, k].
func matrices(w *graph.Weight) (count, n, k int) {
	k, count = w.Shape.Last(), 1
	if len(w.Shape) > 2 {
		count = w.Shape[0]
	}
	return count, w.Shape.Size() / k / count, k
}

// inPlace reports whether w need not be repacked at once.
func inPlace(w *graph.Weight) bool {
	_, n, k := matrices(w)
	return w.Order == nil && panel.InPlace(w.DType, n, k)
}

// dropAfter is how many bytes of a file are packed before their pages are let
// go: the two copies of a large weight are never there at once.
const dropAfter = 4 << 20

// packedSize is how many bytes w takes in panels.
func packedSize(w *graph.Weight) (int, error) {
	count, n, k := matrices(w)
	size := panel.Size(w.DType, n, k)
	if size > math.MaxInt/count {
		return 0, fmt.Errorf("%d matrices of %d bytes are more than this machine can address", count, size)
	}
	return count * size, nil
}

// newPacked repacks w into memory, packedSize bytes of zeros.
func newPacked(w *graph.Weight, memory []byte, p *pool) (*packed, error) {
	count, n, k := matrices(w)
	m, size := &packed{memory: memory}, len(memory)/count
	for i := range count {
		x, err := panel.New(w.DType, n, k, memory[i*size:(i+1)*size])
		if err != nil {
			return nil, err
		}
		m.matrices = append(m.matrices, x)
	}
	panels, bytes := m.matrices[0].Panels(), w.DType.RowBytes(k)
	err := p.run(count*panels, 4, func(_, from, to int) error {
		var buf []byte
		kept := 0
		for ; from < to; from++ {
			i, j := from/panels, from%panels
			first, end := i*n+j*panel.Rows, i*n+min((j+1)*panel.Rows, n)
			if err := m.matrices[i].Pack(j, w.Span(first, end, &buf)); err != nil {
				return err
			}
			if kept += panel.Rows * bytes; kept >= dropAfter {
				mmap.Drop(w.Data[max(end*bytes-kept, 0) : end*bytes])
				kept = 0
			}
		}
		return nil
	})
	return m, err
}

// newInPlace leaves w where it is.
func newInPlace(w *graph.Weight) (*packed, error) {
	m := &packed{}
	count, n, k := matrices(w)
	size := len(w.Data) / count
	for i := range count {
		x, err := panel.NewInPlace(w.DType, n, k, w.Data[i*size:(i+1)*size])
		if err != nil {
			return nil, err
		}
		m.matrices = append(m.matrices, x)
	}
	return m, nil
}
