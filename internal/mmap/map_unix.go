//go:build unix

package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

// nonblock keeps open from waiting for a pipe's writer.
const nonblock = unix.O_NONBLOCK

func mapFile(f *os.File, size int) (data []byte, unmap func([]byte) error, err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	return data, unix.Munmap, err
}

func mapMemory(n int) (data []byte, unmap func([]byte) error, err error) {
	data, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	return data, unix.Munmap, err
}
