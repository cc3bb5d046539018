package arch_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
)

// write puts a file into a folder and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// create makes a file, without waiting for the disk.
func create(t testing.TB, path string, write func(io.Writer) error) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// sparse makes a file of 1 GiB that takes no room.
func sparse(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Truncate(write(t, dir, name, ""), 1<<30); err != nil {
		t.Fatal(err)
	}
}

// TestIncidentFiles is rows A7, A11, A12, A13 and A15 where a path is given
// that leads to no model, or to a part of one.
func TestIncidentFiles(t *testing.T) {
	const pickle = "\x80\x02}q\x00."
	for _, c := range []struct {
		row  string
		make func(t *testing.T, dir string) (path string) // in the folder of a sound model
		want []string
	}{
		{"A7 nothing there", func(t *testing.T, dir string) string { return dir + "x" }, []string{"no such file"}},
		{"A7 no config.json", func(t *testing.T, dir string) string { os.Remove(dir + "/config.json"); return dir }, []string{"without config.json"}},
		{"A7 a folder of GGUF files", func(t *testing.T, dir string) string {
			os.Remove(dir + "/config.json")
			write(t, dir, "m.gguf", "")
			return dir
		}, []string{"for GGUF give the file, such as", "m.gguf"}},
		{"A7 config.json a folder", func(t *testing.T, dir string) string {
			os.Remove(dir + "/config.json")
			os.Mkdir(dir+"/config.json", 0o755)
			return dir
		}, []string{"config.json: not a regular file"}},
		{"A7 config.json of 1 GiB", func(t *testing.T, dir string) string { sparse(t, dir, "config.json"); return dir }, []string{"config.json: 1073741824 bytes, expected at most 1048576"}},
		{"A7 config.json of numbers", func(t *testing.T, dir string) string { write(t, dir, "config.json", "[1,2]"); return dir }, []string{"config.json: a JSON array, want an object"}},
		{"A7 config.json null", func(t *testing.T, dir string) string { write(t, dir, "config.json", "null"); return dir }, []string{"config.json: null, expected an object"}},
		{"A7 config.json empty", func(t *testing.T, dir string) string { write(t, dir, "config.json", ""); return dir }, []string{"config.json: no JSON at byte 0: it ends too early"}},
		{"A12 config.json deep", func(t *testing.T, dir string) string {
			write(t, dir, "config.json", strings.Repeat(`{"a":`, 1<<17)+"1"+strings.Repeat("}", 1<<17))
			return dir
		}, []string{"config.json: no JSON at byte 50001", "max depth"}},
		{"A5 config.json full of objects", func(t *testing.T, dir string) string {
			write(t, dir, "config.json", `{"model_type":"llama","x":[`+strings.Repeat("{},[],", 170000)+`0]}`)
			return dir
		}, []string{"hidden_size is missing"}},
		{"A7 generation_config.json of 1 GiB", func(t *testing.T, dir string) string { sparse(t, dir, "generation_config.json"); return dir }, []string{"generation_config.json: 1073741824 bytes"}},
		{"A7 generation_config.json broken", func(t *testing.T, dir string) string {
			write(t, dir, "generation_config.json", `{"top_k":"x"}`)
			return dir
		}, []string{"generation_config.json: ", "top_k"}},
		{"A7 chat_template.jinja of 1 GiB", func(t *testing.T, dir string) string { sparse(t, dir, "chat_template.jinja"); return dir }, []string{"chat_template.jinja: 1073741824 bytes"}},
		{"A7 tokenizer_config.json broken", func(t *testing.T, dir string) string {
			write(t, dir, "tokenizer_config.json", `{"chat_template":7}`)
			return dir
		}, []string{"tokenizer_config.json: chat_template:"}},
		{"A9 end of turn beyond the vocabulary", func(t *testing.T, dir string) string {
			write(t, dir, "generation_config.json", `{"eos_token_id":[1,48]}`)
			return dir
		}, []string{"eos_token_id is 48, expected 0 to 47"}},
		{"A9 end of turn a fraction", func(t *testing.T, dir string) string {
			write(t, dir, "generation_config.json", `{"eos_token_id":1.5}`)
			return dir
		}, []string{"generation_config.json: ids of tokens: 1.5, want an integer"}},
		{"A9 end of turn no number", func(t *testing.T, dir string) string {
			write(t, dir, "generation_config.json", `{"eos_token_id":"</s>"}`)
			return dir
		}, []string{`generation_config.json: ids of tokens: "</s>", want an integer`}},
		{"A11 no tensors", func(t *testing.T, dir string) string { os.Remove(dir + "/model.safetensors"); return dir }, []string{"neither model.safetensors nor model.safetensors.index.json is there"}},
		{"A11 a seed for weights", func(t *testing.T, dir string) string {
			os.Remove(dir + "/model.safetensors")
			write(t, dir, "seed.json", "{}")
			return dir
		}, []string{"holds seed.json but no model.safetensors"}},
		{"A11 a shard is missing", func(t *testing.T, _ string) string {
			dir := synthetic("llama").writeShards(t)
			os.Remove(dir + "/model-00002.safetensors")
			return dir
		}, []string{"model-00002.safetensors", "no such file"}},
		{"A12 tensors' header too long", func(t *testing.T, dir string) string {
			write(t, dir, "model.safetensors", "\xff\xff\xff\xff\xff\x00\x00\x00{}")
			return dir
		}, []string{"model.safetensors", "header"}},
		{"A13 index to another folder", func(t *testing.T, dir string) string { return index(t, dir, "../model.safetensors") }, []string{`"../model.safetensors" is not a bare file name`}},
		{"A13 index to the root", func(t *testing.T, dir string) string { return index(t, dir, "/etc/passwd") }, []string{`"/etc/passwd" is not a bare file name`}},
		{"A13 index to a pickle", func(t *testing.T, dir string) string { return index(t, dir, "pytorch_model.bin") }, []string{"pickle"}},
		{"A13 index to config.json", func(t *testing.T, dir string) string { return index(t, dir, "config.json") }, []string{`"config.json" is not a .safetensors file`}},
		{"A15 .bin", func(t *testing.T, dir string) string { return write(t, dir, "pytorch_model.bin", pickle) }, []string{"Python pickle", "use safetensors or GGUF"}},
		{"A15 .pt", func(t *testing.T, dir string) string { return write(t, dir, "model.PT", pickle) }, []string{"Python pickle", "use safetensors or GGUF"}},
		{"A15 .pth", func(t *testing.T, dir string) string { return write(t, dir, "consolidated.00.pth", pickle) }, []string{"Python pickle", "use safetensors or GGUF"}},
		{"A15 renamed to GGUF", func(t *testing.T, dir string) string { return write(t, dir, "model.gguf", pickle) }, []string{"Python pickle", "never run"}},
		{"A15 renamed to safetensors", func(t *testing.T, dir string) string {
			write(t, dir, "model.safetensors", pickle+"        ")
			return dir
		}, []string{"pickle"}},
		{"A15 a folder of pickles", func(t *testing.T, dir string) string {
			os.Remove(dir + "/model.safetensors")
			write(t, dir, "pytorch_model.bin", pickle)
			return dir
		}, []string{"holds pytorch_model.bin but no model.safetensors", "pickle"}},
		{"A15 safetensors given", func(t *testing.T, dir string) string { return dir + "/model.safetensors" }, []string{"one file of a Hugging Face model; give its folder"}},
		{"A15 config.json given", func(t *testing.T, dir string) string { return dir + "/config.json" }, []string{"one file of a Hugging Face model; give its folder"}},
	} {
		t.Run(c.row, func(t *testing.T) { fails(t, c.make(t, synthetic("llama").write(t)), c.want...) })
	}
}

