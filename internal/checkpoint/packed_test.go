package checkpoint

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPackings opens folders of each packing: their weights have the values of the format's definition, bit for bit.
func TestPackings(t *testing.T) {
	for k, family := range []string{"qwen3moe", "deepseek2", "phi3"} {
		for i, p := range packed.All {
			if k > 0 && i%3 != k && !golden.Slow() { // the long ring has all
				continue
			}
			t.Run(family+"/"+p.Name, func(t *testing.T) {
				if testing.Short() && family != "qwen3moe" {
					t.Skip("short")
				}
				dir := t.TempDir()
				here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
				if err := packed.Folders(golden.Model(t, family), here, there, p, nil); err != nil {
					t.Fatal(err)
				}
				a, b := opened(t, here), opened(t, there)
				if a.Packing == "" || b.Packing != "" {
					t.Errorf("packings %q and %q", a.Packing, b.Packing)
				}
				if len(a.Names()) != len(b.Names()) {
					t.Fatalf("%d tensors, want %d", len(a.Names()), len(b.Names()))
				}
				for _, name := range b.Names() {
					got, want := floatsOf(t, a.set.ByName[name]), floatsOf(t, b.set.ByName[name])
					if !slices.Equal(got, want) { // MXFP4 has one zero
						t.Fatalf("%s differs", name)
					}
				}
				if n := a.Bytes(); n >= b.Bytes() {
					t.Errorf("%d bytes, of values %d", n, b.Bytes())
				}
			})
		}
	}
}

// TestDamagedScale names the file, the tensor and the value.
func TestDamagedScale(t *testing.T) {
	p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == "ct-nvfp4" })]
	dir, plain := filepath.Join(t.TempDir(), "packed"), filepath.Join(t.TempDir(), "plain")
	const module = "model.layers.0.self_attn.q_proj"
	damage := func(parts map[string]tensor.Tensor) {
		x := parts[module+".weight_global_scale"]
		x.Data = []byte{0, 0, 0xa0, 0xc0} // -5
		parts[x.Name] = x
	}
	if err := packed.Folders(golden.Model(t, "qwen3moe"), dir, plain, p, damage); err != nil {
		t.Fatal(err)
	}
	want := dir + ": model.safetensors: tensor " + module +
		": weight_global_scale is -5, want a finite number greater than 0"
	if _, err := Open(dir); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func opened(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// floatsOf returns a tensor's values.
func floatsOf(t *testing.T, x tensor.Tensor) []float32 {
	t.Helper()
	x, err := x.Whole()
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, x.Shape.Size())
	if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
		t.Fatal(err)
	}
	return v
}

// find returns a packing by its name.
func find(t *testing.T, name string) packed.Packing {
	t.Helper()
	i := slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no packing %s", name)
	}
	return packed.All[i]
}

