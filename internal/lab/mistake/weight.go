package mistake

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/matrix"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// superblock is the number of values in the largest blocks of quantized types.
const superblock = 256

// transposes lists weights whose bytes are read as those of their transpose.
func transposes(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	if n.Op == graph.Experts {
		for _, of := range expertParts(n) {
			if of.alter != nil {
				all = append(all, edit(n, "reads the bytes of "+of.what+" as those of their transpose",
					detail{"of": of.what}, of.alter(transposed)))
			}
		}
		return all
	}
	computed := fmt.Sprintf("reads the bytes of the weight [%d, %d] as those of its transpose", n.W[0].Rows(),
		n.W[0].Shape.Last())
	return []*Hypothesis{edit(n, computed, detail{}, func(s *reference.Spec) { s.Alter[0] = transposed })}
}

// transposed reads w [rows, cols] as if its bytes were those of [cols, rows].
func transposed(w []float64, rows, cols int) []float64 {
	y := make([]float64, len(w))
	for i := range rows {
		for j := range cols {
			y[i*cols+j] = w[j*rows+i]
		}
	}
	return y
}

// permutes lists rows in the order of the other style of rope, of a product without a tap, of which no order can be
// read off.
func permutes(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	dim, with := p.HeadDim(n), n
	if x := p.biasOf(n); x != nil { // in the same order
		dim, with = p.HeadDim(x), x
	}
	if Role(n) != "attn_q" && Role(n) != "attn_k" || dim < 4 || p.Tapped(n) || p.Tapped(with) {
		return nil
	}
	paired, unpaired := make([]int, n.Shape.Size()), make([]int, n.Shape.Size())
	for i := range paired {
		h, k := i/dim*dim, i%dim
		paired[i], unpaired[i] = h+k/2+k%2*(dim/2), h+k%(dim/2)*2+k/(dim/2)
	}
	d := detail{"order": "permuted"}
	for _, order := range [][]int{paired, unpaired} {
		how := " in another order" + describeOrder(order, dim)
		all = append(all, unlikely(0.2, edit(n, "gives the rows of the weight"+how, d, reordered(order))))
		if with != n {
			all = append(all, unlikely(0.1, edited(n, "gives the rows of the weight and its bias"+how, d,
				reference.Edits{n: {func(*reference.Spec) {}}, with: {reordered(order)}})))
		}
	}
	return all
}

// otherLayers lists the weights of other layers' nodes of the same role, and products of other roles in this layer.
func otherLayers(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	verb, cost := map[graph.Op]string{graph.RMSNorm: "has the weight", graph.Linear: "multiplies by the weight",
		graph.Add: "adds the bias"}[n.Op], 0.1
	for _, x := range p.g.Nodes {
		if x == n || x.Op != n.Op || !alikeWeights(x, n) || x.Layer < 0 || n.Layer < 0 && n.Op != graph.RMSNorm {
			continue
		}
		apart := float64(x.Layer - n.Layer)
		switch {
		case Role(x) == Role(n) && n.Op == graph.Experts:
			for _, of := range expertParts(n) {
				computed := fmt.Sprintf("takes %s from layer %d", of.what, x.Layer)
				all = append(all, unlikely(cost*math.Abs(apart), edit(n, computed,
					detail{"apart": apart, "of": of.what}, func(s *reference.Spec) {
						s.W = slices.Clone(s.W)
						for _, i := range of.which {
							s.W[i] = x.W[i]
						}
					})))
			}
		case Role(x) == Role(n):
			h := edit(n, fmt.Sprintf("%s of layer %d", verb, x.Layer), detail{"apart": apart}, hasWeights(x))
			if h.Cost = cost * math.Abs(apart); n.Op == graph.Add {
				h.Cost = 0.3
			}
			all = append(all, h)
		case x.Layer == n.Layer && n.Op == graph.Linear && !isPair(n, x):
			all = append(all, edit(n, verb+" of "+Role(x), detail{"tensor": Role(x)}, hasWeights(x)))
		}
	}
	return all
}

// alikeWeights reports whether two nodes have weights of the same shapes.
func alikeWeights(x, n *graph.Node) bool {
	alike := func(a, b *graph.Weight) bool { return slices.Equal(a.Shape, b.Shape) }
	return len(n.W) > 0 && slices.EqualFunc(x.W, n.W, alike)
}

// hasWeights gives a node the weights of another.
func hasWeights(x *graph.Node) reference.Edit { return func(s *reference.Spec) { s.W = x.W } }

