// Package webgpu runs graphs on a GPU, through WebGPU.
//
// All arithmetic is float32, from the weights as in the file, except with Options.Matrices; keys and values are kept in
// binary16 or float32. A row's bits do not depend on the step: each kernel's order of summation follows from the
// weight, or from the row's position. Different GPUs may give different bits.
//
// Compile lowers each node to dispatches of kernels, templates of WGSL in shaders/, and plans the buffers by live
// range; Run records dispatches with the step's inputs in one list and runs the list. The host reads rows of embedding
// tables not on the GPU, and of the rotary tables.
//
// The files in reading order: lower.go (a node's dispatches), run.go (a step), plan.go (compiling), meter.go, choose.go
// (tokens on the GPU), template.go (the language of shaders); the operations: experts.go, attention.go, product.go with
// matrix.go; fusions.go (nodes of one dispatch), adapter.go, planner.go (nodes, dispatches, buffers); cache.go,
// webgpu.go (the backend), gate.go, weight.go, memory.go, norm.go, kernel.go.
package webgpu

import (
	"slices"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// Options of a backend. The zero value is usable.
type Options struct {
	F32KV  bool // keep keys and values in float32, not in binary16
	Narrow bool // keep older ones in 8 bits
	Own    bool // Close also closes the device

	// Software: the device is a program in place of a GPU. It compiles kernels slowly, so kernels are small, and
	// invocations avoid waiting for each other. The bits are the same.
	Software bool

	NoFuse []string // names of Fusions to do without; bits stay the same, except for "stack" with Matrices

	// Matrices: matrix units, if the GPU has any in reach, compute products of many rows with quantized weights, and
	// attention over binary16 keys and values, in binary16. A row then has other bits in a step of many rows than in a
	// step of few.
	Matrices bool
}

// Backend runs graphs on a GPU.
type Backend struct {
	o    Options
	d    *Device
	unit *matrixUnit  // nil where none is used
	busy backend.Turn // held while the GPU is used

	weights  map[weights]*weight    // of products
	vectors  map[weights]gpu.Buffer // small weights, one after another
	adapters adapters
	memory   *memory

	meter *backend.Meter // nil until the first request

	poison bool                     // fill free memory with NaNs: for tests
	all    bool                     // tables of embeddings lie on the GPU, whatever their size: for tests
	times  map[string]time.Duration // of kernels, and of nodes, if wanted: for tests
}

// New makes a backend of d.
func New(d *Device, o Options) *Backend {
	l := d.Adapter().Limits
	if o.Narrow { // stores turn by Hadamard matrices, and do no more
		o.NoFuse = append(slices.Clone(o.NoFuse), "turn", "own", "head")
	}
	b := &Backend{o: o, d: d, busy: backend.NewTurn(), memory: &memory{gpu: d.gpu, limit: min(l.Binding, l.Buffer)},
		weights: map[weights]*weight{}, vectors: map[weights]gpu.Buffer{},
		adapters: adapters{pairs: map[*graph.Weight]*pairs{}}}
	if o.Matrices {
		b.unit = unitOf(d.Adapter().Matrices)
	}
	return b
}

// Narrow implements backend.Narrow.
func (b *Backend) Narrow() bool { return b.o.Narrow }

// narrowOf returns the stores of g with older pages in 8 bits: of a window, all or none.
func (b *Backend) narrowOf(g *graph.Graph) map[*graph.KV]bool {
	narrow := map[*graph.KV]bool{}
	for _, s := range g.KVs() {
		narrow[s] = b.o.Narrow && backend.IsNarrow(g, s)
		for _, o := range g.KVs() {
			narrow[s] = narrow[s] && (o.Window != s.Window || (o.Dim%32 == 0 && o.Values()%32 == 0))
		}
	}
	return narrow
}

// Rows implements backend.Wide: with fewer rows, a GPU has too little to do at once. A software GPU gains nothing by
// many rows, and can be stopped between steps only.
func (b *Backend) Rows() int {
	if b.o.Software {
		return 64
	}
	return 512
}

// Close frees the backend's memory on the GPU. Nothing may run, then or later.
func (b *Backend) Close() error {
	b.busy.Lock()
	defer b.busy.Unlock()
	b.memory.close()
	if b.o.Own {
		return b.d.Close()
	}
	return nil
}
