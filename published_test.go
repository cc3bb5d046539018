package karat_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// published holds what other programs say that published weights give (expected.json).
type published struct {
	Stories struct {
		Greedy struct {
			Text string
			IDs  []int
		}
		Prompted struct {
			Prompt, Text string
			Tokens       int
		} `json:"greedy_prompt"`
		NLL struct {
			Texts [][3]any // text, tokens, sum over the text's tokens
		}
		Embedding struct {
			Values []float64
		} `json:"bos_embedding"`
		PromptTokens map[string]any `json:"prompt_tokens"`
	} `json:"stories260K"`
	GPT2 struct {
		IDs    [][]int
		Greedy [][]int
		Logits [][][]float64 `json:"logits_every_200th"`
		Next   [][]float64   `json:"next_logits_every_200th"`
	} `json:"tiny-random-gpt2"`
}

func readPublished(t *testing.T) (p published, dir string) {
	t.Helper()
	path := golden.Shared(t, "published/expected.json")
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, filepath.Dir(path)
}

// answer generates n tokens greedily behind the prompt's ids.
func answer(t *testing.T, m *karat.Model, prompt []int, n int) (text string, ids []int) {
	t.Helper()
	o := karat.GenerateOptions{MaxTokens: n, Sampling: &karat.Sampling{}}
	for x, err := range m.GenerateIDs(context.Background(), prompt, o) {
		if err != nil {
			t.Fatal(err)
		}
		text, ids = text+x.Text, append(ids, x.ID)
	}
	return text, ids
}

