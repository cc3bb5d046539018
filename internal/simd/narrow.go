package simd

import (
	"math"
	"unsafe"

	"github.com/karat-run/karat/internal/float16"
)

// Narrow is a block of keys and values in 8 bits, in panels: rows of BlockSlots/PanelRows panels are keys, rows of the
// next panels are elements of values, by position. So both products of attention are AddPanel's. A number is a binary16
// scale times an integer, shared by 32 elements of a key, or by 32 positions of an element of values. Rows and columns
// missing from a panel are zeros.
type Narrow struct {
	Codes  []byte   // integers plus narrowOffset, panel after panel in the order of Panel.Codes
	Scales []uint16 // likewise in the order of Panel.Scale
	Next   *Narrow  // of the same size, read next, to be fetched meanwhile; may be nil
}

const (
	narrowTop    = 127
	narrowOffset = 128
	valueCodes   = BlockSlots * PanelRows // of a panel of values
)

// upTo returns n, or the next multiple of size.
func upTo(n, size int) int { return (n + size - 1) / size * size }

// NarrowSize returns the lengths of a Narrow.
func NarrowSize(dim, values int) (codes, scales int) {
	codes = BlockSlots * (upTo(dim, ActGroup) + upTo(values, PanelRows))
	return codes, codes / ActGroup
}

// Pack rounds the keys and values of a block, in the order of Attention.Add. For each scale, top being the largest
// magnitude of the numbers:
//
//	scale = binary16(top/127), the next larger number if scale*127 < top; integer = round(x*(1/scale))
//
// where quotients and products are float32, and round is to nearest even. A scale of 0 has integers of 0; a NaN or an
// infinity among the numbers gives a scale of NaN.
func (n *Narrow) Pack(k, v []float32, dim, values int) {
	codes, scales := n.Codes, n.Scales
	for at := 0; at < BlockSlots; at += PanelRows {
		codes, scales = packPanel(codes, scales, k[at*dim:(at+PanelRows)*dim], KeySlots, PanelRows, dim)
	}
	for e := 0; e < values; e += PanelRows {
		rows := min(PanelRows, values-e)
		codes, scales = packPanel(codes, scales, v[e:(BlockSlots-1)*values+e+rows], values, rows, BlockSlots)
	}
}

// packPanel writes a panel of rows side by side, columns a stride apart, and returns the room after the panel.
func packPanel(codes []byte, scales []uint16, x []float32, stride, rows, columns int) ([]byte, []uint16) {
	const magic = 3 << 22 // makes a float32 sum round to an integer, in its lowest bits
	for from := 0; from < columns; from += ActGroup {
		n := min(ActGroup, columns-from)
		var top [PanelRows]uint32 // of magnitudes, in the order of their bits as in largestGeneric
		var inverse [PanelRows]float32
		for c := range n {
			for r, v := range x[(from+c)*stride:][:rows] {
				top[r] = max(top[r], math.Float32bits(v)&^(1<<31))
			}
		}
		for r := range top {
			scales[r], inverse[r] = scaleOf(math.Float32frombits(top[r]))
		}
		unit := codes[:UnitSize]
		for i := range unit {
			unit[i] = narrowOffset
		}
		for c := range n {
			to := unit[c/4*vector+c%4:]
			for r, v := range x[(from+c)*stride:][:rows] {
				if inverse[r] > 0 {
					to[4*r] += byte(math.Float32bits(float32(v*inverse[r]) + magic))
				}
			}
		}
		codes, scales = codes[UnitSize:], scales[PanelRows:]
	}
	return codes, scales
}

// scaleOf returns the scale of numbers with the largest magnitude top, and its inverse; 0 for no integers.
func scaleOf(top float32) (scale uint16, inverse float32) {
	if top == 0 {
		return 0, 0
	}
	if scale = float16.ToF16(top / narrowTop); float16.F16(scale)*narrowTop < top {
		scale++
	}
	if d := float16.F16(scale); d <= math.MaxFloat32 {
		return scale, 1 / d
	}
	return 0x7e00, 0 // NaN
}