// isPair reports whether two nodes of a layer are gate and up, either way.
func isPair(a, b *graph.Node) bool {
	roles := []string{Role(a), Role(b)}
	slices.Sort(roles)
	return slices.Equal(roles, []string{"ffn_gate", "ffn_up"})
}

// lostWeights lists weights that are zeros, ones or nothing.
func lostWeights(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	zeros := func(computed string, cost float64, d detail) {
		all = append(all, unlikely(cost, edit(n, computed, d, func(s *reference.Spec) { s.Times = 0 })))
	}
	switch n.Op {
	case graph.RMSNorm:
		if len(n.W) == 0 {
			return nil
		}
		all = append(all, unlikely(0.3, edit(n, "norms without the weight", detail{"weight": "one"},
			func(s *reference.Spec) { s.W = nil })))
		if n.Attr.(graph.NormAttr).Offset == 0 {
			zeros("multiplies by zeros", 0.3, detail{"weight": "zero"})
		}
	case graph.Linear:
		zeros("multiplies by zeros", 0.5, detail{"weight": "zero"})
		if n.Shape.Size() == n.In[0].Shape.Size() {
			all = append(all, unlikely(1, edit(n, "gives on its input", detail{"weight": "identity"}, passes(0))))
		}
	case graph.Embed:
		zeros("gives zeros for the embedding", 0, detail{"weight": "zero"})
	case graph.Experts:
		zeros("gives zeros for all experts", 0.5, detail{"weight": "zero"})
	case graph.Attention:
		zeros("gives zeros for attention", 0, detail{"value": "zero"})
	case graph.Route:
		all = lostScales(n)
	}
	return all
}

// lostRows lists rows left out by an operation: a step's last, the rows of a step behind its last full
// tile, and the rows behind the first tile.
func lostRows(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	cost := map[bool]float64{true: 1.1, false: 1.2}[n.Op == graph.Linear] // of zeros GLUs and norms make zeros
	lost := func(computed string, d detail, isLost func(i, count int) bool) {
		gone := func(e *reference.Eval, at int) bool {
			first, last, ok := e.Step(at)
			if !ok {
				first, last = 0, p.Prefilled(e)-1
			}
			return last > first && at <= last && isLost(at-first, last-first+1)
		}
		if !p.Lacks(n, gone) {
			return
		}
		all = append(all, unlikely(cost, edit(n, computed, d, after(func(e *reference.Eval, _ *reference.Spec, at int,
			row []float64) error {
			if gone(e, at) {
				clear(row)
			}
			return nil
		}))))
	}
	lost("gives zeros for the last row of a step", detail{"rows": "last"},
		func(i, count int) bool { return i == count-1 })
	for tile := 2; tile <= 256; tile *= 2 {
		lost(fmt.Sprintf("gives zeros for the rows of a step that fill no tile of %d", tile),
			detail{"rows": "rest", "tile": float64(tile)}, func(i, count int) bool { return i >= count/tile*tile })
		lost(fmt.Sprintf("gives zeros for the rows of a step behind the first %d", tile),
			detail{"rows": "behind", "tile": float64(tile)}, func(i, count int) bool { return i >= tile })
	}
	return all
}

// otherScales lists products and norms by another factor.
func otherScales(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	by := func(guesses []float64, make func(v float64) *Hypothesis) {
		f := Fit{Right: 1, Least: 1e-3, Most: 1e3, Guesses: guesses, Make: make}
		all = append(all, unlikely(0.5, fitting(n, f)))
	}
	switch {
	case n.Op == graph.RMSNorm && len(n.W) > 0:
		by([]float64{2, 0.5}, func(v float64) *Hypothesis {
			return edit(n, fmt.Sprintf("multiplies by %.6g times the weight", v), detail{"factor": v},
				func(s *reference.Spec) { s.Offset, s.Times = s.Offset/v, v })
		})
	case n.Op == graph.Linear && !isHead(p, n):
		by(factors(n), timesProduct(n))
	case n.Op == graph.Experts:
		for _, of := range expertParts(n) {
			if of.alter == nil {
				continue
			}
			scaled := func(what string, d detail, scale func(v float64) reference.Edit) {
				by([]float64{0.5, 2, -1}, func(v float64) *Hypothesis {
					return edit(n, fmt.Sprintf("takes %s %.6g times as large%s", of.what, v, what), d, scale(v))
				})
			}
			scaled("", detail{"of": of.what}, of.scale)
			scaled(" in sub-blocks 4 to 7", detail{"of": of.what, "blocks": "4 to 7"},
				func(v float64) reference.Edit { return of.alter(secondHalves(v)) })
		}
	}
	return all
}

