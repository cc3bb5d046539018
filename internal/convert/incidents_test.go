package convert_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// refused converts and expects an error that names all of want, and nothing but
// what was there: the old file at dst, if there is one.
func refused(t *testing.T, src, dst string, o convert.Options, want ...string) {
	t.Helper()
	before, beside := content(t, filepath.Dir(dst))
	_, err := convert.Convert(context.Background(), src, dst, o)
	if err == nil {
		t.Errorf("no error, want %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %.500q, want %q", err, w)
		}
	}
	after, now := content(t, filepath.Dir(dst))
	if !slices.Equal(beside, now) || !bytes.Equal(before, after) {
		t.Errorf("the folder held %q, and now %q", beside, now)
	}
}

// content is the names of a folder's files and all of their bytes.
func content(t *testing.T, dir string) (all []byte, names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		names = append(names, path)
		if err == nil && !d.IsDir() {
			b, err := os.ReadFile(path)
			all = append(all, b...)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, names
}

// spoil copies a model's folder and changes a file in it; a nil result removes it.
func spoil(t *testing.T, name, file string, edit func([]byte) []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(golden.Model(t, name))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if b = edit(b); b == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// out is a file in a folder of its own, where an older one lies.
func out(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.gguf")
	if err := os.WriteFile(path, []byte("older"), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// header changes the header of a safetensors file.
func header(b []byte, edit func(string) string) []byte {
	n := binary.LittleEndian.Uint64(b)
	text := edit(string(b[8 : 8+n]))
	b = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), append([]byte(text), b[8+n:]...)...)
	return b
}

func replace(old, new string) func([]byte) []byte {
	return func(b []byte) []byte {
		return header(b, func(s string) string { return strings.Replace(s, old, new, 1) })
	}
}

// put writes element i of a BF16 tensor.
func put(name string, i int, value uint16) func([]byte) []byte {
	return func(b []byte) []byte {
		n := binary.LittleEndian.Uint64(b)
		var h map[string]struct {
			Offsets [2]int `json:"data_offsets"`
		}
		if json.Unmarshal(b[8:8+n], &h) != nil {
			return b
		}
		binary.LittleEndian.PutUint16(b[8+int(n)+h[name].Offsets[0]+2*i:], value)
		return b
	}
}

// TestHostileTensors are folders whose tensors are wrong (A2, A10, A12, A15, C1).
func TestHostileTensors(t *testing.T) {
	const q, norm = "model.layers.2.self_attn.q_proj.weight", "model.layers.1.input_layernorm.weight"
	index := func(shard string) func([]byte) []byte {
		return func([]byte) []byte { return []byte(`{"weight_map": {"model.norm.weight": "` + shard + `"}}`) }
	}
	size := func(n uint64) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint64(b, n); return b }
	}
	for name, c := range map[string]struct {
		file string
		edit func([]byte) []byte
		want []string
	}{
		"empty":               {"", func([]byte) []byte { return []byte{} }, []string{"the file is empty"}},
		"header beyond file":  {"", size(1 << 23), []string{"its header needs 8388616"}},
		"header of 2^63":      {"", size(1 << 63), []string{"at most"}},
		"header of 0":         {"", size(0), []string{"a header of 0 bytes"}},
		"two of a name":       {"", replace(`"model.layers.0.input_layernorm.weight"`, `"`+norm+`"`), []string{norm, "twice"}},
		"overlap":             {"", replace(`"data_offsets":[0,`, `"data_offsets":[2,`), []string{"data_offsets"}},
		"another shape":       {"", replace(`"shape":[2048,256]`, `"shape":[256,2048]`), []string{"model.embed_tokens", "[256 2048]"}},
		"another type":        {"", replace(`"dtype":"BF16"`, `"dtype":"I16"`), []string{"I16"}},
		"a path as name":      {"", replace(q, "../../../etc/passwd"), []string{"../../../etc/passwd", "model.layers.2.self_attn.q_proj"}},
		"a strange tensor":    {"", replace(q, "model.layers.2.self_attn.q_prox.weight"), []string{"q_prox", "no weight of the architecture claims it"}},
		"a layer too many":    {"", replace(q, "model.layers.9.self_attn.q_proj.weight"), []string{"model.layers.9"}},
		"a pickle":            {"", func([]byte) []byte { return []byte("PK\x03\x04 and more of it") }, []string{"pickle"}},
		"no tensors":          {"", func([]byte) []byte { return nil }, []string{"neither model.safetensors"}},
		"NaN":                 {"", put(q, 300, 0x7fc0), []string{q, "element 300 is NaN"}},
		"infinity":            {"", put("model.layers.0.mlp.up_proj.weight", 77, 0xff80), []string{"mlp.up_proj", "element 77 is -Inf"}},
		"NaN in a norm":       {"", put(norm, 3, 0x7f81), []string{norm, "element 3 is NaN"}},
		"a missing shard":     {"index", index("model-00001-of-00002.safetensors"), []string{"model-00001-of-00002.safetensors"}},
		"a shard outside":     {"index", index("../model.safetensors"), []string{"not a bare file name"}},
		"a shard with a path": {"index", index("/etc/passwd"), []string{"not a bare file name"}},
		"an empty index":      {"index", func([]byte) []byte { return []byte(`{"weight_map": {}}`) }, []string{"weight_map"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ""
			if c.file == "index" {
				dir = spoil(t, "tiny-llama", "model.safetensors.index.json", c.edit)
				if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
					t.Fatal(err)
				}
			} else {
				dir = spoil(t, "tiny-llama", "model.safetensors", c.edit)
			}
			refused(t, dir, out(t), convert.Options{}, c.want...)
		})
	}
}

