package simd

import (
	"encoding/binary"
	"runtime"
)

// The most a core can do, for package bench: loops of nothing but loads, or of independent products, in the
// instructions of the tier's kernels. The loops are not the kernels', so that a slow kernel is not its own limit.

// LimitForms is the number of ways of LimitRead. The fastest way differs between machines.
const LimitForms = len(limitForms)

// LimitRead reads b[:len(b)&^511] in way form of LimitForms.
func LimitRead(b []byte, form int) {
	b = b[:len(b)&^511]
	if len(b) == 0 {
		return
	}
	f := limitForms[form]
	if f.gap, f.step = 128, 512; f.streams > 1 {
		f.gap, f.step = len(b)/4, 128
	}
	if tier == generic || tier == wasm {
		limitReadGeneric(b)
		return
	}
	limitReadVec(b, &f)
}

// limitForm is a way to read memory, 128 bytes each at four places at a time.
type limitForm struct {
	streams int
	near    int // how many bytes before its use memory is fetched to the first cache
	far     int // distance to the second place
	gap     int // bytes between the four places
	step    int // to the next ones
}

// limitForms are the ways of the kernels, at their distances, and a core's own way.
var limitForms = [...]limitForm{
	{streams: 1},
	{streams: 1, near: 6144, far: 6144},
	{streams: 1, near: 2048, far: 12288},
	{streams: 4},
	{streams: 4, near: 1024, far: 4096},
}

// limitKernel has a tier's loops of products, the operations of a round of each, two for a product, and the
// instructions.
type limitKernel struct {
	ints, floats             func(rounds int)
	intsARound, floatsARound float64
	intsName, floatsName     string
}

// LimitInts computes the products of 16-bit activations with 8-bit weights, and their sums, in the given number of
// rounds. It returns the number of operations, two for a product.
func LimitInts(rounds int) (operations float64) {
	k := &limitKernels[tier]
	k.ints(rounds)
	return k.intsARound * float64(rounds)
}

// LimitFloats does the same with float32 by fused multiply-add.
func LimitFloats(rounds int) (operations float64) {
	k := &limitKernels[tier]
	k.floats(rounds)
	return k.floatsARound * float64(rounds)
}

// LimitNames returns the instructions of LimitInts and of LimitFloats.
func LimitNames() (ints, floats string) {
	return limitKernels[tier].intsName, limitKernels[tier].floatsName
}

// limitGeneric is the tier generic's.
var limitGeneric = limitKernel{limitIntsGeneric, limitFloatsGeneric, 2 * limitSums, 2 * limitSums, "int32", "float32"}

// limitSums are independent sums of the generic loops, enough to hide the time of an addition.
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

func limitIntsGeneric(rounds int) {
	var sums [limitSums]int32
	x, w := [limitSums]int16{3, 1, 4, 1, 5, 9, 2, 6}, [limitSums]int8{2, 7, 1, 8, 2, 8, 1, 8}
	for range rounds {
		for i := range sums {
			sums[i] += int32(x[i]) * int32(w[i])
		}
	}
	runtime.KeepAlive(sums)
}

func limitFloatsGeneric(rounds int) {
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
}