// isHead reports whether n is the product that makes the logits.
func isHead(p *Proposer, n *graph.Node) bool { return n.Layer < 0 && n == p.Head() }

// timesProduct returns a product by a factor.
func timesProduct(n *graph.Node) func(v float64) *Hypothesis {
	return func(v float64) *Hypothesis {
		return edit(n, fmt.Sprintf("gives %.6g times the product", v), detail{"factor": v},
			func(s *reference.Spec) { s.Times = v })
	}
}

// factors returns constants that ports forget or repeat.
func factors(n *graph.Node) []float64 {
	d := float64(n.In[0].Shape.Size())
	return []float64{0.5, 2, -1, 1 / math.Sqrt2, math.Sqrt2, 0.25, 4, math.Sqrt(d), 1 / math.Sqrt(d), d, 1 / d,
		1.0 / 16, 16}
}

// secondHalves multiplies the second half of each superblock.
func secondHalves(by float64) reference.Change {
	return func(w []float64, _, _ int) []float64 {
		y := slices.Clone(w)
		for at := superblock / 2; at < len(y); at += superblock {
			for j := range y[at:min(at+superblock/2, len(y))] {
				y[at+j] *= by
			}
		}
		return y
	}
}

// layouts lists rows of a weight read at a wrong distance: rows that were padded to whole blocks read as if they
// followed each other, or the reverse.
func layouts(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	cols := n.W[0].Shape.Last()
	for _, block := range []int{32, 64, 128, 256} {
		padded := (cols + block - 1) / block * block
		if padded == cols {
			continue
		}
		all = append(all,
			unlikely(0.2, edit(n,
				fmt.Sprintf("reads rows that are padded to blocks of %d as if they followed each other", block),
				detail{"block": float64(block), "read": "packed"},
				func(s *reference.Spec) { s.Alter[0] = strided(padded, cols) })),
			unlikely(0.2, edit(n,
				fmt.Sprintf("reads rows that follow each other as if they were padded to blocks of %d", block),
				detail{"block": float64(block), "read": "row-wise"}, beyond(cols, padded, p.biasOf(n)))))
	}
	return all
}

// strided reads rows at a distance of read that were laid out at a distance of laid; what lies past the end is 0.
func strided(laid, read int) reference.Change {
	return func(w []float64, rows, cols int) []float64 {
		buffer := make([]float64, max(rows*laid, rows*read)+cols)
		for i := range rows {
			copy(buffer[i*laid:], w[i*cols:(i+1)*cols])
		}
		y := make([]float64, 0, rows*cols)
		for i := range rows {
			y = append(y, buffer[i*read:i*read+cols]...)
		}
		return y
	}
}

// beyond reads rows at a distance that is larger than theirs. The memory past the weight's end is unknown, so the
// features of rows in it are left as the engine has them, by a tap of the product or of its sum with a bias.
func beyond(laid, read int, bias *graph.Node) reference.Edit {
	return func(s *reference.Spec) {
		s.Alter[0] = strided(laid, read)
		computes(func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			y, err := s.Plain(e, rows)
			width := s.Node.Shape.Size()
			first := beforeEnd(width, laid, read)
			tap, less := s.Node, make([]float64, width)
			if bias != nil && len(rows) > 0 && !e.Known(tap, rows[0]) && err == nil {
				tap = bias
				less, err = reference.Vector(bias.W[0])
			}
			for i, row := range rows {
				if err != nil || !e.Known(tap, row) {
					continue
				}
				var own []float64
				if own, err = e.Value(tap, []int{row}); err == nil {
					copy(y[i*width+first:(i+1)*width], matrix.Minus(own, less)[first:])
				}
			}
			return y, err
		})(s)
	}
}

// beforeEnd returns how many features have rows that end before the weight does, if there are enough to compare, else
// all. Nearly anything holds in a few, and the first is the same at any distance. A sixteenth of them, read wrongly,
// lies about a third of the row's norm off, which is no rounding.
func beforeEnd(width, laid, read int) int {
	if first := min((width*laid-laid)/read+1, width); first >= max(8, width/16) {
		return first
	}
	return width
}

