package main

import "math"

// The kernels of the tier wasm. Package simd says what each computes.

// float constants of exp.go and act.go in package simd.
const (
	log2e, ln2hi, ln2lo               = 0x1.715476p+0, 0x1.62e43p-1, -0x1.05c61p-29
	expC2, expC3, expC4, expC5, expC6 = 0x1.fffffcp-2, 0x1.55548cp-3, 0x1.555858p-5, 0x1.123dep-7, 0x1.6ac74ap-10
	tanhT0, tanhT1, tanhT2            = -0x1.555532p-2, 0x1.1106f6p-3, -0x1.b835a4p-5
	tanhT3, tanhT4                    = 0x1.51f8cep-6, -0x1.750ce4p-8
	geluG1, geluG3                    = -0x1.988454p+0, -0x1.2444f2p-4
	leastExponent                     = -64
	ln2High64, ln2Low64               = 0x1.62e42feep-01, 0x1.a39ef35793c76p-33
	minExp64, maxExp64, expTerms      = -708, 709, 14
)

const (
	panelRows = 16 // rows of a panel
	quads     = 2  // four rows each, computed at a time
)

// kernels has the functions that kernels call.
type kernels struct {
	*module
	exact, fma, exp, tanh func(args ...code) code
}

func wasm() map[string]string { return newKernels(false).files(newKernels(true)) }

// newKernels returns all kernels: with fused sums of relaxed_madd, or by float64.
func newKernels(fused bool) *module {
	k := &kernels{module: &module{fused: fused}, fma: madd}
	three := several(v128, 3)
	k.records()
	if fused {
		k.function([]code{f32, f32}, []code{f32}, func(f *fn, a []code) {
			f.do(lane32(madd(splatF(a[0]), splatF(a[0]), splatF(a[1])), 0))
		})
		k.exports = []code{"\x05fuses\x00" + unsigned(imported+len(k.funcs)-1)}
	} else {
		k.exact = k.function(three, three[:1], exactFMA)
		k.fma = k.function(three, three[:1], func(f *fn, a []code) {
			sum, bad := f.local(v128), f.local(v128)
			f.fuse(sum, bad, f.sides(a[0]), f.sides(a[1]), a[2], true)
			f.mend(bad, func() { f.set(sum, k.exact(a...)) })
			f.do(sum)
		})
	}
	k.exp = k.function(three[:1], three[:1], k.writeExp)
	k.tanh = k.function(three[:1], three[:1], k.writeTanh)
	k.panels()
	k.rows()
	k.unpacks()
	k.grids()
	k.weaves()
	k.vectors()
	k.quantizes()
	k.dots()
	k.doubles()
	k.attends()
	return k.module
}

// sides are the halves of four float32 numbers as float64, in locals, or the numbers themselves for relaxed_madd.
func (f *fn) sides(x code) [2]code {
	if f.m.fused {
		return f.both(x)
	}
	return [2]code{f.keep(v128, widen(x)), f.keep(v128, widen(shuffle(x, x, 4, 2, 3, 2, 3)))}
}

// both is a number in both halves, as float64, given in all lanes as float32.
func (f *fn) both(x code) [2]code {
	if !f.m.fused {
		x = widen(x)
	}
	l := f.keep(v128, x)
	return [2]code{l, l}
}

// fuse sets sum to a*b+c, wrong only where bad becomes true: where the sum in float64 is a tie of float32 numbers, as
// its own rounding may have made it, or is about as small as subnormal numbers. With zeros, a sum of 0 is usual, and
// not bad. sum is another local than c.
func (f *fn) fuse(sum, bad code, a, b [2]code, c code, zeros bool) {
	if f.m.fused {
		f.set(sum, madd(a[0], b[0], c))
		return
	}
	const tie = 1 << 28 // the bits that float32 lacks
	lo := f.keep(v128, addD(mulD(a[0], b[0]), widen(c)))
	hi := f.keep(v128, addD(mulD(a[1], b[1]), widen(shuffle(c, c, 4, 2, 3, 2, 3))))
	f.set(bad, or(bad, eqI(and(shuffle(lo, hi, 4, 0, 2, 4, 6), constI(2*tie-1)), constI(tie))))
	f.set(sum, shuffle(round(lo), round(hi), 8, 0, 2))
	small := eqI(and(sum, constI(0x7f000000)), constI(0))
	if zeros { // by the high bits without the sign: 0 becomes the largest
		small = lessU(subI(shlI(shuffle(lo, hi, 4, 1, 3, 5, 7), num(1)), constI(1)), constI(2*(1023-125)<<20))
	}
	f.set(bad, or(bad, small))
}

// mend runs a block if fuse was wrong anywhere.
func (f *fn) mend(bad code, text func()) {
	if !f.m.fused {
		f.when(anyTrue(bad), text)
	}
}

// exactFMA is a*b+c rounded once: as roundOnce in package simd, a float64 sum that is not exact becomes its neighbour
// with an odd last bit.
func exactFMA(f *fn, a []code) {
	var sums [2]code
	x, y, z := f.sides(a[0]), f.sides(a[1]), f.sides(a[2])
	for i := range sums {
		p := f.keep(v128, mulD(x[i], y[i]))
		s := f.keep(v128, addD(p, z[i]))
		t := f.keep(v128, subD(s, p))
		lost := f.keep(v128, addD(subD(p, subD(s, t)), subD(z[i], t)))
		odd := or(sarQ(xor(s, lost), num(63)), constD(1)) // 1, or -1 where the sum is too far from 0
		change := and(or(ltD(lost, constD(0)), gtD(lost, constD(0))), eqQ(and(s, constD(1)), constD(0)))
		sums[i] = f.keep(v128, addQ(s, and(odd, change)))
	}
	f.do(shuffle(round(sums[0]), round(sums[1]), 8, 0, 2))
}

// steps runs a block for each vector of n numbers, a multiple of four, with pointers advanced.
func (f *fn) steps(n code, text func(), pointers ...code) {
	f.repeat(shr(n, num(2)), func() {
		text()
		for _, p := range pointers {
			f.step(p, 16)
		}
	})
}

// panels has addPanelVec.
func (k *kernels) panels() {
	many := []int{2, 1} // rows at a time: more do not fit the registers
	if k.fused {
		many = []int{4, 2, 1}
	}
	var some []func(...code) code
	for _, rows := range many {
		some = append(some, k.function(several(i32, 11), nil, func(f *fn, a []code) { k.panelRows(f, rows, a) }))
	}
	k.kernel("addPanelVec", "sppppppp"+"iii", func(f *fn, a []code) {
		acc, left, rest := a[0], f.keep(i32, shr(a[1], num(4))), a[2:]
		q, dx, init, sums, group, groups, step := a[5], a[6], a[7], a[8], a[9], a[10], a[11]
		columns := f.keep(i32, mul(group, groups))
		for i, rows := range many {
			f.while(not(less(left, num(rows))), func() {
				f.do(some[i](append([]code{acc}, rest...)...))
				f.step(acc, rows*panelRows*4)
				f.step(left, -rows)
				f.set(q, add(q, mul(columns, num(2*rows))))
				f.set(dx, add(dx, shr(mul(columns, num(rows)), num(3))))
				f.set(init, add(init, mul(mul(groups, step), num(rows))))
				f.set(sums, add(sums, mul(groups, num(4*rows))))
			})
		}
	})
}