// begin rounds the queries of a.
func (n *narrowing) begin(a *Attention) {
	k, queries := upTo(a.dim, ActGroup), len(a.top)
	n.q, n.dx = growTo(n.q, queries*k), growTo(n.dx, queries*k/ActGroup)
	n.init, n.row = growTo(n.init, queries*k/ActGroup), growTo(n.row, k)
	n.acc, n.seen = growTo(n.acc, queries*upTo(a.values, PanelRows)), growTo(n.seen, queries)
	clear(n.row)
	for i := range queries {
		copy(n.row, a.Query(i))
		Quantize(n.q[i*k:(i+1)*k], n.dx[i*k/ActGroup:(i+1)*k/ActGroup], n.row)
	}
	GroupInit(n.init, n.q, ActGroup, narrowOffset)
	n.clear()
}

// growTo returns x with a length.
func growTo[T any](x []T, length int) []T {
	if length > cap(x) {
		return make([]T, length)
	}
	return x[:length]
}

// AddNarrow adds a block in 8 bits, as Add does. Queries q are rounded as by Quantize. For each query with a span that
// is not empty, and Narrow of zeros on:
//
//	s[j] = AddPanel(key j, q)*scale, from 0 on, capped as in Add
//	top = the larger of Top and Max(s)
//	c = weight(Top-top); Sum = Sum*c; Acc[e] = Acc[e]*c; Narrow[e] = Narrow[e]*c // unless top is Top
//	p[j] = weight(s[j]-top), 0 for positions outside of the span, rounded as by Quantize
//	Sum = (Sum + GroupSums(p)[0]) + GroupSums(p)[1]
//	Narrow[e] = AddPanel(element e of values, p), from Narrow[e] on
//
// Result and Part take Acc[e] + Narrow[e] for Acc[e], where a block has been added.
func (a *Attention) AddNarrow(b *Narrow, spans []Span, scale float32) {
	if len(a.narrow.q) == 0 {
		a.narrow.begin(a)
	}
	a.narrow.scales = growTo(a.narrow.scales, len(b.Scales))
	LoadF16(a.narrow.scales, b.Scales)
	if b.Next != nil && tier != generic && tier != wasm {
		fetch(unsafe.Pointer(&b.Next.Scales[0]), (len(b.Scales)+31)/32)
	}
	for i := 0; i < a.queries; i += Quad {
		some, all := spans[i:min(i+Quad, a.queries)], true
		for _, s := range some {
			all = all && s.From < s.To
		}
		if all {
			a.addNarrow(i, some, b, scale)
			continue
		}
		for r, s := range some {
			if s.From < s.To {
				a.addNarrow(i+r, some[r:r+1], b, scale)
			}
		}
	}
}

// panel sets w to the panel of columns at a place in Codes, with its scales. Memory answers long after a panel has been
// used, so that panel of the next block is fetched meanwhile.
func (n *Narrow) panel(w *Panel, at, columns int, scales []float32) {
	size, next := columns*PanelRows, n.Codes
	w.Codes, w.Scale = n.Codes[at:at+size], scales[at/ActGroup:(at+size)/ActGroup]
	if n.Next != nil {
		next = n.Next.Codes
	} else {
		at = min(at+size, len(next)-size)
	}
	w.Next = &next[at]
}

