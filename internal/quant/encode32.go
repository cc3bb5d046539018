package quant

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/simd"
)

// The encoders of the types in blocks of 32. Without importance the extremes of a block are its scale; with it the
// scale is searched.

// peak returns the first value of x of the largest magnitude.
func peak(x []float32) (v float32) {
	var high float32
	for _, a := range x {
		if b := abs(a); b > high {
			high, v = b, a
		}
	}
	return v
}

// span returns the least and the largest value of x.
func span(x []float32) (low, high float32) {
	low, high = x[0], x[0]
	for _, v := range x {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	return low, high
}

// around returns the codes of x about the code of zero, half of all codes, and writes the scale to b: 8 for four bits.
func (e *encoder) around(b []byte, x, w []float32, half float32) []byte {
	if w != nil {
		if e.at == 0 {
			e.fitScales(e.weighAhead(), 32, half)
		}
		q := e.q[e.at*32:][:32]
		putHalf(b, e.scale[e.at])
		e.scaleCodes(e.at, x, half)
		return q
	}
	d := peak(x) / -half
	putHalf(b, d)
	id, top := inverse(d), int32(half+half-1)
	for i, v := range x[:32] {
		e.q[i] = byte(min(top, int32(float32(v*id)+(half+0.5))))
	}
	return e.q[:32]
}

// above returns the codes of x above its minimum, up to top, and writes the scale and the minimum to b.
func (e *encoder) above(b []byte, x, w []float32, top float32) []byte {
	if w != nil {
		if e.at == 0 {
			e.fitMins(e.weighAhead(), 32, fine[top], top, false)
		}
		q := e.q[e.at*32:][:32]
		putHalf(b, e.scale[e.at])
		putHalf(b[2:], -e.min[e.at])
		e.minCodes(e.at, x, top)
		return q
	}
	low, high := span(x)
	d := (high - low) / top
	putHalf(b, d)
	putHalf(b[2:], low)
	id := inverse(d)
	for i, v := range x[:32] {
		e.q[i] = byte(min(int32(top), int32(float32((v-low)*id)+0.5)))
	}
	return e.q[:32]
}

// weighAhead weighs the errors of the next blocks of 32 of the row, as many as are searched side by side, and returns
// the blocks.
func (e *encoder) weighAhead() []float32 {
	n := min(len(e.x), 32*simd.FitLanes)
	e.weigh(e.x[:n], e.importance[:n])
	return e.x[:n]
}

func (e *encoder) q4_0(b []byte, x, w []float32) { packHalves(b[2:18], e.around(b, x, w, 8)) }

func (e *encoder) q4_1(b []byte, x, w []float32) { packHalves(b[4:20], e.above(b, x, w, 15)) }

func (e *encoder) q5_0(b []byte, x, w []float32) {
	q := e.around(b, x, w, 16)
	packHalves(b[6:22], q)
	packFifth(b[2:6], q)
}

func (e *encoder) q5_1(b []byte, x, w []float32) {
	q := e.above(b, x, w, 31)
	packHalves(b[8:24], q)
	packFifth(b[4:8], q)
}

// packHalves puts the low four bits of 32 codes into 16 bytes, the inverse of halves.
func packHalves(qs, q []byte) {
	for j := 0; j < 16; j += 8 {
		store8(qs[j:], load8(q[j:])&(15*each)|load8(q[j+16:])&(15*each)<<4)
	}
}

// packFifth gathers the fifth bits of 32 codes.
func packFifth(qh, q []byte) {
	var bits uint32
	for i, c := range q[:32] {
		bits |= uint32(c>>4&1) << i
	}
	binary.LittleEndian.PutUint32(qh, bits)
}

// mxfp4 takes as its scale the largest power of two up to a quarter of the largest magnitude, which becomes 4 to 6, the
// largest code's value. (OCP Microscaling Formats 1.0, section 6.3)
func (e *encoder) mxfp4(b []byte, x, _ []float32) {
	largest := simd.Largest(x)
	b[0] = byte(max(math.Float32bits(largest)>>23, 2) - 2)
	codeE2M1(e.q[:32], x, halfE8M0(b[0]), largest)
	packHalves(b[1:17], e.q[:32])
}

// codeE2M1 sets q to the codes of x. The float32 distances from codes' values have the order of the numbers' places
// among the middles of the values, unless the scale is subnormal or much less than the largest magnitude.
func codeE2M1(q []byte, x []float32, scale, largest float32) {
	if !(scale >= 0x1p-100 && largest <= 0x1p10*scale) {
		for i, v := range x {
			q[i] = nearestE2M1(v, scale)
		}
		return
	}
	var m [8]uint32
	for i := range 7 {
		m[i] = math.Float32bits(float32(int(e2m1[i])+int(e2m1[i+1])) * (scale / 2))
	}
	q = q[:len(x)]
	for i, v := range x {
		bits := math.Float32bits(v)
		b := bits &^ (1 << 31)
		c := (m[3] - b) >> 31 << 2
		c += (m[(c+1)&7] - b) >> 31 << 1
		c += (m[c&7] - b) >> 31
		q[i] = byte(c | bits>>28&8&(c+7)) // zero has no sign
	}
}

// nearestE2M1 returns the code whose value is nearest to v, the first of two.
func nearestE2M1(v, scale float32) (code byte) {
	least := float32(math.MaxFloat32)
	for i, q := range e2m1 {
		if far := abs(float32(float32(q)*scale) - v); far < least {
			least, code = far, byte(i)
		}
	}
	return code
}
