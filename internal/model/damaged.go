package model

import (
	"errors"
	"io/fs"

	"github.com/karat-run/karat/internal/hub/local"
)

// ErrDamaged is the kind of errors of files that cannot be read for what they hold.
var ErrDamaged = errors.New("damaged model")

// fileError is an error of a model's files that is of a kind. Its text is the error's alone.
type fileError struct{ err, kind error }

func (e *fileError) Error() string { return e.err.Error() }

func (e *fileError) Is(kind error) bool { return kind == e.kind }

func (e *fileError) Unwrap() error { return e.err }

// ofFiles returns an error of opening files with its kind: they are not there, or they cannot be read for what they hold.
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
