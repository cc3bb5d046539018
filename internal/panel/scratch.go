package panel

import (
	"unsafe"

	"github.com/karat-run/karat/internal/simd"
)

// Scratch is an unpacked chunk, and its memory.
type Scratch struct {
	simd.Panel
	codes, halves []byte // halves are of Q2_K's scales
	wide          []uint16
	scale, min    []float32
	zeros         [Chunk / 32 * Rows]byte // of blocks
	woven, rows   []byte                  // of a weight in place: a chunk, and its rows out of order
}

// allocate makes the memory, each part at a multiple of 64 bytes: a vector across two lines of the cache
// takes two loads.
func (s *Scratch) allocate() {
	const codes, floats = Chunk * Rows, Chunk / 16 * Rows
	b := room(codes + 2*codes + 2*floats + 2*4*floats)
	s.codes, b = b[:codes], b[codes:]
	s.wide, b = words(b[:2*codes]), b[2*codes:]
	s.halves, b = b[:2*floats], b[2*floats:]
	s.scale = unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), floats)
	s.min = unsafe.Slice((*float32)(unsafe.Pointer(&b[4*floats])), floats)
}

// room returns n bytes at a multiple of 64.
func room(n int) []byte {
	b := make([]byte, 63+n)
	return b[-uintptr(unsafe.Pointer(&b[0]))%64:][:n]
}
