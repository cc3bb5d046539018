//go:build amd64 || arm64

package simd

import "unsafe"

//go:noescape
func fetch(p unsafe.Pointer, lines int)

// Fetch has memory brought to the second cache, which will be read soon.
func Fetch(b []byte) {
	if len(b) > 0 {
		fetch(unsafe.Pointer(&b[0]), (len(b)+63)/64)
	}
}
