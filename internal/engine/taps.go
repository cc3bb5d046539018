package engine

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/karat-run/karat/internal/graph"
)

// ErrInTap is the error of a request, or of Close, inside a tap of the same graph: it
// would wait for the step that waits for the tap.
var ErrInTap = errors.New("inside a tap of the same model, which waits for the tap's end")

// errTap is what a step's other requests are told.
var errTap = errors.New("a tap panicked or ended its goroutine")

// taps notes what the taps of an engine do.
type taps struct {
	any  bool // there are some
	runs bool // one is called and has not returned
	of   int  // the place in the batch of whom it is called for
}

// watch makes o's taps note in e that they run. For hooks, o wants every node.
func (e *Engine) watch(o *Options) {
	e.see.any = o.Tap != nil || o.Expert != nil || o.Hooks
	if tap := o.Tap; tap != nil {
		e.tap = func(n *graph.Node, out []float32) {
			e.see.runs = true
			tap(n, out)
			e.see.runs = false
		}
	}
	if o.Hooks {
		o.Want, e.after = func(*graph.Node) bool { return true }, e.graph.Live().After
	}
}

// inside is the goroutines that compute a step with taps, and of which graph. Engines of
// one graph may share a backend, on which they wait for each other.
var inside struct {
	steps atomic.Int64
	of    sync.Map // of place
}

type place struct {
	goroutine uint64
	graph     *graph.Graph
}

// enter notes that this goroutine computes a step of g, until leave.
func enter(g *graph.Graph) (leave func()) {
	p := place{goroutine(), g}
	inside.of.Store(p, nil)
	inside.steps.Add(1)
	return func() {
		inside.steps.Add(-1)
		inside.of.Delete(p)
	}
}

// InTap reports whether a tap of an engine of the same graph is what calls.
func (e *Engine) InTap() bool {
	if inside.steps.Load() == 0 {
		return false
	}
	_, ok := inside.of.Load(place{goroutine(), e.graph})
	return ok
}

// goroutine is the number of the goroutine that calls, which Go tells in traces alone.
func goroutine() uint64 {
	var trace [64]byte
	fields := strings.Fields(string(trace[:runtime.Stack(trace[:], false)])) // goroutine 17 [running]:
	n, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		panic(err) // another Go than any so far
	}
	return n
}