// addNarrow adds a block for the queries from i on, each with a span, none empty.
func (a *Attention) addNarrow(i int, spans []Span, b *Narrow, scale float32) {
	n, k, rows, at := &a.narrow, upTo(a.dim, ActGroup), 1, 0
	w := Panel{Group: ActGroup}
	if len(spans) > 1 {
		rows = Quad
	}
	from, to := i*k, (i+rows)*k
	q := Acts{Q: n.q[from:to], DX: n.dx[from/ActGroup : to/ActGroup], Init: n.init[from/ActGroup : to/ActGroup]}
	var sums [Quad * PanelRows]float32
	for j := 0; j < BlockSlots; j += PanelRows {
		clear(sums[:])
		b.panel(&w, at, k, n.scales)
		AddPanel(sums[:rows*PanelRows], &w, &q)
		for r := range rows {
			copy(a.scores[r][j:], sums[r*PanelRows:(r+1)*PanelRows])
		}
		at += k * PanelRows
	}
	for r := range rows {
		Scale(a.scores[r][:], a.scores[r][:], scale)
	}
	if a.limit != 0 {
		for r := range spans {
			Softcap(a.scores[r][:], a.scores[r][:], a.limit)
		}
	}
	var c [Quad]float32
	if rows == 1 { // the next queries have other spans
		a.raise(i, a.weighEach(i, spans, &c), &c)
	} else {
		a.weigh(i, spans)
	}
	var p [Quad * BlockSlots]int16
	var dx, total [Quad * BlockSlots / ActGroup]float32
	var init [Quad * BlockSlots / ActGroup]int32
	const groups = BlockSlots / ActGroup
	for r, s := range spans {
		clear(a.scores[r][:s.From])
		clear(a.scores[r][s.To:])
		Quantize(p[r*BlockSlots:(r+1)*BlockSlots], dx[r*groups:(r+1)*groups], a.scores[r][:])
	}
	GroupInit(init[:rows*groups], p[:], ActGroup, narrowOffset)
	GroupSums(total[:rows*groups], p[:], dx[:], ActGroup)
	for r := range spans {
		a.sum[i+r] = a.sum[i+r] + total[r*groups] + total[r*groups+1]
		n.seen[i+r] = true
	}
	x := Acts{Q: p[:rows*BlockSlots], DX: dx[:], Init: init[:]}
	for acc := n.acc[i*PanelRows:]; at < len(b.Codes); at += valueCodes {
		b.panel(&w, at, BlockSlots, n.scales)
		AddPanel(acc[:rows*PanelRows], &w, &x)
		acc = acc[min(len(acc), len(a.top)*PanelRows):]
	}
}

// TurnSize returns the size of Turn for rows of n numbers: the largest power of two dividing n, at most 64.
func TurnSize(n int) int { return min(64, n&-n) }

// Turn multiplies each run of size numbers of x, a power of two, by the matrix of Walsh and Hadamard over √size, its
// own inverse. Products of rows stay, and outliers are spread.
//
//	for each power of two h below size, in order, for each i without the bit h:
//	    a, b = x[i], x[i+h]; x[i], x[i+h] = a+b, a-b
//	x[i] = x[i]*float32(1/√size)
func Turn(x []float32, size int) {
	h := 1
	for ; 8*h <= size; h *= 8 {
		turnEights(x, h)
	}
	for ; h < size; h *= 2 {
		for at := 0; at < len(x); at += 2 * h {
			lo, hi := x[at:at+h], x[at+h:at+2*h]
			for i, a := range lo {
				b := hi[i]
				lo[i], hi[i] = a+b, a-b
			}
		}
	}
	Scale(x, x, float32(1/math.Sqrt(float64(size))))
}

// turnEights does Turn's steps of n, 2n and 4n.
func turnEights(x []float32, n int) {
	for ; len(x) > 0; x = x[8*n:] {
		for i := range n {
			y := x[i : i+7*n+1]
			a, b, c, d, e, f, g, h := y[0], y[n], y[2*n], y[3*n], y[4*n], y[5*n], y[6*n], y[7*n]
			a, b, c, d, e, f, g, h = a+b, a-b, c+d, c-d, e+f, e-f, g+h, g-h
			a, c, b, d, e, g, f, h = a+c, a-c, b+d, b-d, e+g, e-g, f+h, f-h
			y[0], y[4*n], y[n], y[5*n], y[2*n], y[6*n], y[3*n], y[7*n] = a+e, a-e, b+f, b-f, c+g, c-g, d+h, d-h
		}
	}
}
