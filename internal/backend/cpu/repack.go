package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// packed is a weight in the form read by kernels, a panel.Weight for each of its matrices: in panels, or in place.
type packed struct {
	dtype    tensor.DType // of the panels: the weight's, or of the codes behind its values
	matrices []*panel.Weight
	memory   []byte // of the panels; nil in place
}

// ready prepares the quantized weights of g's products for kernels. Weights stay in place for now, so that the first
// token waits for no copy. Plans of one graph share weights.
func (b *Backend) ready(g *graph.Graph, progress func(done, total int64) error) error {
	if err := b.readFloats(g); err != nil {
		return err
	}
	if err := b.widen(g); err != nil {
		return err
	}
	var read []*graph.Weight
	var done, total int64
	for _, w := range quantized(g) {
		if b.packed[w] != nil {
			continue
		}
		m, err := newPacked(w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		switch b.packed[w] = m; {
		case outside(w):
			read, total = append(read, w), total+int64(w.Stored())
			continue
		case panel.HasPlanes(m.dtype):
			b.inPlace = append(b.inPlace, w)
		}
		if len(m.matrices) == 1 { // of many, a token may need few
			read, total = append(read, w), total+int64(len(w.Data))
		}
	}
	for _, w := range read {
		if progress != nil {
			if err := progress(done, total); err != nil {
				return err
			}
		}
		size := int64(len(w.Data))
		if outside(w) {
			size = int64(w.Stored())
			if err := b.bring(w); err != nil {
				return err
			}
		} else if err := b.fetch(w.Data); err != nil {
			return err
		}
		done += size
	}
	if progress != nil && total > 0 {
		return progress(done, total)
	}
	return nil
}

// outside reports whether w is read from files by pieces: its bytes are nowhere in memory.
func outside(w *graph.Weight) bool { return w.Source != nil && len(w.Origin()) == 0 }

// readFloats reads weights outside that panels have no form for, except for tables of which a step reads few rows.
func (b *Backend) readFloats(g *graph.Graph) error {
	for _, n := range g.Nodes {
		for _, w := range n.W {
			if n.Op == graph.Embed || !outside(w) || w.CodeType().Quantized() && panel.HasPlanes(w.CodeType()) {
				continue
			}
			t, err := w.Whole()
			if err != nil {
				return err
			}
			w.Tensor = t
		}
	}
	return nil
}

// widened lists the quantized weights that are multiplied as float32 numbers: heads.
func widened(g *graph.Graph) (weights []*graph.Weight) {
	for _, n := range g.Nodes {
		if n.Op == graph.HeadLinear && n.W[0].DType.Quantized() && !slices.Contains(weights, n.W[0]) {
			weights = append(weights, n.W[0])
		}
	}
	return weights
}

// widen decodes weights of heads once: each step reads all of them, and decoding takes longer than reading.
func (b *Backend) widen(g *graph.Graph) error {
	for _, w := range widened(g) {
		if b.floats[w] != nil {
			continue
		}
		var x []float32
		if err := reserve(&b.panels, &x, w.Shape.Size()); err != nil {
			return err
		}
		k := w.Shape.Last()
		if err := b.pool.run(len(x)/k, floatRows, func(_, from, to int) error {
			var s scratch
			return quant.Dequantize(w.DType, x[from*k:to*k], w.Span(from, to, &s.rows))
		}); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		b.floats[w], b.repacked = x, b.repacked+4*int64(len(x))
		drop(w)
	}
	return nil
}

// bring puts a weight outside into panels, since reading it in each step would take too long.
func (b *Backend) bring(w *graph.Weight) error {
	size, err := packedSize(w)
	if err != nil {
		return err
	}
	memory, err := b.panels.add(mmap.Anonymous(size))
	if err == nil {
		_, err = b.move(w, memory)
	}
	if b.repacked += int64(size); err != nil {
		return fmt.Errorf("%s: %w", w.Name, err)
	}
	return nil
}

// fetch lets the threads read data, perhaps still on disk.
func (b *Backend) fetch(data []byte) error {
	const piece = 1 << 20
	return b.pool.run((len(data)+piece-1)/piece, 1, func(_, from, to int) error {
		mmap.Fetch(data[from*piece : min(to*piece, len(data))])
		return nil
	})
}

const (
	// settleSteps is how many steps of few rows share the work of settle.
	settleSteps = 8
	// patience is how often weights are read in place before the first token: then a
	// long prompt has paid for the panels.
	patience = 4
	// judgedSteps is how many steps with the logits of more than few rows patience counts as one: they judge a text,
	// perhaps no token follows, and panels cost as much as reading weights in place some 20 times.
	judgedSteps = 6
)

// repacking is the name of settle in a profile.
const repacking = "repack"

// settle repacks weights in place before a step, in time: after a first token, or many steps. A step of few rows has
// some weights repacked, a step of many rows all. Without memory for panels weights stay in place.
func (b *Backend) settle(ctx context.Context, s *backend.Step) {
	if len(b.inPlace) == 0 || ctx.Err() != nil {
		return
	}
	due := b.answered || b.passes >= patience
	if len(s.Outputs) <= fewRows {
		b.passes, b.answered = b.passes+1, b.answered || len(s.Outputs) > 0
	} else if b.judged++; b.judged%judgedSteps == 0 {
		b.passes++
	}
	if !due {
		return
	}
	if err := guard(func() error { return b.repack(ctx, b.portion(len(s.Tokens))) }); err != nil && ctx.Err() == nil {
		b.inPlace, b.room = nil, nil // room may have been written to
	}
}

// portion returns the weights to repack in a step: a share of the bytes of all weights, so that no token waits long.
func (b *Backend) portion(rows int) []*graph.Weight {
	if rows > fewRows {
		return b.inPlace
	}
	all := 0
	for w := range b.packed {
		all += w.Size()
	}
	for i, n := 0, 0; i < len(b.inPlace); i++ {
		if n += b.inPlace[i].Size(); n >= all/settleSteps {
			return b.inPlace[:i+1]
		}
	}
	return b.inPlace
}

// repack puts the first of the weights in place into panels, threads sharing each, and lets go of the file's pages
// afterwards: the model is in memory once. Weights not done when ctx ends stay in place, and keep their room.
func (b *Backend) repack(ctx context.Context, weights []*graph.Weight) error {
	for _, w := range weights {
		if len(b.room) == 0 { // the first ones, or another graph's
			if err := b.reserve(); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := b.move(w, b.room)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		drop(w)
		b.inPlace, b.room, b.repacked = b.inPlace[1:], b.room[n:], b.repacked+int64(n)
	}
	return nil
}

// reserve makes room for the panels of all weights in place. The room is one piece, for large pages: a weight alone may
// be smaller than a page.
func (b *Backend) reserve() (err error) {
	size := 0
	for _, w := range b.inPlace {
		n, err := packedSize(w)
		if size += n; err != nil || size < n {
			err = cmp.Or(err, errors.New("weights are more than this machine can address"))
			return fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	b.room, err = b.panels.add(mmap.Anonymous(size))
	return err
}

// drop lets go of the file's pages of w.
func drop(w *graph.Weight) {
	for _, b := range w.Origin() {
		mmap.Drop(b)
	}
}

// quantized lists the quantized weights of g's products.
func quantized(g *graph.Graph) (weights []*graph.Weight) {
	for _, n := range g.Nodes {
		if n.Op != graph.Linear && n.Op != graph.Experts {
			continue
		}
		for _, w := range n.W {
			origin := w.Origin()
			there := len(origin) > 0 && len(origin[0]) > 0 || outside(w) && panel.HasPlanes(w.CodeType())
			if w.CodeType().Quantized() && there && !slices.Contains(weights, w) {
				weights = append(weights, w)
			}
		}
	}
	return weights
}

// Repacked returns the number of bytes of g's weights in panels beyond their bytes in the file.
func Repacked(g *graph.Graph) (more int64) {
	for _, w := range quantized(g) {
		count, n, k := matrices(w)
		more += int64(count*panel.Size(w.CodeType(), n, k) - w.Stored())
	}
	for _, w := range widened(g) {
		more += int64(4*w.Shape.Size() - w.Stored())
	}
	return more
}

// matrices returns the shape of w as count matrices [n, k].
func matrices(w *graph.Weight) (count, n, k int) {
	k, count = w.Shape.Last(), 1
	if len(w.Shape) > 2 {
		count = w.Shape[0]
	}
	return count, w.Shape.Size() / k / count, k
}

// dropAfter is the number of a file's bytes packed before their pages are let
// go: the two copies of a large weight are never there at once.
const dropAfter = 4 << 20

// packedSize returns the number of bytes of w in panels.
func packedSize(w *graph.Weight) (int, error) {
	count, n, k := matrices(w)
	size := panel.Size(w.CodeType(), n, k)
	if size > math.MaxInt/count {
		return 0, fmt.Errorf("%d matrices of %d bytes are more than this machine can address", count, size)
	}
	return count * size, nil
}

// newPacked leaves w in place.
func newPacked(w *graph.Weight) (*packed, error) {
	if _, err := packedSize(w); err != nil {
		return nil, err
	}
	m := &packed{dtype: w.CodeType()}
	count, n, _ := matrices(w)
	for i := range count {
		t, err := w.Tensor, error(nil)
		switch {
		case len(w.Shape) > 2:
			t = w.Tensor.Matrix(i)
		case w.Source == nil:
			t, err = w.Part(i*n, (i+1)*n)
		}
		if err != nil {
			return nil, err
		}
		c, coded := t.Coded()
		if !coded || !c.DType.Quantized() {
			c = tensor.Coded{Tensor: t, Mul: 1, Div: 1}
		}
		x, err := panel.NewCoded(c)
		if err == nil && x.DType != m.dtype {
			err = fmt.Errorf("matrix %d has type %v, the first has %v", i, x.DType, m.dtype)
		}
		if err != nil {
			return nil, err
		}
		m.matrices = append(m.matrices, x)
	}
	return m, nil
}

// move puts w, read in place until now, into panels at the beginning of memory, zeros, and returns their size. Products
// with w read panels from then on.
func (b *Backend) move(w *graph.Weight, memory []byte) (int, error) {
	all, err := packedSize(w)
	if err != nil {
		return 0, err
	}
	m, moved := b.packed[w], []*panel.Weight(nil)
	size := all / len(m.matrices)
	for i, x := range m.matrices {
		x, err := x.Move(memory[i*size : (i+1)*size : (i+1)*size])
		if err != nil {
			return 0, err
		}
		moved = append(moved, x)
	}
	n, panels, bytes := moved[0].N, moved[0].Panels(), m.dtype.RowBytes(w.Shape.Last())
	err = b.pool.run(len(moved)*panels, 4, func(_, from, to int) error {
		var s panel.Scratch
		kept := 0
		for ; from < to; from++ {
			moved[from/panels].Pack(&s, from%panels)
			if kept += panel.Rows * bytes; kept >= dropAfter && w.Data != nil {
				end := (from/panels*n + min((from%panels+1)*panel.Rows, n)) * bytes
				mmap.Drop(w.Data[max(end-kept, 0):end])
				kept = 0
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i, x := range moved {
		*m.matrices[i] = *x
	}
	m.memory = memory[:all:all]
	return all, nil
}
