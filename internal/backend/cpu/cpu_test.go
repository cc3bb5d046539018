package cpu_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/backendtest"
	"github.com/karat-run/karat/internal/backend/cpu"
)

// TestConformance has bounds of about twice what was measured, which is the
// same on every machine: in float32 1.9e-7 for single operations and products,
// 8.7e-7 for products with quantized weights (where a sum nearly cancels),
// 5.2e-7 for attention and 5.8e-7 for a few layers; with activations of 16 bits
// 2.1e-4 for products; with keys and values in binary16 7.3e-4 for attention
// (where scores are large) and 5.6e-4 for a few layers.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name string
		o    cpu.Options
		tol  backendtest.Tolerances
	}{
		{"f32", cpu.Options{Precision: cpu.F32, KV: cpu.KVF32, Threads: 1},
			backendtest.Tolerances{Float: 4e-7, Quantized: 1.8e-6, Attention: 1e-6, Layer: 1.2e-6, SameBits: true}},
		{"fast", cpu.Options{Threads: 3},
			backendtest.Tolerances{Float: 4e-7, Quantized: 4e-4, Attention: 1.5e-3, Layer: 1.2e-3, SameBits: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			backendtest.Run(t, func() backend.Backend { return cpu.New(c.o) }, c.tol)
		})
	}
}
