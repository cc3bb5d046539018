package convert_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// fast are the logits after the last token of a prompt, in the usual precision.
func fast(t *testing.T, path string, r *golden.Recording) []float32 {
	t.Helper()
	m, err := karat.Load(t.Context(), path, karat.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := m.Logits(t.Context(), r.Prompts[2].IDs)
	if err != nil {
		t.Fatal(err)
	}
	return x[len(x)-1]
}

// TestOldExperts reads files as Mixtral's first were, with a tensor for each expert: they
// compute the same bits as those with one for all, in float and quantized.
func TestOldExperts(t *testing.T) {
	src, r := golden.Model(t, "mixtral"), golden.Record(t, "mixtral")
	same := func(kv gguf.KeyValue) []gguf.KeyValue { return []gguf.KeyValue{kv} }
	for _, kind := range []string{"BF16", "Q5_0"} {
		dir := t.TempDir()
		file, old, back := filepath.Join(dir, "new.gguf"), filepath.Join(dir, "old.gguf"), filepath.Join(dir, "back")
		run(t, src, file, convert.Options{Type: kind})
		var tensors []tensor.Tensor
		for _, x := range tensorsOf(t, file) {
			before, _, ok := strings.Cut(x.Name, "_exps.weight")
			for i := range x.Shape[0] {
				if !ok {
					break
				}
				m := x.Matrix(i)
				m.Name = fmt.Sprintf("%s.%d.weight", before, i)
				tensors = append(tensors, m)
			}
			if !ok {
				tensors = append(tensors, x)
			}
		}
		rewritten(t, file, old, same, tensors)
		want, _ := logits(t, file, r)
		got, _ := logits(t, old, r)
		if d := distance(fast(t, file, r), fast(t, old, r)); d > 0 {
			t.Errorf("%s: in fast precision logits are %g off", kind, d)
		}
		run(t, old, back, convert.Options{})
		again, _ := logits(t, back, r)
		for i := range want {
			if d := max(distance(want[i], got[i]), distance(want[i], again[i])); d > 0 {
				t.Errorf("%s: prompt %d: logits are %g off", kind, i, d)
			}
		}
		for i, x := range tensors {
			if strings.Contains(x.Name, "blk.1.ffn_up.2") {
				rewritten(t, file, old, same, append(tensors[:i:i], tensors[i+1:]...))
			}
		}
		if _, err := checkpoint.Open(old); err == nil || !strings.Contains(err.Error(), "blk.1.ffn_up_exps: part 2 is missing") {
			t.Errorf("%s: without an expert: %v", kind, err)
		}
	}
}
