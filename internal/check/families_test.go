package check

import (
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/golden"
)

// TestFamilies wants nothing but notes on each family's model, in both formats: a family
// has what the others' expectations forbid.
func TestFamilies(t *testing.T) {
	for _, name := range golden.Families(t) {
		folder, file := golden.Model(t, name), filepath.Join(t.TempDir(), name+".gguf")
		if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{folder, file} {
			r, err := Run(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				if f.Severity != Note {
					t.Errorf("%s: %s %s: %s", filepath.Base(path), f.Severity, f.ID, f.What)
				}
			}
			if r.Architecture != golden.Architecture(t, name) {
				t.Errorf("%s: architecture %s", filepath.Base(path), r.Architecture)
			}
		}
	}
}
