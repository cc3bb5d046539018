package simd

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

var limitKernels = [...]limitKernel{
	generic: limitGeneric,
	avx2:    {limitIntsAVX2, limitFloatsAVX2, 2 * 8 * 16, 2 * 12 * 8, "VPMADDWD+VPADDD", "VFMADD"},
	avx512:  {limitIntsAVX512, limitFloatsAVX512, 2 * 12 * 32, 2 * 12 * 16, "VPDPWSSD", "VFMADD"},
	// 4 instructions of 16·16·32 products, two for the halves of an activation
	amx: {func(rounds int) { limitIntsAMX(rounds, &limitTiles) }, limitFloatsAVX512, 4 * 16 * 16 * 32, 2 * 12 * 16, "TDPBF16PS twice", "VFMADD"},
}
