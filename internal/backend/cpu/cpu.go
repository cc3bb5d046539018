// Package cpu runs graphs on the processor, with the kernels of package simd.
//
// A step's logits have the same bits with any number of threads, however a prompt
// is cut into steps, and beside any other sequences. Kernels take rows
// together, but a row's order of summation is fixed and does not depend on the rows
// beside it. Threads divide a product's weight rows, attention's heads and rows, and
// the rows of other nodes, never a sum.
//
// Compile lowers each node to a kernel with its buffers (plan.go); Run calls
// them in order.
//
// The files in reading order: cpu.go (the backend, a plan and a run), plan.go (lowering), fuse.go (products that share
// a loop), chain.go (nodes that share a loop row by row); the kernels: experts.go, adapter.go, attention.go with
// cut.go, scan.go, route.go, rows.go, linear.go with activations.go; and what these stand on: cache.go with carry.go,
// repack.go, pool.go with meter.go, arena.go.
package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/sysinfo"
)

// Precision is the arithmetic of products with quantized weights. All else is float32.
type Precision uint8

const (
	// Fast rounds a product's activations to 16-bit integers with a scale for
	// every 32, and multiplies integers.
	Fast Precision = iota
	// F32 dequantizes the weights and multiplies float32 numbers.
	F32
)

// Options of a backend. The zero value is usable.
type Options struct {
	Threads   int       // 0 is sysinfo.Threads
	Precision Precision //
	KV        KVType    // how keys and values are kept
	NoFuse    []string  // names of fusions to do without: glu, beside
}

// Backend runs graphs on a pool of threads.
type Backend struct {
	o    Options
	pool *pool
	busy backend.Turn // held by the plan that runs, or is made

	packed   map[*graph.Weight]*packed // products' quantized weights
	panels   arena                     // their memory
	buffers  arena                     // of plans
	inPlace  []*graph.Weight           // to be repacked
	room     []byte                    // for their panels: untouched
	repacked int64                     // bytes of panels
	passes   int                       // steps with weights in place
	answered bool                      // whether one of the steps gave logits
}

// New starts the pool. Close ends it.
func New(o Options) *Backend {
	if o.Threads <= 0 {
		o.Threads = sysinfo.Threads()
	}
	return &Backend{o: o, busy: backend.NewTurn(), pool: newPool(o.Threads), packed: map[*graph.Weight]*packed{}}
}

// Close ends the pool's threads and gives the memory of repacked weights and of plans
// back, logits included. Nothing may run, then or later.
func (b *Backend) Close() error {
	b.pool.close()
	return cmp.Or(b.panels.close(), b.buffers.close())
}

// Rows implements backend.Wide.
func (b *Backend) Rows() int { return Rows(b.o.Threads) }

// Rows is that of a backend of so many threads, 0 being sysinfo.Threads: of a few, 256 rows of
// activations stay near. Many threads gain more by meeting half as often at the ends of loops.
func Rows(threads int) int {
	if threads <= 0 {
		threads = sysinfo.Threads()
	}
	if threads >= 16 {
		return 512
	}
	return 256
}

// Packed is the bytes that repacked weights take.
func (b *Backend) Packed() int64 { return b.repacked }

// executable is a compiled plan and its buffers.
type executable struct {
	b        *Backend
	rows     int
	results  int // most of them whose logits are wanted
	vocab    int
	kernels  []kernel
	x        activations
	scratch  []scratch            // by worker
	after    map[*graph.Node]bool // nodes behind Rows: they have a row for each output
	ahead    bool                 // rows see later ones
	fused    []string             // what runs together
	parts    []float32            // of attention, see cut
	adapters adapterRoom
	expert   backend.Expert
	last     *graph.Node
	result   []float32 // its value
	asked    askedValues

	// The step that runs, and as much of it as wants logits.
	step, wanted *backend.Step
	input        *graph.Node // that rows of embeddings stand in for
}

// askedValues are the values that steps may ask for.
type askedValues struct {
	kept   backend.Kept
	values map[*graph.Node][]float32 // of the nodes of kept
	enough int                       // kernels that make them, and all keys, values and states
}

// kernel computes one node.
type kernel struct {
	node *graph.Node
	name string       // of nodes like it, and how they are computed
	run  func() error // nil if another node's has made the value
	out  []float32    // the node's value, nil if it has none
	want bool
}

// check tells whether e can run s, and returns its cache.
func (e *executable) check(s *backend.Step) (*cache, error) {
	if err := s.Check(e.rows, e.vocab); err != nil {
		return nil, err
	}
	if err := s.CheckEmbeddings(e.input); err != nil {
		return nil, err
	}
	if err := e.asked.kept.Check(s); err != nil {
		return nil, err
	}
	if e.ahead {
		if err := s.Entire(); err != nil {
			return nil, err
		}
	}
	if len(s.Outputs) > e.results {
		return nil, fmt.Errorf("logits of %d rows, the plan has room for %d", len(s.Outputs), e.results)
	}
	c, ok := s.Cache.(*cache)
	if !ok || c.b != e.b {
		return nil, errors.New("the step's cache is not this backend's")
	}
	return c, nil
}

// Run implements backend.Executable.
func (e *executable) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	c, err := e.check(s)
	if err != nil {
		return nil, err
	}
	if err := e.b.busy.Take(ctx); err != nil {
		return nil, err
	}
	defer e.b.busy.Unlock()
	if err := c.begin(s); err != nil {
		return nil, err
	}
	e.step, e.wanted, e.x.node = s, s.Wanted(), nil
	m := e.b.pool.meter
	if m != nil {
		m.step()
		defer m.at("")
		if len(e.b.inPlace) > 0 {
			m.at(repacking)
		}
	}
	e.b.settle(ctx, s)
	e.b.pool.stepping.Store(true)
	defer e.b.pool.stepping.Store(false)
	kernels := e.kernels
	if s.NoLogits {
		kernels = kernels[:e.asked.enough]
	}
	for i := range kernels {
		k := &kernels[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if m != nil {
			m.at(k.name)
		}
		if k.run != nil {
			if err := guard(k.run); err != nil {
				return nil, fmt.Errorf("%v: %w", k.node, err)
			}
		}
		if tap != nil && k.want && s.Sees(k.node) {
			tap(k.node, k.out[:e.count(k.node)*k.node.Shape.Size()])
		}
	}
	for _, v := range s.Values {
		from, to := e.asked.kept.Range(s, v)
		copy(v.Out, e.asked.values[v.Node][from:to])
	}
	if s.NoLogits {
		return nil, nil
	}
	return e.result[:e.count(e.last)*e.last.Shape.Size()], nil
}
