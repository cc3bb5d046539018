package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

func open(t *testing.T, path string) *Record {
	t.Helper()
	r, err := ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// records are the names of PyTorch's records.
func records(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(golden.Dir(t), "records"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d records, %v", len(entries), err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestGoldenWithItself compares each of PyTorch's records with itself, whose
// entropy is the one that PyTorch computed.
func TestGoldenWithItself(t *testing.T) {
	for _, name := range records(t) {
		t.Run(name, func(t *testing.T) {
			r := open(t, golden.Record(t, name).Tensors(t))
			c, err := Compare(r, r, Options{MaxDiff: new(0.), MaxKL: new(0.)})
			if err != nil {
				t.Fatal(err)
			}
			if !c.Inside() || len(c.Prompts) != len(r.Prompts) || len(c.Prompts) != 11 {
				t.Errorf("inside %v, %d prompts of %d", c.Inside(), len(c.Prompts), len(r.Prompts))
			}
			for _, p := range c.Prompts {
				if p.MaxAbsDiff != 0 || p.KLMax != 0 || p.Top1 != 1 || p.Top5 != 1 || p.Top10 != 1 || p.IDs != IDsEqual {
					t.Errorf("%+v", p)
				}
				want := r.Prompt(p.Index).Entropy // of the float64 logits before they were rounded
				if math.Abs(float64(p.GoldenEntropy-want)) > 2e-6 {
					t.Errorf("prompt %d: entropy %v, PyTorch %v", p.Index, p.GoldenEntropy, want)
				}
				for _, tap := range p.Taps {
					if tap.Worst != 0 || tap.Whole != 0 || tap.Problem != "" {
						t.Errorf("%+v", tap)
					}
				}
			}
			// The repository's excerpt of the demo's record has no taps.
			if n := len(c.Prompts[2].Taps); n < 21 && name != "demo" {
				t.Errorf("prompt 2 has %d taps", n)
			}
		})
	}
}

// TestLlamaCpp reproduces the table in the goldens' README, which was made in
// PyTorch: how far llama.cpp's float32 logits lie from PyTorch's float64 ones,
// the mean KL over all positions. Only for the demo that table has another KL,
// 3e-8; the sum of p ln(p/q) over the two positions a prompt that the file holds,
// in Python with math.fsum, is 2.0766009e-8.
func TestLlamaCpp(t *testing.T) {
	for _, c := range []struct{ model, diff, diffFormat, kl string }{
		{"tiny-llama", "2.5e-05", "%.2g", "9e-13"},
		{"tiny-qwen3", "2.6e-05", "%.2g", "1e-12"},
		{"tiny-qwen2", "6e-06", "%.1g", "2e-13"},
		{"tiny-mistral", "1.4e-05", "%.2g", "6e-13"},
		{"tiny-gemma4", "0.0042", "%.2g", "2e-08"},
		{"tiny-gemma4-moe", "0.0035", "%.2g", "2e-08"},
		{"demo", "0.0071", "%.2g", "2e-08"},
	} {
		t.Run(c.model, func(t *testing.T) {
			record := open(t, golden.Shared(t, "goldens/llamacpp/"+c.model+".bf16.safetensors"))
			got, err := Compare(open(t, golden.Shared(t, "goldens/records/"+c.model+"/golden.safetensors")), record, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if a, b := fmt.Sprintf(c.diffFormat, got.All.MaxAbsDiff), fmt.Sprintf("%.1g", got.All.KLMean); a != c.diff || b != c.kl {
				t.Errorf("max |Δ| %v, mean KL %v; the table has %s and %s", got.All.MaxAbsDiff, got.All.KLMean, c.diff, c.kl)
			}
			for _, p := range got.Prompts {
				if p.IDs != IDsAssumed {
					t.Errorf("prompt %d: ids %s", p.Index, p.IDs)
				}
			}
			if len(got.Prompts) != 11 {
				t.Errorf("%d prompts", len(got.Prompts))
			}
		})
	}
}

// noisy is a copy of a record with one seeded error on each logit, of the given size
// times what its float32 floor is, and with one tap off in one row.
func noisy(r *Record, size float64) *Record {
	random := rand.New(rand.NewPCG(1, 2))
	out := &Record{}
	for _, p := range r.Prompts {
		q := *p
		x := rowsOf(p.Logits)
		row := make([]float64, x.width)
		var all []float64
		for i := range x.n {
			x.read(row, i)
			for j := range row {
				row[j] += size * float64(p.Float32.MaxAbsDiff) * (2*random.Float64() - 1)
			}
			all = append(all, row...)
		}
		q.Logits = floats(tensor.F64, p.Logits.Shape, all...)
		if t, ok := p.Taps["model.norm.out"]; ok {
			bent := floats(tensor.F32, tensor.Shape{0})
			bent.Shape, bent.Data = t.Shape, slices.Clone(t.Data)
			row := bent.Data[len(bent.Data)-4*t.Shape.Last():]
			clear(row)
			q.Taps = map[string]*tensor.Tensor{"model.norm.out": bent, "model.embed_tokens.out": p.Taps["model.embed_tokens.out"]}
		}
		out.Prompts = append(out.Prompts, &q)
	}
	return out
}

func TestGoldenWithNoise(t *testing.T) {
	for _, name := range records(t) {
		t.Run(name, func(t *testing.T) {
			r := open(t, golden.Record(t, name).Tensors(t))
			for _, size := range []float64{3.99, 4.2} {
				c, err := Compare(r, noisy(r, size), Options{})
				if err != nil {
					t.Fatal(err)
				}
				if c.Inside() != (size < 4) {
					t.Errorf("noise of %v floors: inside %v", size, c.Inside())
				}
				for _, p := range c.Prompts {
					floor := float64(p.Float32.MaxAbsDiff)
					// Thousands of uniform errors: the largest is near their bound, the
					// mean half of it. KL is half the variance of the errors, weighted by
					// the probabilities, so at most half their bound squared.
					if d := float64(p.MaxAbsDiff); d > size*floor || d < 0.98*size*floor {
						t.Errorf("prompt %d: max |Δ| %v, noise %v", p.Index, d, size*floor)
					}
					if d := float64(p.MeanAbsDiff) / (size * floor); d < 0.47 || d > 0.53 {
						t.Errorf("prompt %d: mean |Δ| %v of the noise", p.Index, d)
					}
					if kl := float64(p.KLMax); !(kl > 0 && kl <= size*size*floor*floor/2*1.001) {
						t.Errorf("prompt %d: KL %v for noise of %v", p.Index, kl, size*floor)
					}
				}
				if name == "demo" {
					continue // no taps in the repository's excerpt
				}
				taps := c.Prompts[2].Taps
				last := r.Prompt(2).Taps["model.norm.out"].Shape[0] - 1
				if taps[0].Name != "model.norm.out" || taps[0].Worst != 1 || taps[0].WorstRow != last || !(taps[0].Whole > 0.1 && taps[0].Whole < 0.9) {
					t.Errorf("the bent tap: %+v", taps[0])
				}
			}
		})
	}
}
