package karat_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/karat-run/karat"
)

// TestLoadErrors: a program tells a model that is not there from one that is damaged.
func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KARAT_MODELS", dir)
	data, err := os.ReadFile(demo)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.gguf")
	if err := os.WriteFile(cut, data[:len(data)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name string
		want error
	}{{"none", karat.ErrNoModel}, {"hf:a/b", karat.ErrNoModel}, {filepath.Join(dir, "none.gguf"), karat.ErrNoModel}, {cut, karat.ErrDamaged}, {"go.mod", karat.ErrDamaged}, {"docs", karat.ErrDamaged}} {
		_, err := karat.Load(t.Context(), x.name, karat.Options{})
		if !errors.Is(err, x.want) || errors.Is(err, karat.ErrNoModel) == errors.Is(err, karat.ErrDamaged) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	if _, err := karat.Load(t.Context(), filepath.Join(dir, "none.gguf"), karat.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := karat.LoadSources(t.Context(), []karat.Source{{Name: "cut", Data: data[:1000]}}, karat.Options{}); !errors.Is(err, karat.ErrDamaged) {
		t.Error(err)
	}
	if _, err := karat.Pull(t.Context(), "hf:a/b", karat.PullOptions{}); err == nil || err.Error() != `Pull needs import _ "github.com/karat-run/karat/pull" in the program` {
		t.Error(err)
	}
	m := load(t)
	if _, err := m.TokenizeChat(t.Context(), []karat.Message{karat.TextMessage(karat.RoleUser, string(data[:1<<20]))}, karat.GenerateOptions{}); !errors.Is(err, karat.ErrTooLong) || !errors.Is(err, karat.ErrFull) {
		t.Error(err)
	}
}
