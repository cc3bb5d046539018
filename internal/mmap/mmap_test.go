package mmap

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 100_001} {
		want := bytes.Repeat([]byte{1, 2, 3}, size/3+1)[:size]
		f, err := Open(write(t, want))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if !bytes.Equal(f.Data(), want) {
			t.Errorf("%d bytes: Data differs from the file", size)
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Errorf("%d bytes: Close: %v", size, err)
			}
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("folder: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if _, err := Open(os.DevNull); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("device: %v", err)
	}
}

func TestOpenLink(t *testing.T) {
	path := write(t, []byte("contents"))
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		golden.Lacking(t, err) // symbolic links
	}
	f, err := Open(link)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if string(f.Data()) != "contents" {
		t.Errorf("Data = %q", f.Data())
	}
}

func TestGuardReturns(t *testing.T) {
	want := errors.New("from read")
	if err := Guard(func() error { return want }); err != want {
		t.Errorf("Guard = %v, want %v", err, want)
	}
	if err := Guard(func() error { return nil }); err != nil {
		t.Errorf("Guard = %v", err)
	}
}

// Only faults become errors: a panic that shows a mistake in the program stays one.
func TestGuardPanics(t *testing.T) {
	var none []int
	var null *int
	for name, bug := range map[string]func() error{
		"value": func() error { panic("bug") },
		"index": func() error { return errors.New(string(rune(none[len(none)]))) },
		"nil":   func() error { return errors.New(string(rune(*null))) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Guard swallowed the panic", name)
				}
			}()
			if err := Guard(bug); err != nil {
				t.Errorf("%s: Guard = %v", name, err)
			}
		}()
	}
}

func TestGuardConcurrent(t *testing.T) {
	f, err := Open(write(t, bytes.Repeat([]byte{7}, 1<<16)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			sum := 0
			if err := Guard(func() error {
				for _, b := range f.Data() {
					sum += int(b)
				}
				return nil
			}); err != nil || sum != 7<<16 {
				t.Errorf("sum = %d, %v", sum, err)
			}
		})
	}
	wg.Wait()
}

// TestReadFile: a regular file that is not too large, and nothing else.
func TestReadFile(t *testing.T) {
	want := bytes.Repeat([]byte{1, 2, 3}, 1000)
	path := write(t, want)
	if got, err := ReadFile(path, int64(len(want))); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	if _, err := ReadFile(path, int64(len(want)-1)); err == nil || !strings.Contains(err.Error(), "3000 bytes, expected at most 2999") {
		t.Errorf("a file that is too large: %v", err)
	}
	if got, err := ReadFile(write(t, nil), 0); err != nil || got == nil || len(got) != 0 {
		t.Errorf("an empty file: %v, %v", got, err)
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "absent"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := ReadFile(t.TempDir(), 1<<20); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("folder: %v", err)
	}
}
