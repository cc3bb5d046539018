package quant

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/simd"
)

// The encoders of IQ1_S and IQ1_M, with weights of -1, 0 or 1 and a shift. The weights of a group are sorted, and every
// two places are tried for a change of the level. (quantize_row_iq1_s_impl and quantize_row_iq1_m_impl of
// ggml-quants.c in llama.cpp)

// shifted holds the values of levels, shifted up and down.
var shifted = [2][3]float32{{-0.875, 0.125, 1.125}, {-1.125, -0.125, 0.875}}

// An ordered has a group's weights in order.
type ordered struct {
	x, w  []float32
	place []int // of the weights in x, the least weight first
}

// newOrdered orders a group.
func newOrdered(x, w []float32, place []int) ordered {
	for i := range place {
		j := i
		for ; j > 0 && x[place[j-1]] > x[i]; j-- {
			place[j] = place[j-1]
		}
		place[j] = i
	}
	return ordered{x, w, place}
}

// A split says where levels change, and how halves of the group are shifted: bit 1 of the first, bit 0 of the second.
type split struct {
	from1, from2, shift int
	scale, score        float32
}

// try takes a better split.
func (s *split) try(i1, i2, shift int, xq, qq float32) {
	if qq > 0 && float32(xq*xq) > float32(s.score*qq) {
		scale := xq / qq
		*s = split{i1, i2, shift, scale, float32(scale * xq)}
	}
}

// together returns the best split with one shift for all weights.
func (o *ordered) together() split {
	n := len(o.place)
	sums := simd.Splits{Middle: [2]float32{shifted[0][1], shifted[1][1]}}
	xs, ws := &sums.X, &sums.W
	for j, i := range o.place {
		xs[j+1] = xs[j] + float32(o.w[i]*o.x[i])
		ws[j+1] = ws[j] + o.w[i]
	}
	for down, v := range shifted {
		before, after := &sums.Before[down], &sums.After[down]
		for i := range n + 1 {
			before[0][i] = float32(xs[i] * v[0])
			before[1][i] = float32(float32(ws[i]*v[0]) * v[0])
			after[0][i] = float32((xs[n] - xs[i]) * v[2])
			after[1][i] = float32(float32((ws[n]-ws[i])*v[2]) * v[2])
		}
	}
	best := split{from1: -1, score: -math.MaxFloat32}
	for i1 := range n + 1 {
		for i2 := sums.First(i1, i1, n, best.score); i2 <= n; i2 = sums.First(i1, i2+1, n, best.score) {
			for down := range shifted {
				xq, qq := sums.Sums(down, i1, i2)
				best.try(i1, i2, 3*down, xq, qq)
			}
		}
	}
	return best
}

// apart returns the best split with a shift for each half of the weights.
func (o *ordered) apart() split {
	var terms [3][16]shiftSums // by level, of each weight in order
	for j, i := range o.place {
		for level := range terms {
			for shift := range 4 {
				q := shifted[shift>>(1-i/8)&1][level]
				wq := float32(o.w[i] * q)
				terms[level][j][2*shift], terms[level][j][2*shift+1] = float32(wq*o.x[i]), float32(wq*q)
			}
		}
	}
	best := split{from1: -1, score: -math.MaxFloat32}
	var low shiftSums // before i1
	for i1 := range 17 {
		middle := low // before i2
		for i2 := i1; i2 <= 16; i2++ {
			all := middle.plus(terms[2][i2:])
			for shift := range 4 {
				best.try(i1, i2, shift, all[2*shift], all[2*shift+1])
			}
			if i2 < 16 {
				middle = middle.plus(terms[1][i2 : i2+1])
			}
		}
		if i1 < 16 {
			low = low.plus(terms[0][i1 : i1+1])
		}
	}
	return best
}

// sums are of w*x*q and w*q*q, for four shifts.
type shiftSums [8]float32

// plus returns s with terms added, one after another.
func (s shiftSums) plus(terms []shiftSums) shiftSums {
	a, b, c, d, e, f, g, h := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	for i := range terms {
		t := &terms[i]
		a, b, c, d = a+t[0], b+t[1], c+t[2], d+t[3]
		e, f, g, h = e+t[4], f+t[5], g+t[6], h+t[7]
	}
	return shiftSums{a, b, c, d, e, f, g, h}
}

