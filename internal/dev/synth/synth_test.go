package synth

import (
	"bytes"
	"context"
	"errors"
	"github.com/karat-run/karat/internal/dev/golden"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/check"
	"github.com/karat-run/karat/internal/gguf"
)

func file(t *testing.T, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(context.Background(), &b, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every small shape loads and generates, with logits that are finite and differ.
func TestRuns(t *testing.T) {
	for _, arch := range Archs() {
		for _, shape := range Shapes(arch) {
			p, err := newPlan(Options{Arch: arch, Shape: shape, Type: "F16"}, 0)
			if err != nil {
				t.Errorf("%s, %s: %v", arch, shape, err)
			}
			if err != nil || p.vocab > 4096 {
				continue
			}
			for i, kind := range Types() {
				if !golden.Slow() && (i+len(arch)+len(shape))%6 != 0 {
					continue // each type with some families, and with all in the long ring
				}
				t.Run(arch+"/"+shape+"/"+kind, func(t *testing.T) { runs(t, file(t, Options{Arch: arch, Shape: shape, Type: kind})) })
			}
		}
	}
}

func runs(t *testing.T, data []byte) {
	m, err := karat.LoadSources(t.Context(), []karat.Source{{Name: "random.gguf", Data: data}}, karat.Options{Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if size, err := m.EmbedSize(t.Context(), karat.EmbedOptions{}); err == nil { // an encoder, which generates nothing
		embeds(t, m, size)
		return
	}
	text := "abcd Z\n"
	ids, err := m.Tokenize(t.Context(), text, karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Detokenize(ids); !bytes.Contains([]byte(got), []byte(text)) {
		t.Errorf("%q came back as %q", text, got)
	}
	logits, err := m.Logits(t.Context(), ids[:3])
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range logits {
		low, high := float64(slices.Min(row)), float64(slices.Max(row))
		if math.IsNaN(low) || math.IsInf(low, 0) || math.IsInf(high, 0) || high-low < 0.1 || high-low > 1000 {
			t.Errorf("logits from %g to %g", low, high)
		}
	}
	n := 0
	for _, err := range m.Generate(t.Context(), "ab", karat.GenerateOptions{MaxTokens: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d tokens, want 3", n)
	}
}

// TestChecked: a checker that knows spoiled files finds nothing wrong with these.
func TestChecked(t *testing.T) {
	for _, arch := range Archs() {
		for _, shape := range Shapes(arch) {
			p, err := newPlan(Options{Arch: arch, Shape: shape, Type: "F16"}, 0)
			if err != nil {
				t.Errorf("%s, %s: %v", arch, shape, err)
			}
			if err != nil || p.vocab > 4096 {
				continue
			}
			for i, kind := range []string{"BF16", "Q8_0", "Q4_K_M"} {
				if !golden.Slow() && (i+len(arch)+len(shape))%3 != 0 {
					continue
				}
				t.Run(arch+"/"+shape+"/"+kind, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "random.gguf")
					if err := os.WriteFile(path, file(t, Options{Arch: arch, Shape: shape, Type: kind}), 0o666); err != nil {
						t.Fatal(err)
					}
					r, err := check.Run(t.Context(), path, check.Options{})
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range r.Findings {
						if f.Severity != check.Note && f.ID != "template-missing" {
							t.Errorf("%s %s: %s", f.Severity, f.ID, f.What)
						}
					}
				})
			}
		}
	}
}

// embeds wants vectors that are finite and differ.
func embeds(t *testing.T, m *karat.Model, size int) {
	all, err := m.Embed(t.Context(), []string{"ab cd", "xyz"}, karat.EmbedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		low, high := float64(slices.Min(v)), float64(slices.Max(v))
		if len(v) != size || math.IsNaN(low) || math.IsInf(low, 0) || math.IsInf(high, 0) || high-low < 1e-3 {
			t.Errorf("%d features from %g to %g", len(v), low, high)
		}
	}
	if slices.Equal(all[0], all[1]) {
		t.Error("two texts have one vector")
	}
}

func TestSeed(t *testing.T) {
	o := Options{Arch: "llama", Shape: "tiny", Type: "Q4_K_M", Seed: 7}
	a := file(t, o)
	if !bytes.Equal(a, file(t, o)) {
		t.Error("equal seeds gave other bytes")
	}
	o.Seed = 8
	if bytes.Equal(a, file(t, o)) {
		t.Error("another seed gave the same bytes")
	}
}

// The vocabulary of another file decides the number of rows.
func TestVocab(t *testing.T) {
	f, err := gguf.Parse(file(t, Options{Arch: "qwen3", Shape: "tiny", Type: "Q8_0"}))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gguf.Parse(file(t, Options{Arch: "llama", Shape: "tiny", Type: "Q8_0", Vocab: f}))
	if err != nil {
		t.Fatal(err)
	}
	if pre, err := g.Metadata.String("tokenizer.ggml.pre"); pre != "qwen2" {
		t.Errorf("pre %q, %v", pre, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, o := range []Options{{Arch: "x"}, {Arch: "llama", Shape: "x"}, {Arch: "llama", Shape: "tiny", Type: "x"}} {
		if err := Write(t.Context(), io.Discard, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ctx, io.Discard, Options{Arch: "llama", Shape: "tiny", Type: "F16"}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