// TestTruncated cuts a folder's tensors and a GGUF file at many places (A7, A12).
func TestTruncated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "whole.gguf")
	run(t, golden.Model(t, "tiny-qwen2"), file, convert.Options{})
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := os.ReadFile(filepath.Join(golden.Model(t, "tiny-qwen2"), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 24 {
		cut := spoil(t, "tiny-qwen2", "model.safetensors", func(b []byte) []byte { return b[:len(tensors)*i/24] })
		refused(t, cut, out(t), convert.Options{})
		path := filepath.Join(t.TempDir(), "cut.gguf")
		if err := os.WriteFile(path, whole[:len(whole)*i/24], 0o666); err != nil {
			t.Fatal(err)
		}
		refused(t, path, filepath.Join(t.TempDir(), "folder"), convert.Options{})
		refused(t, path, out(t), convert.Options{Type: "f16"})
	}
}

// TestHostileConfig are folders whose configuration or tokenizer lies.
func TestHostileConfig(t *testing.T) {
	for name, c := range map[string]struct{ model, file, old, new, want string }{
		"width":             {"tiny-llama", "config.json", `"hidden_size": 256`, `"hidden_size": 512`, "the configuration says [2048 512]"},
		"a huge width":      {"tiny-llama", "config.json", `"hidden_size": 256`, `"hidden_size": 9223372036854775807`, "hidden_size"},
		"heads":             {"tiny-llama", "config.json", `"num_attention_heads": 8`, `"num_attention_heads": 0`, "num_attention_heads"},
		"heads of keys":     {"tiny-llama", "config.json", `"num_key_value_heads": 2`, `"num_key_value_heads": 3`, "num_key_value_heads"},
		"layers":            {"tiny-llama", "config.json", `"num_hidden_layers": 4`, `"num_hidden_layers": 3`, "model.layers.3"},
		"vocabulary":        {"tiny-llama", "config.json", `"vocab_size": 2048`, `"vocab_size": 2049`, "the configuration says [2049 256]"},
		"activation":        {"tiny-llama", "config.json", `"hidden_act": "silu"`, `"hidden_act": "gelu_pytorch_tanh"`, "hidden_act"},
		"unknown":           {"tiny-llama", "config.json", `"hidden_act"`, `"attention_multiplier": 0.5, "hidden_act"`, "attention_multiplier"},
		"unknown, no part":  {"tiny-qwen3", "config.json", `"hidden_act"`, `"layer_skips": [1], "hidden_act"`, "layer_skips"},
		"a window of Qwen":  {"tiny-qwen3", "config.json", `"use_sliding_window": false`, `"use_sliding_window": true, "sliding_window": 64, "layer_types": ["full_attention", "full_attention", "sliding_attention", "sliding_attention"]`, "GGUF has no key that says which layers"},
		"rope":              {"tiny-llama", "config.json", `"rope_type": "llama3"`, `"rope_type": "ntk"`, "ntk"},
		"biases":            {"tiny-llama", "config.json", `"attention_bias": false`, `"attention_bias": true`, "attention_bias"},
		"a tied head":       {"tiny-qwen2", "config.json", `"tie_word_embeddings": false`, `"tie_word_embeddings": true`, "tie_word_embeddings"},
		"another model":     {"tiny-llama", "config.json", `"model_type": "llama"`, `"model_type": "rwkv"`, "model_type"},
		"Gemma's scale":     {"tiny-gemma3", "config.json", `"query_pre_attn_scalar": 40`, `"query_pre_attn_scalar": 0`, "query_pre_attn_scalar"},
		"experts":           {"tiny-gemma4-moe", "config.json", `"top_k_experts": 2`, `"top_k_experts": 9`, "top_k_experts"},
		"no JSON":           {"tiny-llama", "config.json", `{`, `[`, "config.json"},
		"an id too high":    {"tiny-llama", "generation_config.json", `2041`, `99999`, "eos_token_id"},
		"a merge of none":   {"tiny-qwen3", "tokenizer.json", `"h e"`, `"h qqqq"`, "qqqq"},
		"token id too high": {"tiny-qwen3", "tokenizer.json", `{"!"`, `{"?!": 99999999, "!"`, "99999999"},
		"a regexp bomb":     {"tiny-qwen3", "tokenizer.json", `\\p{N}|`, `(a+)+|`, "regular expression"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := spoil(t, c.model, c.file, func(b []byte) []byte {
				changed := bytes.Replace(b, []byte(c.old), []byte(c.new), 1)
				if bytes.Equal(b, changed) {
					t.Fatalf("%s is not in %s", c.old, c.file)
				}
				return changed
			})
			refused(t, dir, out(t), convert.Options{}, c.want)
		})
	}
	window := spoil(t, "tiny-llama", "config.json", func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"hidden_act"`), []byte(`"sliding_window": 64, "hidden_act"`), 1)
	})
	if r := run(t, window, out(t), convert.Options{}); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "sliding_window") { // as the library
		t.Errorf("a window that Llama does not read: notes %q", r.Notes)
	}
	odd := spoil(t, "tiny-llama", "config.json", func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"hidden_act"`), []byte(`"logit_scale": 0.5, "hidden_act"`), 1)
	})
	refused(t, odd, out(t), convert.Options{}, "logit_scale = 0.5")
	refused(t, odd, out(t), convert.Options{Ignore: []string{"logit_scale", "logit_scales"}}, "no setting logit_scales to ignore")
	if r := run(t, odd, out(t), convert.Options{Ignore: []string{"logit_scale"}}); !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "logit_scale = 0.5 is ignored") }) {
		t.Errorf("notes %q", r.Notes)
	}
	dir := spoil(t, "tiny-qwen3", "tokenizer.json", func([]byte) []byte { return nil })
	refused(t, dir, out(t), convert.Options{}, "none of tokenizer.json, tokenizer.model, vocab.txt and tiktoken.model")
}