// fit1 finds the points of a group from at on, its scale and its shifts. A group without weights has no scale.
func (e *encoder) fit1(x []float32, at, n int, find func(*ordered) split, least float32) (scale float32, shift int) {
	x = x[at : at+n]
	w, q, point := e.w[at:at+n], e.q[at:at+n], e.point[at/8:(at+n)/8]
	clear(point)
	if abs(peak(x)) < least {
		return 0, 0
	}
	var places [32]int
	o := newOrdered(x, w, places[:n])
	best := find(&o)
	if best.from1 < 0 {
		return 0, 0
	}
	for j, i := range o.place {
		q[i] = 1
		if j < best.from1 {
			q[i] = 0
		} else if j >= best.from2 {
			q[i] = 2
		}
	}
	scale, shift = best.scale, best.shift
	if scale < 0 {
		for i := range q {
			q[i] = 2 - q[i]
		}
		scale, shift = -scale, 3-shift
	}
	l, off := latticeIQ1(), false
	for k := range point {
		q := q[8*k : 8*k+8]
		index := l.index[l.code(q)]
		if index < 0 {
			var values [8]float32
			for i, v := range shifted[half(shift, 8*k, n)] {
				values[i] = float32(scale * v)
			}
			index, off = int32(simd.Closest(l.near[-1-index], x[8*k:8*k+8], w[8*k:], &values)>>16), true
		}
		point[k] = uint16(index)
	}
	if off {
		if xq, qq := e.addShifted(0, 0, x, at, shift, 1); xq > 0 && qq > 0 {
			scale = xq / qq
		}
	}
	return scale, shift
}

// half returns the shift of weight i of n: 1 is down.
func half(shift, i, n int) int {
	if i < n/2 {
		return shift >> 1
	}
	return shift & 1
}

// addShifted adds w*x*q and w*q*q of a group to sums, q being the points' values, times a factor.
func (e *encoder) addShifted(xq, qq float32, x []float32, at, shift int, factor float32) (float32, float32) {
	l := latticeIQ1()
	for i, v := range x {
		level := l.points[e.point[(at+i)/8]] >> (8 * (i % 8)) & 255
		q := float32(shifted[half(shift, i, len(x))][level] * factor)
		xq += float32(float32(e.w[at+i]*q) * v)
		qq += float32(float32(e.w[at+i]*q) * q)
	}
	return xq, qq
}

func (e *encoder) iq1_S(b []byte, x, w []float32) {
	clear(b)
	e.square = 2 * squares(x) / maxBlock
	e.weigh(x, w)
	var most float32
	var shifts [8]int
	for g := range shifts {
		e.scale[g], shifts[g] = e.fit1(x, 32*g, 32, (*ordered).together, 1e-12)
		most = max(most, e.scale[g])
	}
	for i, p := range e.point[:32] {
		b[2+i] = byte(p)
	}
	d := most / 15
	if most > 0 {
		putHalf(b, float32(d*1.125))
		e.oddScales(e.scale[:8], 1/d, 7)
	}
	for g, shift := range shifts {
		h := uint16(0)
		for k, p := range e.point[4*g : 4*g+4] {
			h |= p >> 8 << (3 * k)
		}
		if most > 0 {
			h |= uint16(e.ls[g])<<12 | uint16(shift&1)<<15
		}
		binary.LittleEndian.PutUint16(b[34+2*g:], h)
	}
}

func (e *encoder) iq1_M(b []byte, x, w []float32) {
	clear(b)
	e.square = 2 * squares(x) / maxBlock
	if w != nil {
		e.weigh(x, w)
	} else {
		for i, v := range x {
			e.w[i] = float32(v * v)
		}
	}
	var most float32
	var shifts [16]int
	for g := range shifts {
		e.scale[g], shifts[g] = e.fit1(x, 16*g, 16, (*ordered).apart, 1e-7)
		most = max(most, e.scale[g])
	}
	for i, p := range e.point[:32] {
		b[i] = byte(p)
		b[32+i/2] |= byte(p>>8) << (i % 2 * 4)
	}
	if most == 0 {
		return
	}
	d := most / 15
	e.oddScales(e.scale[:], 1/d, 7)
	var xq, qq float32
	var words [4]uint16
	for g, shift := range shifts {
		words[g/4] |= uint16(e.ls[g]) << (g % 4 * 3)
		b[32+g] |= byte(shift>>1)<<3 | byte(shift&1)<<7
		xq, qq = e.addShifted(xq, qq, x[16*g:16*g+16], 16*g, shift, float32(2*int(e.ls[g])+1))
	}
	if qq > 0 {
		d = xq / qq
	}
	half := float16.ToF16(float32(d * 1.1125))
	for i, v := range words {
		binary.LittleEndian.PutUint16(b[48+2*i:], v|half>>(4*i)<<12)
	}
}
