package checkpoint

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// linear writes a folder of a family with fused experts whose experts are modules, as programs for quantization make
// them (linear_experts.py in llm-compressor).
func linear(t *testing.T, family string, turned, byTurns bool) (dir string) {
	t.Helper()
	src, dir := golden.Model(t, family), filepath.Join(t.TempDir(), "linear")
	none := packed.Packing{Key: "-", Config: "{}", Columns: 1 << 30}
	edit := func(parts map[string]tensor.Tensor) {
		for _, name := range slices.Collect(maps.Keys(parts)) {
			x := parts[name]
			stem, role, ok := strings.Cut(name, ".experts.")
			if !ok {
				continue
			}
			delete(parts, name)
			role, bias := strings.CutSuffix(role, "_bias")
			ending := ".weight"
			if bias {
				x.Shape, ending = append(x.Shape[:2:2], 1), ".bias"
			} else if turned {
				x = tensor.Turn(x)
			}
			roles := []string{role}
			if role == "gate_up_proj" {
				roles = []string{"gate_proj", "up_proj"}
			}
			for i, role := range roles {
				of := x
				if byTurns && len(roles) > 1 {
					of = tensor.Pick(x, i, 2)
				} else {
					of = tensor.Cut(x, i, len(roles))
				}
				for e := range x.Shape[0] {
					m := of.Matrix(e)
					m, err := m.Whole()
					if err != nil {
						t.Fatal(err)
					}
					if bias {
						m.Shape = m.Shape[:1]
					}
					m.Name = stem + ".experts." + strconv.Itoa(e) + "." + role + ending
					parts[m.Name] = m
				}
			}
		}
	}
	if err := packed.Folders(src, dir, filepath.Join(t.TempDir(), "plain"), none, edit); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fuse fuses the experts' parts of each layer into tensors outside modules, [experts, rows, columns] or turned, with
// scales beside them.
func fuse(parts map[string]tensor.Tensor, turned bool, scales map[string]string) {
	stack(parts, ".experts.")
	for _, name := range slices.Collect(maps.Keys(parts)) {
		stem, rest, ok := strings.Cut(name, ".experts.")
		role, part, _ := strings.Cut(rest, ".")
		if !ok || part == "bias" || role == "up_proj" {
			continue
		}
		x := parts[name]
		delete(parts, name)
		if role == "gate_proj" {
			up := stem + ".experts.up_proj." + part
			if y := parts[up]; len(x.Shape) == 1 { // a number of each matrix
				x.Data, x.Shape = weave(x.Data, y.Data, x.DType.BlockBytes()), append(x.Shape, 2)
			} else {
				x.Data = weave(x.Data, y.Data, len(x.Data)/x.Shape[0])
				x.Shape = slices.Clone(x.Shape)
				x.Shape[1] *= 2
			}
			delete(parts, up)
			role = "gate_up_proj"
		}
		if turned && len(x.Shape) == 3 {
			size := x.DType.BlockBytes()
			n, rows, columns := x.Shape[0], x.Shape[1], x.Shape[2]
			data := make([]byte, 0, len(x.Data))
			for i := range n {
				for c := range columns {
					for r := range rows {
						at := ((i*rows+r)*columns + c) * size
						data = append(data, x.Data[at:at+size]...)
					}
				}
			}
			x.Data, x.Shape = data, tensor.Shape{n, columns, rows}
		}
		parts[stem+".experts."+role+scales[part]] = x
	}
}

// weave returns runs of a and b by turns.
func weave(a, b []byte, run int) (all []byte) {
	for i := 0; i < len(a); i += run {
		all = append(append(all, a[i:i+run]...), b[i:i+run]...)
	}
	return all
}

// equal compares the values of all tensors of two folders.
func equal(t *testing.T, a, b *Checkpoint) {
	t.Helper()
	if len(a.Names()) != len(b.Names()) {
		t.Fatalf("%d tensors, want %d", len(a.Names()), len(b.Names()))
	}
	for _, name := range b.Names() {
		x, ok := a.set.ByName[name]
		y := b.set.ByName[name]
		if b.Family.Turns(name) && len(y.Shape) == 3 && y.Data != nil {
			y = tensor.Turn(y) // as Habit.Transpose will
		}
		if !ok || !slices.Equal(x.Shape, y.Shape) || !slices.Equal(floatsOf(t, x), floatsOf(t, y)) {
			t.Fatalf("%s differs: %v, want %v", name, x.Shape, y.Shape)
		}
	}
}

// TestExperts opens folders of families with fused experts in the forms of programs for quantization: experts as
// modules, and fused with scales beside them.
func TestExperts(t *testing.T) {
	block := map[string]string{"weight_scale_inv": "_scale_inv"}
	other := map[string]string{"weight_scale": "_weight_scale", "weight_scale_2": "_weight_scale_2",
		"input_scale": "_input_scale"}
	meta := map[string]string{"weight_scale": "_scale"}
	for family, c := range map[string]struct {
		turned, byTurns bool
		fused           map[string]map[string]string // endings of scales, by packings
	}{
		"llama4": {true, false, map[string]map[string]string{"modelopt-fp8-rows": meta, "modelopt-nvfp4": other,
			"fp8-small-block-bf16": block, "fp8-tensor-static": other}},
		"gpt-oss":         {true, true, nil},
		"tiny-gemma4-moe": {false, false, map[string]map[string]string{"fp8-block": block}},
		"qwen35moe":       {false, false, map[string]map[string]string{"fp8-tensor-static": other}},
	} {
		src := golden.Model(t, family)
		if family != "qwen35moe" { // whose experts are modules
			src = linear(t, family, c.turned, c.byTurns)
			equal(t, opened(t, src), opened(t, golden.Model(t, family)))
		}
		for _, name := range append(slices.Sorted(maps.Keys(c.fused)), "gptq") {
			t.Run(family+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
				if err := packed.Folders(src, here, there, find(t, name), nil); err != nil {
					t.Fatal(err)
				}
				equal(t, opened(t, here), opened(t, there))
				endings := c.fused[name]
				if endings == nil {
					return
				}
				fused := func(parts map[string]tensor.Tensor) { fuse(parts, c.turned, endings) }
				all := filepath.Join(dir, "fused")
				if err := packed.Folders(src, all, filepath.Join(dir, "other"), find(t, name), fused); err != nil {
					t.Fatal(err)
				}
				a, b := opened(t, all), opened(t, there)
				equal(t, a, b)
				if n := a.Bytes(); n > opened(t, here).Bytes() {
					t.Errorf("%d bytes", n)
				}
			})
		}
	}
}

