package check

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestLargestBase wants the rotary base of the published Falcon-H1 models, 1e11, taken for right, and a larger one not.
func TestLargestBase(t *testing.T) {
	for base, want := range map[string]int{"1e11": 0, "1e13": 1} {
		folder := filepath.Join(t.TempDir(), "model")
		if err := os.CopyFS(folder, os.DirFS(golden.Model(t, "falconh1"))); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "config.json")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(b, []byte(`"rope_theta": 1000000.0`), []byte(`"rope_theta": `+base), 1)
		if bytes.Equal(b, changed) {
			t.Fatal("config.json has another rope_theta")
		}
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), folder, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) != want {
			t.Errorf("base %s: found %v", base, r.Findings)
		}
	}
}
