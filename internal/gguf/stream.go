package gguf

import (
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/tensor"
)

const (
	firstRead = 1 << 20 // of a header
	small     = 1 << 20 // bytes of a tensor that is read at once
)

// Read reads a file of size bytes that cannot be mapped. Tensors that are large have
// no Data, but r as their Source: r must stay readable while the File is used.
func Read(r io.ReaderAt, size int64) (*File, error) {
	if int64(int(size)) != size || size < 0 {
		return nil, fmt.Errorf("gguf: a file of %d bytes", size)
	}
	f, err := readStart(r, int(size))
	if err != nil {
		return nil, err
	}
	if err := f.checkAlone(); err != nil {
		return nil, err
	}
	return f, f.fill(func(t *tensor.Tensor, at int64, size int) error {
		if size > small {
			t.Source, t.At = r, at
			return nil
		}
		t.Data = make([]byte, size)
		return readFull(r, t.Data, at)
	})
}

// readStart reads the header, and as little behind it as is easy.
func readStart(r io.ReaderAt, size int) (*File, error) {
	var data []byte
	for n := firstRead; ; n *= 4 {
		had := len(data)
		data = append(data, make([]byte, min(n, size, maxHeader)-had)...)
		if err := readFull(r, data[had:], int64(had)); err != nil {
			return nil, fmt.Errorf("gguf: header: %w", err)
		}
		f, err := readFile(data, size)
		if err == nil || len(data) == min(size, maxHeader) { // else it may be for want of more
			return f, err
		}
	}
}

// readFull reads all of b.
func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n < len(b) {
		return fmt.Errorf("%d of %d bytes at %d: %w", n, len(b), at, err)
	}
	return nil
}