// index replaces a folder's tensors by an index that names file.
func index(t *testing.T, dir, file string) string {
	t.Helper()
	if err := os.Remove(dir + "/model.safetensors"); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "model.safetensors.index.json", fmt.Sprintf(`{"weight_map":{"model.norm.weight":%q}}`, file))
	return dir
}

// TestIncidentTruncated is row A7 for config.json, at every byte.
func TestIncidentTruncated(t *testing.T) {
	dir := synthetic("gemma4-e2b").write(t)
	whole, err := os.ReadFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		write(t, dir, "config.json", string(whole[:n]))
		fails(t, dir, "config.json: ")
	}
}

// TestIncidentTokenizer is row A9: the tokenizer is checked against the model.
func TestIncidentTokenizer(t *testing.T) {
	const n = 300
	m := synthetic("llama")
	m.drop("model.embed_tokens")
	m.matrix("model.embed_tokens", n, hidden)
	m.config["vocab_size"] = float64(n)
	tokens := make([]string, n+1)
	types := make([]int32, n+1)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("<%d>", i)
		if types[i] = 1; i < 256 {
			tokens[i], types[i] = fmt.Sprintf("<0x%02X>", i), 6
		}
	}
	inGGUF := func(edit func(kv map[string]any)) string {
		return toGGUF(t, m.write(t), func(f *file) {
			kv := map[string]any{"model": "llama", "tokens": tokens[:n], "scores": make([]float32, n), "token_type": types[:n], "eos_token_id": uint32(299)}
			edit(kv)
			for k, v := range kv {
				f.metadata = append(f.metadata, gguf.KeyValue{Key: "tokenizer.ggml." + k, Value: v})
			}
		})
	}
	sound, err := checkpoint.Open(inGGUF(func(map[string]any) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer sound.Close()
	if _, err := sound.Tokenizer(); err != nil {
		t.Fatal(err)
	}
	special, err := checkpoint.Open(inGGUF(func(kv map[string]any) {
		kv["tokens"], kv["scores"], kv["token_type"] = tokens, make([]float32, n+1), append(slices.Clone(types[:n]), 3)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer special.Close()
	if tok, err := special.Tokenizer(); err != nil || tok.VocabSize() != n+1 {
		t.Errorf("a special token behind the embedding, as Gemma 3's text models have one: %v", err)
	}
	for _, none := range []any{uint32(1<<32 - 1), int32(-1)} { // as llama.cpp writes that there is none
		m, err := checkpoint.Open(inGGUF(func(kv map[string]any) { kv["padding_token_id"] = none }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Tokenizer(); err != nil {
			t.Errorf("padding %v: %v", none, err)
		}
		m.Close()
	}
	folder := synthetic("llama").write(t)
	json, err := os.ReadFile(filepath.Join(golden.Repo(t), "models", "tiny-llama", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, "tokenizer.json", string(json))
	huge := synthetic("llama").write(t)
	sparse(t, huge, "tokenizer.json")
	many := make([]string, 300_000)
	var list strings.Builder
	for i := range many {
		many[i] = fmt.Sprintf("<%d>", i)
		fmt.Fprintf(&list, `%q:%d,`, many[i], i)
	}
	long := synthetic("llama").write(t)
	write(t, long, "tokenizer.json", `{"model":{"vocab":{`+strings.TrimSuffix(list.String(), ",")+`},"merges":[]}}`)
	for _, c := range []struct {
		row, path string
		want      string
	}{
		{"far more tokens than rows", long, "tokenizer.json: 5177813 bytes, expected at most"},
		{"far more tokens than rows in GGUF", inGGUF(func(kv map[string]any) {
			kv["tokens"], kv["scores"], kv["token_type"] = many, make([]float32, len(many)), make([]int32, len(many))
		}), "the tokenizer has 300000 tokens, but the model embeds 300"},
		{"no tokenizer", synthetic("llama").write(t), "none of tokenizer.json, tokenizer.model, vocab.txt and tiktoken.model is there"},
		{"tokenizer.json of 1 GiB", huge, "tokenizer.json: 1073741824 bytes"},
		{"more tokens than rows", folder, "the tokenizer has 2048 tokens, but the model embeds 48"},
		{"more tokens than rows in GGUF", inGGUF(func(kv map[string]any) {
			kv["tokens"], kv["scores"], kv["token_type"] = tokens, make([]float32, n+1), types
		}), "the tokenizer has 301 tokens, but the model embeds 300"},
		{"end beyond the vocabulary", inGGUF(func(kv map[string]any) { kv["eos_token_id"] = uint32(n) }), "300"},
		{"end 2^32-2", inGGUF(func(kv map[string]any) { kv["eos_token_id"] = uint32(1<<32 - 2) }), "4294967294"},
		{"end negative", inGGUF(func(kv map[string]any) { kv["eos_token_id"] = int32(-2) }), "-2"},
		{"end a string", inGGUF(func(kv map[string]any) { kv["eos_token_id"] = "2" }), "eos_token_id"},
		{"type 2^32", inGGUF(func(kv map[string]any) { kv["token_type"] = append(make([]int64, n-1), 1<<32) }), "token_type: 4294967296 for token 299 is no type"},
		{"no tokens", inGGUF(func(kv map[string]any) { delete(kv, "tokens") }), "tokens"},
	} {
		t.Run(c.row, func(t *testing.T) {
			m, err := checkpoint.Open(c.path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = m.Tokenizer()
			if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 8<<20 {
				t.Errorf("%d bytes of memory", after.TotalAlloc-before.TotalAlloc)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestIncidentSplit is row A11: the parts of a split GGUF file make the same
// graph as one file, and not without each other.
func TestIncidentSplit(t *testing.T) {
	var whole *file
	single := toGGUF(t, synthetic("qwen3").write(t), func(f *file) { whole = f })
	dir := t.TempDir()
	const parts = 3
	var paths []string
	for i := range parts {
		f := file{metadata: []gguf.KeyValue{{Key: "split.no", Value: uint16(i)}, {Key: "split.count", Value: uint16(parts)}, {Key: "split.tensors.count", Value: int32(len(whole.tensors))}}}
		if i == 0 {
			f.metadata = append(f.metadata, whole.metadata...)
		}
		f.tensors = whole.tensors[i*len(whole.tensors)/parts : (i+1)*len(whole.tensors)/parts]
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, parts)))
		create(t, paths[i], func(w io.Writer) error { return gguf.Write(w, f.metadata, f.tensors) })
	}
	want := printed(t, single)
	for _, path := range []string{paths[0], paths[2]} {
		if got := printed(t, path); got != want {
			t.Errorf("%s: %s", path, difference(got, want))
		}
	}
	if err := os.Rename(paths[1], paths[1]+"x"); err != nil {
		t.Fatal(err)
	}
	fails(t, paths[0], "part 2 of 3", paths[1])
}

// TestIncidentShrunk is row A11: a file that shrinks while it is open.
func TestIncidentShrunk(t *testing.T) {
	path := toGGUF(t, synthetic("llama").write(t), nil) // whose rows are put in order while it is loaded
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := arch.Load(c); err == nil || !strings.Contains(err.Error(), "shrank") {
		t.Errorf("got %v", err)
	}
}
