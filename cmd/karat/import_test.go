package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/lab"
)

// TestImportInterrupted: an import that is told to end leaves nothing.
func TestImportInterrupted(t *testing.T) {
	src, dir := filepath.Join(t.TempDir(), "src.safetensors"), t.TempDir()
	w, err := lab.Create(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Add(&lab.Prompt{IDs: []int32{1, 2}}), w.Commit(nil)); err != nil {
		t.Fatal(err)
	}
	f := importFlags{out: filepath.Join(dir, "out.safetensors")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.run(&call{ctx: ctx, log: io.Discard}, src); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if err := f.run(&call{ctx: t.Context(), log: io.Discard}, src); err != nil {
		t.Error(err)
	}
}
