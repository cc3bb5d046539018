package quant

import "github.com/karat-run/karat/internal/simd"

// The encoders of the types in blocks of 256. Each group's scale is searched first; then the groups' scales become
// small integers, with the block's scale; and then the codes are chosen anew, for the scales as stored.

// steps returns n numbers, from one on.
func steps(from, step float32, n int, top float32) []float32 {
	all := make([]float32, n)
	for i := range all {
		all[i] = from + float32(step*float32(i)) + top
	}
	return all
}

// The numbers of steps tried between a group's extremes: around the highest code, a little below and above. With
// importance more is tried.
var (
	tries3  = steps(-0.5, 0.1, 16, 3)
	tries15 = steps(-1, 0.1, 21, 15)
	tries31 = steps(-0.5, 0.1, 16, 31)
	fine    = map[float32][]float32{
		3: steps(-0.9, 0.05, 37, 3), 15: steps(-0.9, 0.05, 37, 15), 31: steps(-0.9, 0.05, 37, 31)}
	around0 = map[float32][]float32{4: tenths(4), 8: tenths(8), 16: tenths(16), 32: tenths(32)}
)

// tenths returns the numbers from half-0.9 to half+0.9 except half, negative since the peak gets the code of -half.
func tenths(half float32) (all []float32) {
	for i := -9; i <= 9; i++ {
		if i != 0 {
			all = append(all, -(half + float32(0.1*float32(i))))
		}
	}
	return all
}

// fitMins finds the scale and the minimum of each n weights of x, by e.w.
func (e *encoder) fitMins(x []float32, n int, tries []float32, top float32, absolute bool) {
	for g := 0; g < len(x)/n; g += simd.FitLanes {
		end := min(len(x), (g+simd.FitLanes)*n)
		simd.FitMin(&e.fit, x[g*n:end], e.w[g*n:end], n, tries, top, absolute)
		e.keep(g, end/n-g)
	}
}

// fitScales finds the scale of each n weights of x, by e.w.
func (e *encoder) fitScales(x []float32, n int, half float32) {
	for g := 0; g < len(x)/n; g += simd.FitLanes {
		end := min(len(x), (g+simd.FitLanes)*n)
		simd.FitScale(&e.fit, x[g*n:end], e.w[g*n:end], n, around0[half], half)
		e.keep(g, end/n-g)
	}
}

// keep takes over the results for n groups from g on.
func (e *encoder) keep(g, n int) {
	copy(e.scale[g:g+n], e.fit.Scale[:])
	copy(e.low[g:g+n], e.fit.Low[:])
	copy(e.inverse[g:g+n], e.fit.Inverse[:])
	for i := range n {
		e.min[g+i] = -e.fit.Min[i]
	}
}

// minCodes sets the codes of group g, x, to the codes of the search.
func (e *encoder) minCodes(g int, x []float32, top float32) {
	for i, v := range x {
		e.q[g*len(x)+i] = byte(limit(simd.Nearest(float32(e.inverse[g]*(v-e.low[g]))), 0, top))
	}
}

// scaleCodes sets the codes of group g, centred on half, by the search's scale. A group without a scale has code 0.
func (e *encoder) scaleCodes(g int, x []float32, half float32) {
	for i, v := range x {
		q := e.q[g*len(x):]
		if q[i] = 0; e.inverse[g] != 0 {
			q[i] = byte(half + limit(simd.Nearest(float32(e.inverse[g]*v)), -half, half-1))
		}
	}
}

func limit(v, low, high float32) float32 {
	if !(v > low) {
		return low
	}
	return min(v, high)
}

// sums sets e.sum to the sums of each n of e.w.
func (e *encoder) sums(n int) {
	for g := range maxBlock / n {
		e.sum[g] = 0
		for _, w := range e.w[g*n : (g+1)*n] {
			e.sum[g] += w
		}
	}
}

// storeScales turns the scales of groups into integers up to top, and writes the scale of the groups' scales, and
// returns the scale as stored.
func storeScales(ls []byte, d []byte, scales []float32, top float32) float32 {
	var most, inv float32
	for _, s := range scales {
		most = max(most, s)
	}
	if most > 0 {
		inv = top / most
	}
	for i, s := range scales {
		ls[i] = byte(limit(simd.Nearest(float32(inv*s)), 0, top))
	}
	return putHalf(d, most/top)
}