// panelRows multiplies rows of activations with a panel's codes, two quads of rows of the panel at a time.
func (k *kernels) panelRows(f *fn, rows int, a []code) {
	group, groups, step := a[8], a[9], a[10]
	columns := f.keep(i32, mul(group, groups))
	advanced := func(p code, stride code) []code { return f.pointers(p, stride, rows) }
	acc, first := a[0], f.keep(i32, num(0))
	g := k.group(f, rows)
	f.repeat(num(4/quads), func() {
		codes, scale, min := f.keep(i32, add(a[1], first)), f.keep(i32, add(a[2], first)), f.keep(i32, a[3])
		f.when(min, func() { f.set(min, add(min, first)) })
		q, dx := advanced(a[4], mul(columns, num(2))), advanced(a[5], shr(columns, num(3)))
		init, sums := advanced(a[6], mul(groups, step)), advanced(a[7], mul(groups, num(4)))
		g.each(func(r, w, i int) { f.set(g.sum[i], load(acc, r*panelRows*4+16*w)) })
		at := f.keep(i32, num(0))
		f.repeat(groups, func() {
			g.each(func(r, _, i int) { f.set(g.ints[i], splat32At(init[r], 0)) })
			for r := range rows {
				f.set(init[r], add(init[r], step))
			}
			f.repeat(shr(group, num(4)), func() {
				for j := range 4 {
					var even, odd [quads]code
					for w := range quads {
						c := f.keep(v128, load(codes, 64*j+16*w))
						even[w], odd[w] = f.keep(v128, and(c, constI(0xff00ff))), f.keep(v128, shrH(c, num(8)))
					}
					for r := range rows {
						first, second := f.keep(v128, splat32At(q[r], 8*j)), f.keep(v128, splat32At(q[r], 8*j+4))
						for w := range quads {
							g.dots(r, w, even[w], odd[w], first, second)
						}
					}
				}
				f.step(codes, 4*64)
				for r := range rows {
					f.step(q[r], 4*8)
				}
			})
			for w := range quads {
				f.set(g.scale[w], load(scale, 16*w))
				f.when(min, func() { f.set(g.min[w], load(min, 16*w)) })
			}
			g.add(min, dx, sums)
			f.step(scale, 64)
			f.when(min, func() { f.step(min, 64) })
			for r := range rows {
				f.step(sums[r], 4)
			}
			f.when(not(andI(tee(at, add(at, group)), num(31))), func() {
				for r := range rows {
					f.step(dx[r], 4)
				}
			})
		})
		g.each(func(r, w, i int) { f.store(acc, r*panelRows*4+16*w, g.sum[i]) })
		f.step(acc, 16*quads)
		f.step(first, 16*quads)
	})
}

// group is the locals for a group of columns: of some rows of activations with each quad, and the scales and minima of
// each quad.
type group struct {
	k                      *kernels
	f                      *fn
	rows                   int
	sum, x, ints, one, two []code
	scale, min             []code
	bad, zero              code
}

func (k *kernels) group(f *fn, rows int) *group {
	n := rows * quads
	l := func(n int) []code { return f.locals(v128, n) }
	return &group{k, f, rows, l(n), l(n), l(n), l(n), l(n), l(quads), l(quads), f.local(v128), f.local(v128)}
}

func (g *group) each(do func(r, w, i int)) {
	for r := range g.rows {
		for w := range quads {
			do(r, w, r*quads+w)
		}
	}
}

// dots adds products of integers: of codes of columns 0 and 2, and of 1 and 3, with four columns of a row.
func (g *group) dots(r, w int, even, odd, first, second code) {
	i := r*quads + w
	g.f.set(g.ints[i], addI(g.ints[i], addI(dot(even, first), dot(odd, second))))
}

// add adds the group to sum, with the rows' factors at dx, and minima and sums where min is not 0.
func (g *group) add(min code, dx, sums []code) {
	f := g.f
	f.set(g.bad, g.zero)
	sides := make([][2]code, quads)
	for w := range sides {
		sides[w] = f.sides(g.scale[w])
	}
	g.each(func(r, w, i int) {
		f.set(g.x[i], mulV(toFloat(g.ints[i]), splat32At(dx[r], 0)))
		f.fuse(g.one[i], g.bad, f.sides(g.x[i]), sides[w], g.sum[i], false)
	})
	exact := func() {
		g.each(func(r, w, i int) { f.set(g.one[i], g.k.exact(g.x[i], g.scale[w], g.sum[i])) })
	}
	f.choose(min, func() {
		for w := range sides {
			sides[w] = f.sides(g.min[w])
		}
		all := make([][2]code, g.rows)
		for r := range all {
			all[r] = f.both(splat32At(sums[r], 0))
		}
		g.each(func(r, w, i int) { f.fuse(g.two[i], g.bad, all[r], sides[w], g.one[i], false) })
		f.mend(g.bad, func() {
			exact()
			g.each(func(r, w, i int) { f.set(g.two[i], g.k.exact(splat32At(sums[r], 0), g.min[w], g.one[i])) })
		})
		g.each(func(_, _, i int) { f.set(g.sum[i], g.two[i]) })
	}, func() {
		f.mend(g.bad, exact)
		g.each(func(_, _, i int) { f.set(g.sum[i], g.one[i]) })
	})
}

// Codes of package simd.
const (
	codes4 = iota
	codesTable
	codes41
	codes42
	codes8
	codesBrain = 8 // of a table, with scales of bfloat16: rowBrain
	codesSmall = 9 // likewise, of 8 bits: rowSmall
)

// rows has addRowVec and addChunksVec.
func (k *kernels) rows() {
	kinds := []int{codes4, codesTable, codes41, codes42, codes8, codesBrain, codesSmall}
	many := []int{1} // rows at a time
	if k.fused {
		many = []int{2, 1}
	}
	some := map[int][]func(...code) code{}
	for _, rows := range many {
		for _, kind := range kinds {
			text := func(f *fn, a []code) { k.chunk(f, kind, rows, a) }
			some[rows] = append(some[rows], k.function(several(i32, 9), nil, text))
		}
	}
	// chunk multiplies rows, and goes to the next.
	chunk := func(f *fn, rows int, codes, acc, data, q, dx, init, sums, scales, group, table code) {
		for i, c := range some[rows] {
			f.when(equal(codes, num(kinds[i])), func() {
				f.do(c(acc, data, q, dx, init, sums, scales, equal(group, num(panelRows)), table))
			})
		}
		f.step(q, 512*rows)
		f.step(dx, 32*rows)
		groups := f.keep(i32, num(32*rows))
		for _, kind := range []int{codes42, codesSmall} {
			f.when(equal(codes, num(kind)), func() { f.set(groups, num(64*rows)) })
		}
		f.when(init, func() { f.set(init, add(init, groups)) })
		f.when(sums, func() { f.set(sums, add(sums, groups)) })
	}
	k.kernel("addRowVec", "pppppp"+"iiii"+"p"+"iiiii", func(f *fn, a []code) {
		acc, data, chunks, scales, stride, group, table := a[0], a[1], a[6], a[7], a[8], a[9], a[10]
		gap, sumgap, end, codes := a[11], a[12], a[13], a[14]
		at := f.keep(i32, num(0))
		f.do("\x03\x40") // for each place
		q, dx, init, sums := f.keep(i32, a[2]), f.keep(i32, a[3]), f.keep(i32, a[4]), f.keep(i32, a[5])
		from := f.keep(i32, add(data, at))
		f.repeat(chunks, func() {
			chunk(f, 1, codes, acc, from, q, dx, init, sums, scales, group, table)
			f.set(from, add(from, stride))
		})
		f.set(acc, add(acc, sumgap))
		f.do(less(tee(at, add(at, gap)), end), "\x0d\x00\x0b")
	})
	k.kernel("addChunksVec", "pppppp"+"iiii"+"p"+"ii", func(f *fn, a []code) {
		data, chunks, scales, stride, group, table, rows, codes := a[1], a[6], a[7], a[8], a[9], a[10], a[11], a[12]
		f.repeat(chunks, func() {
			acc, left := f.keep(i32, a[0]), f.keep(i32, rows)
			for _, n := range many {
				f.while(not(less(left, num(n))), func() {
					chunk(f, n, codes, acc, data, a[2], a[3], a[4], a[5], scales, group, table)
					f.step(acc, 4*panelRows*n)
					f.step(left, -n)
				})
			}
			f.set(data, add(data, stride))
		})
	})
}

