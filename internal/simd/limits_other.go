//go:build !amd64 && !arm64

package simd

func limitRead(b []byte, _ *limitForm) { limitReadGeneric(b) }

func limitInts(rounds int) (operations float64) { return limitIntsGeneric(rounds) }

func limitFloats(rounds int) (operations float64) { return limitFloatsGeneric(rounds) }

func limitNames() (ints, floats string) { return "int32", "float32" }
