package golden

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Corpus checks that the committed corpus of a fuzz target, of the package whose test
// runs, has seeds by their names, and writes these first if update is true. The
// target takes one []byte.
func Corpus(t *testing.T, target string, seeds map[string][]byte, update bool) {
	t.Helper()
	dir := filepath.Join("testdata", "fuzz", target)
	if update {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range seeds {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		want := fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", data)
		if update {
			if err := os.WriteFile(path, want, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run go test -run TestCorpus -update", path, err)
		}
	}
}
