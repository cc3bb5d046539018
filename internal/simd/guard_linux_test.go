package simd

import (
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns a function that lends slices which end where an unreadable
// page begins, or start where one ends: a kernel that reads or writes beyond
// its slices faults. A slice is lent until eight others have been.
func guarded(t *testing.T) func(n int) []float32 {
	const size = 1 << 17
	page := syscall.Getpagesize()
	var lent [8][]float32
	for i := range lent {
		m, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Munmap(m) })
		for _, end := range [][]byte{m[:page], m[page+size:]} {
			if err := syscall.Mprotect(end, syscall.PROT_NONE); err != nil {
				t.Fatal(err)
			}
		}
		lent[i] = unsafe.Slice((*float32)(unsafe.Pointer(&m[page])), size/4)
	}
	next := 0
	return func(n int) []float32 {
		next++
		s := lent[next%len(lent)]
		if next/len(lent)%4 == 0 {
			return s[:n:n]
		}
		return s[len(s)-n:]
	}
}
