package webgpu

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
)

// shared is the GPU of all tests: kernels are compiled once.
var shared = sync.OnceValues(func() (*Device, error) { return Open(0) })

// device is the first GPU. A test is skipped where there is none.
func device(t testing.TB) *Device {
	t.Helper()
	d, err := shared()
	if errors.Is(err, gpu.ErrNone) {
		golden.Lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestMain(m *testing.M) {
	status := m.Run()
	if d, err := shared(); err == nil {
		d.Close()
	}
	os.Exit(status)
}

// TestConformance has bounds of about twice what was measured with Mesa's llvmpipe:
// in float32 3e-7 for single operations and products, 7e-7 for
// attention and 9e-7 for a few layers; with keys and values in binary16 as the CPU.
//
// Both forms of keys and values run; without -short the program standing in for a GPU also runs as software.
func TestConformance(t *testing.T) {
	golden.SkipFast(t, "minutes without a GPU, and .ci/gpu runs it")
	d := device(t)
	t.Parallel() // to what a browser computes
	for _, c := range []struct {
		name string
		o    Options
		tol  backendtest.Tolerances
	}{
		{"f32", Options{F32KV: true}, backendtest.Tolerances{Float: 6e-7, Quantized: 6e-7, Attention: 1.5e-6, Layer: 2e-6, SameBits: true, Stores: true}},
		{"software", Options{F32KV: true, Software: true}, backendtest.Tolerances{Float: 6e-7, Quantized: 6e-7, Attention: 1.5e-6, Layer: 2e-6, SameBits: true}},
		{"f16", Options{}, backendtest.Tolerances{Float: 6e-7, Quantized: 6e-7, Attention: 2e-3, Layer: 1.5e-3, SameBits: true}},
	} {
		if testing.Short() && c.o.Software {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			backendtest.Run(t, func() backend.Backend { return New(d, c.o) }, c.tol)
		})
	}
}