// describeOrder describes an order of features in heads of dim, if the order has a name.
func describeOrder(order []int, dim int) string {
	if dim == 0 || len(order)%dim != 0 {
		return ""
	}
	inside, paired, unpaired := true, true, true
	for i, j := range order {
		inside = inside && i/dim == j/dim
		h, k := i/dim*dim, i%dim
		paired = paired && j == h+k/2+k%2*(dim/2)
		unpaired = unpaired && j == h+k%(dim/2)*2+k/(dim/2)
	}
	switch {
	case paired:
		return ": interleaved for rotary pairs"
	case unpaired:
		return ": halves made of interleaved pairs"
	case inside:
		return ", within heads"
	}
	return ""
}

// reordered returns a node's features in another order.
func reordered(order []int) reference.Edit {
	w := len(order)
	return computes(func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
		y, err := s.Plain(e, rows)
		out := make([]float64, len(y))
		for i := range y {
			out[i] = y[i/w*w+order[i%w]]
		}
		return out, err
	})
}

// otherHeads lists heads with the embedding's weight, and heads whose last rows are not there, if the engine's last
// logits are always 0.
func otherHeads(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	embedding := p.g.Nodes[0]
	if isHead(p, n) && n.W[0] != embedding.W[0] && slices.Equal(n.W[0].Shape, embedding.W[0].Shape) {
		all = append(all, edit(n, "multiplies by the embedding, not by the head's own weight",
			detail{"weight": "token_embd"}, hasWeights(embedding)))
	}
	if w, end := n.Shape.Size(), p.Logits; n == p.Head() && end > 0 && end != w {
		all = append(all, edit(n, fmt.Sprintf("multiplies by the first %d of the head's %d rows alone", end, w),
			detail{"rows": float64(end)}, then(func(y []float64) { clear(y[end:]) })))
	}
	return all
}

// alters makes a node compute with its i-th weight changed.
func alters(i int, change func(w []float64)) reference.Edit {
	return func(s *reference.Spec) {
		w := s.W[i]
		f, err := reference.Vector(w)
		if err != nil {
			s.Func = func(*reference.Eval, *reference.Spec, []int) ([]float64, error) { return nil, err }
			return
		}
		change(f)
		c := &graph.Weight{GGUF: w.GGUF, HF: w.HF}
		c.Name, c.DType, c.Shape = w.Name, tensor.F64, w.Shape
		for _, v := range f {
			c.Data = binary.LittleEndian.AppendUint64(c.Data, math.Float64bits(v))
		}
		s.W = slices.Clone(s.W)
		s.W[i] = c
	}
}

// exchangedHeads lists products of heads by the matrices of other heads.
func exchangedHeads(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	heads := n.W[0].Shape[0]
	for _, by := range []int{1, heads - 1} {
		all = append(all, edit(n, "has the matrices of other heads", detail{"apart": float64(by)},
			alters(0, func(w []float64) {
				at := by * len(w) / heads
				copy(w, append(slices.Clone(w[at:]), w[:at]...))
			})))
	}
	return all
}

// permutedRows returns rows as for the other style of rope, and heads that are moved by one.
func permutedRows(p *Proposer, n *graph.Node) []*Hypothesis {
	dim := p.HeadDim(n)
	for _, x := range p.Readers(n) {
		if dim == 0 && x.Op == graph.Add {
			dim = p.HeadDim(x)
		}
	}
	rows := n.Shape.Size()
	if dim == 0 {
		return nil
	}
	pairs, heads := make([]int, rows), make([]int, rows)
	for i := range rows {
		h, k := i/dim*dim, i%dim
		pairs[i], heads[i] = h+k%2*(dim/2)+k/2, (i+dim)%rows
	}
	all := []*Hypothesis{built(n, "pairs", "has the rows of interleaved pairs", reordered(pairs))}
	if rows > dim {
		all = append(all, built(n, "heads", "has heads that are moved by one", reordered(heads)))
	}
	return all
}

// nextLayer returns the weight of the layer before, or of the next layer whose weight is another.
func nextLayer(p *Proposer, n *graph.Node) []*Hypothesis {
	count := 0
	for _, x := range p.g.Nodes {
		count = max(count, x.Layer+1)
	}
	for i := 1; i < count && n.Layer >= 0; i++ {
		for _, o := range p.g.Nodes {
			if o.Layer != (n.Layer+count-i)%count || Role(o) != Role(n) || len(o.W) != len(n.W) ||
				!slices.Equal(o.W[0].Shape, n.W[0].Shape) || equalWeights(o.W[0], n.W[0]) {
				continue
			}
			return []*Hypothesis{built(n, "layer", fmt.Sprintf("has the weight of layer %d", o.Layer), hasWeights(o))}
		}
	}
	return nil
}

