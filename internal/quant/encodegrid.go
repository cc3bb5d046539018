package quant

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/karat-run/karat/internal/simd"
)

// The encoders of the types with grids of magnitudes: IQ2 and IQ3. A group's weights are rounded to points of its
// lattice for several scales, and the best scale wins. The levels of a lattice stand for the odd numbers 1, 3, 5 and so
// on. (quantize_row_iq2_xxs_impl and its siblings of ggml-quants.c in llama.cpp)

// A lattice finds points of a grid.
type lattice struct {
	size, bits int        // weights of a point, bits of a level
	levels     float32    // number of levels
	points     []uint64   // a level in each byte
	index      []int32    // by the levels: a point's index, or -1-n where only points of near[n] are about
	near       [][]uint32 // levels side by side, and the index from bit 16 on
}

var (
	latticeIQ2_XXS = sync.OnceValue(func() *lattice { return newLattice(points(0, 256, 2, 0, 1, 2), 8, 3, 2) })
	latticeIQ2_XS  = sync.OnceValue(func() *lattice { return newLattice(points(256, 512, 2, 0, 1, 2), 8, 3, 2) })
	latticeIQ2_S   = sync.OnceValue(func() *lattice { return newLattice(points(768, 1024, 2, 0, 1, 2), 8, 3, 1) })
	latticeIQ1     = sync.OnceValue(func() *lattice { return newLattice(points(1792, 2048, 2, 0, 1, 2), 8, 3, 3) })
	latticeIQ3_XXS = sync.OnceValue(func() *lattice {
		return newLattice(points(3840, 256, 4, 0, 1, 2, 3, 4, 5, 6, 7), 4, 8, 2)
	})
	latticeIQ3_S = sync.OnceValue(func() *lattice {
		return newLattice(points(4096, 512, 4, 0, 1, 2, 3, 4, 5, 6, 7), 4, 8, 3)
	})
)

// newLattice returns the lattice of points of so many weights and levels. The neighbours of levels without a point are
// the points at the want least distances, nearest first.
func newLattice(points []uint64, size, levels, want int) *lattice {
	l := &lattice{size: size, levels: float32(levels), points: points, bits: 16 / size}
	if levels == 8 {
		l.bits = 3
	}
	l.index = make([]int32, 1<<(l.bits*size))
	codes := make([]uint16, len(points))
	for i, p := range points {
		codes[i] = uint16(l.code(binary.LittleEndian.AppendUint64(nil, p)))
		l.index[codes[i]] = int32(i) + 1
	}
	far := l.distances()
	for u := range l.index {
		valid := true
		for i := range size {
			valid = valid && u>>(l.bits*i)&(1<<l.bits-1) < levels
		}
		if l.index[u]--; valid && l.index[u] < 0 {
			half := l.bits * size / 2
			l.near = append(l.near, neighbours(codes, far[u&(1<<half-1)], far[u>>half], half, want))
			l.index[u] = -int32(len(l.near))
		}
	}
	return l
}

// distances returns the squared distances between the halves of codes.
func (l *lattice) distances() (far [256]*[256]byte) {
	for a := range 1 << (l.bits * l.size / 2) {
		far[a] = new([256]byte)
		for b := range 1 << (l.bits * l.size / 2) {
			for i := 0; i < l.bits*l.size/2; i += l.bits {
				d := a>>i&(1<<l.bits-1) - b>>i&(1<<l.bits-1)
				far[a][b] += byte(d * d)
			}
		}
	}
	return far
}

// neighbours returns the codes at the want least distances, and their indices from bit 16 on, as simd.Closest takes
// them. The distance of a code is the sum of its halves' distances.
func neighbours(codes []uint16, low, high *[256]byte, half, want int) (near []uint32) {
	var counts [256]int
	far := make([]byte, len(codes))
	for i, c := range codes {
		d := low[c&(1<<half-1)&255] + high[c>>half&255]
		far[i] = d
		counts[d]++
	}
	for d := 0; d < len(counts) && want > 0; d++ {
		if counts[d] == 0 {
			continue
		}
		want--
		for i, f := range far {
			if int(f) == d {
				near = append(near, uint32(i)<<16|uint32(codes[i]))
			}
		}
	}
	for len(near)%simd.FitLanes != 0 {
		near = append(near, near[0])
	}
	return near
}

// code returns the levels of a point side by side.
func (l *lattice) code(q []byte) int {
	if l.size == 4 {
		u := binary.LittleEndian.Uint32(q)
		u = (u | u>>5) & 0x3f003f
		return int((u | u>>10) & 0xfff)
	}
	u := load8(q)
	u = (u | u>>6) & 0x000f000f000f000f
	u = (u | u>>12) & 0x000000ff000000ff
	return int((u | u>>24) & 0xffff)
}

// values returns the levels' values at a scale.
func (l *lattice) values(scale float32) (values [8]float32) {
	for i := range int(l.levels) {
		values[i] = float32(scale * float32(2*i+1))
	}
	return values
}

