package engine

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// ErrInTap is the error of a request, or of Close, inside a tap of the same graph: the request would wait for the step,
// and the step for the tap.
var ErrInTap = errors.New("inside a tap of the same model, which waits for the tap's end")

// errTap is the error of a step's other requests.
var errTap = errors.New("a tap panicked or ended its goroutine")

// taps notes the calls of the taps of an engine.
type taps struct {
	runs bool // a tap is called and has not returned
	of   int  // place in the batch of the tap's request
}

// watch returns tap, with a note in t while the tap runs.
func (t *taps) watch(tap backend.Tap) backend.Tap {
	if tap == nil {
		return nil
	}
	return func(n *graph.Node, out []float32) {
		t.runs = true
		tap(n, out)
		t.runs = false
	}
}

// tapping holds the goroutines computing a step with taps, and their graphs. Engines of one graph may share a backend,
// and wait for each other there.
var tapping struct {
	steps atomic.Int64
	of    sync.Map // of place
}

type place struct {
	goroutine uint64
	graph     *graph.Graph
}

// enter notes that the calling goroutine computes a step of g, until leave.
func enter(g *graph.Graph) (leave func()) {
	p := place{goroutine(), g}
	tapping.of.Store(p, nil)
	tapping.steps.Add(1)
	return func() {
		tapping.steps.Add(-1)
		tapping.of.Delete(p)
	}
}

// goroutine returns the number of the calling goroutine, which Go shows in traces alone.
func goroutine() uint64 {
	var trace [64]byte
	fields := strings.Fields(string(trace[:runtime.Stack(trace[:], false)])) // goroutine 17 [running]:
	n, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		panic(err) // a Go unlike all so far
	}
	return n
}

// Hook sees and may write values of a sequence's rows during computation.
type Hook struct {
	Nodes func(n *graph.Node) bool // reports whether See is called for a node; nil is all nodes
	Write bool                     // See may write: later nodes read the written values

	// See is called once a step for each node, in order, with the node's rows of the sequence in the step, [len(pos)]
	// and n.Shape, at positions pos. After Rows only rows with wanted logits remain. Both slices are valid during the
	// call. A preempted sequence is computed again, and See called again.
	See func(n *graph.Node, pos []int32, values []float32)
}

var errHooks = errors.New("hooks and a tap of all steps do not go together")
