package simd

//go:noescape
func limitReadNEON(b []byte, f *limitForm)

func limitIntsNEON(rounds int)

func limitIntsSDOT(rounds int)

func limitFloatsNEON(rounds int)

func limitRead(b []byte, f *limitForm) {
	if tier == generic {
		limitReadGeneric(b)
		return
	}
	limitReadNEON(b, f)
}

func limitInts(rounds int) (operations float64) {
	n := 2 * float64(rounds)
	switch {
	case tier >= sdot: // two for the halves of an activation
		limitIntsSDOT(rounds)
		return n * 16 * 16 / 2
	case tier >= neon:
		limitIntsNEON(rounds)
		return n * 16 * 4
	}
	return limitIntsGeneric(rounds)
}

func limitFloats(rounds int) (operations float64) {
	if tier == generic {
		return limitFloatsGeneric(rounds)
	}
	limitFloatsNEON(rounds)
	return 2 * float64(rounds) * 16 * 4
}

func limitNames() (ints, floats string) {
	switch {
	case tier >= sdot:
		return "SDOT twice", "FMLA"
	case tier >= neon:
		return "SMLAL", "FMLA"
	}
	return "int32", "float32"
}
