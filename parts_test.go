package karat_test

import (
	"bytes"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// TestParts: files with tensors in parts that others have whole, and the reverse, give the same bits.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		model, kind string
		edit        func(all []tensor.Tensor) []tensor.Tensor
	}{
		{"phi3", "BF16", apart},
		{"phi3", "Q8_0", apart},
		{"gpt2", "Q8_0", apart},
		{"qwen3moe", "BF16", fused},
		{"qwen3moe", "Q8_0", fused},
		{"llama4", "Q8_0", fused},
		{"tiny-gemma4-moe", "Q8_0", unfused},
	} {
		t.Run(c.model+" "+c.kind, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "model.gguf")
			if _, err := convert.Convert(t.Context(), golden.Model(t, c.model), file, convert.Options{Type: c.kind}); err != nil {
				t.Fatal(err)
			}
			f, err := gguf.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var meta []gguf.KeyValue
			for _, k := range f.Metadata.Keys() {
				v, _ := f.Metadata.Lookup(k)
				meta = append(meta, gguf.KeyValue{Key: k, Value: v})
			}
			all := f.Tensors()
			edited := c.edit(slices.Clone(all))
			if len(edited) == len(all) {
				t.Fatal("nothing was edited")
			}
			if want, got := logitsOf(t, meta, all), logitsOf(t, meta, edited); !reflect.DeepEqual(got, want) {
				t.Errorf("logits %v, want %v", got[0][:4], want[0][:4])
			}
		})
	}
}

// logitsOf runs the file of these tensors.
func logitsOf(t *testing.T, meta []gguf.KeyValue, all []tensor.Tensor) [][]float32 {
	t.Helper()
	var b bytes.Buffer
	if err := gguf.Write(&b, meta, all); err != nil {
		t.Fatal(err)
	}
	m, err := karat.LoadSources(t.Context(), []karat.Source{{Name: "model.gguf", Data: b.Bytes()}}, karat.Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	logits, err := m.Logits(t.Context(), []int{1, 20, 300, 4, 77})
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// apart cuts queries, keys and values of 4 and 2 heads.
func apart(all []tensor.Tensor) (out []tensor.Tensor) {
	for _, x := range all {
		stem, rest, ok := strings.Cut(x.Name, "attn_qkv.")
		if !ok {
			out = append(out, x)
			continue
		}
		dim := x.Shape[0] / 8
		if x.Shape[0] == 384 { // 4 heads of each
			dim = 32
		}
		keys := (x.Shape[0] - 4*dim) / 2
		size := len(x.Data) / x.Shape[0]
		from := 0
		for i, rows := range []int{4 * dim, keys, keys} {
			y := x
			y.Name, y.Shape = stem+[]string{"attn_q.", "attn_k.", "attn_v."}[i]+rest, slices.Clone(x.Shape)
			y.Shape[0], y.Data = rows, x.Data[from*size:(from+rows)*size]
			out, from = append(out, y), from+rows
		}
	}
	return out
}

// fused stacks the gates and the ups of experts.
func fused(all []tensor.Tensor) (out []tensor.Tensor) {
	for _, x := range all {
		if strings.Contains(x.Name, "ffn_up_exps") {
			continue
		}
		if stem, _, ok := strings.Cut(x.Name, "ffn_gate_exps"); ok {
			i := slices.IndexFunc(all, func(u tensor.Tensor) bool { return u.Name == stem+"ffn_up_exps.weight" })
			x = tensor.Stack(stem+"ffn_gate_up_exps.weight", []tensor.Tensor{x, all[i]})
			x, _ = x.Whole()
		}
		out = append(out, x)
	}
	return out
}

// unfused is the inverse of fused.
func unfused(all []tensor.Tensor) (out []tensor.Tensor) {
	for _, x := range all {
		stem, _, ok := strings.Cut(x.Name, "ffn_gate_up_exps")
		if !ok {
			out = append(out, x)
			continue
		}
		for i, name := range []string{"ffn_gate_exps.weight", "ffn_up_exps.weight"} {
			y := tensor.Cut(x, i, 2)
			y.Name = stem + name
			y, _ = y.Whole()
			out = append(out, y)
		}
	}
	return out
}