// TestMLX opens folders as MLX's converter writes them: with its modules of experts, its convolutions, and 1 added to
// norms of Qwen 3.5.
func TestMLX(t *testing.T) {
	for _, c := range []struct {
		family, under string
		roles         []string // MLX's names of roles
	}{
		{"mixtral", ".switch_mlp.", []string{"w1", "gate_proj", "w3", "up_proj", "w2", "down_proj"}},
		{"lfm2moe", ".switch_mlp.", []string{".w1", ".gate_proj", ".w3", ".up_proj", ".w2", ".down_proj"}},
		{"lfm2", ".switch_mlp.", nil},
		{"nemotronh", ".switch_mlp.", []string{".switch_mlp.up_proj", ".switch_mlp.fc1",
			".switch_mlp.down_proj", ".switch_mlp.fc2"}},
		{"qwen35moe", ".switch_mlp.", nil},
		{"qwen35", ".switch_mlp.", nil},
		{"mamba2", ".switch_mlp.", nil},
		{"olmohybrid", ".switch_mlp.", []string{".input_layernorm", ".attention_layer_norm", ".post_attention_layernorm",
			".feedforward_layer_norm"}}, // published names
		{"llama4", ".experts.", nil},
		{"gpt-oss", ".experts.", nil},
		{"tiny-gemma4-moe", ".experts.switch_glu.", nil},
		{"deepseek2", ".switch_mlp.", nil},
	} {
		t.Run(c.family, func(t *testing.T) {
			src := golden.Model(t, c.family)
			switch c.family {
			case "llama4", "gpt-oss":
				src = linear(t, c.family, true, c.family == "gpt-oss")
			case "tiny-gemma4-moe":
				src = linear(t, c.family, false, false)
			}
			edit := func(parts map[string]tensor.Tensor) {
				stack(parts, c.under)
				for _, name := range slices.Collect(maps.Keys(parts)) {
					x := parts[name]
					delete(parts, name)
					if strings.HasSuffix(name, "conv1d.weight") || strings.HasSuffix(name, ".conv.conv.weight") {
						x.Shape = tensor.Shape{x.Shape[0], x.Shape[2], 1}
					} else if strings.HasPrefix(c.family, "qwen35") && strings.HasSuffix(name, "norm.weight") &&
						!strings.Contains(name, "linear_attn") {
						x = addOne(t, x)
					}
					parts[strings.NewReplacer(c.roles...).Replace(name)] = x
				}
			}
			dir := t.TempDir()
			here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
			if err := packed.Folders(src, here, there, find(t, "mlx-mxfp4"), edit); err != nil {
				t.Fatal(err)
			}
			equal(t, opened(t, here), opened(t, there))
		})
	}
}

// TestThirds divides the rows of three convolutions evenly, as transformers does; they are read as the model has them.
func TestThirds(t *testing.T) {
	src, dir := golden.Model(t, "olmohybrid"), filepath.Join(t.TempDir(), "thirds")
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	want := opened(t, src)
	var all []tensor.Tensor
	for _, name := range want.Names() {
		x := want.set.ByName[name]
		if x.Name = name + ".weight"; strings.HasSuffix(name, ".A_log") || strings.HasSuffix(name, ".dt_bias") {
			x.Name = name
		}
		if layer, part, ok := strings.Cut(name, "_conv1d"); ok && part == "" {
			var rows []byte
			for _, role := range "qkv" {
				y := want.set.ByName[layer[:len(layer)-1]+string(role)+"_conv1d"]
				y, err := y.Whole()
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, y.Data...)
			}
			i, n := strings.Index("qkv", layer[len(layer)-1:]), len(rows)/3
			x.Data, x.Source = rows[i*n:][:n], nil
			x.Shape = tensor.Shape{n / x.DType.RowBytes(x.Shape.Last()), 1, x.Shape.Last()}
		}
		all = append(all, x)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), all, nil); err != nil {
		t.Fatal(err)
	}
	got := opened(t, dir)
	equal(t, got, want)
	if x := all[slices.IndexFunc(all, func(x tensor.Tensor) bool { return strings.Contains(x.Name, "v_conv1d") })]; slices.Equal(x.Shape, want.set.ByName[strings.TrimSuffix(x.Name, ".weight")].Shape) {
		t.Error("thirds are the model's own parts")
	}
}

// addOne returns the norm x with 1 added, in F32; x is as exact.
func addOne(t *testing.T, x tensor.Tensor) tensor.Tensor {
	t.Helper()
	v := floatsOf(t, x)
	for i := range v {
		v[i]++
	}
	data := make([]byte, 4*len(v))
	if err := quant.Quantize(tensor.F32, data, v, len(v), nil); err != nil {
		t.Fatal(err)
	}
	return tensor.Tensor{Name: x.Name, DType: tensor.F32, Shape: x.Shape, Data: data}
}
