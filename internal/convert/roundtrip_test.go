package convert_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// folder reads the tensors of a Hugging Face folder by name.
func folder(t *testing.T, dir string) map[string]tensor.Tensor {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	if _, err := os.Stat(path); err != nil {
		path += ".index.json"
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	all := map[string]tensor.Tensor{}
	for _, x := range f.Tensors {
		all[x.Name] = x
	}
	return all
}

// logits are those after the last token of each of the record's first prompts, and
// the prompts' ids as the model's tokenizer gives them.
func logits(t *testing.T, path string, r *golden.Recording) (all [][]float32, ids [][]int) {
	t.Helper()
	m, err := karat.Load(t.Context(), path, karat.Options{Precision: karat.Float32, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, p := range r.Prompts[:3] {
		x, err := m.Logits(context.Background(), p.IDs)
		if err != nil {
			t.Fatal(err)
		}
		own, err := m.Tokenize(t.Context(), p.Text, karat.TokenizeOptions{ParseSpecial: len(p.Prompt.Chat) > 0})
		if err != nil {
			t.Fatal(err)
		}
		all, ids = append(all, x[len(x)-1]), append(ids, own)
	}
	return all, ids
}

// TestRoundTrip takes each model to GGUF and back: the same tensors byte for byte,
// the same ids, and logits of the same bits. Those of the GGUF file have the same
// bits, too, but for models whose rope is scaled as Llama 3's: its frequencies are a quotient there; they lie
// within the noise floor of the record.
func TestRoundTrip(t *testing.T) {
	for _, name := range golden.Sample(slices.Concat(golden.Models(t), golden.Families(t))) {
		t.Run(name, func(t *testing.T) {
			dir, src := t.TempDir(), golden.Model(t, name)
			file, back := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "back")
			o := convert.Options{}
			config, _ := os.ReadFile(filepath.Join(src, "config.json"))
			scaled := strings.Contains(string(config), `"llama3"`)
			folded := name == "falconh1" // the multipliers are in the weights, and stay there
			if folded {
				o.Type = "F32"
			}
			run(t, src, file, o)
			run(t, file, back, convert.Options{Split: 1 << 20})
			want, got := folder(t, src), folder(t, back)
			if len(want) != len(got) {
				t.Errorf("%d tensors became %d", len(want), len(got))
			}
			for name, x := range want {
				if y := got[name]; folded {
					if !slices.Equal(x.Shape, y.Shape) {
						t.Errorf("tensor %s: %v became %v", name, x.Shape, y.Shape)
					}
				} else if x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) || !bytes.Equal(x.Data, y.Data) {
					t.Errorf("tensor %s: %v %v became %v %v", name, x.DType, x.Shape, y.DType, y.Shape)
				}
			}
			r := golden.Record(t, name)
			here, ids := logits(t, src, r)
			gguf, ggufIDs := logits(t, file, r)
			there, backIDs := logits(t, back, r)
			if !reflect.DeepEqual(ids, ggufIDs) || !reflect.DeepEqual(ids, backIDs) {
				t.Errorf("ids %v became %v and %v", ids, ggufIDs, backIDs)
			}
			for i, p := range r.Prompts[:3] {
				if d := distance(here[i], gguf[i]); d > 0 && (!scaled && !folded || d > 2*p.Float32.MaxAbsDiff) {
					t.Errorf("prompt %d: logits of the GGUF file are %g off", i, d)
				}
				if folded {
					here[i] = gguf[i]
				}
				if d := distance(here[i], there[i]); d > 0 {
					t.Errorf("prompt %d: logits of the folder are %g off", i, d)
				}
			}
		})
	}
}

// TestEncodersBack takes each encoder to GGUF and back: the same tensors byte for byte, those of its
// dense layers in their folders, and vectors of the same bits.
func TestEncodersBack(t *testing.T) {
	for _, name := range golden.Encoders(t) {
		src, file, back := thereAndBack(t, name)
		inside, err := filepath.Glob(filepath.Join(src, "*_Dense"))
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range append(inside, src) {
			rel, err := filepath.Rel(src, from)
			if err != nil {
				t.Fatal(err)
			}
			want, got := folder(t, from), map[string]tensor.Tensor{}
			for tensorName, x := range folder(t, filepath.Join(back, rel)) {
				if _, ok := want[tensorName]; !ok { // the source is of the module alone
					_, tensorName, _ = strings.Cut(tensorName, ".")
				}
				got[tensorName] = x
			}
			delete(want, "pooler.dense.weight") // which no vector is made with
			delete(want, "pooler.dense.bias")
			sameTensors(t, name+"/"+rel, got, want)
		}
		want := vectors(t, src)
		for _, path := range []string{file, back} {
			if got := vectors(t, path); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: vectors of %s differ", name, filepath.Base(path))
			}
		}
	}
}

