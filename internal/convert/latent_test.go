package convert_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
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

// TestNext keeps the head that predicts further tokens, behind the last layer: of a folder in GGUF, where a converter may
// have left it out, and back, with the publisher's names and bytes. It never changes the logits, and a layer without
// its tensors is never taken for it.
func TestNext(t *testing.T) {
	for _, name := range golden.Headed {
		t.Run(name, func(t *testing.T) { next(t, name) })
	}
}

func next(t *testing.T, name string) {
	dir, src, r := t.TempDir(), golden.WithHead(t, name), golden.Record(t, name)
	file, back, short := filepath.Join(dir, "file.gguf"), filepath.Join(dir, "back"), filepath.Join(dir, "short.gguf")
	run(t, src, file, convert.Options{})
	run(t, file, back, convert.Options{})
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	name, err = f.Metadata.String("general.architecture")
	layers, err2 := f.Metadata.Int(name + ".block_count")
	n, err3 := f.Metadata.Int(name + ".nextn_predict_layers")
	if err = errors.Join(err, err2, err3, f.Close()); err != nil || n != 1 {
		t.Fatalf("%d layers behind the last, %v", n, err)
	}
	behind := fmt.Sprintf("blk.%d.", layers-1)
	plain := slices.DeleteFunc(tensorsOf(t, file), func(x tensor.Tensor) bool { return strings.HasPrefix(x.Name, behind) })
	as := func(k gguf.KeyValue) []gguf.KeyValue { return []gguf.KeyValue{k} }
	rewritten(t, file, short, as, plain)
	want, _ := logits(t, golden.Model(t, filepath.Base(src)), r)
	for _, path := range []string{src, file, back, short} {
		got, _ := logits(t, path, r)
		for i := range want {
			if d := distance(want[i], got[i]); d > 0 {
				t.Errorf("%s: prompt %d: logits are %g off", filepath.Base(path), i, d)
			}
		}
		c, err := checkpoint.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := arch.LoadHead(c, 0)
		if c.Close(); err != nil || (g.Draft == nil) != (path == short) {
			t.Errorf("%s: a head: %v, %v", filepath.Base(path), g.Draft != nil, err)
		}
	}
	a, err := safetensors.Open(filepath.Join(src, "model.safetensors"))
	b, err2 := safetensors.Open(filepath.Join(back, "model.safetensors"))
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	bytesOf := map[string][]byte{}
	for _, x := range b.Tensors {
		bytesOf[x.Name] = x.Data
	}
	for _, x := range a.Tensors {
		if !bytes.Equal(x.Data, bytesOf[x.Name]) {
			t.Errorf("tensor %s: %d bytes, other %d after the way back", x.Name, len(x.Data), len(bytesOf[x.Name]))
		}
	}
	less := func(k gguf.KeyValue) []gguf.KeyValue {
		if k.Key == name+".block_count" {
			k.Value = uint32(layers - 1)
		}
		return []gguf.KeyValue{k}
	}
	wrong, folder := filepath.Join(dir, "wrong.gguf"), shorter(t, golden.Model(t, filepath.Base(src)), int(layers-1))
	rewritten(t, file, wrong, less, plain) // the model's own last layer
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
	for _, key := range []string{"layer_types", "mlp_layer_types", "indexer_types"} {
		if types, ok := config[key].([]any); ok {
			config[key] = types[:layers-1]
		}
	}
	if b, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
