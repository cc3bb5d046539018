package cpu

import (
	"cmp"
	"unsafe"

	"github.com/karat-run/karat/internal/mmap"
)

// arena is memory outside Go's heap: the collector would let garbage grow with it.
type arena struct{ parts []*mmap.Anon }

// add keeps the new memory until close.
func (a *arena) add(m *mmap.Anon, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	a.parts = append(a.parts, m)
	return m.Data(), nil
}

// reserve makes s n zeros. Zeros take no memory before the first touch, so a plan's room for many rows costs a step of
// few rows nothing.
func reserve[T float32 | int16 | uint16 | int32 | byte](a *arena, s *[]T, n int) error {
	if n == 0 {
		return nil
	}
	var zero T
	b, err := a.add(mmap.Sparse(n * int(unsafe.Sizeof(zero))))
	if err == nil {
		*s = unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
	}
	return err
}

func (a *arena) close() (err error) {
	for _, m := range a.parts {
		err = cmp.Or(err, m.Close())
	}
	a.parts = nil
	return err
}