// TestBesideConfig opens folders as publishers' programs write them: a file beside config.json describes the packing, and
// the weights have the program's name.
func TestBesideConfig(t *testing.T) {
	for _, c := range []struct{ packing, file, text, weights string }{
		{"gptq", "quantize_config.json", `{"bits": 4, "group_size": 32, "damp_percent": 0.01, "desc_act": false, "sym": true,
			"true_sequential": true, "model_name_or_path": null, "model_file_base_name": "gptq_model-4bit-32g"}`,
			"gptq_model-4bit-32g.safetensors"},
		{"gptq-v2-3-bits", "quantize_config.json", `{"bits": 3, "group_size": -1, "checkpoint_format": "gptq_v2"}`,
			"model.safetensors"},
		{"awq", "quantize_config.json", `{"bits": 4, "group_size": 32, "version": "GEMM"}`, "model.safetensors"},
		{"awq", "quant_config.json", `{"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}`,
			"awq_model_w4_g32.safetensors"},
		{"modelopt-nvfp4", "hf_quant_config.json", `{"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization":
			{"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}}`,
			"model.safetensors"},
		{"modelopt-fp8-mixed", "hf_quant_config.json", `{"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers":
			{"model": {"quant_algo": "FP8"}}}}`, "model.safetensors"},
	} {
		t.Run(c.file+"/"+c.packing, func(t *testing.T) {
			p := find(t, c.packing)
			dir := t.TempDir()
			here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
			if err := packed.Folders(golden.Model(t, "qwen3moe"), here, there, p, nil); err != nil {
				t.Fatal(err)
			}
			config := filepath.Join(here, "config.json")
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(here, name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			plain, err := os.ReadFile(filepath.Join(there, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			write("config.json", string(plain))
			if err := os.Rename(filepath.Join(here, "model.safetensors"), filepath.Join(here, c.weights)); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(here); err == nil || !strings.Contains(err.Error(), "config.json has no quantization_config") ||
				!strings.Contains(err.Error(), c.weights) {
				t.Errorf("without a description: %v", err)
			}
			write(c.file, c.text)
			a, b := opened(t, here), opened(t, there)
			for _, name := range b.Names() {
				if !slices.Equal(floatsOf(t, a.set.ByName[name]), floatsOf(t, b.set.ByName[name])) {
					t.Fatalf("%s differs", name)
				}
			}
			write(c.file, strings.Repeat(" ", 1<<20)+c.text)
			if _, err := Open(here); err == nil || !strings.Contains(err.Error(), "expected at most 1048576") {
				t.Errorf("too long: %v", err)
			}
			write(c.file, `{"bits": "four"}`)
			wrong := c.file + `: bits: "four" is no whole number`
			if c.file == "hf_quant_config.json" { // which has names of algorithms, and no bits
				wrong = "quant_algo names no algorithm"
			}
			if _, err := Open(here); err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("wrong: %v", err)
			}
			write("config.json", strings.Replace(string(plain), "{", `{"quantization_config": {"quant_method": "gptq", "bits": "four"},`, 1))
			const want = `config.json: quantization_config.bits: "four" is no whole number`
			if _, err := Open(here); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", config, err)
			}
		})
	}
}

// TestFewErrors names the first weights of a folder all of whose weights fail, with their files, and counts the others.
func TestFewErrors(t *testing.T) {
	p := find(t, "gptq")
	p.Config = strings.Replace(p.Config, "32", "64", 1)
	dir, plain := filepath.Join(t.TempDir(), "packed"), filepath.Join(t.TempDir(), "plain")
	if err := packed.Folders(golden.Model(t, "qwen3moe"), dir, plain, p, nil); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	if err == nil || strings.Count(err.Error(), "; ") != 3 || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "errors more") ||
		!strings.Contains(err.Error(), "for groups of 64 columns") {
		t.Error(err)
	}
}

// TestUnpackedExpert opens folders of which a single expert is not packed, whose values are the publisher's.
func TestUnpackedExpert(t *testing.T) {
	src := golden.Model(t, "qwen3moe")
	const stack, expert = "model.layers.0.mlp.experts.up_proj", "model.layers.0.mlp.experts.1.up_proj"
	original := opened(t, src).set.ByName[stack]
	for _, name := range []string{"awq", "fp8-block", "mlx-4-bits", "gptq-act-order", "ct-int8-channel"} {
		dir := t.TempDir()
		here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
		edit := func(parts map[string]tensor.Tensor) {
			maps.DeleteFunc(parts, func(name string, _ tensor.Tensor) bool { return strings.HasPrefix(name, expert+".") })
			part, err := original.Part(original.Shape[1], 2*original.Shape[1])
			if err != nil {
				t.Fatal(err)
			}
			parts[expert+".weight"] = part
		}
		if err := packed.Folders(src, here, there, find(t, name), edit); err != nil {
			t.Fatal(err)
		}
		got := floatsOf(t, opened(t, here).set.ByName[stack])
		want := floatsOf(t, opened(t, there).set.ByName[stack])
		n := original.Shape[1] * original.Shape[2]
		copy(want[n:2*n], floatsOf(t, original)[n:])
		if !slices.Equal(got, want) {
			t.Errorf("%s differs", name)
		}
	}
}

