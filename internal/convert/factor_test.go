package convert_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// inF32 returns a tensor of numbers.
func inF32(name string, v ...float32) tensor.Tensor {
	t := tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{len(v)}}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(x))
	}
	return t
}

// withFactors writes a GGUF file anew as llama.cpp's converter writes weights of NVFP4: with factors beside weights, of
// each expert, and scales of activations. Types are the weights' types by turns.
func withFactors(t *testing.T, path string, types ...tensor.DType) (to string, count int) {
	to = rewrite(t, path, func(keys []gguf.KeyValue, tensors []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor) {
		var all []tensor.Tensor
		for _, x := range tensors {
			stem := strings.TrimSuffix(x.Name, ".weight")
			if len(x.Shape) < 2 || x.Shape.Last()%64 != 0 || strings.Contains(x.Name, "_inp") ||
				!strings.Contains(x.Name, "ffn_") && !strings.Contains(x.Name, "attn_") && stem != "output" {
				all = append(all, x)
				continue
			}
			values := make([]float32, x.Shape.Size())
			if err := quant.Dequantize(x.DType, values, x.Data); err != nil {
				t.Fatal(err)
			}
			d := tensor.NVFP4
			if len(types) > 0 && stem != "output" { // which has a factor beside NVFP4 alone
				d = types[count%len(types)]
			}
			x.DType, x.Data = d, make([]byte, d.RowBytes(len(values)))
			if err := quant.Quantize(d, x.Data, values, x.Shape.Last(), nil); err != nil {
				t.Fatal(err)
			}
			var by []float32
			for i := range x.Shape[:len(x.Shape)-2].Size() {
				by = append(by, factorOf(i))
			}
			all, count = append(all, x, inF32(stem+".input_scale", by...)), count+1
			if !slices.ContainsFunc(tensors, func(o tensor.Tensor) bool { return o.Name == stem+".scale" }) {
				all = append(all, inF32(stem+".scale", by...))
			}
		}
		return keys, all
	})
	return to, count
}

// factorOf returns the factor of matrix i.
func factorOf(i int) float32 { return 0.0137 + 0.3*float32(i) }

// TestFactors opens GGUF files of NVFP4 with factors: values are a float of four bits times the rounded product of a
// scale and the factor, and products read the codes.
func TestFactors(t *testing.T) {
	for _, family := range []string{"qwen3moe", "tiny-llama", "tiny-gemma4-moe"} {
		t.Run(family, func(t *testing.T) {
			plain := filepath.Join(t.TempDir(), "plain.gguf")
			run(t, golden.Model(t, family), plain, convert.Options{Type: "f32"})
			path, count := withFactors(t, plain)
			file, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			c, err := checkpoint.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			note := fmt.Sprintf("%d scales of activations are set aside", count)
			if count < 4 || !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.HasPrefix(n, note) }) {
				t.Errorf("%d weights, notes %q", count, c.Notes)
			}
			for _, x := range file.Tensors() {
				if x.DType != tensor.NVFP4 {
					continue
				}
				name := strings.TrimSuffix(x.Name, ".weight")
				w, ok := checkpoint.Stored{Checkpoint: c}.Tensor(name, "")
				if strings.HasSuffix(name, ".ffn_down_exps") && family == "tiny-gemma4-moe" { // the model has a factor of experts
					if w.DType != tensor.NVFP4 {
						t.Errorf("%s is %v", name, w.DType)
					}
					continue
				}
				if !ok || w.DType != tensor.F32 || w.CodeType() != tensor.NVFP4 || w.Stored() != len(x.Data) {
					t.Fatalf("%s: %v of %v, %d bytes", name, w.DType, w.CodeType(), w.Stored())
				}
				size := x.Shape[len(x.Shape)-2] * x.Shape.Last()
				for m := range x.Shape.Size() / size {
					part := w
					if len(w.Shape) == 3 {
						part = w.Matrix(m)
					}
					coded, ok := part.Coded()
					if !ok || coded.Mul != factorOf(m) || coded.Div != 1 {
						t.Errorf("%s: matrix %d has factor %v", name, m, coded.Mul)
					}
					codes, err := coded.Whole()
					if from := m * size / 64 * 36; err != nil || !slices.Equal(codes.Data, x.Data[from:from+size/64*36]) {
						t.Errorf("%s: matrix %d has other codes: %v", name, m, err)
					}
					whole, err := part.Whole()
					if err != nil {
						t.Fatal(err)
					}
					for i := range size {
						block, at := codes.Data[i/64*36:], i%64
						code := block[4+at/16*8+at%8] >> (at % 16 / 8 * 4) & 15
						want := float16.E2M1(code) * (float16.E4M3(block[at/16]) * factorOf(m))
						if got := math.Float32frombits(binary.LittleEndian.Uint32(whole.Data[4*i:])); got != want {
							t.Fatalf("%s: number %d of matrix %d is %v, want %v", name, i, m, got, want)
						}
					}
				}
			}
		})
	}
	for why, s := range map[string]tensor.Tensor{"expected F32 [1]": inF32("", 1, 2), "is -1, want": inF32("", -1),
		"is NaN, want": inF32("", float32(math.NaN()))} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		run(t, golden.Model(t, "tiny-llama"), path, convert.Options{Type: "f32"})
		path, _ = withFactors(t, path)
		path = rewrite(t, path, func(keys []gguf.KeyValue, all []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor) {
			s.Name = "blk.0.ffn_up.scale"
			all[slices.IndexFunc(all, func(x tensor.Tensor) bool { return x.Name == s.Name })] = s
			return keys, all
		})
		if _, err := checkpoint.Open(path); err == nil || !strings.Contains(err.Error(), s.Name) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
}

