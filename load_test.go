package karat_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestLoadWithoutGPU: a program that does not import webgpu is told to.
func TestLoadWithoutGPU(t *testing.T) {
	for _, b := range []karat.Backend{karat.WebGPU, karat.WebGPU + ":1"} {
		m, err := karat.Load(t.Context(), demo, karat.Options{Backend: b})
		if m != nil || err == nil || !strings.Contains(err.Error(), "Options.Backend: backend "+string(b)+": ") || !strings.Contains(err.Error(), `import _ "github.com/karat-run/karat/webgpu"`) {
			t.Errorf("%s: %v, %v", b, m, err)
		}
	}
}

// TestLoadCoarse: keys and values in 8 bits are refused where they move predictions much, with the way out.
func TestLoadCoarse(t *testing.T) {
	path := golden.Model(t, "mixtral")
	if m, err := karat.Load(t.Context(), path, karat.Options{KV: karat.KVQ8}); m != nil || err == nil ||
		!strings.Contains(err.Error(), "Take f16, or q8_0! to force it") {
		t.Errorf("%v, %v", m, err)
	}
	m, err := karat.Load(t.Context(), path, karat.Options{KV: karat.KVQ8Forced})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// TestLoadRefuses: options that cannot be, and a context that has ended, give no model.
func TestLoadRefuses(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if m, err := karat.Load(ended, demo, karat.Options{}); m != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, %v", m, err)
	}
	for want, o := range map[string]karat.Options{
		`Precision: precision "f8"`:                     {Precision: "f8"},
		`KV: keys and values as "q8"`:                   {KV: "q8"},
		`KV: keys and values as f16`:                    {Precision: karat.Float64, KV: karat.KVF16},
		`KV: keys and values as q8_0`:                   {Precision: karat.Float64, KV: karat.KVQ8},
		`Backend: backend "tpu"`:                        {Backend: "tpu"},
		`Context is -1, want 0 to 16777216`:             {Context: -1},
		`Context is 16777217, want 0 to 16777216`:       {Context: 16777217},
		`Threads is -1, want 0 to 1024`:                 {Threads: -1},
		`KVBudget is -5, want 0 to 9223372036854775807`: {KVBudget: -5},
		`Parallel is -2, want 0`:                        {Parallel: -2},
	} {
		if m, err := karat.Load(t.Context(), demo, o); m != nil || err == nil || !strings.HasPrefix(err.Error(), "Options."+want) {
			t.Errorf("%+v: %v, %v", o, m, err)
		}
	}
}
