package simd

import (
	"encoding/binary"
	"runtime"
)

// What a core can do at most, for package bench: loops of nothing but loads, or
// of products that do not wait for each other, in the instructions of the tier's
// kernels. They are loops of their own, so that a slow kernel is not its own limit.

// LimitRead reads b[:len(b)&^511].
func LimitRead(b []byte) { limitRead(b) }

// LimitInts computes the products of 16-bit activations with 8-bit weights, and
// their sums, in the given number of rounds. It returns how many operations that
// was: two for a product.
func LimitInts(rounds int) (operations float64) { return limitInts(rounds) }

// LimitFloats does the same with float32 by fused multiply-add.
func LimitFloats(rounds int) (operations float64) { return limitFloats(rounds) }

// LimitNames are the instructions of LimitInts and of LimitFloats.
func LimitNames() (ints, floats string) { return limitNames() }

// limitSums are independent sums of the generic loops, enough to hide what an
// addition takes.
const limitSums = 8

func limitReadGeneric(b []byte) {
	var a, c uint64
	for ; len(b) >= 512; b = b[512:] {
		for w := b[:512]; len(w) > 0; w = w[16:] {
			a ^= binary.LittleEndian.Uint64(w)
			c ^= binary.LittleEndian.Uint64(w[8:])
		}
	}
	runtime.KeepAlive(a ^ c)
}

func limitIntsGeneric(rounds int) (operations float64) {
	var sums [limitSums]int32
	x, w := [limitSums]int16{3, 1, 4, 1, 5, 9, 2, 6}, [limitSums]int8{2, 7, 1, 8, 2, 8, 1, 8}
	for range rounds {
		for i := range sums {
			sums[i] += int32(x[i]) * int32(w[i])
		}
	}
	runtime.KeepAlive(sums)
	return 2 * limitSums * float64(rounds)
}

func limitFloatsGeneric(rounds int) (operations float64) {
	var sums [limitSums]float32
	for i := range sums {
		sums[i] = float32(i)
	}
	for range rounds {
		for i := range sums {
			sums[i] = fma32(sums[i], 0.5, 1)
		}
	}
	runtime.KeepAlive(sums)
	return 2 * limitSums * float64(rounds)
}
