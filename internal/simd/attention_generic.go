package simd

// scoreKeysGeneric sets the scores of the positions of span at least. Sixteen
// keys are multiplied at a time, side by side: partial[l] is their sums l.
func scoreKeysGeneric(s *scores, q, k []float32, span Span, scale float32) {
	d := len(q) / Quad
	for at := span.From &^ (KeySlots - 1); at < span.To; at += KeySlots {
		keys := k[at*d : (at+KeySlots)*d]
		for r := range s {
			var partial [lanes][KeySlots]float32
			for i, x := range q[r*d : (r+1)*d] {
				addScaledGeneric(partial[i%lanes][:], keys[i*KeySlots:(i+1)*KeySlots], x)
			}
			for n := lanes / 2; n >= 1; n /= 2 {
				for l := range n {
					addGeneric(partial[l][:], partial[l][:], partial[l+n][:])
				}
			}
			scaleGeneric(s[r][at:], partial[0][:], scale)
		}
	}
}

// addSharedValuesGeneric adds values to the columns from `from` on of acc.
func addSharedValuesGeneric(acc, v []float32, p *scores, span Span, from int) {
	d := len(acc) / Quad
	if from == d {
		return
	}
	for r := range p {
		for j := span.From; j < span.To; j++ {
			addScaledGeneric(acc[r*d+from:(r+1)*d], v[j*d+from:(j+1)*d], p[r][j])
		}
	}
}

// addWeights adds the weights of the positions of span to each query's sum.
func addWeights(sum *[Quad]float32, p *scores, span Span) {
	for r := range sum {
		for _, w := range p[r][span.From:span.To] {
			sum[r] += w
		}
	}
}