// TestRerankersBack takes each reranker to GGUF and back: the same tensors, but for the rows of padding, and scores of the same bits.
func TestRerankersBack(t *testing.T) {
	for _, name := range golden.Rerankers(t) {
		src, file, back := thereAndBack(t, name)
		want, got := folder(t, src), folder(t, back)
		const positions = "roberta.embeddings.position_embeddings.weight"
		x, y := want[positions], got[positions]
		padding := 2 * x.DType.RowBytes(x.Shape[1])
		if !slices.Equal(x.Shape, y.Shape) || bytes.ContainsFunc(y.Data[:padding], func(r rune) bool { return r != 0 }) {
			t.Errorf("%s: positions %v became %v, or the rows of padding are not zero", name, x.Shape, y.Shape)
		}
		x.Data, y.Data = x.Data[padding:], y.Data[padding:]
		want[positions], got[positions] = x, y
		sameTensors(t, name, got, want)
		scores := ranks(t, src)
		for _, path := range []string{file, back} {
			if got := ranks(t, path); !reflect.DeepEqual(got, scores) {
				t.Errorf("%s: scores of %s are %v, want %v", name, filepath.Base(path), got, scores)
			}
		}
		far := filepath.Join(t.TempDir(), "far.gguf")
		rewritten(t, file, far, func(k gguf.KeyValue) []gguf.KeyValue {
			if k.Key == "tokenizer.ggml.padding_token_id" {
				k.Value = uint32(1 << 20)
			}
			return []gguf.KeyValue{k}
		}, tensorsOf(t, file))
		_, err := convert.Convert(t.Context(), far, back+"2", convert.Options{})
		if err == nil || !strings.Contains(err.Error(), "tokenizer.ggml.padding_token_id is 1048576, expected a whole number from 0 to 1024") {
			t.Errorf("%s: with a million rows of padding: %v", name, err)
		}
	}
}

// thereAndBack makes a file of a model's folder, and a folder of it.
func thereAndBack(t *testing.T, name string) (src, file, back string) {
	dir := t.TempDir()
	src, file, back = golden.Model(t, name), filepath.Join(dir, "model.gguf"), filepath.Join(dir, "back")
	run(t, src, file, convert.Options{})
	run(t, file, back, convert.Options{})
	return src, file, back
}

func sameTensors(t *testing.T, of string, got, want map[string]tensor.Tensor) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: %d tensors became %d", of, len(want), len(got))
	}
	for name, x := range want {
		if y := got[name]; x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) || !bytes.Equal(x.Data, y.Data) {
			t.Errorf("%s: tensor %s: %v %v became %v %v", of, name, x.DType, x.Shape, y.DType, y.Shape)
		}
	}
}

