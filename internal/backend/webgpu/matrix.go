package webgpu

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
)

// The work of Options.Matrices: products of many rows with quantized weights on matrix units, both in binary16, with
// sums in float32. Activations are rounded before (narrow.wgsl).

// matrixTile is the work of a workgroup of matrix.wgsl, and of a subgroup.
type matrixTile struct {
	BM, BN, BK int
	WM, WN     int
	Parts      int // subgroups sharing the elements of a tile's rows
}

// matrixUnit is the GPU's unit: the shape of its products, and its number of invocations.
type matrixUnit struct {
	M, N, K, Lanes int
	Views          bool // shaders have views of memory by other types, and f16
}

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

// pad is the unit of padding for rows of binary16.
const pad = 128

// Halves returns true: activations come from narrow.
func (v matrixVariant) Halves() bool { return true }

// Subgroups of a workgroup.
func (t matrixTile) Subgroups() int { return t.BM / t.WM * t.BN / t.WN * t.Parts }

// Threads returns a workgroup's invocations.
func (v matrixVariant) Threads() int { return v.Subgroups() * v.Lanes }

// Columns returns the columns of a subgroup's results.
func (v matrixVariant) Columns() int {
	if v.GLU != "" {
		return v.WN / 2
	}
	return v.WN
}

// Results returns the numbers in a row of a subgroup's matrices; an invocation takes Batch at a time.
func (v matrixVariant) Results() int { return v.M * v.Columns() }

// Memory returns the bytes of a workgroup's memory for tiles, and for results afterwards.
func (v matrixVariant) Memory() int {
	return max(2*v.BN*(v.BK+8), 4*v.Subgroups()*v.M*(v.WN+8))
}

// Spots returns the place in a mat2x4 of each of eight elements, in the order left by short.
func (l layout) Spots() []string {
	if l.Bits == 4 {
		return []string{"[0].x", "[1].x", "[0].z", "[1].z", "[0].y", "[1].y", "[0].w", "[1].w"}
	}
	return []string{"[0].x", "[0].z", "[1].x", "[1].z", "[0].y", "[0].w", "[1].y", "[1].w"}
}

// fits reports whether a GPU has room for v, with equally many results for each invocation.
func (v matrixVariant) fits(has *gpu.Matrices) bool {
	return v.Memory()+4*v.BM <= has.WorkgroupBytes && v.Threads() <= has.Invocations &&
		v.Results()%(v.Lanes*v.Parts) == 0
}

// unitOf returns the matrix unit to use: nil if there is none, if its tiles do not fit, or if subgroups differ in size,
// since then the invocations of a subgroup are not known.
func unitOf(m *gpu.Matrices) *matrixUnit {
	if m == nil || m.Subgroup[0] != m.Subgroup[1] {
		return nil
	}
	for _, s := range []gpu.Shape{{M: 16, N: 16, K: 16}, {M: 8, N: 8, K: 8}} {
		for _, has := range m.Shapes {
			u := matrixUnit{s.M, s.N, s.K, m.Subgroup[0], m.Views}
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

// matrixTiles are the tiles in use, by the rows of a unit, the largest first: small tiles avoid too few workgroups for
// a GPU.
var matrixTiles = map[int][]sizedTile{
	16: {
		{8192, matrixTile{128, 128, 64, 64, 64, 1}},
		{2049, matrixTile{64, 64, 64, 32, 32, 1}},
		{513, matrixTile{64, 64, 128, 32, 32, 2}},
		{0, matrixTile{32, 32, 128, 32, 32, 4}},
	},
	8: {{1024, matrixTile{32, 32, 64, 16, 16, 1}}, {0, matrixTile{32, 32, 64, 16, 16, 2}}},
}

// tile returns the tile for a weight of n rows.
func (u *matrixUnit) tile(n int) matrixTile {
	list := matrixTiles[u.M]
	return list[slices.IndexFunc(list, func(t sizedTile) bool { return n >= t.From })].matrixTile
}

// matrix adds the dispatches of a product of many rows on matrix units, or returns false if unusable.
func (x product) matrix() bool {
	p, b, w := x.p, x.p.b, x.w
	if b.unit == nil || w.Plain != "" || w.E4M3 {
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

// Tile implements backend.Tiled: matrix units compute steps of many rows.
func (b *Backend) Tile() int {
	if b.unit != nil {
		return many
	}
	return 0
}
