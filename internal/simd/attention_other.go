//go:build !amd64 && !arm64

package simd

func scoreKeys(s *scores, q, k []float32, span Span, scale float32) {
	scoreKeysGeneric(s, q, k, span, scale)
}

func addSharedValues(acc, v []float32, p *scores, span Span, sum *[Quad]float32) {
	addWeights(sum, p, span)
	addSharedValuesGeneric(acc, v, p, span, 0)
}

func weighAll(*scores, *[Quad]uint64, *[Quad]float32, *[Quad]float32) (raised int) { return -1 }