// ranks are the scores of a few documents.
func ranks(t *testing.T, path string) []karat.RerankResult {
	t.Helper()
	m, err := karat.Load(t.Context(), path, karat.Options{Precision: karat.Float32, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	all, err := m.Rerank(t.Context(), "The sky is blue.", []string{"Füße 你好, naïve CAFÉ", "x", "sky"}, karat.RerankOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRankBack takes a file to a folder whose pooling makes a score, as llama.cpp writes it of rerankers: it has no modules of a vector.
func TestRankBack(t *testing.T) {
	dir := t.TempDir()
	file, rank, back := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "rank.gguf"), filepath.Join(dir, "back")
	run(t, golden.Model(t, "bert"), file, convert.Options{})
	rewritten(t, file, rank, func(k gguf.KeyValue) []gguf.KeyValue {
		if k.Key == "bert.pooling_type" {
			k.Value = uint32(4)
		}
		return []gguf.KeyValue{k}
	}, tensorsOf(t, file))
	run(t, rank, back, convert.Options{})
	if _, err := os.Stat(filepath.Join(back, "modules.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// vectors are those of a few texts.
func vectors(t *testing.T, path string) [][]float32 {
	t.Helper()
	m, err := karat.Load(t.Context(), path, karat.Options{Precision: karat.Float32, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	all, err := m.Embed(t.Context(), []string{"The sky is blue.", "Füße 你好, naïve CAFÉ", "x"}, karat.EmbedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func distance(a, b []float32) (d float64) {
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

// TestSplit divides a file as gguf-split does, and joins it again to the same bytes.
func TestSplit(t *testing.T) {
	dir := t.TempDir()
	one, parts, joined := filepath.Join(dir, "one.gguf"), filepath.Join(dir, "parts.gguf"), filepath.Join(dir, "joined.gguf")
	src := golden.Model(t, "tiny-llama")
	run(t, src, one, convert.Options{})
	const limit = 1 << 20
	r := run(t, src, parts, convert.Options{Split: limit})
	if len(r.Files) < 4 || filepath.Base(r.Files[2]) != "parts-00003-of-0000"+string(rune('0'+len(r.Files)))+".gguf" {
		t.Fatalf("files %q", r.Files)
	}
	for i, path := range r.Files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > limit+100<<10 {
			t.Errorf("part %d has %d bytes", i, len(b))
		}
		if i > 0 && bytes.Contains(b, []byte("general.architecture")) {
			t.Errorf("part %d repeats the metadata", i)
		}
	}
	for _, part := range []int{0, 2} {
		run(t, r.Files[part], joined, convert.Options{})
		same(t, one, joined)
	}
	again := run(t, r.Files[0], filepath.Join(dir, "again-00001-of-00009.gguf"), convert.Options{Split: 1 << 30})
	if len(again.Files) != 1 || filepath.Base(again.Files[0]) != "again-00001-of-00001.gguf" {
		t.Errorf("files %q", again.Files)
	}
	f, err := gguf.Open(again.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// TestTypes converts in one step and in two, which is the same, and names a type
// that there is not.
func TestTypes(t *testing.T) {
	dir, src := t.TempDir(), golden.Model(t, "tiny-qwen2")
	plain := filepath.Join(dir, "plain.gguf")
	run(t, src, plain, convert.Options{})
	for _, kind := range []string{"f32", "F16", "bf16", "Q8_0", "q4_0"} {
		one, two := filepath.Join(dir, "1.gguf"), filepath.Join(dir, "2.gguf")
		a, b := run(t, src, one, convert.Options{Type: kind}), run(t, plain, two, convert.Options{Type: kind})
		x, y := read(t, one), read(t, two)
		if !reflect.DeepEqual(x, y) || !reflect.DeepEqual(a.Types, b.Types) {
			t.Errorf("%s: %v in one step, %v in two", kind, a.Types, b.Types)
		}
	}
	for _, o := range []convert.Options{{Type: "q9"}, {Split: -1}} {
		if _, err := convert.Convert(context.Background(), src, filepath.Join(dir, "x.gguf"), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	for dst, want := range map[string]string{filepath.Join(dir, "folder"): "nothing to convert", dir: "not empty", filepath.Join(dir, "no", "x.gguf"): "no such file"} {
		if _, err := convert.Convert(context.Background(), src, dst, convert.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dst, err, want)
		}
	}
	if _, err := convert.Convert(context.Background(), plain, filepath.Join(dir, "folder"), convert.Options{Type: "Q4_0"}); err == nil {
		t.Error("a folder of Q4_0: no error")
	}
	if _, err := convert.Convert(context.Background(), plain, plain, convert.Options{}); err == nil || !strings.Contains(err.Error(), "would be replaced") {
		t.Errorf("a file in its own place: %v", err)
	}
}

// TestQuantized turns a quantized file into a folder of F32, which computes the same
// bits, and does not quantize it again.
func TestQuantized(t *testing.T) {
	dir, name := t.TempDir(), "tiny-gemma3"
	file, folder := filepath.Join(dir, "q.gguf"), filepath.Join(dir, "folder")
	run(t, golden.Model(t, name), file, convert.Options{Type: "Q8_0"})
	if r := run(t, file, folder, convert.Options{}); r.Types["F32"] != r.Tensors {
		t.Errorf("types %v", r.Types)
	}
	r := golden.Record(t, name)
	here, _ := logits(t, file, r)
	there, _ := logits(t, folder, r)
	for i := range here {
		if d := distance(here[i], there[i]); d > 0 {
			t.Errorf("prompt %d: logits are %g off", i, d)
		}
	}
	if _, err := convert.Convert(context.Background(), file, filepath.Join(dir, "x.gguf"), convert.Options{Type: "Q4_0"}); !errors.Is(err, convert.ErrRequantize) {
		t.Errorf("Q4_0 of Q8_0: %v", err)
	}
}
