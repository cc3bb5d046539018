package quant

import (
	"encoding/binary"
	"math"
)

// The encoders of the types in blocks of 32. Without importance the extremes of a
// block are its scale; with it the scale is searched.

// peak is the first value of x that has the largest magnitude.
func peak(x []float32) (v float32) {
	var high float32
	for _, a := range x {
		if b := abs(a); b > high {
			high, v = b, a
		}
	}
	return v
}

// span is the least and the largest value of x.
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

// around sets the codes of x about the code of zero, half of all, with the scale
// d that it writes: 8 for four bits.
func (e *encoder) around(b []byte, x, w []float32, half float32) {
	if w != nil {
		e.weigh(x, w)
		e.fitScales(x, 32, half)
		putHalf(b, e.scale[0])
		e.scaleCodes(0, x, half)
		return
	}
	d := peak(x) / -half
	putHalf(b, d)
	id, top := inverse(d), int32(half+half-1)
	for i, v := range x[:32] {
		e.q[i] = byte(min(top, int32(float32(v*id)+(half+0.5))))
	}
}

// above sets the codes of x above its minimum, up to top, with the scale and the
// minimum that it writes.
func (e *encoder) above(b []byte, x, w []float32, top float32) {
	if w != nil {
		e.weigh(x, w)
		e.fitMins(x, 32, fine[top], top, false)
		putHalf(b, e.scale[0])
		putHalf(b[2:], -e.min[0])
		e.minCodes(0, x, top)
		return
	}
	low, high := span(x)
	d := (high - low) / top
	putHalf(b, d)
	putHalf(b[2:], low)
	id := inverse(d)
	for i, v := range x[:32] {
		e.q[i] = byte(min(int32(top), int32(float32((v-low)*id)+0.5)))
	}
}

func (e *encoder) q4_0(b []byte, x, w []float32) {
	e.around(b, x, w, 8)
	packHalves(b[2:18], e.q[:32])
}

func (e *encoder) q4_1(b []byte, x, w []float32) {
	e.above(b, x, w, 15)
	packHalves(b[4:20], e.q[:32])
}

func (e *encoder) q5_0(b []byte, x, w []float32) {
	e.around(b, x, w, 16)
	packHalves(b[6:22], e.q[:32])
	packFifth(b[2:6], e.q[:32])
}

func (e *encoder) q5_1(b []byte, x, w []float32) {
	e.above(b, x, w, 31)
	packHalves(b[8:24], e.q[:32])
	packFifth(b[4:8], e.q[:32])
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

// mxfp4 has the largest power of two that is at most a quarter of the largest
// magnitude as its scale, so that this becomes 4 to 6, the largest code's value.
// (OCP Microscaling Formats 1.0, section 6.3)
func (e *encoder) mxfp4(b []byte, x, _ []float32) {
	top := math.Float32bits(abs(peak(x))) >> 23
	b[0] = byte(max(top, 2) - 2)
	scale := halfE8M0(b[0])
	for i, v := range x[:32] {
		e.q[i] = nearestE2M1(v, scale)
	}
	packHalves(b[1:17], e.q[:32])
}

// nearestE2M1 is the code whose value is nearest to v, the first one of two.
func nearestE2M1(v, scale float32) (code byte) {
	least := float32(math.MaxFloat32)
	for i, q := range e2m1 {
		if far := abs(float32(float32(q)*scale) - v); far < least {
			least, code = far, byte(i)
		}
	}
	return code
}
