package quant

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/simd"
)

// The encoders of the types with one bit to two bits and a scale, and of NVFP4. Nothing is searched: importance does
// not matter.

// ternary returns the codes of x, 0 to top, for -1, 0 and so on times the largest magnitude, written to b.
func (e *encoder) ternary(b []byte, x []float32) []byte {
	const half = 0x3f000000 // 0.5
	d := simd.Largest(x)
	putHalf(b, d)
	inv := float32(0)
	if d > 0 {
		inv = inverse(d)
	}
	q := e.q[:len(x)]
	for i, v := range x {
		bits := math.Float32bits(float32(v * inv))
		n := (half - 1 - bits&^(1<<31)) >> 31 // 1 from 0.5 on
		q[i] = byte(1 + n - n&(bits>>31)<<1)
	}
	return q
}

func (e *encoder) tq1_0(b []byte, x, _ []float32) {
	q := e.ternary(b[52:], x)
	packDigits(b[:32], q, 5)
	packDigits(b[32:48], q[160:], 5)
	packDigits(b[48:52], q[240:], 4)
}

// packDigits puts count codes into each byte of b, the inverse of digits.
func packDigits(b, q []byte, count int) {
	for i := 0; i < len(b); i += 4 {
		var v uint32 // four numbers up to 242
		for n := range 5 {
			if v *= 3; n < count {
				v += binary.LittleEndian.Uint32(q[n*len(b)+i:])
			}
		}
		for j := range 4 {
			b[i+j] = fractions[byte(v>>(8*j))]
		}
	}
}

// fractions are numbers of five digits as fractions of 256, rounded up.
var fractions = func() (all [243]byte) {
	for i := range all {
		all[i] = byte((i*256 + 242) / 243)
	}
	return all
}()

func (e *encoder) tq2_0(b []byte, x, _ []float32) { packQuarters(b[:64], e.ternary(b[64:], x)) }

func (e *encoder) q2_0(b []byte, x, _ []float32) {
	q := e.ternary(b, x)
	for i := range b[2:] {
		b[2+i] = q[4*i] | q[4*i+1]<<2 | q[4*i+2]<<4 | q[4*i+3]<<6
	}
}

// q1_0 takes the mean magnitude as the scale.
func (e *encoder) q1_0(b []byte, x, _ []float32) {
	var sum float32
	clear(b)
	for i, v := range x {
		sum += abs(v)
		if v >= 0 {
			b[2+i/8] |= 1 << (i % 8)
		}
	}
	putHalf(b, sum/float32(len(x)))
}

// nvfp4 takes a sixth of a group's largest magnitude as its scale.
func (e *encoder) nvfp4(b []byte, x, _ []float32) {
	for g := range 4 {
		x, out := x[16*g:16*g+16], b[4+8*g:12+8*g]
		largest := simd.Largest(x)
		b[g] = toE4M3(largest / 6)
		codeE2M1(e.q[:16], x, scalesE4M3[b[g]&127], largest)
		store8(out, load8(e.q[:])|load8(e.q[8:])<<4)
	}
}

// scalesE4M3 are halves of E4M3 floats without a sign.
var scalesE4M3 = func() (all [128]float32) {
	for i := range all {
		all[i] = float16.F16(halfE4M3(byte(i)))
	}
	return all
}()

// toE4M3 returns the E4M3 float of x, 0 or more, as ggml rounds: half up, and to 448 from 256 on.
func toE4M3(x float32) byte {
	if bits := math.Float32bits(x); bits>>23 > 120 {
		if e := (bits - 120<<23 + 1<<19) >> 20; e < 120 {
			return byte(e)
		}
		return 126
	}
	return byte(min(float32(x*512)+0.5, 7)) // subnormal
}
