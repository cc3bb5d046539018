package diagnose_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
)

// TestLlamaCpp diagnoses what llama.cpp computed: of unquantized files, of quantized ones,
// and of those with their weights dequantized. The records have no ids: PyTorch's have.
//
// Two of them are wrong. tiny-gemma3's have another scale of attention than the model, as
// llama.cpp has no key for it. Prompts 7 and 8 of tiny-gemma4.Q8_0 come from a kernel for
// matrix units that adds products of 32 columns to what lies in their place, as it does in
// the per-layer projections of 32 rows and more (ggml-cpu/amx/mmq.cpp). There are taps of
// prompt 2 only, in which nothing is wrong, so that the logits of the others do not follow.
func TestLlamaCpp(t *testing.T) {
	dir := golden.Shared(t, "goldens/llamacpp")
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	quick := []string{"tiny-llama.Q5_1", "tiny-gemma4.bf16"} // of a quarter of an hour
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".safetensors")
		model, _, _ := strings.Cut(name, ".")
		file, dequantized := strings.CutSuffix(name, ".dequantized")
		if !golden.Slow() && !slices.Contains(quick, name) || model == "demo" || model == "tiny-qwen3" { // the records are of other weights
			continue
		}
		t.Run(name, func(t *testing.T) {
			ofModel := filepath.Join(dir, "..", "gguf", file+".gguf")
			if _, err := os.Stat(ofModel); err != nil {
				ofModel = golden.Model(t, model) // of two there is no unquantized GGUF file
			}
			m := load(t, ofModel)
			dump, gold := read(t, path), read(t, golden.Record(t, model).Tensors(t))
			if !golden.Slow() {
				few := []int{2, 3, 7}
				dump.Prompts = slices.DeleteFunc(dump.Prompts, func(p *lab.Prompt) bool { return !slices.Contains(few, p.Index) })
			}
			d := m.diagnose(t, dump, gold)
			gemma := strings.Contains(model, "gemma") || model == "demo"
			switch {
			case model == "tiny-gemma3":
				if d.Verdict != Structural || len(suspicions(d)) != 1 || !slices.Equal(layers(d, "attention_scale"), []int{0, 1, 2, 3, 4, 5}) {
					t.Error(say(d))
				}
			case name == "tiny-gemma4.Q8_0":
				if d.Verdict != Unexplained || len(suspicions(d)) != 0 {
					t.Error(say(d))
				}
			case !good(d.Verdict) || len(suspicions(d)) != 0:
				t.Error(say(d))
			}
			// One product of tiny-gemma4's files that were dequantized is left in bfloat16.
			integers := !dequantized && !strings.HasSuffix(name, ".bf16") || dequantized && model == "tiny-gemma4"
			gelu := has(d, "numeric_gelu") // which the rounding to 8 bits may hide from the logits
			if integers != has(d, "numeric_activations") || gelu && !gemma || !gelu && gemma && !integers {
				t.Errorf("rounding of activations %v, table of GELU %v: %s", integers, gemma, say(d))
			}
		})
	}
}

func read(t *testing.T, path string) *lab.Record {
	t.Helper()
	r, err := lab.ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}