// TestFactorsRun: files of NVFP4 with factors have the logits of files with the values, to the bit in floats, and products
// of integers are nearby.
func TestFactorsRun(t *testing.T) {
	logits := func(path string, o karat.Options) []float32 {
		m, err := karat.Load(t.Context(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		rows, err := m.Logits(t.Context(), []int{5, 17, 300, 42, 8})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Concat(rows...)
	}
	others := []tensor.DType{tensor.F32, tensor.Q8_0, tensor.F16, tensor.Q4_0, tensor.BF16, tensor.Q4_1, tensor.MXFP4}
	for _, family := range []string{"qwen3moe", "tiny-llama", "tiny-gemma4-moe", "tiny-llama, other types", "qwen3moe, other types"} {
		path := filepath.Join(t.TempDir(), "plain.gguf")
		name, other := strings.CutSuffix(family, ", other types")
		run(t, golden.Model(t, name), path, convert.Options{Type: "f32"})
		if other {
			path, _ = withFactors(t, path, others...)
		} else {
			path, _ = withFactors(t, path)
		}
		c, err := checkpoint.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		values := rewrite(t, path, func(keys []gguf.KeyValue, all []tensor.Tensor) (_ []gguf.KeyValue, out []tensor.Tensor) {
			for _, x := range all {
				stem := strings.TrimSuffix(x.Name, ".weight")
				w, ok := checkpoint.Stored{Checkpoint: c}.Tensor(stem, "")
				if !ok && strings.HasSuffix(stem, "scale") {
					continue
				} else if ok && w.IsDecoded() {
					w, err := w.Whole()
					if err != nil {
						t.Fatal(err)
					}
					if other && x.DType != tensor.NVFP4 && !slices.Equal(numbers(t, w), times(numbers(t, x), w.Shape)) {
						t.Errorf("%s: %s of %v has other values", family, x.Name, x.DType)
					}
					x.DType, x.Data = w.DType, w.Data
				}
				out = append(out, x)
			}
			return keys, out
		})
		for _, o := range []karat.Options{{Precision: karat.Float64}, {Precision: karat.Float32}, {Threads: 1}} {
			got, want := logits(path, o), logits(values, o)
			far, most := 0., 0.
			for i, v := range want {
				far, most = max(far, math.Abs(float64(got[i]-v))), max(most, math.Abs(float64(v)))
			}
			if d, floats := far/most, o.Precision != ""; d > 1e-3 || floats && d > 0 || !floats && !other && d == 0 {
				t.Errorf("%s, %q: the logits are %.3g from those of values", family, o.Precision, d)
			}
		}
	}
}

// times returns values of matrices times their factors.
func times(v []float32, shape tensor.Shape) []float32 {
	size := shape[len(shape)-2] * shape.Last()
	for i := range v {
		v[i] *= factorOf(i / size)
	}
	return v
}

// TestFactorsRefused: factors that llama.cpp reads not at all, or otherwise, are errors with their names.
func TestFactorsRefused(t *testing.T) {
	for _, c := range []struct{ family, name, why string }{{"tiny-llama", "token_embd.scale", "no weight of the architecture claims it"},
		{"tiny-llama", "output_norm.scale", "no weight of the architecture claims it"},
		{"starcoder2", "blk.0.ffn_up.scale", "multiply the weight and the bias instead, and leave it out"}} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		run(t, golden.Model(t, c.family), path, convert.Options{Type: "f16"})
		path = rewrite(t, path, func(keys []gguf.KeyValue, all []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor) {
			return keys, append(all, inF32(c.name, 2))
		})
		_, err := karat.Load(t.Context(), path, karat.Options{})
		if err == nil || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v, want %s: %s", err, c.name, c.why)
		}
	}
}