// equalWeights reports whether two weights of one shape have the same rows.
func equalWeights(w, v *graph.Weight) bool {
	alike := w.DType == v.DType
	mmap.Guard(func() error {
		for r := 0; alike && r < w.Rows(); r++ {
			alike = bytes.Equal(w.Row(r), v.Row(r))
		}
		return nil
	})
	return alike
}

// pastTheEnd returns packed rows that are read as padded to whole blocks, where something lies behind the last.
func pastTheEnd(_ *Proposer, n *graph.Node) []*Hypothesis {
	cols := n.W[0].Shape.Last()
	stride := (cols + superblock - 1) / superblock * superblock
	return []*Hypothesis{built(n, "beyond",
		fmt.Sprintf("reads packed rows as padded to %d, and something lies behind them", stride),
		func(s *reference.Spec) {
			s.Alter[0] = func(w []float64, rows, cols int) []float64 {
				memory := slices.Clone(w)
				for i := len(w); i < rows*stride; i++ {
					memory = append(memory, w[i%7])
				}
				var y []float64
				for r := range rows {
					y = append(y, memory[r*stride:][:cols]...)
				}
				return y
			}
		})}
}

// minimums are where a block's minimum lies, for the types that have one.
var minimums = map[tensor.DType]int{tensor.Q4_1: 2, tensor.Q5_1: 2, tensor.Q4_K: 2, tensor.Q5_K: 2, tensor.Q2_K: 82}

// decodedWrongly returns scales of sub-blocks 4 to 7 that are twice as large, and minimums of the other sign.
func decodedWrongly(_ *Proposer, n *graph.Node) []*Hypothesis {
	altered := func(s *reference.Spec) { s.Alter = [3]reference.Change{secondHalves(2)} }
	if n.Op == graph.RMSNorm {
		altered = alters(0, func(w []float64) { copy(w, secondHalves(2)(w, 1, len(w))) })
	}
	all := []*Hypothesis{built(n, "packing", "decodes sub-blocks 4 to 7 with twice their scale", altered)}
	if at, ok := minimums[n.W[0].DType]; ok {
		all = append(all, built(n, "min", "decodes minimums with the other sign", func(s *reference.Spec) {
			v := *s.W[0]
			v.Data = nil
			mmap.Guard(func() error { v.Data = bytes.Clone(s.W[0].Data); return nil })
			for b := 0; b < len(v.Data); b += v.DType.BlockBytes() {
				v.Data[b+at+1] ^= 0x80 // the sign of a little-endian half
			}
			s.W = slices.Clone(s.W)
			s.W[0] = &v
		}))
	}
	return all
}

// misreads returns the forms of a packed weight that is read in the ways, each with its own words.
func misreads(computed string, ways ...string) forms {
	return func(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
		w := n.W[0]
		packed, ok := w.Source.(interface{ Misread(how string) io.ReaderAt })
		if !ok {
			return nil
		}
		for _, how := range ways {
			source := packed.Misread(how)
			if source == nil {
				continue
			}
			first := int(w.At) / w.DType.RowBytes(w.Shape.Last())
			other := &graph.Weight{Tensor: tensor.Tensor{Name: w.Name, DType: tensor.F32, Shape: w.Shape,
				Source: source, At: int64(4 * first * w.Shape.Last())}}
			all = append(all, edit(n, fmt.Sprintf(computed, how), detail{"read": how}, func(s *reference.Spec) {
				s.Alter[0] = func(w []float64, _, _ int) []float64 {
					if v, err := reference.Vector(other); err == nil {
						return v
					}
					return w
				}
			}))
		}
		return all
	}
}

// displacedHead returns logits of displaced rows, and of a head without its last quarter.
func displacedHead(_ *Proposer, n *graph.Node) []*Hypothesis {
	w := n.Shape.Size()
	order := make([]int, w)
	for i := range order {
		order[i] = (i + 1) % w
	}
	return []*Hypothesis{built(n, "rows", "has rows that are displaced by one", reordered(order)),
		built(n, "tail", "has zeros in the last quarter of the rows", then(func(y []float64) { clear(y[w*3/4:]) }))}
}
