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
	var scores [BlockSlots]float32
	s := scores[:n]
	dotRowsF32(s, q, k)
	a.weigh(&scores, n, scale)
	weighF32(a.Acc[:len(q)], v[:n*len(q)], s)
}

// AddF16 is AddF32 over keys and values in binary16.
func (a *Attention) AddF16(q []float32, k, v []uint16, n int, scale float32) {
	var scores [BlockSlots]float32
	s := scores[:n]
	dotKeysF16(s, q, k[:n*len(q)])
	a.weigh(&scores, n, scale)
	weighF16(a.Acc[:len(q)], v[:n*len(q)], s)
}

// weigh turns the products of n keys to the weights of their values, relative to
// a.Top, which it raises where that is due, and adds them to a.Sum.
func (a *Attention) weigh(scores *[BlockSlots]float32, n int, by float32) {
	s := scores[:n]
	scale(s, s, by)
	if top := maximum(s); !(top <= a.Top) {
		c := Exp(a.Top - top)
		a.Sum = float32(a.Sum * c)
		scale(a.Acc, a.Acc, c)
		a.Top = top
	}
	whole := scores[:(n+lanes-1)&^(lanes-1)] // there is no reader for those from n on
	expSum(whole, whole, a.Top)
	for _, p := range s {
		a.Sum += p
	}
}

// Result sets dst[i] to Acc[i]/Sum. dst may be Acc.
func (a *Attention) Result(dst []float32) { divide(dst, a.Acc, a.Sum) }
