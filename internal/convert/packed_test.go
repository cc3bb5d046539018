package convert_test

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPackedTypes converts folders of packings: a note says which types of GGUF hold the values, and the file has these
// types and values.
func TestPackedTypes(t *testing.T) {
	for name, want := range map[string]tensor.DType{"fp8-block": tensor.F32, "fp8-block-e8m0": tensor.BF16,
		"ct-int4-group": tensor.Q4_0, "awq": tensor.Q5_0, "gptq": tensor.Q5_0, "gptq-8-bits": tensor.Q8_0,
		"gptq-act-order": tensor.F32, "gptq-v2-3-bits": tensor.Q4_0, "mlx-2-bits": tensor.Q4_1, "mlx-3-bits": tensor.Q4_1,
		"mlx-nvfp4": tensor.NVFP4, "ct-mxfp4": tensor.MXFP4, "ct-int8-bytes": tensor.Q8_0} {
		t.Run(name, func(t *testing.T) {
			p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == name })]
			dir := t.TempDir()
			here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
			if err := packed.Folders(golden.Model(t, "qwen3moe"), here, there, p, nil); err != nil {
				t.Fatal(err)
			}
			r := run(t, here, here+".gguf", convert.Options{})
			if want.Quantized() {
				_, err := convert.Convert(t.Context(), here, here+".Q4_K_M.gguf", convert.Options{Type: "Q4_K_M"})
				if err == nil || !strings.Contains(err.Error(), "without --type, and the file with") {
					t.Errorf("to another type: %v", err)
				}
			}
			run(t, there, there+".gguf", convert.Options{})
			got, values := floatsOf(t, here+".gguf")
			_, plain := floatsOf(t, there+".gguf")
			for name, v := range plain {
				if !slices.Equal(values[name], v) {
					t.Errorf("%s differs", name)
				}
			}
			if d := got["blk.0.ffn_down_exps.weight"]; d != want {
				t.Errorf("experts are %v, want %v", d, want)
			}
			note := slices.IndexFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, "packed weights (") })
			if note < 0 || !strings.Contains(r.Notes[note], " as "+want.String()+", which hold the same values") {
				t.Errorf("notes %q", r.Notes)
			}
		})
	}
}

// floatsOf returns the types and the values of a GGUF file's tensors.
func floatsOf(t *testing.T, path string) (types map[string]tensor.DType, values map[string][]float32) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	types, values = map[string]tensor.DType{}, map[string][]float32{}
	for _, x := range f.Tensors() {
		v := make([]float32, x.Shape.Size())
		if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
			t.Fatal(err)
		}
		types[x.Name], values[x.Name] = x.DType, v
	}
	return types, values
}

// TestPackedMultiplied converts packed folders of a model whose multipliers GGUF's weights have: weights with multipliers
// are F32, as a note says, and all values are as of the folder without packing.
func TestPackedMultiplied(t *testing.T) {
	p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == "mlx-4-bits" })]
	dir := t.TempDir()
	here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
	if err := packed.Folders(golden.Model(t, "falconh1"), here, there, p, nil); err != nil {
		t.Fatal(err)
	}
	r := run(t, here, here+".gguf", convert.Options{})
	run(t, there, there+".gguf", convert.Options{})
	got, values := floatsOf(t, here+".gguf")
	_, plain := floatsOf(t, there+".gguf")
	for name, v := range plain {
		if !slices.Equal(values[name], v) {
			t.Errorf("%s differs", name)
		}
	}
	n := 0
	for name, want := range map[string]tensor.DType{"ffn_up": tensor.Q4_1, "ffn_down": tensor.F32, "attn_q": tensor.F32} {
		if d := got["blk.0."+name+".weight"]; d != want {
			t.Errorf("%s is %v, want %v", name, d, want)
		}
	}
	for _, d := range got {
		if d == tensor.Q4_1 {
			n++
		}
	}
	if len(r.Notes) != 2 || !strings.HasSuffix(r.Notes[0], fmt.Sprintf(" read %d as Q4_1, which hold the same values", n)) ||
		!strings.Contains(r.Notes[1], " become F32, ") {
		t.Errorf("notes %q, %d weights of Q4_1", r.Notes, n)
	}
}

// TestPackedFileType: general.file_type names the quantized type with the most bytes.
func TestPackedFileType(t *testing.T) {
	for name, want := range map[string]uint64{"mlx-nvfp4": 39, "mlx-mixed": 3, "ct-mxfp4": 38, "gptq-8-bits": 7, "fp8-block": 0} {
		p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == name })]
		dir := t.TempDir()
		here := filepath.Join(dir, "packed")
		if err := packed.Folders(golden.Model(t, "qwen3moe"), here, filepath.Join(dir, "plain"), p, nil); err != nil {
			t.Fatal(err)
		}
		r := run(t, here, here+".gguf", convert.Options{})
		f, err := gguf.Open(here + ".gguf")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := f.Metadata.Uint("general.file_type"); n != want || err != nil {
			t.Errorf("%s: %d, %v, want %d: %v", name, n, err, want, r.Types)
		}
		f.Close()
	}
}

