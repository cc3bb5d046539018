package simd

//go:noescape
func scoreKeysNEON(s *scores, q, k []float32, from, to int, scale float32)

//go:noescape
func addValuesNEON(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)

func scoreKeys(s *scores, q, k []float32, span Span, scale float32) {
	if tier == generic {
		scoreKeysGeneric(s, q, k, span, scale)
		return
	}
	scoreKeysNEON(s, q, k, span.From&^(KeySlots-1), span.To, scale)
}

// addSharedValues adds the values of the positions of span, p of each, to
// Quad queries' acc, and p to their sum.
func addSharedValues(acc, v []float32, p *scores, span Span, sum *[Quad]float32) {
	d := len(acc) / Quad
	n := wide(d)
	if n == 0 {
		addWeights(sum, p, span)
	} else {
		addValuesNEON(acc[:len(acc)-d+n], v[span.From*d:], &p[0][span.From], span.To-span.From, d, sum)
	}
	addSharedValuesGeneric(acc, v, p, span, n)
}

func weighAll(*scores, *[Quad]uint64, *[Quad]float32, *[Quad]float32) (raised int) { return -1 }