// minBlock does the work on a block of Q2_K, Q4_K or Q5_K with groups of n and codes up to top, before it is packed:
// e.ls and e.lm, up to topScale, under the halves in d and dmin.
func (e *encoder) minBlock(d, dmin []byte, x, w []float32, n int, tries []float32, top, topScale float32) {
	groups := maxBlock / n
	scales, mins := e.scale[:groups], e.min[:groups]
	var ds, dm float32
	if w != nil {
		e.weigh(x, w)
		e.sums(n)
		e.fitMins(x, n, fine[top], top, false)
		ds = putHalf(d, fitPositive(e.ls[:groups], scales, e.sum[:groups], 0, topScale))
		dm = putHalf(dmin, fitPositive(e.lm[:groups], mins, e.sum[:groups], 0, topScale))
	} else {
		e.fitMins(x, n, tries, top, n == 16)
		ds = storeScales(e.ls[:groups], d, scales, topScale)
		dm = storeScales(e.lm[:groups], dmin, mins, topScale)
	}
	for g := range groups {
		x := x[g*n : (g+1)*n]
		scale, min := float32(ds*float32(e.ls[g])), float32(dm*float32(e.lm[g]))
		if scale == 0 {
			e.minCodes(g, x, top)
			continue
		}
		for i, v := range x {
			e.q[g*n+i] = byte(limit(simd.Nearest((v+min)/scale), 0, top))
		}
	}
}

func (e *encoder) q2_K(b []byte, x, w []float32) {
	if w != nil {
		e.square = squares(x) / maxBlock
	}
	for i, v := range x {
		e.w[i] = abs(v)
	}
	e.minBlock(b[80:], b[82:], x, w, 16, tries3, 3, 15)
	for i := range 16 {
		b[i] = e.ls[i] | e.lm[i]<<4
	}
	packQuarters(b[16:80], e.q[:])
}

// evenly sets the weights of errors without importance: a weight's magnitude, and more by the usual size in its 32.
func (e *encoder) evenly(x []float32) {
	for g := 0; g < maxBlock; g += 32 {
		mean := root(squares(x[g:g+32]) / 32)
		for i, v := range x[g : g+32] {
			e.w[g+i] = mean + abs(v)
		}
	}
}

func (e *encoder) q4_K(b []byte, x, w []float32) {
	e.kBlock(b, x, w, tries15, 15)
	packPairs(b[16:144], e.q[:])
}

func (e *encoder) q5_K(b []byte, x, w []float32) {
	e.kBlock(b, x, w, tries31, 31)
	packBits(b[16:48], e.q[:], 4)
	packPairs(b[48:176], e.q[:])
}

// kBlock writes the scales of Q4_K and Q5_K.
func (e *encoder) kBlock(b []byte, x, w []float32, tries []float32, top float32) {
	if w != nil {
		e.square = 2 * squares(x) / maxBlock
	} else {
		e.evenly(x)
	}
	e.minBlock(b, b[2:], x, w, 32, tries, top, 63)
	s := b[4:16]
	for i := range 4 {
		s[i] = e.ls[i] | e.ls[i+4]>>4<<6
		s[i+4] = e.lm[i] | e.lm[i+4]>>4<<6
		s[i+8] = e.ls[i+4]&15 | e.lm[i+4]<<4
	}
}

// anew sets the codes about half to the best ones under the scale d of the block and the groups' integer scales.
func (e *encoder) anew(x []float32, d float32, scales *[maxGroups]int8, half float32) {
	for g, s := range scales {
		x := x[g*16 : (g+1)*16]
		scale := float32(d * float32(s))
		if scale == 0 {
			continue // the codes of the search stay
		}
		for i, v := range x {
			e.q[g*16+i] = byte(half + limit(simd.Nearest(v/scale), -half, half-1))
		}
	}
}