// chunk multiplies rows of activations with a stored chunk, two quads of rows of the panel at a time.
func (k *kernels) chunk(f *fn, kind, rows int, a []code) {
	acc, data, scales, bytes, table := a[0], a[1], a[6], a[7], a[8]
	floats, bits8 := halves, kind == codesSmall
	switch kind {
	case codesBrain:
		kind, floats = codesTable, func(x code) code { return shlI(lowU(x), num(16)) }
	case codesSmall:
		kind = codesTable
	}
	groups, unit := 1, []int{codes4: 256, codesTable: 256, codes41: 320, codes42: 384, codes8: 512}[kind] // of a unit
	if kind == codes42 || bits8 {
		groups = 2
	}
	var values code
	if kind == codesTable {
		values = f.keep(v128, load(table, 0))
	}
	first := f.keep(i32, num(0))
	d, m := f.locals(v128, quads), f.locals(v128, quads)
	g := k.group(f, rows)
	f.repeat(num(4/quads), func() {
		q, dx := f.pointers(a[2], num(512), rows), f.pointers(a[3], num(32), rows)
		init, sums := f.pointers(a[4], num(32*groups), rows), f.pointers(a[5], num(32*groups), rows)
		step := func(p []code, n int) {
			for _, p := range p {
				f.step(p, n)
			}
		}
		codes := f.keep(i32, add(add(data, scales), first))
		scale, min := f.local(i32), f.local(i32)
		f.choose(bytes, func() {
			words := f.keep(i32, add(data, shr(first, num(1))))
			f.set(scale, add(add(data, num(32)), shr(first, num(2))))
			for w := range quads {
				f.set(d[w], halves(load64At(words, 8*w)))
			}
			f.when(sums[0], func() {
				for w := range quads {
					f.set(m[w], halves(load64At(words, 32+8*w)))
				}
				f.step(scale, 32)
			})
			f.set(min, add(scale, num(8*groups*panelRows)))
		}, func() {
			f.set(scale, add(data, shr(first, num(1))))
			f.set(min, add(scale, num(8*groups*32)))
		})
		if bits8 {
			f.set(scale, add(data, shr(first, num(2))))
		}
		g.each(func(r, w, i int) { f.set(g.sum[i], load(acc, 4*panelRows*r+16*w)) })
		f.repeat(num(8), func() { // units
			for n := range groups {
				g.each(func(_, _, i int) { f.set(g.ints[i], g.zero) })
				f.when(init[0], func() {
					g.each(func(r, _, i int) { f.set(g.ints[i], splat32At(init[r], 4*n)) })
				})
				first, second := make([]code, rows), make([]code, rows) // activations of a vector
				f.codes(kind, codes, n, groups, values, func(vector, w int, even, odd code) {
					for r, q := range q {
						if w == 0 {
							first[r] = f.keep(v128, splat32At(q, 8*vector))
							second[r] = f.keep(v128, splat32At(q, 8*vector+4))
						}
						g.dots(r, w, even, odd, first[r], second[r])
					}
				})
				value := func(to, p code, w int, d code) { // of a scale or minimum
					if bits8 {
						f.set(to, small(f, load32At(p, 4*w)))
						return
					}
					f.choose(bytes, func() {
						f.set(to, mulV(toFloat(lowS(lowB(load32At(p, 4*w)))), d))
					}, func() {
						f.set(to, floats(load64At(p, 8*w)))
					})
				}
				for w := range quads {
					value(g.scale[w], scale, w, d[w])
				}
				f.when(sums[0], func() {
					for w := range quads {
						value(g.min[w], min, w, m[w])
					}
				})
				g.add(sums[0], dx, sums)
				size := f.keep(i32, num(2*panelRows))
				f.when(bytes, func() { f.set(size, num(panelRows)) })
				f.set(scale, add(scale, size))
				f.set(min, add(min, size))
				f.when(sums[0], func() { step(sums, 4) })
			}
			f.step(codes, unit)
			step(q, 64)
			step(dx, 4)
			f.when(init[0], func() { step(init, 4*groups) })
		})
		g.each(func(r, w, i int) { f.store(acc, 4*panelRows*r+16*w, g.sum[i]) })
		f.step(acc, 16*quads)
		f.step(first, 16*quads)
	})
}

// moved shifts words to the left, or to the right if n is negative.
func moved(x code, n int) code {
	switch {
	case n > 0:
		return shlH(x, num(n))
	case n < 0:
		return shrH(x, num(-n))
	}
	return x
}

// codes unpacks quads of rows, of a part of the groups of a unit: use gets columns 0 and 2 of each four as words, and
// columns 1 and 3.
func (f *fn) codes(kind int, p code, part, parts int, table code, use func(vector, w int, even, odd code)) {
	vector := func(j int, value func(w int) (even, odd code)) {
		for w := range quads {
			even, odd := value(w)
			use(j, w, even, odd)
		}
	}
	split := func(j int, value func(w int) code) {
		vector(j, func(w int) (even, odd code) {
			x := f.keep(v128, value(w))
			return and(x, constI(0xff00ff)), shrH(x, num(8))
		})
	}
	if kind == codes8 {
		for j := range 8 {
			split(j, func(w int) code { return load(p, 16*w+64*j) })
		}
		return
	}
	kept := func(at int) (l []code) {
		for w := range quads {
			l = append(l, f.keep(v128, load(p, at+16*w)))
		}
		return l
	}
	var high [][]code
	for i := range map[int]int{codes41: 1, codes42: 2}[kind] {
		high = append(high, kept(256+64*i))
	}
	for i := range 4 {
		x := kept(64 * i)
		for h := range 2 {
			j := i + 4*h
			switch {
			case j*parts/8 != part:
			case kind == codesTable && h == 0:
				split(j, func(w int) code { return swizzle(table, and(x[w], constI(0x0f0f0f0f))) })
			case kind == codesTable:
				split(j, func(w int) code { return swizzle(table, shrB(x[w], num(4))) })
			case kind == codes4:
				vector(j, func(w int) (even, odd code) {
					if h == 1 {
						return and(moved(x[w], -4), constI(0x000f000f)), moved(x[w], -12)
					}
					return and(x[w], constI(0x000f000f)), and(moved(x[w], -8), constI(0x000f000f))
				})
			default:
				split(j, func(w int) code {
					c := and(moved(x[w], -4*h), constI(0x0f0f0f0f))
					if kind == codes41 {
						return or(c, and(moved(high[0][w], 4-j), constI(0x10101010)))
					}
					return or(c, and(moved(high[j%2][w], 4-j/2*2), constI(0x30303030)))
				})
			}
		}
	}
}

// halves makes float32 numbers of four binary16 numbers, of which x, of no effect, reads the words.
func halves(x code) code {
	h := and(shlI(lowS(x), num(13)), constI(0x8fffe000))
	const top = 0x0f800000 // the exponent of infinities and NaN
	return or(mulV(h, constF(0x1p112)), and(eqI(and(h, constI(top)), constI(top)), constI(0x7f800000)))
}

