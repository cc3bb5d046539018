// Package webgpu runs graphs on a GPU, through WebGPU.
//
// All arithmetic is float32, from the weights as the file has them, except with
// Options.Matrices; keys and values are kept in binary16 or float32. A row's bits do not
// depend on the step that computes it: each kernel's order of summation follows from the
// weight, or from the row's position. Different GPUs may give different bits.
//
// Compile lowers each node to dispatches of kernels (lower.go), which are templates of
// WGSL in shaders/ (kernel.go), and plans the buffers by live range (plan.go); Run
// records them with the step's inputs in one list and runs it (run.go). The host reads
// rows of embedding tables that are not on the GPU, and of the rotary tables.
//
// The files in reading order: webgpu.go (the backend), run.go (a step), choose.go (tokens on the GPU), plan.go (nodes,
// dispatches, buffers), lower.go (an operation each), experts.go, product.go with matrix.go, adapter.go, attention.go,
// norm.go, fusions.go (what one dispatch computes), gate.go; and what these stand on: cache.go, weight.go, kernel.go
// with template.go, memory.go, meter.go.
package webgpu

import (
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// Options of a backend. The zero value is usable.
type Options struct {
	F32KV bool // keep keys and values in float32, not in binary16
	Own   bool // Close closes the device, too

	// Software: the device is a program that stands in for a GPU. It compiles kernels slowly,
	// so they are small, and their invocations avoid waiting for each other. The bits are
	// the same.
	Software bool

	NoFuse []string // names of Fusions to do without; they change no bit, but for "stack" with Matrices

	// Matrices: if the GPU has matrix units that can be reached, they compute products of
	// many rows with quantized weights, and attention over binary16 keys and values, in
	// binary16. A row then has other bits in a step of many rows than in a step of few.
	Matrices bool
}

// Backend runs graphs on a GPU.
type Backend struct {
	o    Options
	d    *Device
	unit *matrixUnit  // nil where none is used
	busy backend.Turn // held while the GPU is used

	weights  map[weights]*weight    // of products
	vectors  map[weights]gpu.Buffer // small ones, one after another
	adapters adapters
	memory   *memory

	meter *backend.Meter // nil until it is asked for

	poison bool                     // fill free memory with NaNs: for tests
	all    bool                     // tables of embeddings lie on the GPU, whatever their size: for tests
	times  map[string]time.Duration // of kernels, and of nodes, if they are to be taken: for tests
}

// New makes a backend of d.
func New(d *Device, o Options) *Backend {
	l := d.Adapter().Limits
	b := &Backend{o: o, d: d, busy: backend.NewTurn(), memory: &memory{gpu: d.gpu, limit: min(l.Binding, l.Buffer)},
		weights: map[weights]*weight{}, vectors: map[weights]gpu.Buffer{},
		adapters: adapters{pairs: map[*graph.Weight]*pairs{}}}
	if o.Matrices {
		b.unit = unitOf(d.Adapter().Matrices)
	}
	return b
}

// Rows implements backend.Wide: with fewer, a GPU has too little to do at once. A program
// that stands in for one gains nothing by many, and what it computes can be stopped between
// steps only.
func (b *Backend) Rows() int {
	if b.o.Software {
		return 64
	}
	return 512
}

// Close frees what the backend has on the GPU. Nothing may run, then or later.
func (b *Backend) Close() error {
	b.busy.Lock()
	defer b.busy.Unlock()
	b.memory.close()
	if b.o.Own {
		return b.d.Close()
	}
	return nil
}
