package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// TestCatalogue wants docs/checking.md to have a line for each finding.
func TestCatalogue(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(golden.Root(t), "docs", "checking.md"))
	if err != nil {
		t.Fatal(err)
	}
	for id, k := range catalogue() {
		line := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", id, k.severity, k.title, k.means, k.fix)
		if !strings.Contains(string(b), line) {
			t.Errorf("docs/checking.md has no line\n%s", line)
		}
		if !slices.Contains(areas, k.area) || k.title == "" || k.means == "" || k.fix == "" {
			t.Errorf("%s: %+v", id, k)
		}
	}
}

// hostile returns files that are not to be judged: each gives an error at once.
func hostile(t testing.TB) map[string][]byte {
	key := func(k string) []byte { return append(binary.LittleEndian.AppendUint64(nil, uint64(len(k))), k...) }
	header := func(tensors, keys uint64, rest ...[]byte) []byte {
		b := append([]byte("GGUF"), 3, 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, tensors)
		b = binary.LittleEndian.AppendUint64(b, keys)
		return append(b, slices.Concat(rest...)...)
	}
	x := tensor.Tensor{Name: "blk.0.attn_q.weight", DType: tensor.F32, Shape: tensor.Shape{4, 4}, Data: make([]byte, 64)}
	m := &model{t: t, meta: []gguf.KeyValue{{Key: "general.architecture", Value: "llama"}}, tensors: []tensor.Tensor{x}}
	good, err := os.ReadFile(m.write())
	if err != nil {
		t.Fatal(err)
	}
	at := func(what string, by ...byte) []byte { // puts bytes after what
		b := slices.Clone(good)
		copy(b[bytes.Index(b, []byte(what))+len(what):], by)
		return b
	}
	return map[string][]byte{
		"A1 data beyond the end": at("blk.0.attn_q.weight", 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1),
		"A2 sizes that wrap":     at("blk.0.attn_q.weight", 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x80),
		"A6 no dimension":        at("blk.0.attn_q.weight", 2, 0, 0, 0, 0, 0, 0, 0),
		"A7 empty":               {}, "A7 four bytes": []byte("GGUF"), "A7 no GGUF": []byte("PK\x03\x04 and more than a few bytes"),
		"A3 counts":     header(1<<62, 1<<63),
		"A4 a long key": header(0, 1, binary.LittleEndian.AppendUint64(nil, 1<<62)),
		"A5 an array":   header(0, 1, key("a"), []byte{9, 0, 0, 0, 8, 0, 0, 0}, binary.LittleEndian.AppendUint64(nil, 1<<32)),
		"A8 truncated":  good[:len(good)-8], "A8 trailing bytes": append(slices.Clone(good), make([]byte, 4096)...),
	}
}

func TestHostile(t *testing.T) {
	for name, data := range hostile(t) {
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), path, Options{})
		if err == nil || r != nil || !strings.Contains(err.Error(), "model.gguf") {
			t.Errorf("%s: report %v, error %v", name, r, err)
		}
	}
}

