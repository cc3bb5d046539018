package engine_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/ref"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/golden"
	"github.com/karat-run/karat/internal/safetensors"
)

// open makes an engine for the model at path.
func open(t testing.TB, path string, b backend.Backend, o engine.Options) *engine.Engine {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(g, b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); b.Close() })
	return e
}

func floats(t testing.TB, f *safetensors.File, name string) []float32 {
	for _, x := range f.Tensors {
		if x.Name == name {
			y := make([]float32, len(x.Data)/4)
			for i := range y {
				y[i] = math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:]))
			}
			return y
		}
	}
	t.Fatalf("record without %s", name)
	return nil
}

// sources are the forms in which a model lies in the goldens.
func sources(t testing.TB, name string) map[string]string {
	s := map[string]string{"hf": golden.Model(t, name)}
	if p, _ := filepath.Glob(filepath.Join(golden.Dir(t), "gguf", name+".bf16.gguf")); len(p) == 1 {
		s["gguf"] = p[0]
	}
	return s
}

// TestLogits compares every prompt's logits with PyTorch's float64 record.
func TestLogits(t *testing.T) {
	for _, name := range golden.Models(t) {
		for source, path := range sources(t, name) {
			for precision, b := range map[string]func() backend.Backend{
				"f64": func() backend.Backend { return ref.Backend{} },
				"f32": func() backend.Backend { return cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}) },
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, source, precision), func(t *testing.T) {
					compareLogits(t, name, open(t, path, b(), engine.Options{}), precision)
				})
			}
		}
	}
}

func compareLogits(t *testing.T, name string, e *engine.Engine, precision string) {
	r := golden.Record(t, name)
	f, err := safetensors.Open(r.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var worst, worstLast float64
	for _, p := range r.Prompts {
		ids := make([]int32, len(p.IDs))
		for i, id := range p.IDs {
			ids[i] = int32(id)
		}
		s := e.NewSequence()
		logits, err := s.Feed(context.Background(), ids, p.PositionsKept)
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		want := floats(t, f, fmt.Sprintf("%d.logits", p.Index))
		var last, any float64
		for i, row := range logits {
			for j, v := range row {
				d := math.Abs(float64(v) - float64(want[i*len(row)+j]))
				any = max(any, d)
				if i == len(logits)-1 {
					last = max(last, d)
				}
			}
		}
		worst, worstLast = max(worst, any), max(worstLast, last)
		lastBound, anyBound := 5e-6, 1e-5
		if precision != "f64" {
			lastBound, anyBound = 4*p.Float32.MaxAbsDiff, 4*p.Float32.MaxAbsDiff
		}
		if !(last <= lastBound && any <= anyBound) {
			t.Errorf("prompt %d: |Δlogit| %.3g at the last position (≤ %.3g), %.3g at any (≤ %.3g)", p.Index, last, lastBound, any, anyBound)
		}
	}
	t.Logf("max |Δlogit| %.3g at last positions, %.3g at any", worstLast, worst)
}
