package convert_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// rewritten is a GGUF file with other keys and tensors.
func rewritten(t *testing.T, from, to string, keys func(gguf.KeyValue) []gguf.KeyValue, tensors []tensor.Tensor) {
	t.Helper()
	f, err := gguf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var metadata []gguf.KeyValue
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		x, err := v.Any()
		if err != nil {
			t.Fatal(err)
		}
		metadata = append(metadata, keys(gguf.KeyValue{Key: key, Value: x})...)
	}
	w, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	g, err := gguf.NewWriter(w, metadata, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		if _, err := g.Write(x.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// tensorsOf are those of a GGUF file, copied.
func tensorsOf(t *testing.T, path string) (all []tensor.Tensor) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Tensors() {
		x.Data = slices.Clone(x.Data)
		all = append(all, x)
	}
	return all
}

// quantized are the blocks of a matrix in BF16.
func quantized(t *testing.T, d tensor.DType, w tensor.Tensor) []byte {
	t.Helper()
	v, b := make([]float32, w.Shape.Size()), make([]byte, d.RowBytes(w.Shape.Size()))
	if err := errors.Join(quant.Dequantize(w.DType, v, w.Data), quant.Quantize(d, b, v, w.Shape.Last(), nil)); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOldLatents reads files as they were before their kv_b was in two: with its sizes under the plain
// keys, in float and quantized, whose keys' half becomes F32. They compute the same bits as the
// model with those weights in a folder.
func TestOldLatents(t *testing.T) {
	for _, kind := range []tensor.DType{tensor.BF16, tensor.Q8_0} {
		dir, r := t.TempDir(), golden.Record(t, "deepseek2")
		file, old, back := filepath.Join(dir, "new.gguf"), filepath.Join(dir, "old.gguf"), filepath.Join(dir, "back")
		src := golden.Model(t, "deepseek2")
		run(t, src, file, convert.Options{})
		whole := folder(t, src)
		var tensors []tensor.Tensor
		for _, x := range tensorsOf(t, file) {
			layer, keys := strings.CutSuffix(x.Name, ".attn_k_b.weight")
			switch {
			case keys:
				x.Name = layer + ".attn_kv_b.weight"
				w := whole["model.layers."+strings.TrimPrefix(layer, "blk.")+".self_attn.kv_b_proj.weight"]
				x.Shape, x.DType, x.Data = w.Shape, kind, w.Data
				if kind.Quantized() {
					x.Data = quantized(t, kind, w)
				}
			case strings.HasSuffix(x.Name, ".attn_v_b.weight"):
				continue
			}
			tensors = append(tensors, x)
		}
		rewritten(t, file, old, func(k gguf.KeyValue) []gguf.KeyValue {
			switch name := strings.TrimPrefix(k.Key, "deepseek2.attention."); name {
			case "key_length_mla", "value_length_mla":
				return nil
			case "key_length":
				k.Value = uint32(40)
			case "value_length":
				k.Value = uint32(20)
			case "head_count_kv":
				k.Value = uint32(4)
			}
			return []gguf.KeyValue{k}
		}, tensors)
		run(t, old, back, convert.Options{Type: "F32"})
		here, _ := logits(t, old, r)
		there, _ := logits(t, back, r)
		plain, _ := logits(t, file, r)
		for i := range here {
			if d := distance(here[i], there[i]); d > 0 {
				t.Errorf("%v: prompt %d: logits of the folder are %g off", kind, i, d)
			}
			if d := distance(here[i], plain[i]); (d > 0) != kind.Quantized() {
				t.Errorf("%v: prompt %d: logits of the newer file are %g off", kind, i, d)
			}
		}
	}
}

// TestNext sets the layers aside that predict further tokens: behind the last of a folder, and
// counted among the layers of a GGUF file. A layer without their tensors is never set aside.
func TestNext(t *testing.T) {
	for _, name := range []string{"deepseek2", "glm4moe", "qwen35"} {
		t.Run(name, func(t *testing.T) { next(t, name) })
	}
}

func next(t *testing.T, name string) {
	dir, src, r := t.TempDir(), golden.Model(t, name), golden.Record(t, name)
	file, longer, short := filepath.Join(dir, "plain.gguf"), filepath.Join(dir, "longer.gguf"), filepath.Join(dir, "short.gguf")
	run(t, src, file, convert.Options{})
	plain := tensorsOf(t, file)
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := f.Metadata.Int(name + ".block_count")
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	last, behind := fmt.Sprintf("blk.%d.", layers-1), fmt.Sprintf("blk.%d.", layers)
	tensors := slices.Clone(plain)
	for _, x := range plain {
		if rest, ok := strings.CutPrefix(x.Name, last); ok {
			x.Name = behind + rest
			tensors = append(tensors, x)
		}
	}
	tensors = append(tensors, tensor.Tensor{Name: behind + "nextn.enorm.weight", DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)})
	counted := func(n int64) func(k gguf.KeyValue) []gguf.KeyValue {
		return func(k gguf.KeyValue) []gguf.KeyValue {
			if k.Key == name+".block_count" {
				return []gguf.KeyValue{{Key: k.Key, Value: uint32(n)}, {Key: name + ".nextn_predict_layers", Value: uint32(1)}}
			}
			return []gguf.KeyValue{k}
		}
	}
	rewritten(t, file, longer, counted(layers+1), tensors)
	rewritten(t, file, short, counted(layers+1), plain) // a converter may leave their tensors out
	want, _ := logits(t, file, r)
	for _, path := range []string{longer, short} {
		got, _ := logits(t, path, r)
		for i := range want {
			if d := distance(want[i], got[i]); d > 0 {
				t.Errorf("%s: prompt %d: logits are %g off", filepath.Base(path), i, d)
			}
		}
	}
	c, err := checkpoint.Open(longer)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "predict further tokens are set aside") {
		t.Errorf("notes %q", c.Notes)
	}
	wrong, folder := filepath.Join(dir, "wrong.gguf"), shorter(t, src, int(layers))
	rewritten(t, file, wrong, counted(layers), plain) // the model's own last layer
	for _, path := range []string{wrong, folder} {
		if c, err := checkpoint.Open(path); err == nil || !strings.Contains(err.Error(), "one of the model's own") {
			if c != nil {
				c.Close()
			}
			t.Errorf("%s: a layer of the model is set aside: %v", filepath.Base(path), err)
		}
	}
}

// shorter is a copy of a folder whose config.json takes the last layer for one that predicts further tokens.
func shorter(t *testing.T, src string, layers int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shorter")
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	var config map[string]any
	if err := errors.Join(err, json.Unmarshal(b, &config)); err != nil {
		t.Fatal(err)
	}
	config["num_hidden_layers"] = layers - 1
	config["num_nextn_predict_layers"], config["mtp_num_hidden_layers"] = 1, 1
	if types, ok := config["layer_types"].([]any); ok {
		config["layer_types"] = types[:layers-1]
	}
	if b, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
