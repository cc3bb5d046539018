//go:build !nogpu && windows && (amd64 || arm64)

package gpu

import "fmt"

// cAdapters returns an error: libraries of webgpu.h are not called on Windows yet.
func cAdapters(path string) ([]Adapter, error) {
	return nil, fmt.Errorf("%w: KARAT_WEBGPU_LIB: %s: not yet on Windows", ErrNone, path)
}

// cOpen returns the same error.
func cOpen(path string, _ int) (Device, error) {
	_, err := cAdapters(path)
	return nil, err
}
