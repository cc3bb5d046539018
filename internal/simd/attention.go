package simd

import "math"

// BlockSlots is the most positions that Attention.Add takes at once.
const BlockSlots = 64

// Attention accumulates one query head's attention, block by block of
// positions. Reset it first. (The online softmax of Milakov and Gimelshein
// 2018, arXiv:1805.02867.) Its bits depend on where blocks begin, so callers
// fix that by absolute position.
type Attention struct {
	Acc []float32 // the values' weighted sum so far, one head long
	Top float32   // the largest score so far
	Sum float32   // of the weights so far, relative to Top
}

// Reset starts an attention over no positions, to accumulate into acc.
func (a *Attention) Reset(acc []float32) {
	clear(acc)
	*a = Attention{Acc: acc, Top: float32(math.Inf(-1))}
}

// AddF32 attends to n ≤ BlockSlots positions, whose keys and values k and v
// hold in rows of len(q), len(a.Acc) being len(q) too:
//
//	s[j] = DotF32(k[j], q)*scale
//	top = the larger of Top and Max(s)
//	c = Exp(Top-top); Sum = Sum*c; Acc[i] = Acc[i]*c    // unless top is Top
//	for j in order: p = Exp(s[j]-top); Sum = Sum+p; Acc[i] = fma(v[j][i], p, Acc[i])
func (a *Attention) AddF32(q, k, v []float32, n int, scale float32) {
	attendF32Generic(a, q, k, v, n, scale)
}

// AddF16 is AddF32 over keys and values in binary16.
func (a *Attention) AddF16(q []float32, k, v []uint16, n int, scale float32) {
	attendF16Generic(a, q, k, v, n, scale)
}

// Result sets dst[i] to Acc[i]/Sum. dst may be Acc.
func (a *Attention) Result(dst []float32) { divideGeneric(dst, a.Acc, a.Sum) }
