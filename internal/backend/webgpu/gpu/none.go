//go:build nogpu || (!js && (!((linux && !android) || windows || darwin) || !(amd64 || arm64)))

package gpu

import "fmt"

// Reaches returns false: no matrix units are in reach.
func Reaches() bool { return false }

// Adapters lists the GPUs of this machine: none, in this build.
func Adapters() ([]Adapter, error) {
	return nil, fmt.Errorf("%w: this build of Karat has no WebGPU", ErrNone)
}

// Open opens the n-th of Adapters.
func Open(int) (Device, error) {
	_, err := Adapters()
	return nil, err
}
