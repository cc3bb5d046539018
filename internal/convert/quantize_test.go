package convert_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/golden"
)

// TestQuantizeFiles makes llama-quantize's files of the bfloat16 ones, byte for byte.
func TestQuantizeFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Shared(t, "goldens/gguf"), "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		name, kind, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".gguf"), ".")
		from := filepath.Join(filepath.Dir(path), name+".bf16.gguf")
		if _, err := os.Stat(from); err != nil || kind == "bf16" {
			continue
		}
		t.Run(name+"."+kind, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.gguf")
			if _, err := convert.Quantize(context.Background(), from, out, convert.QuantizeOptions{Type: kind}); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %d want", len(got), len(want))
			}
		})
	}
}
