package patherr

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestPlain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	_, err := os.Open(path)
	got := Plain(err)
	if got.Error() != path+": "+errors.Unwrap(err).Error() || !errors.Is(got, fs.ErrNotExist) {
		t.Errorf("%v", got)
	}
	var p *fs.PathError
	if !errors.As(got, &p) || p.Op != "open" {
		t.Errorf("%v hides the error of os", got)
	}
	if other := errors.New("x"); Plain(other) != other || Plain(nil) != nil {
		t.Error("Plain changes other errors")
	}
}