// round sets q to the levels of x at a scale with values, or of the closest points where levels have no point, by the
// roots w of the weights of errors. It reports the points that had none.
func (l *lattice) round(q []byte, x, w []float32, inverse float32, values *[8]float32) (off [8]bool) {
	simd.Levels(q, x, min(inverse, math.MaxFloat32), int32(l.levels)-1)
	for k, at := 0, 0; at < len(x); k, at = k+1, at+l.size {
		n := l.index[l.code(q[at:])]
		if off[k] = n < 0; n >= 0 {
			continue
		}
		p := l.points[simd.Closest(l.near[-1-n], x[at:at+l.size], w[at:], values)>>16]
		if l.size == 4 {
			binary.LittleEndian.PutUint32(q[at:], uint32(p))
		} else {
			store8(q[at:], p)
		}
	}
	return off
}

// A gridFit has the facts of a type's search.
type gridFit struct {
	lattice   func() *lattice
	group     int
	even      bool      // even number of minuses in 8 weights
	least     float32   // least magnitude of a group with a scale
	square    float32   // factor of the mean square in weights of errors
	plain     float32   // factor of the mean square without importance
	tries     []float32 // the largest weight, in levels
	scaled    bool      // fitPositive makes the first scale
	all       bool      // rounding of every point to the best scale, if a group has a point off its levels
	favor     float32   // factor of the block's scale
	keepsZero bool      // points stay in a block without a scale
}

var (
	fitIQ2_XXS = gridFit{lattice: latticeIQ2_XXS, group: 32, even: true, least: least, square: 1,
		tries: tenfold(5, 0.1, 6), scaled: true, all: true, favor: 1}
	fitIQ2_XS = gridFit{lattice: latticeIQ2_XS, group: 16, even: true, least: least, square: 1,
		tries: tenfold(5, 0.1, 9), favor: 1}
	fitIQ2_S = gridFit{lattice: latticeIQ2_S, group: 16, least: 1e-8, square: 2, plain: 0.25, tries: tenfold(5, 0.1, 9),
		favor: 0.9875, keepsZero: true}
	fitIQ3_XXS = gridFit{lattice: latticeIQ3_XXS, group: 32, even: true, least: 1e-8, square: 2,
		tries: tenfold(15, 0.2, 15), favor: 1.0125}
	fitIQ3_S = gridFit{lattice: latticeIQ3_S, group: 32, least: math.SmallestNonzeroFloat32, square: 2,
		tries: tenfold(15, 0.2, 9), all: true, favor: 1.033, keepsZero: true}
)

// tenfold returns the numbers about top, n steps down and up.
func tenfold(top, step float32, n int) (all []float32) {
	for i := -n; i <= n; i++ {
		all = append(all, top+float32(float32(i)*step))
	}
	return all
}

// magnitudes sets e.size to the magnitudes of 8 weights x from at on, and returns the signs. For an even number of
// minuses, the weight of least effect, by e.w, gets the other sign.
func (e *encoder) magnitudes(at int, x []float32, even bool) (s byte) {
	flips, least, place := 0, float32(math.Inf(1)), 0
	for i, v := range x {
		if e.size[at+i] = v; !(v >= 0) {
			e.size[at+i] = -v
			flips++
			s |= 1 << i
		}
		if matters := float32(float32(e.w[at+i]*v) * v); matters < least {
			least, place = matters, i
		}
	}
	if even && flips%2 != 0 {
		e.size[at+place] = -e.size[at+place]
		s ^= 1 << place
	}
	return s
}

// fitGroup finds the scale and the levels of a group from at on, and reports whether the group has any.
func (e *encoder) fitGroup(f *gridFit, at int) (scale float32, ok bool) {
	l := f.lattice()
	x, w, q := e.size[at:at+f.group], e.w[at:at+f.group], e.q[at:at+f.group]
	var roots [32]float32
	most := x[0]
	for i, v := range x {
		roots[i] = root(w[i])
		most = max(most, v)
	}
	clear(q)
	if most < f.least {
		return 0, false
	}
	scale = most / (float32(2*l.levels) - 1)
	if f.scaled {
		scale = fitPositive(q, x, w, -1<<20, l.levels+1)
		if most = scale * l.levels; most <= 0 {
			clear(q)
			return 0, false
		}
	}
	var best float32
	var try [32]byte
	var off [8]bool // by point: its weights' own levels are none
	for k := range off {
		off[k] = f.all
	}
	for _, t := range f.tries {
		inverse := t / most
		values := l.values(1 / inverse)
		now := l.round(try[:len(x)], x, roots[:], inverse, &values)
		if xq, qq := oddSums(x, w, try[:]); qq > 0 && float32(xq*xq) > float32(best*qq) {
			scale = xq / qq
			best = float32(scale * xq)
			copy(q, try[:])
			off = now
		}
	}
	if scale > 0 && (f.scaled || off != [8]bool{}) {
		values := l.values(scale)
		l.round(try[:len(x)], x, roots[:], 1/scale, &values)
		for k := range len(x) / l.size {
			if f.all || off[k] {
				copy(q[k*l.size:][:l.size], try[k*l.size:])
			}
		}
		if xq, qq := oddSums(x, w, q); qq > 0 {
			scale = xq / qq
		}
	}
	return scale, true
}

