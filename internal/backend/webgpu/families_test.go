package webgpu_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
	_ "github.com/karat-run/karat/webgpu"
)

// TestFamilies: each family's model computes on the GPU what float64 does on the CPU, as far
// as float32 can: a prompt at once and tokens one by one, of two sequences in one step. The
// likeliest tokens are PyTorch's, and so are encoders' vectors and rerankers' scores.
func TestFamilies(t *testing.T) {
	d := open(t)
	ran := map[string]bool{}
	for _, name := range golden.Sample(slices.Concat(golden.Models(t), golden.Families(t))) {
		if !golden.Slow() && strings.HasPrefix(name, "tiny-") && name != "tiny-gemma4" {
			continue // TestGreedy and TestRecords have all of these
		}
		path := golden.Model(t, name)
		if arch := archOf(t, path); !ran[arch] || slices.Contains(golden.Families(t), name) {
			ran[arch] = true
			t.Run(name, func(t *testing.T) { compareFamily(t, webgpu.New(d, webgpu.Options{F32KV: true}), name, path) })
		}
	}
	for _, name := range golden.Sample(golden.Encoders(t)) {
		path := golden.Model(t, name)
		ran[archOf(t, path)] = true
		t.Run(name, func(t *testing.T) { compareVectors(t, name, path) })
	}
	for _, name := range golden.Sample(golden.Rerankers(t)) {
		t.Run(name, func(t *testing.T) { compareScores(t, name, golden.Model(t, name)) })
	}
	// Families without weights here: each has the operations of the family behind the name.
	within := map[string]string{"nemotron_h": "nemotron_h_moe", "qwen2vl": "qwen2", "qwen3vl": "qwen3", "qwen3vlmoe": "qwen3moe"}
	for _, f := range registry.Families {
		if golden.Slow() && !ran[f.Name] && !ran[within[f.Name]] {
			t.Errorf("%s: no model of the family ran", f.Name)
		}
	}
}

// archOf is which family the model at path is of.
func archOf(t *testing.T, path string) string {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Arch
}

