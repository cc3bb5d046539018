package webgpu_test

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/vision"
)

// TestTowers compares the rows of pictures with ref's.
func TestTowers(t *testing.T) {
	d := open(t)
	for _, name := range []string{"qwen3vl", "qwen25vl", "gemma3", "mistral3", "smolvlm", "lfm2vl", "gemma4"} {
		t.Run(name, func(t *testing.T) {
			c, err := checkpoint.Open(golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name)))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if !golden.Slow() {
				c.Tower.Processor = []byte(strings.Replace(string(c.Tower.Processor), `"max_soft_tokens": 70`, `"max_soft_tokens": 12`, 1))
			}
			data, err := os.ReadFile(golden.Shared(t, "goldens/vision/images/checker.png"))
			if err != nil {
				t.Fatal(err)
			}
			picture, err := image.Decode(data, image.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			rows := func(b backend.Backend) [][]float32 {
				defer b.Close()
				m, err := vision.Open(c.Tower, b, "")
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				p, err := m.Prepare(picture)
				if err != nil {
					t.Fatal(err)
				}
				rows, err := m.Encode(context.Background(), p)
				if err != nil {
					t.Fatal(err)
				}
				return rows
			}
			got, want := rows(webgpu.New(d, webgpu.Options{F32KV: true, Software: d.Adapter().Kind == "cpu"})), rows(reference.Backend{})
			if e := farther(slices.Concat(got...), slices.Concat(want...)); !(e <= 5e-6) || len(got) != len(want) {
				t.Errorf("%d rows differ by %.3g", len(got), e)
			} else {
				t.Logf("%d rows, %.2g", len(got), e)
			}
		})
	}
}

// TestSeeing compares what a model says of two pictures, from their files to the logits, with the CPU in float32: of
// deepstack and positions of three parts (qwen3vl), of groups that see each other in all layers (gemma3), of some layers
// with a window and experts (gemma4-moe).
func TestSeeing(t *testing.T) {
	d := open(t)
	for _, name := range []string{"qwen3vl", "gemma3", "gemma4-moe"} {
		t.Run(name, func(t *testing.T) {
			if name != "gemma3" {
				golden.SkipFast(t, "a minute without a GPU")
			}
			dir := golden.Shared(t, "goldens/vision/"+name)
			c, err := checkpoint.Open(golden.Seeded(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			prompts, err := golden.SightPrompts(dir)
			if err != nil {
				t.Fatal(err)
			}
			answer := func(b backend.Backend) (logits [][]float32) {
				defer b.Close()
				m, err := vision.Open(c.Tower, b, "")
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				g, _, err := arch.Load(c)
				if err != nil {
					t.Fatal(err)
				}
				var rows []*vision.Row
				for _, name := range prompts[1].Images {
					data, err := os.ReadFile(golden.Shared(t, "goldens/vision/images/"+name+".png"))
					if err != nil {
						t.Fatal(err)
					}
					picture, err := image.Decode(data, image.Limits{})
					if err != nil {
						t.Fatal(err)
					}
					s := &vision.Seen{}
					if s.Picture, err = m.Prepare(picture); err == nil {
						s.Values, err = m.Encode(t.Context(), s.Picture)
					}
					if err != nil {
						t.Fatal(err)
					}
					for i := range s.Values {
						rows = append(rows, &vision.Row{Of: s, Index: i})
					}
				}
				ids := slices.Clone(prompts[1].IDs)
				x, err := m.Mix(ids, 514, rows)
				if err != nil {
					t.Fatal(err)
				}
				e, err := engine.New(g, b, engine.Options{Context: len(ids) + 8, Chunk: 100})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				mixed := engine.Mixed{Embeddings: x.Embeddings, Groups: x.Groups}
				if e.Turns() {
					mixed.Parts = x.Parts
				}
				s := e.NewSequence()
				defer s.Close()
				if _, err := s.Mix(ids, mixed, ""); err != nil {
					t.Fatal(err)
				}
				if logits, err = s.Feed(t.Context(), ids, 4); err != nil {
					t.Fatal(err)
				}
				return logits
			}
			got := answer(webgpu.New(d, webgpu.Options{F32KV: true, Software: d.Adapter().Kind == "cpu"}))
			want := answer(cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}))
			for i := range want {
				kl, far := kl(want[i], got[i]), farther(got[i], want[i])
				if t.Logf("row %d: KL %.2g, %.2g away", i, kl, far); !(kl <= 1e-6 && far <= 1e-5) {
					t.Errorf("row %d: KL %.3g, %.3g away", i, kl, far)
				}
			}
			if len(got) != 4 || len(want) != 4 {
				t.Errorf("logits of %d and %d rows", len(got), len(want))
			}
		})
	}
}

// farther returns how far numbers are from others, relative to these.
func farther(got, want []float32) float64 {
	var diff, norm float64
	for i, v := range want {
		diff += math.Pow(float64(got[i]-v), 2)
		norm += float64(v) * float64(v)
	}
	return math.Sqrt(diff / norm)
}

// kl returns the divergence of the predictions of logits from others.
func kl(from, to []float32) (sum float64) {
	log := func(x []float32) float64 {
		sum := 0.0
		for _, v := range x {
			sum += math.Exp(float64(v))
		}
		return math.Log(sum)
	}
	a, b := log(from), log(to)
	for i, v := range from {
		p := float64(v) - a
		sum += math.Exp(p) * (p - float64(to[i]) + b)
	}
	return sum
}
