package karat_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// receiptOf returns the receipt of an answer of m, signed by key unless it is nil.
func receiptOf(t *testing.T, m *karat.Model, o karat.GenerateOptions, key ed25519.PrivateKey) *karat.Receipt {
	t.Helper()
	o.Receipt = m.NewReceipt()
	if o.MaxTokens == 0 {
		o.MaxTokens = 30
	}
	for _, err := range m.Generate(t.Context(), "The color of the sky is", o) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if key != nil {
		if err := o.Receipt.Sign(key); err != nil {
			t.Fatal(err)
		}
	}
	return o.Receipt
}

// edited returns a receipt with another JSON, by an edit of its fields.
func edited(t *testing.T, r *karat.Receipt, edit func(fields map[string]any)) *karat.Receipt {
	t.Helper()
	b, err := r.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	if edit(fields); fields["key"] == nil {
		delete(fields, "signature")
	}
	if b, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if r, err = karat.ReadReceipt(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	return r
}

func verdict(t *testing.T, m *karat.Model, r *karat.Receipt, o karat.VerifyOptions) *karat.Verdict {
	t.Helper()
	v, err := m.Verify(t.Context(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestReceipts: answers of all ways to choose tokens are verified, in steps of other rows and on other threads.
func TestReceipts(t *testing.T) {
	_, key, _ := ed25519.GenerateKey(nil)
	m := loadReceipts(t, demo, karat.Options{Threads: 2})
	alone := loadReceipts(t, demo, karat.Options{Threads: 1, Draft: karat.DraftOff})
	seed := uint64(7)
	form, err := karat.Regexp("[a-z ]{9,20}")
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]karat.GenerateOptions{
		"greedy":    {Sampling: &karat.Sampling{}},
		"drawn":     {Sampling: &karat.Sampling{Temperature: 1.2, TopK: 50, TopP: 0.9, MinP: 0.01, Seed: &seed}},
		"penalties": {Sampling: &karat.Sampling{RepeatPenalty: 1.3, RepeatLast: -1, PresencePenalty: 0.4, FrequencyPenalty: 0.2}},
		"biases": {Sampling: &karat.Sampling{Temperature: 0.8, Seed: &seed,
			LogitBias: map[int]float32{1: float32(math.Inf(-1)), 99: 0.25}}},
		"form": {Grammar: form, Sampling: &karat.Sampling{Temperature: 1, Seed: &seed}},
		"json": {Grammar: karat.JSONObject()},
	} {
		r := receiptOf(t, m, o, key)
		v := verdict(t, alone, edited(t, r, func(map[string]any) {}), karat.VerifyOptions{Key: key.Public().(ed25519.PublicKey)})
		_, n := r.Tokens()
		if !v.Verified() || !v.Signed || !v.Bits || !v.Draws || v.Tokens != n || n < 5 {
			t.Errorf("%s: %+v", name, v)
		}
		b, err := r.Bytes()
		if err != nil || len(b) > 900+100*n {
			t.Errorf("%s: %d bytes for %d tokens, %v", name, len(b), n, err)
		}
	}
	r := receiptOf(t, m, karat.GenerateOptions{Sampling: &karat.Sampling{}}, nil)
	before := alone.Stats().Steps
	if v := verdict(t, alone, r, karat.VerifyOptions{}); !v.Verified() || alone.Stats().Steps-before > 2 {
		t.Errorf("30 tokens in %d steps: %+v", alone.Stats().Steps-before, v)
	}
	if v := verdict(t, alone, r, karat.VerifyOptions{Positions: []int{5, 2, 2}}); !v.Verified() || v.Signed || v.Draws || v.Tokens != 2 {
		t.Errorf("of two tokens: %+v", v)
	}
	if _, err := alone.Verify(t.Context(), r, karat.VerifyOptions{Positions: []int{99}}); err == nil {
		t.Error("a token behind the answer")
	}
	if v, err := alone.Verify(t.Context(), r, karat.VerifyOptions{Positions: []int{}}); err == nil {
		t.Errorf("no tokens to verify: %+v", v)
	}
}

// TestReceiptAdapters: a receipt has no folders of adapters, and adapters in other folders verify it.
func TestReceiptAdapters(t *testing.T) {
	paths := []string{peftFolder(t, 0.05), peftFolder(t, -0.08), peftFolder(t, 0.03)}
	load := func() (*karat.Model, string) {
		root := t.TempDir()
		for i, path := range paths {
			if err := os.CopyFS(filepath.Join(root, strconv.Itoa(i), "adapter"), os.DirFS(path)); err != nil {
				t.Fatal(err)
			}
		}
		at := func(i string) string { return filepath.Join(root, i, "adapter") }
		return loadReceipts(t, demo, karat.Options{Adapters: []karat.Adapter{
			{Path: at("0"), Scale: 1}, {Path: at("1"), Scale: 0.5}, {Name: "a/b", Path: at("2"), Scale: 2}}}), root
	}
	m, root := load()
	other, _ := load()
	for names, chosen := range map[string]map[string]float64{"a/b adapter adapter#2": nil,
		"a/b adapter#2": {filepath.Join(root, "1", "adapter"): 2, "a/b": 1}} {
		r := receiptOf(t, m, karat.GenerateOptions{Sampling: &karat.Sampling{}, Adapters: chosen}, nil)
		if got := strings.Join(r.Adapters(), " "); got != names {
			t.Errorf("adapters %q, want %q", got, names)
		}
		if v := verdict(t, other, r, karat.VerifyOptions{}); !v.Verified() {
			t.Errorf("%s in other folders: %+v", names, v.Findings)
		}
	}
}

func loadReceipts(t *testing.T, path string, o karat.Options) *karat.Model {
	t.Helper()
	o.Context = 256
	m, err := karat.Load(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestReceiptFindings: what is wrong with a receipt has a name.
func TestReceiptFindings(t *testing.T) {
	_, key, _ := ed25519.GenerateKey(nil)
	other, _, _ := ed25519.GenerateKey(nil)
	m := loadReceipts(t, demo, karat.Options{})
	requantized := filepath.Join(t.TempDir(), "q8.gguf")
	if _, err := karat.Quantize(t.Context(), demo, requantized, karat.QuantizeOptions{Type: "Q8_0", Requantize: true}); err != nil {
		t.Fatal(err)
	}
	adapted := loadReceipts(t, demo, karat.Options{Adapters: []karat.Adapter{{Name: "a", Path: peftFolder(t, 0.05), Scale: 1}}})
	reweighed := loadReceipts(t, demo, karat.Options{Adapters: []karat.Adapter{{Name: "a", Path: peftFolder(t, 0.06), Scale: 1}}})
	r := receiptOf(t, m, karat.GenerateOptions{Sampling: &karat.Sampling{}}, key)
	lora := receiptOf(t, adapted, karat.GenerateOptions{Sampling: &karat.Sampling{}}, key)
	chat := m.NewReceipt()
	for _, err := range m.Chat(t.Context(), []karat.Message{karat.TextMessage(karat.RoleUser, "Hi")}, karat.GenerateOptions{MaxTokens: 9, Receipt: chat}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	unsigned := func(edit func(fields map[string]any)) *karat.Receipt {
		return edited(t, r, func(fields map[string]any) {
			delete(fields, "key")
			edit(fields)
		})
	}
	for name, c := range map[string]struct {
		m    *karat.Model
		r    *karat.Receipt
		o    karat.VerifyOptions
		kind string
		at   int
	}{
		"right":         {m, r, karat.VerifyOptions{}, "", 0},
		"adapter":       {adapted, lora, karat.VerifyOptions{}, "", 0},
		"chat":          {m, chat, karat.VerifyOptions{}, "", 0},
		"edited":        {m, edited(t, r, func(f map[string]any) { f["end"] = "stop" }), karat.VerifyOptions{}, "tampered", -1},
		"no signature":  {m, unsigned(func(map[string]any) {}), karat.VerifyOptions{Key: other}, "unsigned", -1},
		"other signer":  {m, r, karat.VerifyOptions{Key: other}, "signer", -1},
		"quantization":  {loadReceipts(t, requantized, karat.Options{}), r, karat.VerifyOptions{}, "quantization", -1},
		"without lora":  {m, lora, karat.VerifyOptions{}, "adapters", -1},
		"another lora":  {reweighed, lora, karat.VerifyOptions{}, "adapters", -1},
		"template":      {m, chat, karat.VerifyOptions{Template: "{{ messages }}"}, "template", -1},
		"weights":       {m, unsigned(func(f map[string]any) { at(f, "model")["weights"] = strings.Repeat("ab", 32) }), karat.VerifyOptions{}, "weights", -1},
		"types":         {m, unsigned(func(f map[string]any) { at(f, "model")["types"] = map[string]any{"F16": 80} }), karat.VerifyOptions{}, "quantization", -1},
		"settings":      {m, unsigned(func(f map[string]any) { at(f, "model")["settings"] = strings.Repeat("ab", 32) }), karat.VerifyOptions{}, "model", -1},
		"vocabulary":    {m, unsigned(func(f map[string]any) { at(f, "model")["tokens"] = strings.Repeat("ab", 32) }), karat.VerifyOptions{}, "vocabulary", -1},
		"other prompt":  {m, unsigned(func(f map[string]any) { f["prompt"].([]any)[2] = 9 }), karat.VerifyOptions{}, "engine", 0},
		"other token":   {m, unsigned(func(f map[string]any) { f["answer"].([]any)[4] = 9 }), karat.VerifyOptions{}, "choice", 4},
		"other draw":    {m, unsigned(func(f map[string]any) { at(f, "sampling")["temperature"] = 9 }), karat.VerifyOptions{}, "choice", 0},
		"other logits":  {m, unsigned(func(f map[string]any) { f["logits"] = "AAAA" + f["logits"].(string)[4:] }), karat.VerifyOptions{}, "engine", 0},
		"no token":      {m, unsigned(func(f map[string]any) { f["form"], f["answer"].([]any)[29] = map[string]any{"kind": "other"}, 1<<30 }), karat.VerifyOptions{}, "choice", 29},
		"end":           {m, unsigned(func(f map[string]any) { f["end"] = "end" }), karat.VerifyOptions{}, "end", 29},
		"length":        {m, edited(t, chat, func(f map[string]any) { f["end"] = "length" }), karat.VerifyOptions{}, "end", 4},
		"goes on":       {m, longer(t, m, chat), karat.VerifyOptions{}, "end", 4},
		"token skipped": {m, unsigned(func(f map[string]any) { f["answer"].([]any)[4] = 9 }), karat.VerifyOptions{Positions: []int{5}}, "engine", 5},
	} {
		v := verdict(t, c.m, c.r, c.o)
		kinds := []string{}
		for _, f := range v.Findings {
			kinds = append(kinds, f.Kind)
		}
		if c.kind == "" && v.Verified() {
			continue
		}
		if !slices.Equal(kinds, []string{c.kind}) || v.Findings[0].At != c.at {
			t.Errorf("%s: %+v, want %q at %d", name, v.Findings, c.kind, c.at)
		}
	}
	if _, err := loadReceipts(t, demo, karat.Options{Precision: karat.Float32}).Verify(t.Context(), r, karat.VerifyOptions{}); err == nil ||
		!strings.Contains(err.Error(), "fast") {
		t.Errorf("a model of another precision: %v", err)
	}
	for _, err := range m.Generate(t.Context(), "again", karat.GenerateOptions{Receipt: chat}) {
		if err == nil || !strings.Contains(err.Error(), "take a new one") {
			t.Errorf("a second answer: %v", err)
		}
	}
}

// longer returns the receipt of an answer that goes on behind its end, each logit right.
func longer(t *testing.T, m *karat.Model, r *karat.Receipt) *karat.Receipt {
	t.Helper()
	return edited(t, r, func(f map[string]any) {
		var ids []int
		for _, id := range slices.Concat(f["prompt"].([]any), f["answer"].([]any)) {
			ids = append(ids, int(id.(float64)))
		}
		more := m.NewReceipt()
		for _, err := range m.GenerateIDs(t.Context(), ids, karat.GenerateOptions{MaxTokens: 3, Sampling: &karat.Sampling{}, Receipt: more}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		edited(t, more, func(g map[string]any) {
			f["answer"], f["end"] = slices.Concat(f["answer"].([]any), g["answer"].([]any)), g["end"]
			f["logits"] = both(t, f["logits"], g["logits"])
		})
	})
}

// both returns the base64 of a's and b's bytes.
func both(t *testing.T, a, b any) string {
	t.Helper()
	var all []byte
	for _, text := range []any{a, b} {
		bytes, err := base64.StdEncoding.DecodeString(text.(string))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes...)
	}
	return base64.StdEncoding.EncodeToString(all)
}

// TestReceiptEnds: tokens that end an answer by request are in its receipt.
func TestReceiptEnds(t *testing.T) {
	m := loadReceipts(t, demo, karat.Options{})
	r := receiptOf(t, m, karat.GenerateOptions{Sampling: &karat.Sampling{}, MaxTokens: 5}, nil)
	var fifth int
	edited(t, r, func(f map[string]any) { fifth = int(f["answer"].([]any)[4].(float64)) })
	r = receiptOf(t, m, karat.GenerateOptions{Sampling: &karat.Sampling{}, End: []int{fifth, fifth}}, nil)
	if v := verdict(t, m, r, karat.VerifyOptions{}); !v.Verified() || v.Tokens > 5 {
		t.Errorf("%+v", v)
	}
	r = edited(t, r, func(f map[string]any) {
		if f["end"] != "end" || len(f["ends"].([]any)) != 1 {
			t.Errorf("end %v of %v", f["end"], f["ends"])
		}
		delete(f, "ends")
	})
	if v := verdict(t, m, r, karat.VerifyOptions{}); len(v.Findings) != 1 || v.Findings[0].Kind != "end" {
		t.Errorf("without its end: %+v", v)
	}
}

// TestReceiptOfGPU: the log-probabilities of a GPU's answer are compared within a distance.
func TestReceiptOfGPU(t *testing.T) {
	m, exact := loadReceipts(t, demo, karat.Options{}), loadReceipts(t, demo, karat.Options{Precision: karat.Float32})
	var logprobs []float64
	o := karat.GenerateOptions{MaxTokens: 9, Logprobs: true, Sampling: &karat.Sampling{}, Receipt: m.NewReceipt()}
	for token, err := range m.Generate(t.Context(), "The color of the sky is", o) {
		if err != nil {
			t.Fatal(err)
		}
		logprobs = append(logprobs, token.Logprob)
	}
	for shift, kind := range map[float64]string{0: "", 0.02: "engine"} {
		r := edited(t, o.Receipt, func(f map[string]any) {
			at(f, "numerics")["gpu"], f["distance"] = true, 0.01
			moved := slices.Clone(logprobs)
			moved[3] += shift
			f["logprobs"] = moved
		})
		v := verdict(t, exact, r, karat.VerifyOptions{})
		if kind == "" && v.Verified() && v.Distance > 0 && v.Distance < 0.01 && !v.Draws && !v.Bits {
			continue
		}
		if kind == "" || len(v.Findings) != 1 || v.Findings[0].Kind != kind || v.Findings[0].At != 3 {
			t.Errorf("moved by %v: %+v", shift, v)
		}
	}
}

func at(fields map[string]any, name string) map[string]any { return fields[name].(map[string]any) }