// unpacks has the kernels of unpacking.
func (k *kernels) unpacks() {
	low := func(x code) code { return and(x, constI(0x0f0f0f0f)) }
	for _, u := range []struct {
		name      string
		arguments string
		four, two bool
		one       bool
	}{
		{"unpack4Vec", "ss", true, false, false}, {"unpackTableVec", "ssp", true, false, false},
		{"unpack41Vec", "ss", true, false, true}, {"unpack42Vec", "ss", true, true, false},
		{"unpack2Vec", "ss", false, true, false}, {"unpack21Vec", "ss", false, true, true},
		{"unpack1Vec", "ss", false, false, true},
	} {
		k.kernel(u.name, u.arguments, func(f *fn, a []code) {
			dst, n, src := a[0], a[1], a[2]
			var table code
			if u.arguments == "ssp" {
				table = f.keep(v128, load(a[4], 0))
			}
			f.repeat(shr(n, num(9)), func() {
				f.repeat(num(4), func() { // rows of four
					at, shift := 0, 0
					codes := make([]code, 8)
					merge := func(j int, x code) {
						if codes[j] != "" {
							x = or(codes[j], x)
						}
						codes[j] = x
					}
					if u.four {
						for i := range 4 {
							x := f.keep(v128, load(src, at+64*i))
							codes[i], codes[i+4] = low(x), shrB(x, num(4))
						}
						at, shift = at+256, 4
					}
					if u.two {
						for i := range 2 {
							x := f.keep(v128, load(src, at+64*i))
							for c := range 4 {
								merge(i+2*c, moved(and(x, constI(3<<(2*c)*0x01010101)), shift-2*c))
							}
						}
						at, shift = at+128, shift+2
					}
					if u.one {
						if !u.four && !u.two {
							shift = 1
						}
						x := f.keep(v128, load(src, at))
						for j := range 8 {
							merge(j, moved(and(x, constI(1<<j*0x01010101)), shift-j))
						}
					}
					for j, c := range codes {
						if table != "" {
							c = swizzle(table, c)
						}
						f.store(dst, 64*j, c)
					}
					f.step(src, 16)
					f.step(dst, 16)
				})
				unit := map[bool]int{true: 256}[u.four] + map[bool]int{true: 128}[u.two] + map[bool]int{true: 64}[u.one]
				f.step(src, unit-64)
				f.step(dst, 512-64)
			})
		})
	}
	k.kernel("unpackDigitsVec", "pp", func(f *fn, a []code) {
		for _, part := range []struct{ size, digits int }{{512, 5}, {256, 5}, {64, 4}} {
			f.repeat(num(part.size/16), func() {
				x := f.keep(v128, load(a[1], 0))
				y := f.keep(v128, shrH(x, num(8)))
				f.set(x, and(x, constI(0xff00ff)))
				for n := range part.digits {
					f.set(x, addH(x, moved(x, 1)))
					f.set(y, addH(y, moved(y, 1)))
					f.store(a[0], n*part.size, or(moved(x, -8), and(y, constI(0xff00ff00))))
					f.set(x, and(x, constI(0xff00ff)))
					f.set(y, and(y, constI(0xff00ff)))
				}
				f.step(a[0], 16)
				f.step(a[1], 16)
			})
			f.step(a[0], (part.digits-1)*part.size)
		}
	})
	k.kernel("panelScalesVec", "sps", func(f *fn, a []code) { // dst, d, scale
		d := f.locals(v128, 4)
		for i := range d {
			f.set(d[i], halves(load64At(a[2], 8*i)))
		}
		f.repeat(shr(a[4], num(4)), func() {
			for i := range d {
				f.store(a[0], 16*i, mulV(toFloat(lowS(lowB(load32At(a[3], 4*i)))), d[i]))
			}
			f.step(a[3], 16)
			f.step(a[0], 64)
		})
	})
}

// grids has the kernels of blocks with points: eight weights of four rows at a time.
func (k *kernels) grids() {
	k.kernel("unpackGridVec", "ppppp"+"fi", func(f *fn, a []code) { // dst, src, octets, shape, spread, high, four
		dst, src, octet, shape, spread, four := a[0], a[1], a[2], a[3], a[4], a[6]
		high := f.keep(v128, splat32(bitsF(a[5])))
		codes := f.keep(v128, load(shape, 104))
		signs := []code{f.keep(v128, load(shape, 120)), f.keep(v128, load(shape, 136))}
		low, each := constI(0x0f0f0f0f), constI(255)
		f.repeat(num(32), func() {
			from := f.keep(i32, src)
			field := func(at int) code { return shrI(load(add(from, load32(octet, at)), 0), load32(octet, at+4)) }
			number := func(i int) code { // a point's
				return f.keep(v128, or(and(field(8*i), each), shlI(and(field(16+8*i), high), num(8))))
			}
			f.repeat(num(4), func() {
				first, second := f.local(v128), f.local(v128)
				place := func(n code, r, size int) code { return add(spread, shl(laneI(n, r), num(size))) }
				fours := func(n code) (x code) {
					x = load32At(place(n, 0, 2), 0)
					for r := 1; r < 4; r++ {
						x = place(n, r, 2) + x + "\xfd\x56\x00\x00" + code([]byte{byte(r)})
					}
					return x
				}
				f.choose(four, func() {
					f.set(first, fours(number(0)))
					f.set(second, fours(number(1)))
				}, func() {
					n := number(0)
					pair := func(r int) code {
						return f.keep(v128, place(n, r+1, 3)+load64At(place(n, r, 3), 0)+"\xfd\x57\x00\x00\x01")
					}
					x, y := pair(0), pair(2)
					f.set(first, shuffle(x, y, 4, 0, 2, 4, 6))
					f.set(second, shuffle(x, y, 4, 1, 3, 5, 7))
				})
				s := f.keep(v128, field(32))
				f.set(s, xor(swizzle(signs[0], and(s, low)), swizzle(signs[1], and(shrI(s, num(4)), low))))
				f.set(s, shuffle(s, s, 1, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12))
				for i, levels := range []code{first, second} {
					bit := constI(0x08040201 << (4 * i))
					minus := and(eqB(and(s, bit), bit), constI(0x08080808))
					f.store(dst, 64*i, swizzle(codes, or(levels, minus)))
				}
				f.step(dst, 16)
				f.step(from, 16)
			})
			f.step(dst, 128-64)
			f.step(octet, 40)
		})
	})
	k.kernel("gridScalesVec", "pppi"+"ff", func(f *fn, a []code) { // dst, src, places, n, mask, unit
		dst, place, d := a[0], a[2], f.locals(v128, 4)
		unit, mask := f.keep(v128, splatF(a[5])), f.keep(v128, splat32(bitsF(a[4])))
		for i := range d {
			f.set(d[i], mulV(halves(load64At(a[1], 8*i)), unit))
		}
		f.step(a[1], 64)
		f.repeat(a[3], func() {
			from := f.keep(i32, add(a[1], load32(place, 0)))
			for i := range d {
				n := and(shrI(load(from, 16*i), load32(place, 4)), mask)
				f.store(dst, 16*i, mulV(toFloat(addI(addI(n, n), constI(1))), d[i]))
			}
			f.step(dst, 64)
			f.step(place, 8)
		})
	})
}

