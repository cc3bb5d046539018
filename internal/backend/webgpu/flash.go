package webgpu

import "github.com/karat-run/karat/internal/backend/webgpu/gpu"

// flashTile is what a workgroup of flash.wgsl has: rows, subgroups, of which some stand beside
// each other, and elements of a page's keys or values that are in its memory.
type flashTile struct{ BM, Subgroups, Across, Chunk int }

// flashVariant is a form of flash.wgsl.
type flashVariant struct {
	attendVariant
	matrixUnit
	flashTile
}

// Threads are a workgroup's invocations.
func (v flashVariant) Threads() int { return v.Subgroups * v.Lanes }

// WM returns a subgroup's rows.
func (v flashVariant) WM() int { return v.BM * v.Across / v.Subgroups }

// Rows returns the rows of whose scores an invocation has two columns.
func (v flashVariant) Rows() int { return v.BM * 32 / v.Threads() }

// memory is how many bytes of a workgroup's memory v has.
func (v flashVariant) memory() int {
	return 2*v.BM*(v.Dim+8) + 2*64*(v.Chunk+8) + 4*v.BM*68 + 2*v.BM*72 + 20*v.BM
}

// fits reports whether a GPU has room for v, whose matrices and invocations must divide
// what they take.
func (v flashVariant) fits(has *gpu.Matrices) bool {
	n := v.Threads()
	return v.memory() <= has.WorkgroupBytes && n <= has.Invocations && n >= v.BM && n%32 == 0 && v.Dim%v.Chunk == 0 &&
		v.WM()%v.M == 0 && v.Chunk%(v.Across*v.N) == 0 && v.BM*32%n == 0 && v.Rows() <= 16 && 64*v.Chunk/8%n == 0
}

// flashTiles are the tiles to use: the first for which a GPU has room.
var flashTiles = func(m, dim int) []flashTile {
	chunk := 32
	if dim%64 == 0 {
		chunk = 64
	}
	return []flashTile{{4 * m, 8, 2, chunk}, {2 * m, 8, 4, chunk}, {2 * m, 4, 2, chunk}, {m, 4, 4, chunk}}
}

// flash is the form of flash.wgsl for heads as of v, on a unit of a GPU. It reports false
// where there is none.
func (u *matrixUnit) flash(v seenVariant, has *gpu.Matrices) (flashVariant, bool) {
	if u == nil || !v.F16 || v.Dim%32 != 0 {
		return flashVariant{}, false
	}
	for _, t := range flashTiles(u.M, v.Dim) {
		if f := (flashVariant{attendVariant{v}, *u, t}); f.fits(has) {
			return f, true
		}
	}
	return flashVariant{}, false
}
