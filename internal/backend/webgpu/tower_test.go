package webgpu_test

import (
	"context"
	"math"
	"os"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
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
			var diff, norm float64
			for i, row := range want {
				for j, v := range row {
					diff += math.Pow(float64(got[i][j]-v), 2)
					norm += float64(v) * float64(v)
				}
			}
			if e := math.Sqrt(diff / norm); !(e <= 5e-6) || len(got) != len(want) {
				t.Errorf("%d rows differ by %.3g", len(got), e)
			} else {
				t.Logf("%d rows, %.2g", len(got), e)
			}
		})
	}
}
