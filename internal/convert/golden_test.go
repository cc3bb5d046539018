package convert_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/golden"
)

func open(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func run(t *testing.T, src, dst string, o convert.Options) *convert.Result {
	t.Helper()
	r, err := convert.Convert(context.Background(), src, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLlamaCpp(t *testing.T) {
	for _, name := range []string{"tiny-llama", "tiny-qwen3", "tiny-gemma3", "tiny-gemma4", "tiny-gemma4-moe"} {
		t.Run(name, func(t *testing.T) {
			theirs := open(t, golden.Shared(t, "goldens/gguf/"+name+".bf16.gguf"))
			path := filepath.Join(t.TempDir(), "x.gguf")
			r := run(t, golden.Model(t, name), path, convert.Options{Type: "bf16"})
			t.Log(r.Notes)
			ours := open(t, path)
			a, b := theirs.Tensors(), ours.Tensors()
			for i := range a {
				if i >= len(b) || a[i].Name != b[i].Name || a[i].DType != b[i].DType || !reflect.DeepEqual(a[i].Shape, b[i].Shape) || !bytes.Equal(a[i].Data, b[i].Data) {
					t.Errorf("tensor %d: %v %v %v", i, a[i].Name, a[i].DType, a[i].Shape)
				}
			}
			keys := map[string]bool{}
			for _, k := range theirs.Metadata.Keys() {
				keys[k] = true
				x, _ := theirs.Metadata.Lookup(k)
				y, ok := ours.Metadata.Lookup(k)
				if !ok {
					t.Errorf("key %s: missing", k)
					continue
				}
				v, _ := x.Any()
				w, _ := y.Any()
				if !reflect.DeepEqual(v, w) {
					t.Errorf("key %s: %.300s, want %.300s", k, fmt.Sprintf("%T %[1]v", w), fmt.Sprintf("%T %[1]v", v))
				}
			}
			for _, k := range ours.Metadata.Keys() {
				if !keys[k] {
					y, _ := ours.Metadata.Lookup(k)
					v, _ := y.Any()
					t.Errorf("key %s: more: %v", k, v)
				}
			}
		})
	}
}
