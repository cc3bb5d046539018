package check

import (
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
)

// TestFamilies wants nothing but notes on each family's model, in both formats: a family has what the others'
// expectations forbid.
func TestFamilies(t *testing.T) {
	for _, name := range golden.Sample(append(golden.Families(t), golden.Encoders(t)...)) {
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

// TestEncoders wants nothing at all on encoders, beside their source, too: they have no turns and no end.
func TestEncoders(t *testing.T) {
	for _, name := range append(golden.Encoders(t), golden.Rerankers(t)...) {
		folder, file := golden.Model(t, name), filepath.Join(t.TempDir(), name+".gguf")
		if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{}, {Against: folder}} {
			for _, path := range []string{folder, file} {
				r, err := Run(t.Context(), path, o)
				if err != nil {
					t.Fatal(err)
				}
				if o.Against != "" && path == file && r.Compared < r.Tensors {
					t.Errorf("%s: %d of %d tensors were compared", filepath.Base(path), r.Compared, r.Tensors)
				}
				for _, f := range r.Findings {
					t.Errorf("%s: %s %s: %s", filepath.Base(path), f.Severity, f.ID, f.What)
				}
			}
		}
	}
}

// TestEncoderEnd wants a finding where the texts of an encoder lost their end: each was trained with one.
func TestEncoderEnd(t *testing.T) {
	for _, name := range append(golden.Encoders(t), golden.Rerankers(t)...) {
		if name == "embeddinggemma" { // whose texts have no end
			continue
		}
		file := filepath.Join(t.TempDir(), name+".gguf")
		if _, err := convert.Convert(t.Context(), golden.Model(t, name), file, convert.Options{}); err != nil {
			t.Fatal(err)
		}
		off := []gguf.KeyValue{{Key: "tokenizer.ggml.add_eos_token", Value: false}, {Key: "tokenizer.ggml.add_sep_token", Value: false}}
		if _, err := convert.Edit(t.Context(), file, file, convert.EditOptions{Set: off}); err != nil {
			t.Fatal(name, err)
		}
		r, err := Run(t.Context(), file, Options{})
		if err != nil || len(r.Findings) == 0 || r.Findings[0].ID != "end-missing" {
			t.Errorf("%s: %+v, %v", name, r.Findings, err)
		}
	}
}
