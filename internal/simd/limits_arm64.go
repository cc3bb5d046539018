package simd

func limitIntsNEON(rounds int)

func limitIntsSDOT(rounds int)

func limitFloatsNEON(rounds int)

var limitKernels = [...]limitKernel{
	generic: limitGeneric,
	neon:    {limitIntsNEON, limitFloatsNEON, 2 * 16 * 4, 2 * 16 * 4, "SMLAL", "FMLA"},
	sdot:    {limitIntsSDOT, limitFloatsNEON, 16 * 16, 2 * 16 * 4, "SDOT twice", "FMLA"}, // two for the halves of an activation
}
