package karat_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// put writes files of a folder by their names.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// lastPooling are the files that Qwen3-Embedding's folder has.
var lastPooling = map[string]string{
	"modules.json": `[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
		{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
		{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`,
	"1_Pooling/config.json":             `{"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":false,"pooling_mode_lasttoken":true,"include_prompt":true}`,
	"config_sentence_transformers.json": `{"prompts":{"query":"Query: ","document":""},"default_prompt_name":null}`,
}

// embedding loads a copy of a model's folder with files.
func embedding(t *testing.T, name string, files map[string]string, o karat.Options) *karat.Model {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(golden.Model(t, name))); err != nil {
		t.Fatal(err)
	}
	put(t, dir, files)
	m, err := karat.Load(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// mixture are texts of several lengths.
var mixture = []string{"Hello", "The color of the sky is", strings.Repeat("func main() { x := 1 }\n", 15), "ÀÉîõü ça va?", "空は青い。", "x", "Hello"}

// sameAlone checks that each of the texts has the same bits alone.
func sameAlone(t *testing.T, m *karat.Model, texts []string, o karat.EmbedOptions) {
	t.Helper()
	all, err := m.Embed(t.Context(), texts, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		alone, err := m.Embed(t.Context(), []string{text}, o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(alone[0], all[i]) {
			t.Errorf("text %d has other bits alone, with %+v", i, o)
		}
	}
}

// TestEmbedLast: a decoder's vector is the last row that its head reads, of length 1.
func TestEmbedLast(t *testing.T) {
	m := embedding(t, "tiny-qwen3", lastPooling, karat.Options{Context: 512})
	ids, err := m.Tokenize(t.Context(), "Query: The color", karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var row []float32
	err = m.Taps(t.Context(), ids, func(n karat.Node, values []float32) {
		if n.Name == "output_norm" {
			row = slices.Clone(values[len(values)-n.Shape[0]:])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Embed(t.Context(), []string{"The color"}, karat.EmbedOptions{Prompt: "query"})
	if err != nil {
		t.Fatal(err)
	}
	var length float64
	for _, v := range row {
		length += float64(v) * float64(v)
	}
	for i, v := range row {
		if want := float32(float64(v) / math.Sqrt(length)); math.Abs(float64(got[0][i]-want)) > 1e-7 {
			t.Fatalf("feature %d is %v, want %v", i, got[0][i], want)
		}
	}
	off := false
	for _, o := range []karat.EmbedOptions{{}, {Pooling: karat.PoolMean, Dimensions: 5}, {Pooling: karat.PoolCLS, Normalize: &off}, {Pooling: karat.PoolNone}} {
		sameAlone(t, m, mixture, o)
	}
}

// TestEmbedErrors: what a model cannot do, it says.
func TestEmbedErrors(t *testing.T) {
	m := embedding(t, "tiny-qwen3", lastPooling, karat.Options{Context: 64})
	for want, o := range map[string]karat.EmbedOptions{
		`no prompt "x", it has "document, query"`:      {Prompt: "x"},
		`pooling "max", want mean, cls, last or none`:  {Pooling: "max"},
		`EmbedOptions.Dimensions is 4096, want 1 to `:  {Dimensions: 4096},
		`text 1: it has no tokens`:                     {},
		"text 0: " + karat.ErrFull.Error() + ": the p": {Pooling: karat.PoolMean},
	} {
		texts := []string{"Hello", ""}
		if strings.Contains(want, "text 0") {
			texts = []string{strings.Repeat("x = 1\n", 200)}
		}
		if _, err := m.Embed(t.Context(), texts, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	for want, files := range map[string]map[string]string{
		"its files do not name the pooling":               {"modules.json": `[{"path":"","type":"sentence_transformers.models.Transformer"}]`},
		`pooling "max", supported are mean, cls and last`: {"1_Pooling/config.json": `{"pooling_mode_max_tokens":true}`},
		`module 1 is a "sentence_transformers.models.WK"`: {"modules.json": `[{"path":"","type":"models.Transformer"},{"path":"1","type":"sentence_transformers.models.WK"}]`},
		`path "../x", want a folder inside`:               {"modules.json": `[{"path":"","type":"models.Transformer"},{"path":"../x","type":"m.Pooling"}]`},
		"modules.json: ":                                  {"modules.json": `{`},
	} {
		all := map[string]string{}
		for k, v := range lastPooling {
			all[k] = v
		}
		for k, v := range files {
			all[k] = v
		}
		if _, err := embedding(t, "tiny-qwen3", all, karat.Options{Context: 64}).Embed(t.Context(), []string{"x"}, karat.EmbedOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