// TestSplit checks split files by any of their parts, and wants an error where a part is missing.
func TestSplit(t *testing.T) {
	dir := t.TempDir()
	source := golden.Model(t, "tiny-qwen3")
	made, err := convert.Convert(t.Context(), source, filepath.Join(dir, "m.gguf"), convert.Options{Split: 2 << 20})
	if err != nil || len(made.Files) < 3 {
		t.Fatalf("%+v, %v", made, err)
	}
	for _, path := range made.Files {
		r, err := Run(t.Context(), path, Options{Against: source})
		if err != nil || len(r.Findings) > 0 || r.Compared != 46 {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
	if err := os.Remove(made.Files[1]); err != nil {
		t.Fatal(err)
	}
	if r, err := Run(t.Context(), made.Files[0], Options{}); err == nil || r != nil || !strings.Contains(err.Error(), "part 2 of") {
		t.Errorf("without part 2: %+v, %v", r, err)
	}
	folder := filepath.Join(dir, "hf")
	if _, err := convert.Convert(t.Context(), source, filepath.Join(dir, "one.gguf"), convert.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := convert.Convert(t.Context(), filepath.Join(dir, "one.gguf"), folder, convert.Options{Split: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	if r, err := Run(t.Context(), folder, Options{Against: source}); err != nil || len(r.Findings) > 0 {
		t.Errorf("a folder of several files: %+v, %v", r, err)
	}
}

// TestHostileFolders has folders that are no models, and a source that is none.
func TestHostileFolders(t *testing.T) {
	good := golden.Model(t, "tiny-qwen2")
	for name, files := range map[string]map[string]string{
		"nothing":     {},
		"A15 pickle":  {"config.json": `{"model_type": "llama"}`, "pytorch_model.bin": "\x80\x02}q"},
		"no object":   {"config.json": `[1, 2]`},
		"A12 no JSON": {"config.json": `{"model_type": "llama"}`, "model.safetensors": "\xff\xff\xff\xff\xff\xff\xff\xff{}"},
		"deep":        {"config.json": strings.Repeat(`{"a":`, 20000)},
	} {
		dir := t.TempDir()
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := Run(t.Context(), dir, Options{}); err == nil || r != nil {
			t.Errorf("%s: report %v, error %v", name, r, err)
		}
		if r, err := Run(t.Context(), good, Options{Against: dir}); err == nil || r != nil || !strings.Contains(err.Error(), "source") {
			t.Errorf("%s as a source: report %v, error %v", name, r, err)
		}
	}
	pickle := filepath.Join(t.TempDir(), "model.pth")
	if err := os.WriteFile(pickle, []byte("\x80\x02}q"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), pickle, Options{}); err == nil || !strings.Contains(err.Error(), "pickle") {
		t.Errorf("a pickle: %v", err)
	}
}

// TestEnd wants a check to stop soon when its context ends, and progress that grows to the end.
func TestEnd(t *testing.T) {
	path := golden.Model(t, "tiny-gemma4")
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := Run(ctx, path, Options{Progress: func(done, all int64) {
		if calls++; calls == 1 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || calls > 12 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	var last, total int64
	if _, err := Run(t.Context(), path, Options{Against: path, Progress: func(done, all int64) {
		if done < last || done > all {
			t.Errorf("progress %d after %d, of %d", done, last, all)
		}
		last, total = done, all
	}}); err != nil || last != total || total == 0 {
		t.Errorf("progress ended at %d of %d, error %v", last, total, err)
	}
}

// TestProgressEnds: what Progress panics with is the caller's, and a Progress that ends its goroutine ends the
// caller's, not the check's.
func TestProgressEnds(t *testing.T) {
	path := golden.Model(t, "tiny-llama")
	run := func(progress func(done, total int64)) (said any) {
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			Run(t.Context(), path, Options{Progress: progress})
		}()
		return <-ended
	}
	if said := run(func(int64, int64) { panic("enough") }); said != "enough" {
		t.Errorf("a panic comes as %v", said)
	}
	if said := run(func(int64, int64) { runtime.Goexit() }); said != nil {
		t.Errorf("the end of a goroutine comes as %v", said)
	}
}

// TestStable wants the same JSON from each run, with lists where there is nothing.
func TestStable(t *testing.T) {
	m := read(t, golden.Model(t, "tiny-llama"))
	m.set("logits_scaling", 8.)
	m.set("residual_multiplier", 0.5)
	m.tensor("model.layers.1.mlp.up_proj").Data = m.tensor("model.layers.2.mlp.up_proj").Data
	m.tensor("model.layers.3.self_attn.v_proj").Data = noise(m, 64*256)
	path := m.write()
	var first []byte
	for range 3 {
		r, err := Run(t.Context(), path, Options{Against: golden.Model(t, "tiny-llama")})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if string(b) != string(first) {
			t.Errorf("%s\nbefore %s", b, first)
		}
	}
	for _, want := range []string{`"id":"config-unread"`, `"id":"tensor-duplicate"`, `"id":"source-differs"`, `"severity":"error"`, `"area":"source"`} {
		if !strings.Contains(string(first), want) {
			t.Errorf("no %s in %s", want, first)
		}
	}
	r, err := Run(t.Context(), golden.Model(t, "tiny-llama"), Options{})
	if err != nil || r.Findings == nil || !r.Clean() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCorpus keeps FuzzRun's committed corpus; -update writes it.
func TestCorpus(t *testing.T) {
	seeds := map[string][]byte{"good": tiny(t)}
	for name, data := range hostile(t) {
		seeds[name] = data
	}
	golden.Corpus(t, "FuzzRun", seeds, *update)
}

// FuzzRun: of any file there is a report or an error, and never a panic.
func FuzzRun(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), path, Options{})
		if (r == nil) == (err == nil) {
			t.Errorf("report %v, error %v", r, err)
		}
	})
}

var update = flag.Bool("update", false, "write testdata/fuzz again")

// tiny returns a GGUF file of a few kilobytes that loads.
func tiny(t testing.TB) []byte {
	m := &model{t: t}
	m.meta = []gguf.KeyValue{{Key: "general.architecture", Value: "llama"}}
	for key, v := range map[string]uint32{"block_count": 1, "context_length": 512, "embedding_length": 16, "feed_forward_length": 16,
		"attention.head_count": 2, "attention.head_count_kv": 1} {
		m.meta = append(m.meta, gguf.KeyValue{Key: "llama." + key, Value: v})
	}
	m.meta = append(m.meta, gguf.KeyValue{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		gguf.KeyValue{Key: "llama.rope.freq_base", Value: float32(1e4)})
	for name, shape := range map[string]tensor.Shape{"token_embd": {20, 16}, "output_norm": {16}, "blk.0.attn_norm": {16}, "blk.0.ffn_norm": {16},
		"blk.0.attn_q": {16, 16}, "blk.0.attn_k": {8, 16}, "blk.0.attn_v": {8, 16}, "blk.0.attn_output": {16, 16},
		"blk.0.ffn_gate": {16, 16}, "blk.0.ffn_up": {16, 16}, "blk.0.ffn_down": {16, 16}} {
		v := make([]float32, shape.Size())
		for i := range v {
			v[i] = float32(i*37%64-31) / 512 // of the same bits everywhere
		}
		x := tensor.Tensor{Name: name + ".weight", DType: tensor.BF16, Shape: shape}
		store(&x, v)
		m.tensors = append(m.tensors, x)
	}
	slices.SortFunc(m.tensors, func(a, b tensor.Tensor) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.meta, func(a, b gguf.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	b, err := os.ReadFile(m.write())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOtherSource wants a source of another architecture told of: what was not compared is not clean.
func TestOtherSource(t *testing.T) {
	r, err := Run(t.Context(), golden.Model(t, "tiny-llama"), Options{Against: golden.Model(t, "tiny-qwen3")})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].ID != "source-settings" || r.Clean() {
		t.Errorf("found %v", r.Findings)
	}
}