// oddSums returns the sums of w*x*q and w*q*q, q being the odd numbers of levels.
func oddSums(x, w []float32, levels []byte) (xq, qq float32) {
	for i, v := range x {
		q := float32(2*int(levels[i]) + 1)
		xq += float32(float32(w[i]*v) * q)
		qq += float32(float32(w[i]*q) * q)
	}
	return xq, qq
}

// fitBlock finds the points and signs of a block's weights, and the scales of its groups: integers s up to 15, and the
// block's scale at the start of b. It reports whether the block is more than zeros.
func (e *encoder) fitBlock(f *gridFit, b []byte, x, w []float32) bool {
	clear(b)
	e.square = f.square * squares(x) / maxBlock
	if w != nil {
		e.weigh(x, w)
	} else {
		for i, v := range x {
			e.w[i] = float32(f.plain*e.square) + float32(v*v)
		}
	}
	l := f.lattice()
	var most float32
	for g := range maxBlock / f.group {
		at, sign := g*f.group, e.sign[g*f.group/8:][:f.group/8]
		for i := range sign {
			sign[i] = e.magnitudes(at+8*i, x[at+8*i:at+8*i+8], f.even)
		}
		scale, ok := e.fitGroup(f, at)
		for i := range sign {
			if !ok {
				sign[i] = 0
			} else if scale < 0 {
				sign[i] ^= 255
			}
		}
		e.scale[g] = abs(scale)
		most = max(most, e.scale[g])
		for i := at; i < at+f.group; i += l.size {
			e.point[i/l.size] = uint16(l.index[l.code(e.q[i:])])
		}
	}
	if most == 0 {
		clear(e.ls[:])
		return f.keepsZero
	}
	d := most / 31
	putHalf(b, float32(d*f.favor))
	e.oddScales(e.scale[:maxBlock/f.group], 1/d, 15)
	return true
}

// oddScales sets e.ls to integers s up to top, 2s+1 being about a scale.
func (e *encoder) oddScales(scales []float32, inverse, top float32) {
	for g, s := range scales {
		e.ls[g] = byte(limit(simd.Nearest(float32(0.5*(float32(inverse*s)-1))), 0, top))
	}
}

func (e *encoder) iq2_XXS(b []byte, x, w []float32) {
	if !e.fitBlock(&fitIQ2_XXS, b, x, w) {
		return
	}
	for g := range 8 {
		e.putSigns(b[6+8*g:], g)
		for l := range 4 {
			b[2+8*g+l] = byte(e.point[4*g+l])
		}
	}
}

// putSigns writes four times seven signs of group g, and its scale.
func (e *encoder) putSigns(b []byte, g int) {
	v := uint32(e.ls[g]) << 28
	for l, s := range e.sign[4*g : 4*g+4] {
		v |= uint32(s&127) << (7 * l)
	}
	binary.LittleEndian.PutUint32(b, v)
}

// putScales writes two scales to each byte.
func (e *encoder) putScales(b []byte) {
	for i := range b {
		b[i] = e.ls[2*i] | e.ls[2*i+1]<<4
	}
}

func (e *encoder) iq2_XS(b []byte, x, w []float32) {
	if !e.fitBlock(&fitIQ2_XS, b, x, w) {
		return
	}
	for i, s := range e.sign {
		binary.LittleEndian.PutUint16(b[2+2*i:], e.point[i]|uint16(s)<<9)
	}
	e.putScales(b[66:74])
}

func (e *encoder) iq2_S(b []byte, x, w []float32) {
	if !e.fitBlock(&fitIQ2_S, b, x, w) {
		return
	}
	for i, s := range e.sign {
		b[2+i], b[34+i] = byte(e.point[i]), s
		b[66+i/4] |= byte(e.point[i]>>8) << (i % 4 * 2)
	}
	e.putScales(b[74:82])
}

func (e *encoder) iq3_XXS(b []byte, x, w []float32) {
	if !e.fitBlock(&fitIQ3_XXS, b, x, w) {
		return
	}
	for g := range 8 {
		e.putSigns(b[66+4*g:], g)
	}
	for i, p := range e.point {
		b[2+i] = byte(p)
	}
}

func (e *encoder) iq3_S(b []byte, x, w []float32) {
	if !e.fitBlock(&fitIQ3_S, b, x, w) {
		return
	}
	for i, p := range e.point {
		b[2+i] = byte(p)
		b[66+i/8] |= byte(p>>8) << (i % 8)
	}
	copy(b[74:106], e.sign[:])
	e.putScales(b[106:110])
}
