package quant

import "github.com/karat-run/karat/internal/simd"

// fitPositive finds integers q of up to top and a scale of least loss for x by the weights w. It tries scales about the
// largest weight's, takes the best, and then improves one integer at a time. A negative weight has integers from low
// on: 0, or fewer for llama.cpp's, stored as their low bits. (make_qp_quants of ggml-quants.c in llama.cpp)
func fitPositive(q []byte, x, w []float32, low, top float32) float32 {
	var most float32
	for _, v := range x {
		most = max(most, v)
	}
	if most < least {
		clear(q)
		return 0
	}
	inverse := top / most
	best := positiveLoss(x, w, inverse, low, top, true)
	for i := -4; i <= 4; i++ {
		if i == 0 {
			continue
		}
		try := (float32(0.1*float32(i)) + top) / most
		if loss := positiveLoss(x, w, try, low, top, false); loss < best {
			best, inverse = loss, try
		}
	}
	var xq, qq float32
	for i, v := range x {
		c := limit(simd.Nearest(float32(inverse*v)), low, top)
		q[i] = byte(int32(c))
		xq += float32(float32(w[i]*v) * c)
		qq += float32(float32(w[i]*c) * c)
	}
	for range 5 {
		if !betterPositive(q, x, w, low, top, &xq, &qq) {
			break
		}
	}
	if qq > 0 {
		return xq / qq
	}
	return 0
}

// positiveLoss returns the loss of x at a scale, of integers or, if stored, of their low bits.
func positiveLoss(x, w []float32, inverse, low, top float32, stored bool) (sum float32) {
	scale := 1 / inverse
	for i, v := range x {
		c := limit(simd.Nearest(float32(inverse*v)), low, top)
		if stored {
			c = float32(byte(int32(c)))
		}
		far := v - float32(scale*c)
		sum += float32(float32(w[i]*far) * far)
	}
	return sum
}

// betterPositive goes through the integers once, and reports whether one changed. xq and qq are the sums of w*x*q and
// w*q*q.
func betterPositive(q []byte, x, w []float32, low, top float32, xq, qq *float32) (changed bool) {
	for i, v := range x {
		old := float32(q[i])
		wx := float32(w[i] * v)
		lx := *xq - float32(wx*old)
		l2 := *qq - float32(float32(w[i]*old)*old)
		if !(lx > 0 && l2 > 0) {
			continue
		}
		c := limit(simd.Nearest(float32(v*l2)/lx), low, top)
		if c == old {
			continue
		}
		lx += float32(wx * c)
		l2 += float32(float32(w[i]*c) * c)
		if float32(float32(lx*lx)**qq) > float32(float32(*xq**xq)*l2) {
			q[i], *xq, *qq, changed = byte(int32(c)), lx, l2, true
		}
	}
	return changed
}

// descend finds codes about half and a scale for the weights x, errors weighed by their squares: from the codes of the
// peak, one is improved at a time. (make_q3_quants of ggml-quants.c in llama.cpp)
func descend(q []byte, x []float32, half float32) float32 {
	top := peak(x)
	if abs(top) < least {
		clear(q)
		return 0
	}
	inverse := -half / top
	var codes [maxGroups]float32
	var xq, qq float32
	for i, v := range x {
		c := limit(simd.Nearest(float32(inverse*v)), -half, half-1)
		codes[i] = c
		w := float32(v * v)
		xq += float32(float32(w*v) * c)
		qq += float32(float32(w*c) * c)
	}
	for range 5 {
		changed := false
		for i, v := range x {
			w := float32(v * v)
			wx, old := float32(w*v), codes[i]
			lx := xq - float32(wx*old)
			if !(lx > 0) {
				continue
			}
			l2 := qq - float32(float32(w*old)*old)
			c := limit(simd.Nearest(float32(v*l2)/lx), -half, half-1)
			if c == old {
				continue
			}
			lx += float32(wx * c)
			l2 += float32(float32(w*c) * c)
			if l2 > 0 && float32(float32(lx*lx)*qq) > float32(float32(xq*xq)*l2) {
				codes[i], xq, qq, changed = c, lx, l2, true
			}
		}
		if !changed {
			break
		}
	}
	for i, c := range codes[:len(x)] {
		q[i] = byte(c + half)
	}
	if qq > 0 {
		return xq / qq
	}
	return 0
}

