package sample

import (
	"math"
	"slices"
)

// isLikelier orders by likelihood: the higher logit first, of equal ones the lower id.
func isLikelier(a, b candidate) bool {
	return a.logit > b.logit || a.logit == b.logit && a.id < b.id
}

// isUnlikelier reverses before.
func isUnlikelier(a, b candidate) bool { return isLikelier(b, a) }

// higherID reverses the order of ids.
func higherID(a, b candidate) bool { return a.id > b.id }

// sortDown sorts c by over, the first in front. slices.SortFunc would add 7 kB to a program, to sort a few dozen.
func sortDown(c []candidate, over func(a, b candidate) bool) {
	heapify(c, over)
	for n := len(c) - 1; n > 0; n-- {
		c[0], c[n] = c[n], c[0]
		sink(c[:n], 0, over)
	}
}

// heapify arranges c as a heap of over: c[0] comes first.
func heapify(c []candidate, over func(a, b candidate) bool) {
	for i := len(c)/2 - 1; i >= 0; i-- {
		sink(c, i, over)
	}
}

// sink moves c[i] down to its place in the heap.
func sink(c []candidate, i int, over func(a, b candidate) bool) {
	for {
		child := 2*i + 1
		if child >= len(c) {
			return
		}
		if child+1 < len(c) && over(c[child+1], c[child]) {
			child++
		}
		if !over(c[child], c[i]) {
			return
		}
		c[i], c[child] = c[child], c[i]
		i = child
	}
}

// topK returns the k likeliest of c, 0 < k <= len(c), in c's memory: one pass, with a heap of the k likeliest so far
// and the least likely on top.
func topK(c []candidate, k int) []candidate {
	kept := c[:k]
	heapify(kept, isUnlikelier)
	for _, x := range c[k:] {
		if isLikelier(x, kept[0]) {
			kept[0] = x
			sink(kept, 0, isUnlikelier)
		}
	}
	return kept
}

// likeliest returns the k first tokens above -Inf in the order of before, in c's memory if there is enough.
func likeliest(c []candidate, logits []float32, k int) []candidate {
	if k == 0 {
		return nil
	}
	const more = 1024
	c = slices.Grow(c[:0], k+more)
	least := float32(math.Inf(-1)) // of no use
	for id, x := range logits {
		if x > least {
			if len(c) == k+more {
				c = topK(c, k)
				least = c[0].logit
			}
			c = append(c, candidate{id: int32(id), logit: x})
		}
	}
	c = topK(c, min(k, len(c)))
	sortDown(c, isUnlikelier)
	return c
}

// topP returns the fewest likeliest of c with probabilities summing to at least p, 0 < p < 1, in c's memory, the
// likeliest last. topP uses scratch and returns scratch, perhaps grown.
func topP(c []candidate, p float64, scratch []candidate) (kept, used []candidate) {
	total := weigh(c, 1)
	// All tokens below this weight together have less than the part to drop, so every token kept is above. Half of the
	// part is room for rounding.
	least := (1 - p) * total / float64(2*len(c))
	rest := c[:0]
	for _, x := range c {
		if x.weight >= least {
			rest = append(rest, x)
		}
	}
	used = order(rest, scratch)
	end, sum := len(rest), 0.0
	for end > 0 && sum < float64(p*total) {
		end--
		sum += rest[end].weight
	}
	return rest[end:], used
}

// order sorts c, given in the order of ids, by likelihood, the likeliest last. Many candidates, perhaps a whole
// vocabulary, go by a radix sort of their logits' bits, as integers of the same order, eleven bits at a time. order
// uses scratch and returns scratch, perhaps grown.
func order(c, scratch []candidate) []candidate {
	const digit, digits = 11, 3
	if len(c) < 1<<digit {
		sortDown(c, isLikelier)
		return scratch
	}
	scratch = slices.Grow(scratch[:0], len(c))[:len(c)]
	slices.Reverse(c) // of equal logits the higher id is less likely
	rank := func(x float32) uint32 {
		b := math.Float32bits(x + 0) // -0 is 0
		return b ^ (uint32(int32(b)>>31) | 1<<31)
	}
	from, to := c, scratch
	for pass := range digits {
		var starts [1<<digit + 1]int
		of := func(x float32) uint32 { return rank(x) >> (pass * digit) & (1<<digit - 1) }
		for i := range from {
			starts[of(from[i].logit)+1]++
		}
		for i := range 1 << digit {
			starts[i+1] += starts[i]
		}
		for i := range from {
			d := of(from[i].logit)
			to[starts[d]] = from[i]
			starts[d]++
		}
		from, to = to, from
	}
	copy(c, from)
	return scratch
}

// minP returns the ones of c whose logit is at least the highest plus logP, the logarithm of a fraction, in c's memory.
func minP(c []candidate, logP float64) []candidate {
	least := highest(c) + logP
	kept := c[:0]
	for _, x := range c {
		if float64(x.logit) >= least {
			kept = append(kept, x)
		}
	}
	return kept
}