// weaves has the kernels that pack panels.
func (k *kernels) weaves() {
	// turn makes rows of columns, of four vectors of dwords.
	turn := func(f *fn, x []code) []code {
		a, b := f.keep(v128, shuffle(x[0], x[1], 4, 0, 4, 1, 5)), f.keep(v128, shuffle(x[0], x[1], 4, 2, 6, 3, 7))
		c, d := f.keep(v128, shuffle(x[2], x[3], 4, 0, 4, 1, 5)), f.keep(v128, shuffle(x[2], x[3], 4, 2, 6, 3, 7))
		return []code{shuffle(a, c, 8, 0, 2), shuffle(a, c, 8, 1, 3), shuffle(b, d, 8, 0, 2), shuffle(b, d, 8, 1, 3)}
	}
	// four reads 16 bytes of each of four rows, src being advanced.
	four := func(f *fn, src, stride code, at int) []code {
		var x []code
		p := f.keep(i32, src)
		for range 4 {
			x = append(x, f.keep(v128, load(p, at)))
			f.set(p, add(p, stride))
		}
		return turn(f, x)
	}
	k.kernel("weaveVec", "ppiiiib", func(f *fn, a []code) {
		dst, src, stride, n, in, out := a[0], a[1], a[2], a[3], a[4], a[5]
		flip := f.keep(v128, splat8(a[6]))
		f.repeat(n, func() {
			from, to := f.keep(i32, src), f.keep(i32, dst)
			f.repeat(num(4), func() {
				for v, c := range four(f, from, stride, 0) {
					f.store(to, 64*v, xor(c, flip))
				}
				f.set(from, add(from, shl(stride, num(2))))
				f.step(to, 16)
			})
			f.set(src, add(src, in))
			f.set(dst, add(dst, out))
		})
	})
	k.kernel("weaveHalvesVec", "ppiiiii", func(f *fn, a []code) {
		dst, src, stride, n, in, out, other := a[0], a[1], a[2], a[3], a[4], a[5], a[6]
		low := constI(0x0f0f0f0f)
		f.repeat(n, func() {
			from, to := f.keep(i32, src), f.keep(i32, dst)
			f.repeat(num(4), func() {
				x, y := four(f, from, stride, 0), four(f, from, stride, 16)
				second := f.keep(i32, add(to, other))
				for v := range x {
					a, b := f.keep(v128, x[v]), f.keep(v128, y[v])
					f.store(to, 64*v, or(and(a, low), moved(and(b, low), 4)))
					f.store(second, 64*v, or(shrB(a, num(4)), andNot(b, low)))
				}
				f.set(from, add(from, shl(stride, num(2))))
				f.step(to, 16)
			})
			f.set(src, add(src, in))
			f.set(dst, add(dst, out))
		})
	})
	k.kernel("weaveBitsVec", "ppiii", func(f *fn, a []code) {
		dst, src, stride, out, two := a[0], a[1], a[2], a[3], a[4]
		f.repeat(num(4), func() {
			var x []code
			for _, c := range append(four(f, src, stride, 0), four(f, src, stride, 16)...) {
				x = append(x, f.keep(v128, c))
			}
			exchange := func(i, j, n int, mask uint32) {
				t := f.keep(v128, and(xor(shrQ(x[i], num(n)), x[j]), constI(mask)))
				f.set(x[j], xor(x[j], t))
				f.set(x[i], xor(x[i], shlI(t, num(n)))) // no bit leaves its byte
			}
			f.when(not(two), func() {
				for j := 0; j < 8; j += 2 {
					exchange(j, j+1, 1, 0x55555555)
				}
			})
			for _, j := range []int{0, 1, 4, 5} {
				exchange(j, j+2, 2, 0x33333333)
			}
			for j := range 4 {
				exchange(j, j+4, 4, 0x0f0f0f0f)
			}
			to := f.keep(i32, dst)
			for j := 0; j < 8; j += 2 {
				f.store(to, 0, x[j])
				f.choose(two, func() { f.store(to, 64, x[j+1]) }, func() {
					f.set(to, add(to, out))
					f.store(to, 0, x[j+1])
				})
				f.set(to, add(to, out))
			}
			f.set(src, add(src, shl(stride, num(2))))
			f.step(dst, 16)
		})
	})
	k.kernel("weaveWordsVec", "ppiii", func(f *fn, a []code) {
		dst, src, stride, n, in := a[0], a[1], a[2], a[3], a[4]
		f.repeat(n, func() {
			from := f.keep(i32, src)
			f.repeat(num(panelRows), func() {
				f.do(dst, from, "\x2f\x00\x00", "\x3b\x00\x00")
				f.set(from, add(from, stride))
				f.step(dst, 2)
			})
			f.set(src, add(src, in))
		})
	})
	// bytes turns 16 bytes of each row to columns of bytes.
	columns := func(f *fn, src, stride code) []code {
		x := f.locals(v128, panelRows)
		p := f.keep(i32, src)
		for r := range x {
			f.set(x[r], load(p, 0))
			f.set(p, add(p, stride))
		}
		for range 4 { // each step interleaves the halves of the rows
			y := make([]code, panelRows)
			for r := range panelRows / 2 {
				a, b := x[r], x[r+8]
				y[2*r], y[2*r+1] = f.keep(v128, interleave(a, b, 0)), f.keep(v128, interleave(a, b, 8))
			}
			x = y
		}
		return x
	}
	k.kernel("weaveBytesVec", "ppi", func(f *fn, a []code) {
		for g, c := range columns(f, a[1], a[2]) {
			f.store(a[0], 16*g, c)
		}
	})
	k.kernel("weaveScalesVec", "ppi", func(f *fn, a []code) {
		dst := a[0]
		x := columns(f, a[1], a[2])
		for word, sign := range []uint32{0, 0x80008000} {
			lo, hi := x[2*word], x[2*word+1]
			f.store(dst, 32*word, xor(interleave(lo, hi, 0), constI(sign)))
			f.store(dst, 32*word+16, xor(interleave(lo, hi, 8), constI(sign)))
		}
		const scales, mins = 64, 64 + 8*panelRows
		top := func(c code) code { return moved(and(c, constI(0xc0c0c0c0)), -2) }
		for g := range 4 {
			f.store(dst, scales+16*g, and(x[4+g], constI(0x3f3f3f3f)))
			f.store(dst, mins+16*g, and(x[8+g], constI(0x3f3f3f3f)))
			f.store(dst, scales+16*(4+g), or(and(x[12+g], constI(0x0f0f0f0f)), top(x[4+g])))
			f.store(dst, mins+16*(4+g), or(shrB(x[12+g], num(4)), top(x[8+g])))
		}
	})
}

// interleave takes the bytes of a and b in turn, from a byte on.
func interleave(a, b code, from int) code {
	var places []int
	for i := range 8 {
		places = append(places, from+i, from+i+16)
	}
	return shuffle(a, b, 1, places...)
}

