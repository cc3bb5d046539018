package gguf

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestResident: a vocabulary's pages leave the process when the file is open, and when it is decoded.
func TestResident(t *testing.T) {
	words := make([]string, 100_000)
	for i := range words {
		words[i] = fmt.Sprintf("token %d", i)
	}
	var b bytes.Buffer
	if err := Write(&b, []KeyValue{{"words", words}}, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const most = 256 // KiB, of 1.9 MB: the system maps pages beside the ones that are read
	if n := resident(t, path); n > most {
		t.Errorf("opened: %d KiB", n)
	}
	if got, err := f.Metadata.Strings("words"); err != nil || len(got) != len(words) || got[99_999] != words[99_999] {
		t.Fatal(len(got), err)
	}
	if n := resident(t, path); n > most {
		t.Errorf("decoded: %d KiB", n)
	}
}

// resident is how many KiB of a mapped file the process holds.
func resident(t *testing.T, path string) (n int) {
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		golden.Lacking(t, err)
	}
	defer maps.Close()
	here := false
	for s := bufio.NewScanner(maps); s.Scan(); {
		if here && strings.HasPrefix(s.Text(), "Rss:") {
			fmt.Sscanf(s.Text(), "Rss: %d kB", &n)
			return n
		}
		here = here || strings.HasSuffix(s.Text(), path)
	}
	t.Fatal("the file is not mapped")
	return 0
}
