package simd

//go:noescape
func scoreKeysAVX2(s *scores, q, k []float32, from, to int, scale float32)

//go:noescape
func scoreKeysAVX512(s *scores, q, k []float32, from, to int, scale float32)

//go:noescape
func weighAllAVX512(s *scores, seen *[Quad]uint64, top, c *[Quad]float32, k *expTable) (raised int)

//go:noescape
func addValuesAVX2(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)

//go:noescape
func addValuesAVX512(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)

func scoreKeys(s *scores, q, k []float32, span Span, scale float32) {
	switch {
	case tier >= avx512:
		scoreKeysAVX512(s, q, k, span.From&^31, span.To, scale)
	case tier >= avx2:
		scoreKeysAVX2(s, q, k, span.From&^(KeySlots-1), span.To, scale)
	default:
		scoreKeysGeneric(s, q, k, span, scale)
	}
}

// weighAll turns the scores of Quad queries to weights, relative to top, which it
// raises where that is due. It returns a bit for each that it has raised, and
// sets its c to weight(old top - new top). It returns -1 and has done nothing where a
// score is NaN.
func weighAll(s *scores, seen *[Quad]uint64, top, c *[Quad]float32) (raised int) {
	if tier >= avx512 {
		return weighAllAVX512(s, seen, top, c, expConst)
	}
	return -1
}

// addSharedValues adds the values of the positions of span, p of each, to
// Quad queries' acc, and p to their sum.
func addSharedValues(acc, v []float32, p *scores, span Span, sum *[Quad]float32) {
	d := len(acc) / Quad
	n := wide(d)
	if n == 0 {
		addWeights(sum, p, span)
	} else if tier >= avx512 {
		addValuesAVX512(acc[:len(acc)-d+n], v[span.From*d:], &p[0][span.From], span.To-span.From, d, sum)
	} else {
		addValuesAVX2(acc[:len(acc)-d+n], v[span.From*d:], &p[0][span.From], span.To-span.From, d, sum)
	}
	addSharedValuesGeneric(acc, v, p, span, n)
}