// vectors has the kernels over whole vectors.
func (k *kernels) vectors() {
	k.kernel("clearVec", "s", func(f *fn, a []code) { f.do(a[0], num(0), shl(a[1], num(2)), "\xfc\x0b\x00") })
	k.kernel("copyRowsVec", "pipiii", func(f *fn, a []code) { // dst, its step, src, its step, size, rows
		f.repeat(a[5], func() {
			f.do(a[0], a[2], shl(a[4], num(2)), "\xfc\x0a\x00\x00")
			f.set(a[0], add(a[0], shl(a[1], num(2))))
			f.set(a[2], add(a[2], shl(a[3], num(2))))
		})
	})
	k.kernel("addVec", "sss", func(f *fn, a []code) {
		f.steps(a[1], func() { f.store(a[0], 0, addV(load(a[2], 0), load(a[4], 0))) }, a[0], a[2], a[4])
	})
	k.kernel("mulVec", "sss", func(f *fn, a []code) {
		f.steps(a[1], func() { f.store(a[0], 0, mulV(load(a[2], 0), load(a[4], 0))) }, a[0], a[2], a[4])
	})
	k.kernel("scaleVec", "ssf", func(f *fn, a []code) {
		s := f.keep(v128, splatF(a[4]))
		f.steps(a[1], func() { f.store(a[0], 0, mulV(load(a[2], 0), s)) }, a[0], a[2])
	})
	k.kernel("divideVec", "ssf", func(f *fn, a []code) {
		s := f.keep(v128, splatF(a[4]))
		f.steps(a[1], func() { f.store(a[0], 0, divV(load(a[2], 0), s)) }, a[0], a[2])
	})
	k.kernel("addScaledVec", "ssf", func(f *fn, a []code) {
		s := f.keep(v128, splatF(a[4]))
		f.steps(a[1], func() { f.store(a[0], 0, k.fma(load(a[2], 0), s, load(a[0], 0))) }, a[0], a[2])
	})
	k.kernel("normVec", "sssff", func(f *fn, a []code) {
		r, offset := f.keep(v128, splatF(a[6])), f.keep(v128, splatF(a[7]))
		f.steps(a[1], func() {
			f.store(a[0], 0, mulV(mulV(load(a[2], 0), r), addV(offset, load(a[4], 0))))
		}, a[0], a[2], a[4])
	})
	k.kernel("turnVec", "ssss", func(f *fn, a []code) { // lo, hi, cos, sin
		f.steps(a[1], func() {
			x, y := f.keep(v128, load(a[0], 0)), f.keep(v128, load(a[2], 0))
			c, s := f.keep(v128, load(a[4], 0)), f.keep(v128, load(a[6], 0))
			f.store(a[0], 0, k.fma(x, c, negV(mulV(y, s))))
			f.store(a[2], 0, k.fma(y, c, mulV(x, s)))
		}, a[0], a[2], a[4], a[6])
	})
	k.kernel("loadF16Vec", "ss", func(f *fn, a []code) {
		f.steps(a[1], func() {
			f.store(a[0], 0, halves(load64At(a[2], 0)))
			f.step(a[2], 8)
		}, a[0])
	})
	k.kernel("loadBF16Vec", "ss", func(f *fn, a []code) {
		f.steps(a[1], func() {
			f.store(a[0], 0, shlI(lowU(load64At(a[2], 0)), num(16)))
			f.step(a[2], 8)
		}, a[0])
	})
	k.kernel("loadE4M3Vec", "ss", func(f *fn, a []code) {
		f.steps(a[1], func() {
			f.store(a[0], 0, small(f, load32At(a[2], 0)))
			f.step(a[2], 4)
		}, a[0])
	})
	k.kernel("storeF16Vec", "ss", func(f *fn, a []code) { // as float16.ToF16
		f.steps(a[1], func() {
			x := f.keep(v128, load(a[2], 0))
			abs := f.keep(v128, and(x, constI(0x7fffffff)))
			h := f.keep(v128, shrI(addI(addI(abs, constI(0xc8000fff)), and(shrI(abs, num(13)), constI(1))), num(13)))
			f.set(h, pick(subI(addV(abs, constF(0.5)), constI(0x3f000000)), h, gtI(constI(0x38800000), abs)))
			f.set(h, pick(constI(0x7c00), h, geI(abs, constI(0x477ff000))))
			f.set(h, pick(or(constI(0x7e00), and(shrI(abs, num(13)), constI(0x3ff))), h, gtI(abs, constI(0x7f800000))))
			f.set(h, or(h, and(shrI(x, num(16)), constI(0x8000))))
			f.store64(a[0], 0, narrowU(h, h)+"\xfd\x1d\x00")
			f.step(a[0], 8)
		}, a[2])
	})
	sigmoid := func(f *fn, x, exponent code) code { return divV(x, addV(constF(1), k.exp(exponent))) }
	silu := func(f *fn, x code) code { return sigmoid(f, x, negV(x)) }
	gelu := func(f *fn, x code) code {
		return sigmoid(f, x, mulV(x, k.fma(mulV(x, x), constF(geluG3), constF(geluG1))))
	}
	for _, c := range []struct {
		name, gated string
		curve       func(*fn, code) code
	}{{"siluVec", "swigluVec", silu}, {"geluVec", "gegluVec", gelu}} {
		k.kernel(c.name, "ss", func(f *fn, a []code) {
			f.steps(a[1], func() { f.store(a[0], 0, c.curve(f, f.keep(v128, load(a[2], 0)))) }, a[0], a[2])
		})
		k.kernel(c.gated, "sss", func(f *fn, a []code) {
			f.steps(a[1], func() {
				f.store(a[0], 0, mulV(c.curve(f, f.keep(v128, load(a[2], 0))), load(a[4], 0)))
			}, a[0], a[2], a[4])
		})
	}
	k.kernel("softcapVec", "ssf", func(f *fn, a []code) {
		c := f.keep(v128, splatF(a[4]))
		f.steps(a[1], func() { f.store(a[0], 0, mulV(c, k.tanh(divV(load(a[2], 0), c)))) }, a[0], a[2])
	})
	k.kernel("expSumVec", "pssf", func(f *fn, a []code) { // sums, dst, x, top
		top := f.keep(v128, splatF(a[5]))
		f.repeat(shr(a[2], num(4)), func() {
			for i := range 4 {
				e := f.keep(v128, k.weight(f, subV(load(a[3], 16*i), top)))
				f.store(a[1], 16*i, e)
				f.store(a[0], 16*i, addV(load(a[0], 16*i), e))
			}
			f.step(a[1], 64)
			f.step(a[3], 64)
		})
	})
}

// doubles has the kernel of ExpsF64.
func (k *kernels) doubles() {
	d := func(x float64) code { return constD(math.Float64bits(x)) }
	k.kernel("expDoublesVec", "s", func(f *fn, a []code) {
		f.repeat(shr(a[1], num(3)), func() {
			x, r, p, e := f.locals(v128, 4), f.locals(v128, 4), f.locals(v128, 4), f.locals(v128, 4)
			for i := range x {
				f.set(x[i], load(a[0], 16*i))
				n := f.keep(v128, floorD(addD(mulD(x[i], d(math.Log2E)), d(0.5))))
				f.set(r[i], subD(subD(x[i], mulD(n, d(ln2High64))), mulD(n, d(ln2Low64))))
				f.set(e[i], shlQ(addD(n, d(0x1.8p52+1023)), num(52)))
			}
			c := 1.
			for i := 2; i < expTerms; i++ {
				c *= float64(i)
			}
			for i := range p {
				f.set(p[i], d(1/c))
			}
			for n := expTerms - 1; n > 0; n-- {
				c /= float64(n)
				for i := range p {
					f.set(p[i], addD(mulD(p[i], r[i]), d(1/c)))
				}
			}
			for i, x := range x {
				y := pick(d(math.Inf(1)), mulD(p[i], e[i]), gtD(x, d(maxExp64)))
				f.store(a[0], 16*i, pick(x, andNot(y, ltD(x, d(minExp64))), neD(x, x)))
			}
			f.step(a[0], 64)
		})
	})
}

// writeExp is Exp in package simd.
func (k *kernels) writeExp(f *fn, a []code) {
	const magic = 3 << 22
	in := a[0]
	x := f.keep(v128, minV(maxV(in, constF(-104)), constF(89))) // NaN stays
	n := f.keep(v128, subV(addV(mulV(x, constF(log2e)), constF(magic)), constF(magic)))
	r := f.keep(v128, k.fma(n, constF(-ln2hi), x))
	f.set(r, k.fma(n, constF(-ln2lo), r))
	p := f.keep(v128, constF(expC6))
	for _, c := range []float32{expC5, expC4, expC3, expC2, 1, 1} {
		f.set(p, k.fma(p, r, constF(c)))
	}
	i := f.keep(v128, toInt(n))
	half := f.keep(v128, sarI(addI(i, shrI(i, num(31))), num(1))) // toward 0
	exp2 := func(n code) code { return shlI(addI(n, constI(127)), num(23)) }
	f.do(mulV(mulV(p, exp2(half)), exp2(subI(i, half))))
}

// weight is weight in package simd.
func (k *kernels) weight(f *fn, x code) code {
	x = f.keep(v128, x)
	return andNot(k.exp(x), ltV(x, constF(leastExponent)))
}

// writeTanh is tanh in package simd.
func (k *kernels) writeTanh(f *fn, a []code) {
	x := f.keep(v128, absV(a[0]))
	y := f.keep(v128, mulV(x, x))
	p := f.keep(v128, constF(tanhT4))
	for _, t := range []float32{tanhT3, tanhT2, tanhT1, tanhT0} {
		f.set(p, k.fma(p, y, constF(t)))
	}
	f.set(p, k.fma(x, mulV(y, p), x))
	far := subV(constF(1), divV(constF(2), addV(k.exp(mulV(x, constF(2))), constF(1))))
	f.do(or(pick(p, far, ltV(x, constF(0.625))), and(a[0], constI(1<<31))))
}

