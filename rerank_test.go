package karat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/safetensors"
)

// judged is a pair of texts, and PyTorch's score of it in float64.
type judged struct {
	Index int
	Text  [2]string
	IDs   []int
	score float32
}

// readReranker reads the record of a reranker.
func readReranker(t *testing.T, name string) (pairs []judged) {
	t.Helper()
	dir := filepath.Join(golden.Repo(t), "encoders", name)
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, &pairs)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(golden.Tensors(t, filepath.Join(dir, "golden.safetensors")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, p := range pairs {
		pairs[i].score = floatsOf(f, fmt.Sprintf("%d.score", p.Index))[0]
	}
	return pairs
}

// TestRerankers: scores are PyTorch's in float64 and float32, of the folder and of the GGUF file, and a document's has the
// same bits beside any others.
func TestRerankers(t *testing.T) {
	for _, name := range golden.Rerankers(t) {
		pairs := readReranker(t, name)
		folder := golden.Model(t, name)
		paths := []string{folder}
		for _, typ := range []string{"", "Q8_0"} {
			file := filepath.Join(t.TempDir(), name+typ+".gguf")
			if _, err := convert.Convert(t.Context(), folder, file, convert.Options{Type: typ}); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, file)
		}
		for _, path := range paths {
			for _, p := range []karat.Precision{karat.Float64, karat.Float32, karat.Fast} {
				t.Run(filepath.Base(path)+"/"+string(p), func(t *testing.T) {
					m, err := karat.Load(t.Context(), path, karat.Options{Precision: p})
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					compareReranker(t, m, pairs, p == karat.Fast || strings.Contains(path, "Q8_0"))
				})
			}
		}
	}
}

func compareReranker(t *testing.T, m *karat.Model, pairs []judged, rounded bool) {
	t.Helper()
	worst := 0.
	for _, p := range pairs {
		got, err := m.Rerank(t.Context(), p.Text[0], []string{p.Text[1]}, karat.RerankOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Tokens != len(p.IDs) {
			t.Errorf("pair %d: %d tokens, want %d", p.Index, got[0].Tokens, len(p.IDs))
		}
		worst = max(worst, math.Abs(float64(got[0].Score-p.score)))
	}
	t.Logf("largest difference %.2g", worst)
	if most := map[bool]float64{false: 1e-6, true: 2e-2}[rounded]; !(worst <= most) {
		t.Errorf("largest difference %.3g, want at most %g", worst, most)
	}
	documents := []string{"", "x"}
	for _, p := range pairs {
		documents = append(documents, p.Text[1])
	}
	all, err := m.Rerank(t.Context(), pairs[0].Text[0], documents, karat.RerankOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range all {
		if i > 0 && r.Score > all[i-1].Score {
			t.Errorf("not the best first: %v", all)
		}
		alone, err := m.Rerank(t.Context(), pairs[0].Text[0], documents[r.Index:r.Index+1], karat.RerankOptions{})
		if err != nil || alone[0].Score != r.Score {
			t.Errorf("document %d: alone %v, %v, beside others %v", r.Index, alone, err, r.Score)
		}
	}
}

// TestRerankLimits: pairs that are too long, and models that are no rerankers.
func TestRerankLimits(t *testing.T) {
	m, err := karat.Load(t.Context(), golden.Model(t, "xlm-roberta-reranker"), karat.Options{Precision: karat.Float32, Context: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	long := strings.Repeat("the sky is blue ", 30)
	_, err = m.Rerank(t.Context(), "sky", []string{"x", long}, karat.RerankOptions{})
	if !errors.Is(err, karat.ErrFull) || !strings.HasPrefix(err.Error(), "document 1: ") || !strings.Contains(err.Error(), "have 245 tokens, 1 of them the query's, and the context holds 32") {
		t.Errorf("a long document: %v", err)
	}
	got, err := m.Rerank(t.Context(), "sky", []string{long}, karat.RerankOptions{Truncate: true})
	if err != nil || got[0].Tokens != 32 {
		t.Errorf("a long document, cut: %v, %v", got, err)
	}
	if _, err = m.Rerank(t.Context(), long, []string{"x"}, karat.RerankOptions{Truncate: true}); !errors.Is(err, karat.ErrFull) || !strings.Contains(err.Error(), "240 of them the query's") {
		t.Errorf("a long query: %v", err)
	}
	if _, err := m.Embed(t.Context(), []string{"x"}, karat.EmbedOptions{}); err == nil || !strings.Contains(err.Error(), "chooses mean, cls or last") {
		t.Errorf("Embed: %v", err)
	}
	for name, want := range map[string]string{"bert": "it is no reranker: there is no tensor classifier.out_proj", "tiny-llama": "it is no reranker"} {
		m, err := karat.Load(t.Context(), golden.Model(t, name), karat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, err := m.Rerank(t.Context(), "x", []string{"y"}, karat.RerankOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