// compareFamily wants two of the record's prompts and what PyTorch says after them.
func compareFamily(t *testing.T, b *webgpu.Backend, name, path string) {
	defer b.Close()
	g := load(t, path)
	e, err := engine.New(g, b, engine.Options{Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	want, err := engine.New(g, reference.Backend{}, engine.Options{Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	var worst float64
	most := 6 // tokens behind a prompt
	if golden.Slow() {
		most = 12
	}
	for try := range 10 { // two sequences meet in a step unless one is done before the other begins
		b.Meter()
		tokens := 0
		var mu sync.Mutex // of worst
		var both sync.WaitGroup
		for _, p := range golden.Record(t, name).Prompts {
			if p.Index != 0 && p.Index != 2 {
				continue
			}
			ids, greedy := narrowed(p.IDs), narrowed(p.GreedyIDs[:min(len(p.GreedyIDs), most)])
			tokens += len(greedy)
			both.Go(func() {
				kl := compareSequence(t, e, want, ids, greedy, p.Float32.MaxAbsDiff)
				mu.Lock()
				defer mu.Unlock()
				worst = max(worst, kl)
			})
		}
		both.Wait()
		if steps := b.Meter().Steps; steps < tokens {
			break
		} else if try == 9 {
			t.Errorf("%d steps for two sequences of %d tokens together: none was of both", steps, tokens)
		}
	}
	if !(worst <= 1e-6) {
		t.Errorf("KL %.3g", worst)
	}
	t.Logf("KL %.2g", worst)
}

func narrowed(ids []int) (all []int32) {
	for _, id := range ids {
		all = append(all, int32(id))
	}
	return all
}

// compareSequence feeds ids and then the tokens that follow, one by one, and returns the largest
// KL of a position. The likeliest token is the next, but where two logits lie within near.
func compareSequence(t *testing.T, e, want *engine.Engine, ids, greedy []int32, near float64) (worst float64) {
	all := slices.Concat(ids, greedy[:len(greedy)-1])
	s, r := e.NewSequence(), want.NewSequence()
	defer s.Close()
	defer r.Close()
	right, err := r.Feed(t.Context(), all, len(greedy))
	if err != nil {
		t.Error(err)
		return 0
	}
	next := ids
	for i, row := range right {
		got, err := s.Feed(t.Context(), next, 1)
		if err != nil {
			t.Error(err)
			return 0
		}
		worst = max(worst, lab.KL(wide(row), wide(got[0])))
		if best := slices.Index(got[0], slices.Max(got[0])); int32(best) != greedy[i] && float64(got[0][best]-got[0][greedy[i]]) > near {
			t.Errorf("token %d behind %d is %d, want %d", i, len(ids), best, greedy[i])
		}
		next = greedy[i : i+1]
	}
	return worst
}

func wide(row []float32) (all []float64) {
	for _, x := range row {
		all = append(all, float64(x))
	}
	return all
}

// encoder reads the record of an encoder into texts, and opens its model on the GPU. The function
// gives a tensor of the record.
func encoder(t *testing.T, name, path string, texts any) (*karat.Model, func(string) []float32) {
	t.Helper()
	dir := filepath.Join(golden.Repo(t), "encoders", name)
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, texts)
	}
	if err != nil {
		t.Fatal(err)
	}
	record, err := safetensors.Open(golden.Tensors(t, filepath.Join(dir, "golden.safetensors")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { record.Close() })
	m, err := karat.Load(t.Context(), path, karat.Options{Backend: "webgpu", Precision: karat.Float32})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, func(tensorName string) []float32 {
		x := record.Tensors[slices.IndexFunc(record.Tensors, func(y tensor.Tensor) bool { return y.Name == tensorName })]
		v := make([]float32, x.Shape.Size())
		if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// compareVectors wants an encoder's vectors of all texts at once to point where PyTorch's do.
func compareVectors(t *testing.T, name, path string) {
	var texts []struct {
		Index int
		Text  string
	}
	m, recorded := encoder(t, name, path, &texts)
	var all []string
	for _, x := range texts {
		all = append(all, x.Text)
	}
	got, err := m.Embed(t.Context(), all, karat.EmbedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	least := 1.
	for i, x := range texts {
		want := recorded(fmt.Sprintf("%d.embedding", x.Index))[:len(got[i])]
		least = min(least, lab.Cosine(wide(want), wide(got[i])))
	}
	t.Logf("%d texts: 1 - least cosine %.2g", len(all), 1-least)
	if !(least >= 1-1e-6) {
		t.Errorf("least cosine %.9f", least)
	}
}

// compareScores wants a reranker's scores of pairs of texts to be PyTorch's.
func compareScores(t *testing.T, name, path string) {
	var pairs []struct {
		Index int
		Text  [2]string
	}
	m, recorded := encoder(t, name, path, &pairs)
	worst := 0.
	for _, x := range pairs {
		got, err := m.Rerank(t.Context(), x.Text[0], x.Text[1:], karat.RerankOptions{})
		if err != nil {
			t.Fatal(err)
		}
		worst = max(worst, math.Abs(float64(got[0].Score-recorded(fmt.Sprintf("%d.score", x.Index))[0])))
	}
	t.Logf("%d pairs: largest difference of a score %.2g", len(pairs), worst)
	if !(worst <= 1e-5) {
		t.Errorf("a score is %.3g off", worst)
	}
}

// TestQuantizedFamilies quantizes each family's model, where rows are whole blocks, and wants the
// GPU within a KL of 1e-6 of float64 over the same file, with keys and values in float32.
func TestQuantizedFamilies(t *testing.T) {
	d := open(t)
	types := map[string]int{}
	for _, name := range golden.Sample(golden.Families(t)) {
		for _, kind := range []string{"Q8_0", "Q4_K_M", "MXFP4_MOE"} {
			file := filepath.Join(t.TempDir(), name+".gguf")
			made, err := convert.Convert(t.Context(), golden.Model(t, name), file, convert.Options{Type: kind})
			if err != nil && (kind != "Q4_K_M" || name == "gemma3n") && strings.Contains(err.Error(), "are no multiple of") {
				continue // llama-quantize refuses them, too
			}
			if err != nil {
				t.Errorf("%s/%s: %v", name, kind, err)
				continue
			}
			if kind == "MXFP4_MOE" && made.Types["MXFP4"] == 0 {
				continue // no experts: it is Q8_0
			}
			for typ := range made.Types {
				types[typ]++
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				gold, g := readGold(t, name), load(t, file)
				want := recordOf(t, g, reference.Backend{}, gold, few)
				got := recordOf(t, g, webgpu.New(d, webgpu.Options{F32KV: true}), gold, few)
				c, err := lab.Compare(want, got, lab.Options{MaxKL: new(1e-6)})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range c.Prompts {
					if !(p.KLMean <= 1e-6) {
						t.Errorf("prompt %d: KL %.3g", p.Index, float64(p.KLMean))
					}
				}
				t.Logf("max |Δlogit| %.2g, KL %.2g; tensors of %v", float64(c.All.MaxAbsDiff), float64(c.All.KLMean), made.Types)
			})
		}
	}
	for _, typ := range []string{"Q8_0", "Q4_K", "Q5_0", "Q6_K", "MXFP4"} {
		if types[typ] == 0 && golden.Slow() {
			t.Errorf("no file has tensors of %s", typ)
		}
	}
}