// quantizes has the kernels of activations.
func (k *kernels) quantizes() {
	k.kernel("quantizeVec", "sss", func(f *fn, a []code) { // q, dx, x
		q, dx, x := a[0], a[2], a[4]
		top, v := f.local(v128), f.locals(v128, 8)
		f.repeat(a[3], func() {
			f.set(top, constI(0))
			for i := range v {
				f.set(v[i], load(x, 16*i))
				f.set(top, maxI(top, and(v[i], constI(0x7fffffff))))
			}
			f.set(top, maxI(top, shuffle(top, top, 4, 2, 3, 0, 1)))
			f.set(top, maxI(top, shuffle(top, top, 4, 1, 0, 3, 2)))
			small := f.keep(v128, ltV(top, constF(1e-30)))
			special := f.keep(v128, gtI(top, constF(math.MaxFloat32)))
			some := f.keep(v128, notV(or(small, special)))
			inverse := f.keep(v128, divV(constF(32767), top))
			for i := 0; i < len(v); i += 2 {
				whole := func(x code) code { return and(toInt(nearest(mulV(x, inverse))), some) }
				n := f.keep(v128, narrowS(whole(v[i]), whole(v[i+1])))
				f.store(q, 8*i, shuffle(n, n, 2, 0, 2, 1, 3, 4, 6, 5, 7))
			}
			f.storeF(dx, 0, lane32(or(andNot(divV(top, constF(32767)), small), special), 0))
			f.step(q, 64)
			f.step(dx, 4)
			f.step(x, 128)
		})
	})
	// sum is the sum of a group of words, in all lanes.
	sum := func(f *fn, q, group code) code {
		s := f.keep(v128, constI(0))
		f.repeat(shr(group, num(3)), func() {
			f.set(s, addI(s, dot(load(q, 0), constI(0x10001))))
			f.step(q, 16)
		})
		f.set(s, addI(s, shuffle(s, s, 4, 2, 3, 0, 1)))
		f.set(s, addI(s, shuffle(s, s, 4, 1, 0, 3, 2)))
		return s
	}
	k.kernel("groupSumsVec", "sppi", func(f *fn, a []code) { // sums, q, dx, group
		at := f.keep(i32, num(0))
		f.repeat(a[1], func() {
			total, factor := toFloat(sum(f, a[2], a[4])), splat32At(add(a[3], shl(shr(at, num(5)), num(2))), 0)
			f.storeF(a[0], 0, lane32(mulV(total, factor), 0))
			f.step(a[0], 4)
			f.set(at, add(at, a[4]))
		})
	})
	k.kernel("groupInitVec", "spii", func(f *fn, a []code) { // init, q, group, factor of 32 bits
		factor := f.keep(v128, splat32(a[4]))
		f.repeat(a[1], func() {
			f.storeF(a[0], 0, lane32(mulI(sum(f, a[2], a[3]), factor), 0))
			f.step(a[0], 4)
		})
	})
}

// dots has the kernels of dot products.
func (k *kernels) dots() {
	for _, t := range []struct {
		name string
		size int
		load func(p code, at int) code
	}{
		{"addDotsF32Vec", 4, load},
		{"addDotsF16Vec", 2, func(p code, at int) code { return halves(load64At(p, at/2)) }},
		{"addDotsBF16Vec", 2, func(p code, at int) code { return shlI(lowU(load64At(p, at/2)), num(16)) }},
	} {
		k.kernel(t.name, "psis", func(f *fn, a []code) { // sums, w, stride, x
			row := f.keep(i32, num(4))
			f.when(not(a[3]), func() { f.set(row, num(1)) }) // the same row four times: one is read
			sums := f.locals(v128, 4)
			f.repeat(row, func() {
				w, x := f.keep(i32, a[1]), f.keep(i32, a[4])
				for i := range sums {
					f.set(sums[i], load(a[0], 16*i))
				}
				f.repeat(shr(a[5], num(4)), func() {
					for i := range sums {
						f.set(sums[i], k.fma(t.load(w, 16*i), load(x, 16*i), sums[i]))
					}
					f.step(w, 16*t.size)
					f.step(x, 64)
				})
				for i := range sums {
					f.store(a[0], 16*i, sums[i])
				}
				f.step(a[0], 64)
				f.set(a[1], add(a[1], mul(a[3], num(t.size))))
			})
		})
	}
	k.kernel("addDotsE4M3Vec", "psi"+"s"+"pi", func(f *fn, a []code) { // sums, w, stride, x, scales, per
		rows := f.keep(i32, num(4))
		f.when(not(a[3]), func() { f.set(rows, num(1)) }) // as above
		sums := f.locals(v128, 4)
		f.repeat(rows, func() {
			w, x, scale, left := f.keep(i32, a[1]), f.keep(i32, a[4]), f.keep(i32, load32(a[6], 0)), f.keep(i32, a[7])
			for i := range sums {
				f.set(sums[i], load(a[0], 16*i))
			}
			f.repeat(shr(a[5], num(4)), func() {
				for i := range sums {
					v := f.keep(v128, mulV(eights(f, load32At(w, 4*i)), splat32At(scale, 0)))
					f.set(sums[i], k.fma(v, load(x, 16*i), sums[i]))
				}
				f.step(w, 16)
				f.step(x, 64)
				f.when(not(tee(left, sub(left, num(1)))), func() {
					f.step(scale, 4)
					f.set(left, a[7])
				})
			})
			for i := range sums {
				f.store(a[0], 16*i, sums[i])
			}
			f.step(a[0], 64)
			f.set(a[1], add(a[1], a[3]))
			f.step(a[6], 8)
		})
	})
	k.kernel("sumDotsVec", "pp", func(f *fn, a []code) {
		f.repeat(num(4), func() {
			s := f.keep(v128, addV(addV(load(a[1], 0), load(a[1], 32)), addV(load(a[1], 16), load(a[1], 48))))
			f.set(s, addV(s, shuffle(s, s, 4, 2, 3, 0, 1)))
			f.set(s, addV(s, shuffle(s, s, 4, 1, 0, 3, 2)))
			f.storeF(a[0], 0, lane32(s, 0))
			f.step(a[0], 4)
			f.step(a[1], 64)
		})
	})
}

// eights makes float32 numbers of four floats E4M3, over 256.
func eights(f *fn, x code) code {
	b := f.keep(v128, lowS(lowB(x)))
	value := mulV(and(shlI(b, num(20)), constI(0x87f00000)), constF(0x1p112))
	return or(value, and(eqI(and(b, constI(127)), constI(127)), constI(0x7fc00000)))
}

// small makes float32 numbers as LoadE4M3 in package simd does. The byte's sign gets lost.
func small(f *fn, x code) code {
	b := f.keep(v128, lowU(lowUB(x)))
	return andNot(mulV(shlI(and(b, constI(127)), num(20)), constF(0x1p119)), eqI(b, constI(127)))
}

