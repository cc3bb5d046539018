package gguf

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

const (
	firstRead = 1 << 20 // of a header
	small     = 1 << 20 // bytes of a tensor read at once
)

// Source is a file that cannot be mapped: the bytes, or a reader of the bytes.
type Source struct {
	Name string // NAME-00001-of-0000N.gguf tells a part's place in a split model
	Data []byte // the whole file; nil if At reads the file

	At   io.ReaderAt
	Size int64 // size of the file behind At
}

// Read reads a file that cannot be mapped, or all parts of a split model, in any order. Large tensors of files without
// Data have a Source in place of Data. All files must stay readable, and their Data unchanged, while the File is used.
func Read(files ...Source) (*File, error) {
	if len(files) == 0 {
		return nil, errors.New("a model of no files")
	}
	prefix, _, count, split := splitName(files[0].Name)
	if !split {
		if len(files) > 1 {
			return nil,
				fmt.Errorf("%s is no part of a split model, whose %d files would be named NAME-00001-of-%05[2]d.gguf",
					files[0].Name, len(files))
		}
		f, err := files[0].read()
		if err == nil {
			err = f.checkAlone()
		}
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	if len(files) > count {
		return nil, fmt.Errorf("%d files, %s is one of %d", len(files), files[0].Name, count)
	}
	return openSplit(prefix, count, func(path, what string) (*File, error) {
		i := slices.IndexFunc(files, func(s Source) bool { return s.Name == path })
		if i < 0 {
			return nil, fmt.Errorf("%s%s is not among the files", what, path)
		}
		return files[i].read()
	})
}

// read reads a file without looking at its place in a split model.
func (s *Source) read() (f *File, err error) {
	switch {
	case s.Data != nil:
		f, err = parse(s.Data)
	case s.At != nil:
		f, err = s.readPieces()
	default:
		err = errors.New("neither its Data nor At is there")
	}
	if err != nil {
		return nil, withPath(err, s.Name)
	}
	f.parts[0].path = s.Name
	return f, nil
}

// readPieces reads a file, and leaves large tensors unread.
func (s *Source) readPieces() (*File, error) {
	if int64(int(s.Size)) != s.Size || s.Size < 0 {
		return nil, fmt.Errorf("a file of %d bytes", s.Size)
	}
	f, err := readStart(s.At, int(s.Size))
	if err != nil {
		return nil, err
	}
	return f, f.fill(func(t *tensor.Tensor, at int64, size int) error {
		if size > small {
			t.Source, t.At = s.At, at
			return nil
		}
		t.Data = make([]byte, size)
		return readFull(s.At, t.Data, at)
	})
}

// readStart reads the header, and as little behind the header as is easy.
func readStart(r io.ReaderAt, size int) (*File, error) {
	var data []byte
	for n := firstRead; ; n *= 4 {
		had := len(data)
		data = append(data, make([]byte, min(n, size, maxHeader)-had)...)
		if err := readFull(r, data[had:], int64(had)); err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		f, err := readFile(data, size)
		if err == nil || len(data) == min(size, maxHeader) { // else the cause may be a lack of bytes
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
