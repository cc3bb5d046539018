// Package cpu runs graphs on the processor, with the kernels of package simd.
//
// A step's logits have the same bits with any number of threads, for any cuts of a prompt into steps, and beside any
// other sequences. Kernels take rows together, but a row's order of summation is fixed and independent of other rows.
// Threads divide a product's weight rows, attention's heads and rows, and the rows of other nodes, never a sum.
//
// Compile lowers each node to a kernel with its buffers (plan.go); Run calls the kernels in order.
//
// The files in reading order: plan.go (lowering); chain.go (nodes sharing a loop row by row); experts.go, fuse.go
// (products sharing a loop), adapter.go, attention.go with cut.go, scan.go, route.go, rows.go (the operations); cpu.go
// (the backend, a planner's and a run's state); linear.go with activations.go (products); carry.go, cache.go (the KV
// cache); repack.go (weights); pool.go with meter.go (threads); arena.go.
package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
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
	busy backend.Turn // held by the running plan, or the compiling one

	packed   map[*graph.Weight]*packed // products' quantized weights
	floats   map[*graph.Weight][]float32
	panels   arena           // the panels' memory
	buffers  arena           // of plans
	inPlace  []*graph.Weight // to be repacked
	room     []byte          // for their panels: untouched
	repacked int64           // bytes of panels
	passes   int             // steps with weights in place
	answered bool            // whether a step gave logits
	judged   int             // steps with the logits of more than few rows
}

// New starts the pool. Close ends it.
func New(o Options) *Backend {
	if o.Threads <= 0 {
		o.Threads = sysinfo.Threads()
	}
	return &Backend{o: o, busy: backend.NewTurn(), pool: newPool(o.Threads), packed: map[*graph.Weight]*packed{},
		floats: map[*graph.Weight][]float32{}}
}

// Close ends the pool's threads and gives the memory of repacked weights and of plans
// back, logits included. Nothing may run, then or later.
func (b *Backend) Close() error {
	b.pool.close()
	return cmp.Or(b.panels.close(), b.buffers.close())
}

// Rows implements backend.Wide.
func (b *Backend) Rows() int { return Rows(b.o.Threads) }

// Rows returns the rows of a step for a number of threads, 0 being sysinfo.Threads. With few threads, 256 rows of
// activations stay near. Many threads gain more by meeting half as often at the ends of loops. In a browser's memory
// buffers count.
func Rows(threads int) int {
	if runtime.GOARCH == "wasm" {
		return 64
	}
	if threads <= 0 {
		threads = sysinfo.Threads()
	}
	if threads >= 16 {
		return 512
	}
	return 256
}

// Narrow implements backend.Narrow.
func (b *Backend) Narrow() bool { return b.o.KV == KVQ8 }

// Packed returns the bytes of repacked weights.
func (b *Backend) Packed() int64 { return b.repacked }

// executable is a compiled plan and its buffers.
type executable struct {
	b        *Backend
	rows     int
	results  int // maximum of rows with wanted logits
	vocab    int
	kernels  []kernel
	x        activations
	scratch  []scratch            // by worker
	after    map[*graph.Node]bool // nodes after Rows, with a row for each output
	ahead    bool                 // rows see later ones
	fused    []string             // fusions and their nodes
	scores   scoreRoom
	adapters adapterRoom
	expert   backend.Expert
	last     *graph.Node
	result   []float32 // its value
	asked    askedValues

	// The running step, and its part with wanted logits.
	step, wanted *backend.Step
	pieces       []backend.Piece // of the step
	entry        backend.Entry   // node replaced by rows of embeddings
}

// scoreRoom is the room of attention, which the nodes share.
type scoreRoom struct {
	parts []float32   // see cut
	sums  [][]float32 // of an indexer, by row of a group
}

// askedValues are the values open to requests by steps.
type askedValues struct {
	kept   backend.Kept
	values map[*graph.Node][]float32 // of the nodes of kept
	enough int                       // kernels of the values, of all keys and of states
}

// kernel computes one node.
type kernel struct {
	node *graph.Node
	name string       // name shared with similar nodes, and the way of computing
	run  func() error // nil if another node's has made the value
	out  []float32    // the node's value, or nil
	want bool
}

// check reports an error if e cannot run s, and returns its cache.
func (e *executable) check(s *backend.Step) (*cache, error) {
	if err := s.Check(e.rows, e.vocab); err != nil {
		return nil, err
	}
	if err := s.CheckEmbeddings(e.entry); err != nil {
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
	if err := c.begin(s.Seqs...); err != nil {
		return nil, err
	}
	e.pieces = s.Pieces(e.pieces[:0])
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

// rowsOf returns the rows of the running step in n's value.
func (e *executable) rowsOf(n *graph.Node) *backend.Step {
	if e.after[n] {
		return e.wanted
	}
	return e.step
}

// count returns the number of rows in n's value.
func (e *executable) count(n *graph.Node) int { return len(e.rowsOf(n).Tokens) }

// vector returns a small weight as float32.
func vector(w *graph.Weight) ([]float32, error) {
	v := make([]float32, w.Shape.Size())
	return v, quant.Dequantize(w.DType, v, w.Data)
}

// planner lowers a graph to kernels. Buffers are handed out in execution order, and taken back after the last node
// reading the value.
type planner struct {
	e        *executable
	g        *graph.Graph
	values   map[*graph.Node][]float32
	live     *graph.Live
	reads    map[*graph.Node]int           // how many nodes read a value, and the result's caller
	fused    map[*graph.Node]*graph.Node   // by node not computed alone: the GLU node of its fusion
	siblings map[*graph.Node][]*graph.Node // by product: the others computed in its loop
	made     map[*graph.Node]bool          // the nodes in siblings
	free     [][]float32
	chain    *chain      // open to the next node
	held     [][]float32 // free when the chain ends
	tables   map[freqs]*rope.Table
}

// freqs identifies a slice of frequencies, and their magnitude.
type freqs struct {
	first     *float64
	n         int
	magnitude float64
}

// buffer returns room for a value of n.
func (p *planner) buffer(n *graph.Node) ([]float32, error) { return p.take(p.rows(n) * n.Shape.Size()) }

// rows returns the maximum of rows of n's value.
func (p *planner) rows(n *graph.Node) int {
	if p.e.after[n] {
		return p.e.results
	}
	return p.e.rows
}

// take returns a buffer of some size, to be put into free when unused.
func (p *planner) take(size int) (b []float32, err error) {
	best := -1
	for i, f := range p.free {
		if len(f) >= size && (best < 0 || len(f) < len(p.free[best])) {
			best = i
		}
	}
	if best < 0 {
		err = reserve(&p.e.b.buffers, &b, size)
		return b, err
	}
	b = p.free[best]
	p.free = slices.Delete(p.free, best, best+1)
	return b, nil
}