// TestPackedFactors converts folders of NVFP4 with a factor of each weight: the file has codes and factors where these
// hold the folder's values, else floats, and each value is as the folder's to the bit.
func TestPackedFactors(t *testing.T) {
	for name, floats := range map[string]bool{"modelopt-nvfp4": false, "ct-nvfp4": true} {
		for _, family := range []string{"qwen3moe", "tiny-gemma4-moe", "starcoder2"} {
			p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == name })]
			dir := t.TempDir()
			here := filepath.Join(dir, "packed")
			if err := packed.Folders(golden.Model(t, family), here, filepath.Join(dir, "plain"), p, func(parts map[string]tensor.Tensor) {
				for name, x := range parts { // some that a product has exactly
					if strings.HasSuffix(name, "up_proj.weight_global_scale") {
						parts[name] = inF32("", 96)
						parts[name] = tensor.Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape, Data: parts[name].Data}
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			r := run(t, here, here+".gguf", convert.Options{})
			from, err := checkpoint.Open(here)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			to, err := checkpoint.Open(here + ".gguf")
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			weights, _, err := arch.Weights(from)
			if err != nil {
				t.Fatal(err)
			}
			count := map[tensor.DType]int{}
			for _, w := range weights {
				got, ok := checkpoint.Stored{Checkpoint: to}.Tensor(w.GGUF, w.HF)
				if !ok {
					t.Fatalf("%s is missing", w.GGUF)
				}
				if w.IsDecoded() {
					count[got.CodeType()]++
				}
				if a, b := numbers(t, w.Tensor), numbers(t, got); !slices.Equal(a, b) {
					t.Errorf("%s, %s: %s has other values", name, family, w.GGUF)
				}
			}
			if count[tensor.NVFP4] == 0 || r.Types["NVFP4"] < count[tensor.NVFP4] || floats && count[tensor.F32] == 0 {
				t.Errorf("%s, %s: types %v, in memory %v", name, family, r.Types, count)
			}
			t.Log(name, family, count, r.Notes)
		}
	}
}

// numbers returns a tensor's values.
func numbers(t *testing.T, x tensor.Tensor) []float32 {
	t.Helper()
	whole, err := x.Whole()
	v := make([]float32, x.Shape.Size())
	if err == nil {
		err = quant.Dequantize(whole.DType, v, whole.Data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestPackedLoss: of a packed folder in another type a note tells the largest error and the root mean square, as counted
// here; a type with all values loses nothing.
func TestPackedLoss(t *testing.T) {
	p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == "fp8-block" })]
	dir := t.TempDir()
	here := filepath.Join(dir, "packed")
	if err := packed.Folders(golden.Model(t, "qwen3moe"), here, filepath.Join(dir, "plain"), p, nil); err != nil {
		t.Fatal(err)
	}
	exact := run(t, here, here+".gguf", convert.Options{})
	_, values := floatsOf(t, here+".gguf")
	for _, kind := range []string{"F32", "BF16", "Q8_0"} {
		r := run(t, here, here+kind+".gguf", convert.Options{Type: kind})
		_, got := floatsOf(t, here+kind+".gguf")
		largest, lost, all, differ, count := 0.0, 0.0, 0.0, 0, 0
		for name, v := range values {
			if !strings.Contains(name, "attn_") && !strings.Contains(name, "ffn_") || strings.Contains(name, "norm") || strings.Contains(name, "_inp") {
				continue // not packed
			}
			for i, x := range v {
				d := math.Abs(float64(got[name][i]) - float64(x))
				largest, lost, all, count = max(largest, d), lost+d*d, all+float64(x)*float64(x), count+1
				if d > 0 {
					differ++
				}
			}
		}
		want := fmt.Sprintf("the packed weights lose by %s: the largest error is %.3g, the root mean square %.3g, %.3g %% of theirs; "+
			"%d of %d numbers differ", kind, largest, math.Sqrt(lost/float64(count)), 100*math.Sqrt(lost/all), differ, count)
		if last := r.Notes[len(r.Notes)-1]; (last == want) != (differ > 0) || (differ == 0) != (kind == "F32") {
			t.Errorf("%s: note %q, want %q", kind, last, want)
		}
	}
	if strings.Contains(strings.Join(exact.Notes, ""), "lose") {
		t.Errorf("notes %q", exact.Notes)
	}
}

// TestReplacedTypes: a note names weights whose rows the type of a rule does not divide.
func TestReplacedTypes(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "in.gguf"), filepath.Join(dir, "out.gguf")
	run(t, golden.Model(t, "falcon"), src, convert.Options{Type: "f32"})
	rule := func(pattern string, d tensor.DType) quantmix.Rule {
		return quantmix.Rule{Pattern: regexp.MustCompile(pattern), Type: d}
	}
	r, err := convert.Quantize(t.Context(), src, dst, convert.QuantizeOptions{Type: "Q8_0",
		Rules: []quantmix.Rule{rule("attn_qkv", tensor.Q4_K), rule("attn_output", tensor.Q4_0)}})
	if err != nil {
		t.Fatal(err)
	}
	types, _ := floatsOf(t, dst)
	if types["blk.0.attn_qkv.weight"] != tensor.Q5_0 || types["blk.0.attn_output.weight"] != tensor.Q4_0 {
		t.Fatalf("types %v", types)
	}
	want := []string{"blk.0.attn_qkv.weight and 2 more: Q5_0 takes the place of Q4_K, whose block of 256 does not divide rows of 128"}
	if !slices.Equal(r.Notes, want) {
		t.Errorf("notes %q, want %q", r.Notes, want)
	}
}