// fitTable finds the scale of least loss for x, by the weights w, as values of the table iq4. (quantize_row_iq4_nl_impl
// of ggml-quants.c in llama.cpp)
func fitTable(x, w []float32) float32 {
	top := peak(x)
	if abs(top) < least {
		return 0
	}
	first := float32(iq4[0])
	xq, qq := tableSums(x, w, 1/(-top/first))
	var scale float32
	if qq > 0 {
		scale = xq / qq
	}
	best := float32(scale * xq)
	for i := -7; i <= 7; i++ {
		xq, qq := tableSums(x, w, (float32(i)+first)/top)
		if qq > 0 && float32(xq*xq) > float32(best*qq) {
			scale = xq / qq
			best = float32(scale * xq)
		}
	}
	return scale
}

func tableSums(x, w []float32, inverse float32) (xq, qq float32) {
	for i, v := range x {
		q := float32(iq4[nearestIQ4(float32(inverse*v))])
		wq := float32(w[i] * q)
		xq += float32(wq * v)
		qq += float32(wq * q)
	}
	return xq, qq
}

// halfway[n-2*iq4[0]] is the code of iq4's value nearest to every number from n/2 to (n+1)/2; of two values equally
// near, the greater.
var halfway = func() (codes [2*(113+127) + 1]byte) {
	for i := range codes {
		n := i + 2*int(iq4[0])
		code := 0
		for code < 15 && n >= int(iq4[code])+int(iq4[code+1]) {
			code++
		}
		codes[i] = byte(code)
	}
	return codes
}()

// nearestIQ4 returns the code of iq4's value that is nearest to v.
func nearestIQ4(v float32) byte {
	if !(v > float32(iq4[0])) {
		return 0
	}
	if v >= float32(iq4[15]) {
		return 15
	}
	// The sum is exact near the middles of the values, and above 0.
	return halfway[int32(float64(2*v)+2*127)]
}

func (e *encoder) iq4_NL(b []byte, x, w []float32) {
	e.tableWeights(x, w)
	scale := fitTable(x, e.w[:])
	putHalf(b, scale)
	e.tableCodes(b[2:], 0, x, scale)
}

// tableWeights sets the weights of errors in a block.
func (e *encoder) tableWeights(x, w []float32) {
	if w == nil {
		simd.Mul(e.w[:len(x)], x, x)
		return
	}
	e.square = squares(x) * (2 / float32(len(x)))
	e.weigh(x, w)
}

// tableCodes packs the codes of 32 weights.
func (e *encoder) tableCodes(qs []byte, g int, x []float32, scale float32) {
	var inv float32
	if scale != 0 {
		inv = inverse(scale)
	}
	for i, v := range x {
		e.q[i] = nearestIQ4(float32(inv * v))
	}
	packHalves(qs[g*16:], e.q[:])
}

func (e *encoder) iq4_XS(b []byte, x, w []float32) {
	e.tableWeights(x, w)
	scales := e.scale[:8]
	for g := range scales {
		scales[g] = fitTable(x[g*32:(g+1)*32], e.w[g*32:])
	}
	d := -peak(scales) / 32
	inv := inverse(d)
	putHalf(b, d)
	clear(b[2:8])
	for g, s := range scales {
		l := limit(simd.Nearest(float32(inv*s)), -32, 31)
		e.tableCodes(b[8:], g, x[g*32:(g+1)*32], float32(d*l))
		c := byte(l + 32)
		b[2+g/4] |= c >> 4 << (g % 4 * 2)
		b[4+g/2] |= c & 15 << (g % 2 * 4)
	}
}