// TestPublishedStories runs karpathy/tinyllamas' stories260K, a trained model: from llama.cpp's GGUF file, from the
// folder that Convert makes of the file, and from a folder with the weights that were first published (stories260K.bin).
func TestPublishedStories(t *testing.T) {
	p, dir := readPublished(t)
	gguf, made, first := filepath.Join(dir, "stories260K.gguf"), filepath.Join(t.TempDir(), "made"), filepath.Join(t.TempDir(), "first")
	for _, folder := range []string{made, first} {
		if _, err := karat.Convert(context.Background(), gguf, folder, karat.ConvertOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	replaceWeights(t, filepath.Join(dir, "stories260K.bin"), filepath.Join(first, "model.safetensors"))
	for name, path := range map[string]string{"gguf": gguf, "folder": made, "bin": first} {
		t.Run(name, func(t *testing.T) {
			m := open(t, path, karat.Options{})
			want := p.Stories.Greedy
			_, ids := answer(t, m, want.IDs[:1], 200)
			if text := m.Detokenize(ids); text != want.Text || !slices.Equal(ids[:len(want.IDs)-1], want.IDs[1:]) {
				t.Errorf("%q, want %q", text, want.Text)
			}
			prompt, err := m.Tokenize(context.Background(), p.Stories.Prompted.Prompt, karat.TokenizeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if text, _ := answer(t, m, prompt, p.Stories.Prompted.Tokens); p.Stories.Prompted.Prompt+text != p.Stories.Prompted.Text {
				t.Errorf("%q, want %q", text, p.Stories.Prompted.Text)
			}
			compareRows(t, dir, path)
		})
	}
	m := open(t, gguf, karat.Options{})
	for text, want := range p.Stories.PromptTokens {
		n, counted := want.(float64)
		if ids, err := m.Tokenize(context.Background(), text, karat.TokenizeOptions{}); counted && (err != nil || len(ids) != int(n)) {
			t.Errorf("%q: %d tokens, %v, want %v", text, len(ids), err, n)
		}
	}
}

// compareRows compares the logits of ten prompts with those of a NumPy pass in float64: fast within 4 times the 3.8e-2
// that were measured when the record was made, f64 within 2e-5 (1.0e-5 measured; the record has float32).
func compareRows(t *testing.T, dir, path string) {
	f, err := safetensors.Open(filepath.Join(dir, "stories260K.golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for precision, limit := range map[karat.Precision]float64{karat.Float64: 2e-5, karat.Fast: 0.15} {
		m := open(t, path, karat.Options{Precision: precision})
		for i := range 10 {
			var ids []int
			for _, id := range values[int32](t, f, strconv.Itoa(i)+".ids") {
				ids = append(ids, int(id))
			}
			want := values[float32](t, f, strconv.Itoa(i)+".logits")
			rows, err := m.Logits(context.Background(), ids)
			if err != nil {
				t.Fatal(err)
			}
			rows = rows[len(rows)-len(want)/512:]
			far := 0.0
			for r, row := range rows {
				for c, x := range row {
					far = max(far, math.Abs(float64(x)-float64(want[512*r+c])))
				}
			}
			if !(far <= limit) {
				t.Errorf("%s: prompt %d: %.2g from the record, at most %.2g", precision, i, far, limit)
			}
		}
	}
}

// values decodes a tensor of the record.
func values[E int32 | float32](t *testing.T, f *safetensors.File, name string) []E {
	i := slices.IndexFunc(f.Tensors, func(x tensor.Tensor) bool { return x.Name == name })
	if i < 0 {
		t.Fatalf("the record has no %s", name)
	}
	v := make([]E, len(f.Tensors[i].Data)/4)
	if _, err := binary.Decode(f.Tensors[i].Data, binary.LittleEndian, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestPublishedNLL compares sums of log-probabilities with llama.cpp's, whose keys and values have 16 bits.
func TestPublishedNLL(t *testing.T) {
	p, dir := readPublished(t)
	ctx := context.Background()
	m := open(t, filepath.Join(dir, "stories260K.gguf"), karat.Options{})
	for _, x := range p.Stories.NLL.Texts {
		ids, err := m.Tokenize(ctx, x[0].(string), karat.TokenizeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sum, s := 0.0, m.NewSession()
		for token, err := range s.Score(ctx, ids, karat.GenerateOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if !math.IsNaN(token.Logprob) {
				sum -= token.Logprob
			}
		}
		s.Close()
		if want := x[2].(float64); float64(len(ids)-1) != x[1] || math.Abs(sum-want) > 1e-4*want {
			t.Errorf("%q: %d tokens, %.6f, want %v, %v", x[0], len(ids), sum, x[1], want)
		}
	}
	e, err := m.EmbedIDs(ctx, [][]int{{1}}, karat.EmbedOptions{Pooling: "last"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range p.Stories.Embedding.Values {
		if math.Abs(float64(e[0][i])-want) > 2e-4 {
			t.Errorf("embedding %d: %v, want %v", i, e[0][i], want)
		}
	}
}

// TestPublishedGPT2 compares a model that others made with what ONNX Runtime computes from it.
func TestPublishedGPT2(t *testing.T) {
	p, dir := readPublished(t)
	folder := filepath.Join(dir, "tiny-random-gpt2")
	file := filepath.Join(t.TempDir(), "gpt2.gguf")
	if _, err := karat.Convert(context.Background(), folder, file, karat.ConvertOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, file} {
		m := open(t, path, karat.Options{Precision: karat.Float64})
		for i, ids := range p.GPT2.IDs {
			rows, err := m.Logits(context.Background(), append(slices.Clone(ids), p.GPT2.Greedy[i][0]))
			if err != nil {
				t.Fatal(err)
			}
			for r, row := range append(slices.Clone(p.GPT2.Logits[i]), p.GPT2.Next[i]) {
				for c, want := range row {
					if far := math.Abs(float64(rows[r][200*c]) - want); far > 1e-6 {
						t.Errorf("%s: prompt %d, row %d, logit %d: %.2g from ONNX Runtime's", filepath.Base(path), i, r, 200*c, far)
					}
				}
			}
			if _, got := answer(t, m, ids, 6); !slices.Equal(got, p.GPT2.Greedy[i]) {
				t.Errorf("%s: prompt %d: %v, want %v", filepath.Base(path), i, got, p.GPT2.Greedy[i])
			}
		}
	}
}

// replaceWeights writes llama2.c's legacy format (export.py, legacy_export) as a folder's model.safetensors. Rows of
// queries and keys are in pairs there, and in halves in a folder.
func replaceWeights(t *testing.T, bin, to string) {
	t.Helper()
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	var h struct{ Dim, Hidden, Layers, Heads, KVHeads, Vocab, Length int32 }
	r := bytes.NewReader(b)
	if err := binary.Read(r, binary.LittleEndian, &h); err != nil {
		t.Fatal(err)
	}
	kv := h.Dim / h.Heads * h.KVHeads
	var list []tensor.Tensor
	take := func(name string, rows, columns, heads int32) {
		data := make([]byte, 4*rows*columns)
		if _, err := r.Read(data); err != nil {
			t.Fatal(err)
		}
		shape := []int{int(rows), int(columns)}
		if rows == 1 {
			shape = shape[1:]
		}
		if heads > 0 {
			data = halve(data, int(heads), int(rows/heads), int(4*columns))
		}
		list = append(list, tensor.Tensor{Name: name, DType: tensor.F32, Shape: shape, Data: data})
	}
	layers := func(name string, rows, columns, heads int32) {
		for i := range h.Layers {
			take("model.layers."+strconv.Itoa(int(i))+"."+name+".weight", rows, columns, heads)
		}
	}
	take("model.embed_tokens.weight", h.Vocab, h.Dim, 0)
	layers("input_layernorm", 1, h.Dim, 0)
	layers("self_attn.q_proj", h.Dim, h.Dim, h.Heads)
	layers("self_attn.k_proj", kv, h.Dim, h.KVHeads)
	layers("self_attn.v_proj", kv, h.Dim, 0)
	layers("self_attn.o_proj", h.Dim, h.Dim, 0)
	layers("post_attention_layernorm", 1, h.Dim, 0)
	layers("mlp.gate_proj", h.Hidden, h.Dim, 0)
	layers("mlp.down_proj", h.Dim, h.Hidden, 0)
	layers("mlp.up_proj", h.Hidden, h.Dim, 0)
	take("model.norm.weight", 1, h.Dim, 0)
	head := list[0]
	head.Name = "lm_head.weight"
	if err := safetensors.WriteFile(to, append(list, head), nil); err != nil {
		t.Fatal(err)
	}
}

// halve puts the even rows of each head before its odd ones.
func halve(data []byte, heads, rows, bytes int) []byte {
	out := make([]byte, 0, len(data))
	for h := range heads {
		for odd := range 2 {
			for i := odd; i < rows; i += 2 {
				at := (h*rows + i) * bytes
				out = append(out, data[at:at+bytes]...)
			}
		}
	}
	return out
}