// stack stacks the experts' parts of each layer, as MLX has them under switch_mlp.
func stack(parts map[string]tensor.Tensor, under string) {
	const first = ".experts.0."
	for _, name := range slices.Collect(maps.Keys(parts)) {
		if !strings.Contains(name, first) {
			continue
		}
		var all tensor.Tensor
		for i := 0; ; i++ {
			part := strings.Replace(name, first, fmt.Sprintf(".experts.%d.", i), 1)
			x, ok := parts[part]
			if !ok {
				all.Shape = append([]int{i}, parts[name].Shape...)
				break
			}
			all.DType, all.Data = x.DType, append(all.Data, x.Data...)
			if i > 0 {
				delete(parts, part)
			}
		}
		delete(parts, name)
		parts[strings.Replace(name, first, under, 1)] = all
	}
}

// TestStacked opens folders whose experts are single tensors, which have scales of the same form.
func TestStacked(t *testing.T) {
	for _, name := range []string{"mlx-4-bits", "mlx-mxfp4", "mlx-nvfp4", "mlx-6-bits", "fp8-block", "fp8-tensor-static",
		"ct-float-channel", "ct-int4-asymmetric", "modelopt-fp8-rows", "modelopt-mxfp8", "modelopt-nvfp4", "ct-nvfp4"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
			edit := func(parts map[string]tensor.Tensor) {
				stack(parts, ".switch_mlp.")
				for name, x := range parts {
					if strings.HasSuffix(name, "switch_mlp.up_proj.weight_shape") || strings.HasSuffix(name, "switch_mlp.down_proj.weight_shape") ||
						strings.HasSuffix(name, "switch_mlp.gate_proj.weight_shape") {
						n := []byte{byte(x.Shape[0]), 0, 0, 0, 0, 0, 0, 0}
						parts[name] = tensor.Tensor{DType: x.DType, Shape: tensor.Shape{3}, Data: append(n, x.Data[:16]...)}
					}
				}
			}
			if err := packed.Folders(golden.Model(t, "qwen3moe"), here, there, find(t, name), edit); err != nil {
				t.Fatal(err)
			}
			a, b := opened(t, here), opened(t, there)
			for _, name := range b.Names() {
				if !slices.Equal(floatsOf(t, a.set.ByName[name]), floatsOf(t, b.set.ByName[name])) {
					t.Fatalf("%s differs", name)
				}
			}
		})
	}
}

// TestOrderedCodes: an expert whose columns are in order keeps its codes beside experts whose columns are not.
func TestOrderedCodes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "packed")
	sort := func(parts map[string]tensor.Tensor) {
		for name, x := range parts {
			if strings.HasSuffix(name, ".experts.3.up_proj.g_idx") {
				x.Data = make([]byte, 4*x.Shape[0])
				for i := range x.Shape[0] {
					x.Data[4*i] = byte(i / 32)
				}
				parts[name] = x
			}
		}
	}
	if err := packed.Folders(golden.Model(t, "qwen3moe"), dir, dir+"-plain", find(t, "gptq-act-order"), sort); err != nil {
		t.Fatal(err)
	}
	x, ok := opened(t, dir).Tensor("", "model.layers.0.mlp.experts.up_proj")
	if !ok || x.DType != tensor.F32 || x.CodeType() != tensor.Grouped(4, 32, true) {
		t.Fatalf("%v, %v with codes of %v", ok, x.DType, x.CodeType())
	}
	for i := range x.Shape[0] {
		m := x.Matrix(i)
		c, ok := m.Coded()
		if !ok || c.DType != x.CodeType() || (c.Columns == nil) != (i == 3) {
			t.Fatalf("expert %d: %v, %v, columns %v", i, ok, c.DType, c.Columns)
		}
		values, k := floatsOf(t, m), m.Shape[1]
		for j, v := range floatsOf(t, c.Tensor) {
			if c.Columns != nil {
				j = j/k*k + c.Columns[j%k]
			}
			if values[j] != v {
				t.Fatalf("expert %d: number %d is %v, its code's value %v", i, j, values[j], v)
			}
		}
	}
}
