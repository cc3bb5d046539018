package lab

import (
	"math"
	"slices"
)

// The metrics compare one row of a golden record, g, with the same row of
// another, r, of equal length. All are computed in float64, and a NaN in either
// row makes the metric NaN.

// Float is the type of a row's values.
type Float interface{ ~float32 | ~float64 }

// AbsDiff returns the largest and the mean |g[i] - r[i]|. Equal infinities differ by 0.
func AbsDiff[F Float](g, r []F) (largest, mean float64) {
	for i := range g {
		if g[i] == r[i] {
			continue
		}
		d := math.Abs(float64(g[i]) - float64(r[i]))
		largest = max(largest, d)
		mean += d
	}
	return largest, mean / float64(len(g))
}

// Cosine returns the cosine of the angle between g and r: 1 where both are zero, 0 where only one is.
func Cosine[F Float](g, r []F) float64 {
	var gr, gg, rr float64
	for i := range g {
		x, y := float64(g[i]), float64(r[i])
		gr += x * y
		gg += x * x
		rr += y * y
	}
	switch {
	case gg == 0 && rr == 0:
		return 1
	case gg == 0 || rr == 0:
		return 0 * (gg + rr) // NaN if the other side is
	}
	return gr / (math.Sqrt(gg) * math.Sqrt(rr))
}

// RelativeL2 returns ‖r - g‖ / ‖g‖: 0 where both are zero, +Inf where only g is. Equal infinities differ by 0; an
// infinity on a single side makes the result NaN.
func RelativeL2[F Float](g, r []F) float64 {
	var s squares
	addSquares(&s, g, r)
	return s.relative()
}

// squares are the sums behind RelativeL2, which run over a row or a whole tensor.
type squares struct{ diff, golden float64 }

func addSquares[F Float](s *squares, g, r []F) {
	for i := range g {
		x, y := float64(g[i]), float64(r[i])
		switch {
		case !math.IsInf(x, 0) && !math.IsInf(y, 0):
			s.diff += (y - x) * (y - x)
			s.golden += x * x
		case x != y:
			s.diff = math.NaN()
		}
	}
}

func (s squares) relative() float64 {
	if s.diff == 0 && s.golden == 0 {
		return 0
	}
	return math.Sqrt(s.diff) / math.Sqrt(s.golden)
}

// LogSumExp returns the logarithm of the sum of e^x: a logit less this sum is a log-probability. The result is -Inf
// where all logits are -Inf.
func LogSumExp[F Float](logits []F) float64 {
	top := float64(slices.Max(logits)) // NaN if any is
	if math.IsInf(top, -1) {
		return top
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

// KL returns the Kullback-Leibler divergence of r's distribution from g's, in nats:
// the sum of p ln(p/q) over the softmaxes p of g and q of r. It is +Inf where r
// rules out what g does not.
//
// The sum is taken as p (e^d - 1 - d), d = ln(q/p), which is the same since both
// distributions sum to 1, but has no negative term: divergences far below the
// rounding of ln p keep their digits.
func KL[F Float](g, r []F) float64 { return Divergence(g, r, LogSumExp(g), LogSumExp(r)) }

// Divergence returns KL's result for rows with known LogSumExp.
func Divergence[F Float](g, r []F, gn, rn float64) float64 {
	sum := 0.0
	for i := range g {
		lp, lq := float64(g[i])-gn, float64(r[i])-rn
		p := math.Exp(lp)
		switch d := lq - lp; {
		case p == 0:
			sum += math.Exp(lq)
		case math.Abs(d) < 1:
			sum += p * (math.Expm1(d) - d)
		default: // also NaN
			sum += math.Exp(lq) - p - p*d
		}
	}
	return sum
}

// Entropy returns the entropy of the softmax of logits, in nats.
func Entropy[F Float](logits []F) float64 {
	norm, sum := LogSumExp(logits), 0.0
	for _, x := range logits {
		lp := float64(x) - norm
		if p := math.Exp(lp); p != 0 { // also NaN
			sum -= p * lp
		}
	}
	return sum
}

// TopIDs returns the indices of the k highest logits, highest first, of equal logits the lowest index; all indices
// where there are fewer than k. No logit may be NaN.
func TopIDs[F Float](logits []F, k int) []int {
	ids := make([]int, 0, k+1)
	for i, x := range logits {
		if len(ids) == k && !(x > logits[ids[k-1]]) {
			continue
		}
		at := len(ids)
		for at > 0 && x > logits[ids[at-1]] {
			at--
		}
		ids = slices.Insert(ids, at, i)
		ids = ids[:min(len(ids), k)]
	}
	return ids
}

// Overlap returns the share of g's k highest logits that are also among r's.
func Overlap[F Float](g, r []F, k int) float64 {
	if hasNaN(g) || hasNaN(r) {
		return math.NaN()
	}
	a, b := TopIDs(g, k), TopIDs(r, k)
	common := 0
	for _, id := range a {
		if slices.Contains(b, id) {
			common++
		}
	}
	return float64(common) / float64(len(a))
}

func hasNaN[F Float](x []F) bool { return slices.ContainsFunc(x, func(v F) bool { return v != v }) }
