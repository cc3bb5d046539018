package mistake

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tensor"
)

// built makes a form of a mistake that no search lists as it is: a search reads it off the engine's values, or
// lists it in more forms.
func built(id string, n *graph.Node, form, computed string, change reference.Edit) *Hypothesis {
	return edit(id, n, computed, detail{"built": form}, change)
}

// permutedRows returns rows as for the other style of rope, and heads that are moved by one.
func permutedRows(s *site, n *graph.Node) []*Hypothesis {
	dim := s.HeadDim(n)
	for _, x := range s.Readers(n) {
		if dim == 0 && x.Op == graph.Add {
			dim = s.HeadDim(x)
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
	all := []*Hypothesis{built("weight_permuted", n, "pairs", "has the rows of interleaved pairs", Reordered(pairs))}
	if rows > dim {
		all = append(all, built("weight_permuted", n, "heads", "has heads that are moved by one", Reordered(heads)))
	}
	return all
}

// nextLayer returns the weight of the layer before, or of the next one whose weight is another.
func nextLayer(s *site, n *graph.Node) []*Hypothesis {
	count := len(s.layers) - 1
	for i := 1; i < count && n.Layer >= 0; i++ {
		for _, o := range s.layers[(n.Layer+count-i)%count+1].nodes {
			if Role(o) != Role(n) || len(o.W) != len(n.W) || !slices.Equal(o.W[0].Shape, n.W[0].Shape) || equalWeights(o.W[0], n.W[0]) {
				continue
			}
			return []*Hypothesis{built("weight_wrong_layer", n, "layer", fmt.Sprintf("has the weight of layer %d", o.Layer), func(s *reference.Spec) { s.W = o.W })}
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
func pastTheEnd(_ *site, n *graph.Node) []*Hypothesis {
	cols := n.W[0].Shape.Last()
	stride := (cols + Superblock - 1) / Superblock * Superblock
	return []*Hypothesis{built("weight_layout", n, "beyond", fmt.Sprintf("reads packed rows as padded to %d, and something lies behind them", stride), func(s *reference.Spec) {
		s.Alter = func(w []float64, rows, cols int) []float64 {
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
func decodedWrongly(_ *site, n *graph.Node) []*Hypothesis {
	altered := func(s *reference.Spec) {
		s.Alter, s.AlterUp, s.AlterDown = secondHalves(2), nil, nil
	}
	if n.Op == graph.RMSNorm {
		altered = alters(0, func(w []float64) { copy(w, secondHalves(2)(w, 1, len(w))) })
	}
	all := []*Hypothesis{built("weight_scale", n, "packing", "decodes sub-blocks 4 to 7 with twice their scale", altered)}
	if at, ok := minimums[n.W[0].DType]; ok {
		all = append(all, built("weight_scale", n, "min", "decodes minimums with the other sign", func(s *reference.Spec) {
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

// lastOf returns the last form of a mistake that is listed: the norm that is nearest to the operation behind it.
func lastOf(id string) func(s *site, n *graph.Node) []*Hypothesis {
	return func(s *site, n *graph.Node) []*Hypothesis {
		for _, h := range slices.Backward(s.listed[n]) {
			if h.Cause == id {
				x := *h
				x.Detail = detail{"built": "last"}
				return []*Hypothesis{&x}
			}
		}
		return nil
	}
}

// turns reports whether n is a rope that turns anything.
func turns(_ *site, n *graph.Node) bool {
	a, ok := n.Attr.(graph.RoPEAttr)
	return ok && slices.ContainsFunc(a.Freqs, func(f float64) bool { return f != 0 })
}

// turning returns the ropes that a mistake without a place is about, and each of them.
func (s *site) turning(n *graph.Node) []turning {
	ropes := s.Rotations(n)
	if len(ropes) < 2 {
		return []turning{{at: n, nodes: ropes}}
	}
	one := turning{at: n, nodes: []*graph.Node{n}, side: Side(n)}
	if n != ropes[0] {
		return []turning{one}
	}
	return []turning{{at: n, nodes: ropes}, one}
}

// otherSpeeds makes a form of a mistake of rope's speeds for queries and keys, and for each.
func (s *site) otherSpeeds(id string, n *graph.Node, d detail, computed string, f []float64) (all []*Hypothesis) {
	for _, t := range s.turning(n) {
		all = append(all, t.wrong(id, computed, d, func(s *reference.Spec) { s.Freqs = f }))
	}
	return all
}

// rootOfBase returns the root of the base: the exponent is i/dim instead of 2i/dim.
func rootOfBase(s *site, n *graph.Node) []*Hypothesis {
	a, whole := n.Attr.(graph.RoPEAttr), n.Shape.Last()
	dim := a.Turning(whole)
	if 2*dim == whole || len(a.Freqs) < 2 {
		return nil // these are the speeds of the whole head, which is rope_partial
	}
	base := Theta(a.Freqs, dim)
	return s.otherSpeeds("rope_theta", n, detail{"built": "root"}, fmt.Sprintf("turns by powers of the root of %.6g", base), rescaled(a.Freqs, base, math.Sqrt(base), dim))
}

// slowed returns speeds that are divided by a number, a linear scaling that the model does not have.
func slowed(s *site, n *graph.Node) (all []*Hypothesis) {
	for _, by := range []float64{2, 3, 4, 8, 16, 32} {
		all = append(all, s.otherSpeeds("rope_scaling", n, detail{"slowed": by}, fmt.Sprintf("turns at 1/%g of the speed", by), Times(n.Attr.(graph.RoPEAttr).Freqs, 1/by))...)
	}
	return all
}

// borrowedFactors returns the factors of another kind of layers' ropes.
func borrowedFactors(s *site, n *graph.Node) []*Hypothesis {
	a := n.Attr.(graph.RoPEAttr)
	for _, o := range s.g.Nodes {
		x, ok := o.Attr.(graph.RoPEAttr)
		if !ok || o.Op != graph.RoPE || slices.Equal(x.Freqs, a.Freqs) || len(a.Freqs) < 2 || len(x.Freqs) < 2 {
			continue
		}
		theirs := x.Turning(o.Shape.Last())
		plain := rope.New(Theta(x.Freqs, theirs), theirs)
		if len(x.Freqs) == len(plain) && math.Abs(plain[0]/x.Freqs[0]/(plain[len(plain)-1]/x.Freqs[len(plain)-1])-1) < 1e-3 {
			continue // one factor for all is a scaling
		}
		var f []float64
		for i, v := range a.Freqs {
			switch {
			case i >= len(plain):
				f = append(f, v)
			case i < len(x.Freqs) && math.Abs(plain[i]/x.Freqs[i]-1) < 1e-3:
				f = append(f, v)
			case i < len(x.Freqs):
				f = append(f, float64(float32(v/(plain[i]/x.Freqs[i]))))
			}
		}
		if !slices.Equal(f, a.Freqs) {
			return s.otherSpeeds("rope_factors", n, detail{"built": "borrowed"}, "turns with the factors of "+o.Name, f)
		}
	}
	return nil
}

// slot is the value of rope_position that turns by the place in a ring of the window's size.
const slot = "slot"

// ringSlot turns queries or keys by the slot in a ring of the layer's window.
func ringSlot(s *site, n *graph.Node) []*Hypothesis {
	a := s.layers[n.Layer+1].attention()
	if a == nil || window(a) == 0 || Sectioned(n) {
		return nil
	}
	w := window(a)
	return []*Hypothesis{built("rope_position", n, "slot", fmt.Sprintf("turns by the position modulo %d", w), func(s *reference.Spec) {
		s.Pos = func(_ *reference.Eval, row int) int { return row % w }
	})}
}

// nearestStore returns keys and values of the nearest earlier layer that stores any, but the layer's own, and of each.
func nearestStore(s *site, n *graph.Node) (all []*Hypothesis) {
	own := s.model.Store(n)
	var near *graph.Node
	for _, x := range s.g.Nodes {
		if x.Op == graph.StoreKV && x.Layer < n.Layer {
			near = x
		}
	}
	if near == nil || near == own {
		return nil
	}
	for _, h := range s.listed[n] {
		if h.Cause != "kv_share_source" || h.Detail["layer"] != float64(near.Layer) {
			continue
		}
		x := *h
		x.Detail = maps.Clone(h.Detail)
		x.Detail["built"] = "nearest"
		if read, _ := h.Detail["read"].(string); strings.HasPrefix(read, "as rows") {
			x.Detail["built"] = "flat"
			if near.Shape.Size() == own.Shape.Size() {
				continue
			}
		}
		all = append(all, &x)
	}
	return all
}

// displacedHead returns logits of displaced rows, and of a head without its last quarter.
func displacedHead(_ *site, n *graph.Node) []*Hypothesis {
	w := n.Shape.Size()
	order := make([]int, w)
	for i := range order {
		order[i] = (i + 1) % w
	}
	return []*Hypothesis{built("head_wrong", n, "rows", "has rows that are displaced by one", Reordered(order)),
		built("head_wrong", n, "tail", "has zeros in the last quarter of the rows", then(func(y []float64) { clear(y[w*3/4:]) }))}
}

// neighbour returns the part before a Slice's own, or the one behind it.
func neighbour(s *site, n *graph.Node) []*Hypothesis {
	right, d := n.Attr.(graph.SliceAttr).Offset, n.Shape.Last()
	for _, offset := range []int{right - d, right + d} {
		for _, h := range s.listed[n] {
			if h.Cause == "slice_part" && h.Detail["offset"] == float64(offset) {
				x := *h
				x.Detail = detail{"built": "neighbour"}
				return []*Hypothesis{&x}
			}
		}
	}
	return nil
}

// scaledTwice leaves a factor out, or multiplies by it twice.
func scaledTwice(s *site, n *graph.Node) (all []*Hypothesis) {
	for _, h := range s.listed[n] {
		if h.Cause != "scale_factor" || h.Fit == nil || h.Fit.Right == 1 {
			continue
		}
		for form, v := range map[string]float64{"without": 1, "twice": h.Fit.Right * h.Fit.Right} {
			x := *h.Fit.Make(v)
			x.Detail = detail{"built": form}
			all = append(all, &x)
		}
	}
	return all
}

// then changes each row that a node gives.
func then(change func(row []float64)) reference.Edit {
	return after(func(_ *reference.Eval, _ int, row []float64) { change(row) })
}

// after changes each row that a node gives, by its position.
func after(change func(e *reference.Eval, at int, row []float64)) reference.Edit {
	return func(s *reference.Spec) {
		before := s.Func
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			var y []float64
			var err error
			if before != nil {
				y, err = before(e, s, rows)
			} else {
				y, err = s.Plain(e, rows)
			}
			if err != nil {
				return nil, err
			}
			y = slices.Clone(y)
			width := len(y) / max(len(rows), 1)
			for i, at := range rows {
				change(e, at, y[i*width:(i+1)*width])
			}
			return y, nil
		}
	}
}

// anyChunk returns windows that begin once for a chunk, of every size up to the window.
func anyChunk(_ *site, n *graph.Node) (all []*Hypothesis) {
	for size := 2; size <= window(n); size++ {
		all = append(all, chunked(n, window(n), size, "first", 0))
	}
	return all
}

// unbounded returns an encoder's window without its end. A search names what it reads off the errors.
func unbounded(_ *site, n *graph.Node) []*Hypothesis {
	if a, ok := n.Attr.(graph.AttentionAttr); !ok || n.Op != graph.Attention || !a.Bidirectional || window(n) == 0 {
		return nil
	}
	return []*Hypothesis{built("mask", n, "none", "lets queries see all later positions",
		func(s *reference.Spec) { s.Ahead = 1 << 30 })}
}