func (e *encoder) q6_K(b []byte, x, w []float32) {
	copy(e.w[:], w)
	if w == nil {
		simd.Mul(e.w[:], x, x)
	}
	e.fitScales(x, 16, 32)
	most := peak(e.scale[:])
	if abs(most) < least {
		clear(b)
		return
	}
	inv := -128 / most
	d := putHalf(b[208:], 1/inv)
	var scales [maxGroups]int8
	for g, s := range e.scale {
		scales[g] = int8(limit(simd.Nearest(float32(inv*s)), -128, 127))
		b[192+g] = byte(scales[g])
		e.scaleCodes(g, x[g*16:(g+1)*16], 32)
	}
	e.anew(x, d, &scales, 32)
	for n := range 2 {
		ql, qh, q := b[n*64:n*64+64], b[128+n*32:128+n*32+32], e.q[n*128:n*128+128]
		for l := 0; l < 32; l += 8 {
			q0, q1, q2, q3 := load8(q[l:]), load8(q[l+32:]), load8(q[l+64:]), load8(q[l+96:])
			store8(ql[l:], q0&(15*each)|q2&(15*each)<<4)
			store8(ql[l+32:], q1&(15*each)|q3&(15*each)<<4)
			store8(qh[l:], q0>>4&(3*each)|q1>>4&(3*each)<<2|q2>>4&(3*each)<<4|q3>>4&(3*each)<<6)
		}
	}
}

// least is the smallest magnitude worth a scale.
const least = 1e-15

func (e *encoder) q3_K(b []byte, x, w []float32) {
	var scales [maxGroups]byte // 32 is zero
	d := e.scales3(&scales, x)
	if w != nil {
		d = e.weighedScales3(&scales, x, w)
	}
	d = putHalf(b[108:], d)
	clear(b[96:108])
	var signed [maxGroups]int8
	for g, s := range scales {
		signed[g] = int8(s) - 32
		b[96+g%8] |= s & 15 << (g / 8 * 4)
		b[104+g%4] |= s >> 4 << (g / 4 * 2)
	}
	e.anew(x, d, &signed, 4)
	packBits(b[:32], e.q[:], 2)
	packQuarters(b[32:96], e.q[:])
}

// scales3 sets the scales of Q3_K's groups, and returns the block's.
func (e *encoder) scales3(scales *[maxGroups]byte, x []float32) float32 {
	for g := range scales {
		e.scale[g] = descend(e.q[g*16:(g+1)*16], x[g*16:(g+1)*16], 4)
	}
	most := peak(e.scale[:])
	if most == 0 {
		return 0
	}
	inv := -32 / most
	for g, s := range e.scale {
		scales[g] = byte(32 + limit(simd.Nearest(float32(inv*s)), -32, 31))
	}
	return 1 / inv
}

// weighedScales3 sets the scales of Q3_K's groups by the importance w. A group's importance is the sum of its weights'.
func (e *encoder) weighedScales3(scales *[maxGroups]byte, x, w []float32) float32 {
	e.square = 2 * squares(x) / maxBlock
	e.weigh(x, w)
	e.sums(16)
	e.fitScales(x, 16, 4)
	for g := range scales {
		e.scaleCodes(g, x[g*16:(g+1)*16], 4)
	}
	simd.FitScale(&e.fit, e.scale[:], e.sum[:], maxGroups, around0[32], 32)
	clear(scales[:])
	if inv := e.fit.Inverse[0]; inv != 0 {
		for g, s := range e.scale {
			scales[g] = byte(32 + limit(simd.Nearest(float32(inv*s)), -32, 31))
		}
	}
	return e.fit.Scale[0]
}

// packPairs puts the low four bits of 256 codes into 128 bytes, the inverse of pairs.
func packPairs(qs, q []byte) {
	for n := range 4 {
		for l := 0; l < 32; l += 8 {
			in := q[n*64+l:]
			store8(qs[n*32+l:], load8(in)&(15*each)|load8(in[32:])&(15*each)<<4)
		}
	}
}

// packQuarters puts the low two bits of 256 codes into 64 bytes, the inverse of quarters.
func packQuarters(qs, q []byte) {
	for n := range 2 {
		for l := 0; l < 32; l += 8 {
			var v uint64
			for i := range 4 {
				v |= load8(q[n*128+i*32+l:]) & (3 * each) << (2 * i)
			}
			store8(qs[n*32+l:], v)
		}
	}
}

// packBits puts bit number shift of 256 codes into 32 bytes: code 32n+l to bit n of byte l.
func packBits(bits, q []byte, shift int) {
	for l := 0; l < 32; l += 8 {
		var v uint64
		for n := range 8 {
			v |= load8(q[n*32+l:]) >> shift & each << n
		}
		store8(bits[l:], v)
	}
}
