package webgpu

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/quant"
)

// What Options.Matrices adds: products of many rows with quantized weights on matrix units,
// of both in binary16, with sums in float32. Activations are rounded before (narrow.wgsl).

// matrixTile is what a workgroup of matrix.wgsl computes, and a subgroup of it.
type matrixTile struct {
	BM, BN, BK int
	WM, WN     int
	Parts      int // subgroups that share the elements of a tile's rows
}

// matrixUnit is the GPU's: what it multiplies, and with how many invocations.
type matrixUnit struct{ M, N, K, Lanes int }

// matrixVariant is a form of matrix.wgsl.
type matrixVariant struct {
	layout
	ending
	matrixTile
	matrixUnit
}

// narrowVariant is a form of narrow.wgsl.
type narrowVariant struct {
	matrixUnit
	Spots []string
}

// pad is what rows of binary16 are padded to a multiple of.
const pad = 128

// Halves is that activations are narrow's.
func (v matrixVariant) Halves() bool { return true }

// Subgroups of a workgroup.
func (t matrixTile) Subgroups() int { return t.BM / t.WM * t.BN / t.WN * t.Parts }

// Threads are a workgroup's invocations.
func (v matrixVariant) Threads() int { return v.Subgroups() * v.Lanes }

// Columns are those of a subgroup's results.
func (v matrixVariant) Columns() int {
	if v.GLU != "" {
		return v.WN / 2
	}
	return v.WN
}

// Results are as many as a row of a subgroup's matrices has, of which an invocation takes Batch at a time.
func (v matrixVariant) Results() int { return v.M * v.Columns() }

// Memory is how many bytes of a workgroup's memory tiles have, and results after them.
func (v matrixVariant) Memory() int {
	return max(2*v.BN*(v.BK+8), 4*v.Subgroups()*v.M*(v.WN+8))
}

// Spots is where each of eight elements is in a mat2x4, in the order in which short leaves them.
func (l layout) Spots() []string {
	if l.Bits == 4 {
		return []string{"[0].x", "[1].x", "[0].z", "[1].z", "[0].y", "[1].y", "[0].w", "[1].w"}
	}
	return []string{"[0].x", "[0].z", "[1].x", "[1].z", "[0].y", "[0].w", "[1].y", "[1].w"}
}

// fits reports whether a GPU has room for v, whose invocations must have as many results each.
func (v matrixVariant) fits(has *gpu.Matrices) bool {
	return v.Memory()+4*v.BM <= has.WorkgroupBytes && v.Threads() <= has.Invocations && v.Results()%(v.Lanes*v.Parts) == 0
}

// unitOf is the matrix unit that is used: nil where there is none, where its tiles do not
// fit, or where subgroups differ in size, for then it is not known which invocations are one.
func unitOf(m *gpu.Matrices) *matrixUnit {
	if m == nil || m.Subgroup[0] != m.Subgroup[1] {
		return nil
	}
	for _, s := range []gpu.Shape{{M: 16, N: 16, K: 16}, {M: 8, N: 8, K: 8}} {
		for _, has := range m.Shapes {
			u := matrixUnit{s.M, s.N, s.K, m.Subgroup[0]}
			if has == s && (matrixVariant{matrixTile: u.tile(0), matrixUnit: u}).fits(m) {
				return &u
			}
		}
	}
	return nil
}

// sizedTile is the tile for weights of From rows and more.
type sizedTile struct {
	From int
	matrixTile
}

// matrixTiles are the tiles in use, by the rows of a unit, the largest first: small ones where
// there would be too few workgroups for a GPU.
var matrixTiles = map[int][]sizedTile{
	16: {
		{8192, matrixTile{128, 128, 64, 64, 64, 1}},
		{2049, matrixTile{64, 64, 64, 32, 32, 1}},
		{513, matrixTile{64, 64, 128, 32, 32, 2}},
		{0, matrixTile{32, 32, 128, 32, 32, 4}},
	},
	8: {{1024, matrixTile{32, 32, 64, 16, 16, 1}}, {0, matrixTile{32, 32, 64, 16, 16, 2}}},
}

// tile is the tile for a weight of n rows.
func (u *matrixUnit) tile(n int) matrixTile {
	list := matrixTiles[u.M]
	return list[slices.IndexFunc(list, func(t sizedTile) bool { return n >= t.From })].matrixTile
}

// matrix adds the dispatches of a product of many rows on matrix units. It reports false
// where they cannot be used.
func (x product) matrix() bool {
	p, b, w := x.p, x.p.b, x.w
	if b.unit == nil || w.Plain != "" {
		return false
	}
	v := matrixVariant{w.layout, x.end, b.unit.tile(w.rows), *b.unit}
	words := (p.most(x.l.node) + v.M - 1) / v.M * v.M * (v.K + (w.k+pad-1)/pad*pad) / 2
	if !v.fits(b.d.Adapter().Matrices) || 4*words > b.memory.limit {
		return false
	}
	y := p.buffer(x.l.node.Name, words)
	p.add(x.l, "narrow", narrowVariant{*b.unit, w.Spots()}, params{"k": w.k}, flat, y, x.x).from = many
	x.add("matrix", v, x.params.with(w.factor()), x.tiled(v.BM, v.BN), y).from = many
	p.free = append(p.free, y)
	return true
}

// peak is at least what the largest of a weight's finite numbers is.
type peak struct{ bits atomic.Uint32 }

// raise lets p be at least x, which is not negative.
func (p *peak) raise(x float32) {
	for to := math.Float32bits(x); to < 0x7f800000; {
		if has := p.bits.Load(); to <= has || p.bits.CompareAndSwap(has, to) {
			return
		}
	}
}

// factor returns the power of two that takes the largest number of w below 2^15, where
// binary16 has room for it and the most for small ones, and its inverse.
func (w *weight) factor() params {
	_, e := math.Frexp(float64(math.Float32frombits(w.peak.bits.Load())))
	e = max(-115, e-15)
	return params{"up": float32(math.Ldexp(1, -e)), "down": float32(math.Ldexp(1, e))}
}

// reach is the largest number of a block but for its scales: of the codes, or of the
// table.
func (l *layout) reach() (most float32) {
	if l.Table == nil {
		return float32(max(l.Offset, 1<<(l.Bits+l.High)-1-l.Offset))
	}
	for _, word := range l.Table {
		for i := range 4 {
			v := float32(int8(word >> (8 * i)))
			most = max(most, v, -v)
		}
	}
	return most
}

// bound is at least what the finite numbers of a block with header h are: infinite or
// NaN where there are none.
func (l *layout) bound(h *quant.Header) float32 {
	scale, least := float16.F16(h.D&0x7fff), float32(0)
	if l.Bfloat {
		scale = float16.BF16(h.D & 0x7fff)
	}
	if l.Min {
		least = float16.F16(h.Min & 0x7fff)
	}
	if l.Units == 8 {
		groups := 256 / l.Group
		scale, least = scale*largest(h.Scales[:groups]), least*largest(h.Mins[:groups])
		if l.Unit != "" {
			scale /= 4 // at most
		}
	}
	x := scale*l.reach() + least
	if x > math.MaxFloat32 && scale <= math.MaxFloat32 && least <= math.MaxFloat32 {
		return math.MaxFloat32
	}
	return x
}

// largest is the largest of s without their signs.
func largest(s []int8) float32 {
	most := 0
	for _, x := range s {
		most = max(most, int(x), -int(x))
	}
	return float32(most)
}