// TestOverflow is a weight that bfloat16 holds and binary16 does not.
func TestOverflow(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	dir := spoil(t, "tiny-llama", "model.safetensors", put(name, 5, 0x4780)) // 65536
	refused(t, dir, out(t), convert.Options{Type: "f16"}, name, "65536")
}

// rewrite writes a GGUF file anew, with edits.
func rewrite(t *testing.T, path string, edit func(keys []gguf.KeyValue, tensors []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor)) string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var keys []gguf.KeyValue
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		keys = append(keys, gguf.KeyValue{Key: key, Value: v})
	}
	keys, tensors := edit(keys, f.Tensors())
	to := filepath.Join(t.TempDir(), "edited.gguf")
	if err := gguf.WriteFile(to, func(w io.Writer) error { return gguf.Write(w, keys, tensors) }); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestHostileGGUF are GGUF files that say what a folder cannot.
func TestHostileGGUF(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.gguf")
	run(t, golden.Model(t, "tiny-llama"), file, convert.Options{})
	floats := func(v ...float32) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		return b
	}
	type edit = func([]gguf.KeyValue, []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor)
	key := func(key string, v any) edit {
		return func(keys []gguf.KeyValue, tensors []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor) {
			keys = slices.DeleteFunc(keys, func(kv gguf.KeyValue) bool { return kv.Key == key })
			return append(keys, gguf.KeyValue{Key: key, Value: v}), tensors
		}
	}
	data := func(name string, d tensor.DType, shape tensor.Shape, b []byte) edit {
		return func(keys []gguf.KeyValue, tensors []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor) {
			tensors = slices.DeleteFunc(tensors, func(t tensor.Tensor) bool { return t.Name == name })
			return keys, append(tensors, tensor.Tensor{Name: name, DType: d, Shape: shape, Data: b})
		}
	}
	odd := make([]float32, 16)
	for i := range odd {
		odd[i] = 1 + float32(i)
	}
	norm := make([]float32, 256)
	norm[9] = float32(math.Inf(1))
	for name, c := range map[string]struct {
		edit edit
		want []string
	}{
		"a key that nobody reads":  {key("llama.attention.temperature_scale", float32(0.1)), []string{"llama.attention.temperature_scale"}},
		"unknown frequencies":      {data("rope_freqs.weight", tensor.F32, tensor.Shape{16}, floats(odd...)), []string{"rope_freqs"}},
		"a tensor too many":        {data("blk.0.attn_sinks.weight", tensor.F32, tensor.Shape{1}, floats(1)), []string{"blk.0.attn_sinks"}},
		"infinity":                 {data("output_norm.weight", tensor.F32, tensor.Shape{256}, floats(norm...)), []string{"output_norm.weight", "element 9"}},
		"another size":             {key("llama.embedding_length", uint32(128)), []string{"token_embd", "the configuration says [2048 128]"}},
		"a tokenizer of no kind":   {key("tokenizer.ggml.model", "rwkv"), []string{"rwkv"}},
		"an unknown pre-tokenizer": {key("tokenizer.ggml.pre", "??"), []string{"pre-tokenizer"}},
		"an id too high":           {key("tokenizer.ggml.bos_token_id", uint32(1<<31)), []string{"bos_token_id"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, rewrite(t, file, c.edit), filepath.Join(t.TempDir(), "folder"), convert.Options{}, c.want...)
		})
	}
	infinite := rewrite(t, file, data("output_norm.weight", tensor.F32, tensor.Shape{256}, floats(norm...)))
	refused(t, infinite, out(t), convert.Options{Split: 1 << 20}, "output_norm.weight", "element 9")
}

