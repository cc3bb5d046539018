package simd

//go:noescape
func limitReadAVX2(b []byte, f *limitForm)

//go:noescape
func limitReadAVX512(b []byte, f *limitForm)

func limitIntsAVX2(rounds int)

func limitIntsAVX512(rounds int)

//go:noescape
func limitIntsAMX(rounds int, config *[64]byte)

func limitFloatsAVX2(rounds int)

func limitFloatsAVX512(rounds int)

// limitTiles makes all tiles 16 rows of 64 bytes (LDTILECFG's palette 1).
var limitTiles = func() (c [64]byte) {
	c[0] = 1
	for i := range 8 {
		c[16+2*i], c[48+i] = 64, 16
	}
	return c
}()

func limitRead(b []byte, f *limitForm) {
	switch {
	case tier >= avx512:
		limitReadAVX512(b, f)
	case tier >= avx2:
		limitReadAVX2(b, f)
	default:
		limitReadGeneric(b)
	}
}

func limitInts(rounds int) (operations float64) {
	n := 2 * float64(rounds)
	switch {
	case tier >= amx: // 4 instructions of 16·16·32 products, two for the halves of an activation
		limitIntsAMX(rounds, &limitTiles)
		return n * 4 * 16 * 16 * 32 / 2
	case tier >= avx512:
		limitIntsAVX512(rounds)
		return n * 12 * 32
	case tier >= avx2:
		limitIntsAVX2(rounds)
		return n * 8 * 16
	}
	return limitIntsGeneric(rounds)
}

func limitFloats(rounds int) (operations float64) {
	n := 2 * float64(rounds)
	switch {
	case tier >= avx512:
		limitFloatsAVX512(rounds)
		return n * 12 * 16
	case tier >= avx2:
		limitFloatsAVX2(rounds)
		return n * 12 * 8
	}
	return limitFloatsGeneric(rounds)
}

func limitNames() (ints, floats string) {
	switch {
	case tier >= amx:
		return "TDPBF16PS twice", "VFMADD"
	case tier >= avx512:
		return "VPDPWSSD", "VFMADD"
	case tier >= avx2:
		return "VPMADDWD+VPADDD", "VFMADD"
	}
	return "int32", "float32"
}
