//go:build !unix && !windows

package mmap

import (
	"errors"
	"io"
	"os"
)

const nonblock = 0

// mapFile reads the file into memory. There is nothing to unmap.
func mapFile(f *os.File, size int) (data []byte, unmap func([]byte) error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	return data, nil, nil
}

func mapMemory(n int) (data []byte, unmap func([]byte) error, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("more than this machine can address")
		}
	}()
	return make([]byte, n), nil, nil
}