// TestInterrupted stops conversions on their way: nothing is left of them.
func TestInterrupted(t *testing.T) {
	src := golden.Model(t, "tiny-llama")
	file := filepath.Join(t.TempDir(), "model.gguf")
	run(t, src, file, convert.Options{})
	for _, c := range []struct {
		src, dst string
		split    int64
	}{{src, out(t), 0}, {src, filepath.Join(t.TempDir(), "part.gguf"), 1 << 20}, {file, filepath.Join(t.TempDir(), "folder"), 1 << 20}, {file, out(t), 0}} {
		ctx, cancel := context.WithCancel(context.Background())
		before, names := content(t, filepath.Dir(c.dst))
		calls := 0
		_, err := convert.Convert(ctx, c.src, c.dst, convert.Options{Split: c.split, Progress: func(done, total int64) {
			if calls++; done > total/2 {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) || calls < 3 {
			t.Errorf("%s: %v after %d calls", c.dst, err, calls)
		}
		if after, now := content(t, filepath.Dir(c.dst)); !slices.Equal(names, now) || !bytes.Equal(before, after) {
			t.Errorf("%s: the folder holds %q", c.dst, now)
		}
	}
}

// TestPartRefused: where the last part cannot be put in its place, the parts that were
// there before are there still.
func TestPartRefused(t *testing.T) {
	src, dst := golden.Model(t, "tiny-llama"), filepath.Join(t.TempDir(), "part.gguf")
	parts := run(t, src, dst, convert.Options{Split: 1 << 20}).Files
	for _, path := range parts {
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	last := parts[len(parts)-1]
	_, err := convert.Convert(t.Context(), src, dst, convert.Options{Split: 1 << 20, Progress: func(done, total int64) {
		if done == total {
			if err := errors.Join(os.Remove(last), os.Mkdir(last, 0o700)); err != nil && !errors.Is(err, os.ErrExist) {
				t.Error(err)
			}
		}
	}})
	if err == nil {
		t.Error("a folder was replaced")
	}
	for _, path := range parts[:len(parts)-1] {
		if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
	if _, names := content(t, filepath.Dir(dst)); len(names) != 1+len(parts) { // the folder itself, too
		t.Errorf("the folder holds %q", names)
	}
}

// TestPartName refuses a part's name for a file that is not split: it could not be read.
func TestPartName(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "w-00001-of-00003.gguf")
	if _, err := convert.Convert(t.Context(), golden.Model(t, "tiny-qwen3"), dst, convert.Options{}); err == nil || !strings.Contains(err.Error(), "name of a part") {
		t.Errorf("%s: %v", dst, err)
	}
}