// attends has the kernels of attention: of some queries at a time, with so many vectors of four keys or values that the
// sums fit the registers.
func (k *kernels) attends() {
	vectors := func(rows int) int {
		if k.fused {
			return min(4, 8/rows)
		}
		return 4 / rows
	}
	// adder returns what adds vectors at x, times the number at each of p, to sums.
	adder := func(f *fn, sums []code) func(x code, p []code) {
		next, bad, zero := f.locals(v128, len(sums)), f.local(v128), f.local(v128)
		return func(x code, p []code) {
			f.set(bad, zero)
			v, n := make([]code, len(sums)/len(p)), len(sums)/len(p)
			sides := make([][2]code, n)
			for c := range v {
				v[c] = f.keep(v128, load(x, 16*c))
				sides[c] = f.sides(v[c])
			}
			for i := range sums {
				if i%n == 0 {
					sides = append(sides[:n], f.both(splat32At(p[i/n], 0)))
				}
				f.fuse(next[i], bad, sides[i%n], sides[n], sums[i], true)
			}
			f.mend(bad, func() {
				for i := range sums {
					f.set(next[i], k.exact(v[i%n], splat32At(p[i/n], 0), sums[i]))
				}
			})
			for i := range sums {
				f.set(sums[i], next[i])
			}
		}
	}
	// scoring returns a function for the scores of some queries, to multiples of sixteen keys.
	scoring := func(rows int) func(...code) code {
		c := vectors(rows)
		// chains are partial sums of keys' products with queries of d elements: of every sixteenth element of n.
		chains := k.function(several(i32, 4), several(v128, rows*c), func(f *fn, a []code) {
			sums := f.locals(v128, rows*c)
			fuse, q := adder(f, sums), f.pointers(a[1], shl(a[3], num(2)), rows)
			f.while(less(num(0), a[2]), func() {
				fuse(a[0], q)
				f.step(a[0], 16*64)
				for _, p := range q {
					f.step(p, 64)
				}
				f.step(a[2], -16)
			})
			f.do(sums...)
		})
		return k.function(append(several(i32, 6), v128), nil, func(f *fn, a []code) {
			s, q, keys, from, to, d := a[0], a[1], a[2], a[3], a[4], a[5]
			f.while(less(from, to), func() {
				first := f.keep(i32, num(0))
				f.repeat(num(4/c), func() {
					key := f.keep(i32, add(keys, add(shl(mul(from, d), num(2)), first)))
					var tree func(l, n int) []code
					tree = func(l, n int) []code {
						if n == 16 {
							x := f.locals(v128, rows*c)
							f.do(chains(add(key, num(64*l)), add(q, num(4*l)), sub(d, num(l)), d))
							for i := len(x) - 1; i >= 0; i-- {
								f.do("\x21", x[i][1:])
							}
							return x
						}
						x, y := tree(l, 2*n), tree(l+n, 2*n)
						for i := range x {
							f.set(x[i], addV(x[i], y[i]))
						}
						return x
					}
					out := f.keep(i32, add(s, add(shl(from, num(2)), first)))
					for i, x := range tree(0, 1) {
						f.store(out, 64*4*(i/c)+16*(i%c), mulV(x, a[6]))
					}
					f.step(first, 16*c)
				})
				f.step(from, 16)
			})
		})
	}
	// adding returns a function that adds n values times the weights of some queries to acc, and the weights to sum, if
	// any.
	adding := func(rows int) func(...code) code {
		c := vectors(rows)
		return k.function(several(i32, 7), nil, func(f *fn, a []code) {
			v, n, stride, columns, sum := a[1], a[3], a[4], a[5], a[6]
			acc, weights := f.pointers(a[0], stride, rows), f.pointers(a[2], num(256), rows)
			p := f.locals(i32, rows)
			each := func(text func()) {
				for r := range p {
					f.set(p[r], weights[r])
				}
				f.repeat(n, func() {
					text()
					for r := range p {
						f.step(p[r], 4)
					}
				})
			}
			f.when(sum, func() {
				x := f.locals(f32, rows)
				for r := range x {
					f.set(x[r], loadF(sum, 4*r))
				}
				each(func() {
					for r := range x {
						f.set(x[r], addF(x[r], loadF(p[r], 0)))
					}
				})
				for r := range x {
					f.storeF(sum, 4*r, x[r])
				}
			})
			sums := f.locals(v128, rows*c)
			fuse := adder(f, sums)
			f.repeat(divideI(columns, num(4*c)), func() {
				for i := range sums {
					f.set(sums[i], load(acc[i/c], 16*(i%c)))
				}
				value := f.keep(i32, v)
				each(func() {
					fuse(value, p)
					f.set(value, add(value, stride))
				})
				for i := range sums {
					f.store(acc[i/c], 16*(i%c), sums[i])
				}
				for _, p := range acc {
					f.step(p, 16*c)
				}
				f.step(v, 16*c)
			})
		})
	}
	score2, score4 := scoring(2), scoring(4)
	add1, add2, add4 := adding(1), adding(2), adding(4)
	// weigh turns the scores of a query, from a position to another, to weights, and raises top where due.
	weigh := k.function(append(several(i32, 7), f32), nil, func(f *fn, a []code) {
		from, to, top, sum, acc, limit := a[1], a[2], a[3], a[4], a[5], a[7]
		first := f.keep(i32, add(a[0], shl(andI(from, num(-4)), num(2))))
		p, m := f.local(i32), f.keep(f32, lane32(constF(float32(math.Inf(-1))), 0))
		each := func(change func(x code) code) {
			f.set(p, first)
			f.repeat(shr(sub(add(to, num(3)), andI(from, num(-4))), num(2)), func() {
				f.store(p, 0, change(f.keep(v128, load(p, 0))))
				f.step(p, 16)
			})
		}
		f.when(bitsF(limit), func() {
			c := f.keep(v128, splatF(limit))
			each(func(x code) code { return mulV(c, k.tanh(divV(x, c))) })
		})
		f.set(p, add(a[0], shl(from, num(2))))
		f.repeat(sub(to, from), func() {
			f.set(m, maxF(m, loadF(p, 0)))
			f.step(p, 4)
		})
		f.set(m, addF(m, lane32(constI(0), 0))) // -0 becomes +0
		f.when(not(leF(m, loadF(top, 0))), func() {
			c := f.keep(v128, k.weight(f, splatF(subF(loadF(top, 0), m))))
			f.storeF(top, 0, m)
			f.storeF(sum, 0, mulF(loadF(sum, 0), lane32(c, 0)))
			f.steps(a[6], func() { f.store(acc, 0, mulV(load(acc, 0), c)) }, acc)
		})
		t := f.keep(v128, splatF(loadF(top, 0)))
		each(func(x code) code { return k.weight(f, subV(x, t)) })
	})
	k.kernel("scoreKeysVec", "pssiif", func(f *fn, a []code) { // scores, q, k, from, to, scale
		f.do(score4(a[0], a[1], a[3], a[5], a[6], shr(a[2], num(2)), splatF(a[7])))
	})
	k.kernel("addValuesVec", "sspiip", func(f *fn, a []code) { // acc, v, p, n, stride, sum
		f.do(add4(a[0], a[2], a[4], a[5], shl(a[6], num(2)), sub(a[1], mul(a[6], num(3))), a[7]))
	})
	k.kernel("addPairVec", "sspii", func(f *fn, a []code) {
		f.do(add2(a[0], a[2], a[4], a[5], shl(a[6], num(2)), sub(a[1], a[6]), num(0)))
	})
	k.kernel("attendVec", "ppppppp"+"iiiiii"+"ff", func(f *fn, a []code) {
		s, acc, n, words := a[0], a[4], a[8], a[9:11]
		score := []code{s, a[1], a[2], a[11], a[12], a[7], splatF(a[14])}
		f.choose(words[1], func() { f.do(score4(score...)) }, func() { f.do(score2(score...)) })
		stride := f.keep(i32, shl(n, num(2)))
		first := func(r int) code { return andI(shr(words[r/2], num(r%2*16)), num(255)) }
		last := func(r int) code { return andI(shr(words[r/2], num(r%2*16+8)), num(255)) }
		row := func(r int) code { return add(acc, mul(stride, num(r))) }
		values := func(add1 func(...code) code, r int) {
			f.do(add1(row(r), add(a[3], mul(first(r), stride)), add(s, add(num(256*r), shl(first(r), num(2)))),
				sub(last(r), first(r)), stride, n, add(a[6], num(4*r))))
		}
		for r := range 4 {
			f.when(last(r), func() {
				top, sum := add(a[5], num(4*r)), add(a[6], num(4*r))
				f.do(weigh(add(s, num(256*r)), first(r), last(r), top, sum, row(r), n, a[13]))
			})
		}
		same := func(pair int) code { return equal(andI(words[pair], num(0xffff)), shr(words[pair], num(16))) }
		f.choose(andI(equal(words[0], words[1]), same(0)), func() { values(add4, 0) }, func() {
			for pair := range 2 {
				f.choose(same(pair), func() { f.when(words[pair], func() { values(add2, 2*pair) }) }, func() {
					for r := 2 * pair; r < 2*pair+2; r++ {
						f.when(last(r), func() { values(add1, r) })
					}
				})
			}
		})
	})
}
