package main

import (
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
)

// TestInspectPacked counts the stored bytes of packed weights.
func TestInspectPacked(t *testing.T) {
	dir := t.TempDir()
	here := filepath.Join(dir, "packed")
	src, plain := golden.Model(t, "tiny-llama"), filepath.Join(dir, "plain")
	if err := packed.Folders(src, here, plain, packed.All[0], nil); err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.Open(here)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, sum, byType := newReport(m, nil), int64(0), int64(0)
	for _, x := range r.Tensors {
		if sum += x.Bytes; x.Bytes < 1 {
			t.Errorf("%s: %d bytes", x.Name, x.Bytes)
		}
	}
	for _, u := range r.Types {
		byType += u.Bytes
	}
	if sum != r.Bytes || byType != r.Bytes {
		t.Errorf("%d bytes of tensors, %d of types, want %d", sum, byType, r.Bytes)
	}
}
