package model

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/hub/local"
	"github.com/karat-run/karat/internal/sysinfo"
)

// piece is how many bytes are read between two looks at a context.
const piece = 16 << 20

// inMemory returns files with all their Data, if there is memory.
func inMemory(ctx context.Context, files []gguf.Source, noFit bool) ([]gguf.Source, error) {
	files = slices.Clone(files)
	var size int64
	for _, s := range files {
		if s.Data != nil || s.At == nil {
			continue // is in memory already, or nowhere
		}
		if s.Size < 0 || s.Size > math.MaxInt-size {
			return nil, fmt.Errorf("%s: %d bytes", s.Name, s.Size)
		}
		size += s.Size
	}
	if err := sysinfo.Fits(size, 0, 0); err != nil && !noFit {
		return nil, fmt.Errorf("the files: %w", tooLarge{err})
	}
	for i := range files {
		s := &files[i]
		if s.Data != nil || s.At == nil {
			continue
		}
		data := make([]byte, s.Size)
		for at := 0; at < len(data); at += piece {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			part := data[at:min(at+piece, len(data))]
			if n, err := s.At.ReadAt(part, int64(at)); n < len(part) {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		s.Data = data
	}
	return files, nil
}

// ErrDamaged is the kind of errors of files with unreadable contents.
var ErrDamaged = errors.New("damaged model")

// fileError is an error of a model's files, of a kind. Its text is the error's alone.
type fileError struct{ err, kind error }

func (e *fileError) Error() string { return e.err.Error() }

func (e *fileError) Is(kind error) bool { return kind == e.kind }

func (e *fileError) Unwrap() error { return e.err }

// ofFiles returns an error of opening files with its kind: missing or damaged.
func ofFiles(err error) error {
	var place *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &fileError{err, local.ErrNoModel}
	case errors.Is(err, fs.ErrPermission), errors.As(err, &place):
		return err
	}
	return &fileError{err, ErrDamaged}
}
