package sample

// before is the order of likelihood: the higher logit, of equal ones the lower id.
func before(a, b candidate) bool {
	return a.logit > b.logit || a.logit == b.logit && a.id < b.id
}

// after is the reverse of before.
func after(a, b candidate) bool { return before(b, a) }

// byID is the order of ids.
func byID(a, b candidate) int { return int(a.id) - int(b.id) }

// heapify arranges c so that no candidate is over its parent's place: c[0] is
// the first in the order.
func heapify(c []candidate, over func(a, b candidate) bool) {
	for i := len(c)/2 - 1; i >= 0; i-- {
		sink(c, i, over)
	}
}

// sink moves c[i] down to where nothing below it is over it.
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

// topK is the k likeliest of c, 0 < k <= len(c), in c's memory: one pass, with
// a heap of the k likeliest so far, whose top is the least likely of them.
func topK(c []candidate, k int) []candidate {
	kept := c[:k]
	heapify(kept, after)
	for _, x := range c[k:] {
		if before(x, kept[0]) {
			kept[0] = x
			sink(kept, 0, after)
		}
	}
	return kept
}

// topP is the fewest likeliest of c whose probabilities sum to at least p, 0 < p < 1, in
// c's memory. It orders no more of c than it keeps.
func topP(c []candidate, p float64) []candidate {
	total := weigh(c, 1)
	// All tokens below this weight together are less than the part that may go,
	// so the tokens kept are among the others. Half of it is room for rounding.
	least := (1 - p) * total / float64(2*len(c))
	rest := c[:0]
	for _, x := range c {
		if x.weight >= least {
			rest = append(rest, x)
		}
	}
	heapify(rest, before)
	end, sum := len(rest), 0.0
	for end > 0 && sum < float64(p*total) { // rest[:end] is the heap; what left it follows
		sum += rest[0].weight
		end--
		rest[0], rest[end] = rest[end], rest[0]
		sink(rest[:end], 0, before)
	}
	return rest[end:]
}

// minP is those of c whose logit is at least the highest plus logP, the
// logarithm of a fraction, in c's memory.
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
