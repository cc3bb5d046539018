package cpu_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
)

// TestConformance has bounds of about twice what was measured, which is the
// same on every machine: in float32 1.8e-7 for single operations, 2.4e-7 for
// products with quantized weights, 4.6e-7 for attention and 6.1e-7 for a few
// layers; with activations of 16 bits 4.8e-5 for products and 1.3e-4 for
// experts; with keys and values in binary16 9e-4 for attention (where scores
// are large) and 7e-4 for a few layers.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name string
		o    cpu.Options
		tol  backendtest.Tolerances
	}{
		{"f32", cpu.Options{Precision: cpu.F32, KV: cpu.KVF32, Threads: 1},
			backendtest.Tolerances{Float: 4e-7, Quantized: 5e-7, Attention: 1e-6, Layer: 1.2e-6, SameBits: true}},
		{"fast", cpu.Options{Threads: 3},
			backendtest.Tolerances{Float: 4e-7, Quantized: 3e-4, Attention: 2e-3, Layer: 1.5e-3, SameBits: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.o.Threads == 1 {
				t.Skip("-short: one of two precisions")
			}
			backendtest.Run(t, func() backend.Backend { return cpu.New(c.o) }, c.tol)
		})
	}
}

// TestRows: where many threads meet at the ends of loops, a step has more rows.
func TestRows(t *testing.T) {
	for threads, want := range map[int]int{1: 256, 8: 256, 16: 512, 64: 512} {
		b := cpu.New(cpu.Options{Threads: threads})
		if got := b.Rows(); got != want {
			t.Errorf("%d rows with %d threads, want %d", got, threads, want)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
