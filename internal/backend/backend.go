// Package backend is the border between recorded graphs and what runs them.
package backend

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// Backend runs graphs on one kind of hardware.
type Backend interface {
	// Compile prepares a plan of g for steps of at most o.Rows rows. What it takes is
	// held until the backend is closed, whose plans are so meant to be few.
	Compile(g *graph.Graph, o Options) (Executable, error)
	// NewCache makes room for the keys and values of g's layers, in the pages
	// that pool hands out. Plans of the same graph share it.
	NewCache(g *graph.Graph, pool *kv.Pool) (Cache, error)
	Close() error
}

// Options of a plan. The zero value is a plan for one row without taps.
type Options struct {
	Rows    int                    // most rows of a step; 0 is 1
	Outputs int                    // most rows of a step whose logits are wanted; 0 is Rows
	Want    func(*graph.Node) bool // nodes whose outputs a Tap wants to see; a wanted node is not fused away

	// Progress is called while the weights are prepared, with bytes. Its error ends
	// that, and is Compile's. It may be nil.
	Progress func(done, total int64) error
	Expert   Expert // may be nil
}

// Expert sees what an expert of an Experts node multiplies in a step: the rows that
// are routed to it, in [rows, in], and their act(gate)·up, inner [rows, ff], in any
// pieces. Both are valid during the call.
type Expert func(n *graph.Node, expert int, in, inner []float32)

// Executable is a compiled plan. It may be run by one goroutine at a time.
type Executable interface {
	// Run executes a step and returns the logits [len(s.Outputs), vocab],
	// valid until the next Run. tap may be nil; it sees whole outputs of the
	// wanted nodes as [rows, shape...], valid during the call. A tap does not
	// change the logits by a bit.
	Run(ctx context.Context, s *Step, tap Tap) (logits []float32, err error)
}

// Chooser is an Executable that finds the likeliest tokens where it computes, which may
// be far from here.
type Chooser interface {
	// Most is how many of the likeliest tokens Choose finds, and how many steps it takes
	// at once, at most; 0 where logits are better read.
	Most() (k, steps int)

	// Choose executes a step as Run does and returns the k likeliest tokens of each
	// output, [steps, len(s.Outputs), k]: the higher logit first, of equal ones the lower
	// id; a NaN and +Inf count as higher than all others and as equal. Where there are
	// fewer, logits of -Inf follow.
	//
	// Of several steps, k being 1, s is the first: it has one row of each sequence, all
	// of them outputs, and each further one the tokens that were found, at the next
	// positions, for which the sequences have grown already. The bits are the same.
	Choose(ctx context.Context, s *Step, k, steps int) ([]Likely, error)
}

// Likely is a token and its logit.
type Likely struct {
	ID    int32
	Logit float32
}

// Wide is a backend that computes many rows best.
type Wide interface {
	Rows() int // that a step has at most
}

// Metered is a backend that computes elsewhere, and can tell what that takes.
type Metered interface {
	// Meter is what the steps since the last call took.
	Meter() Meter
	// Bandwidth is what is read at most.
	Bandwidth() (bytesPerSecond float64, err error)
}

// Meter is what some steps took.
type Meter struct {
	Steps, Dispatches int
	Device            time.Duration // that the device computed; 0 where it does not tell
}

// Profiled is a backend that can tell where its threads' time goes.
type Profiled interface {
	// Measure begins to measure, or ends it, between steps. It returns what was measured
	// since it began, nil if nothing was.
	Measure(on bool) *Profile
}

// Profile is where the time of some steps went.
type Profile struct {
	Steps   int             `json:"steps"`
	Time    time.Duration   `json:"ns"`      // of all steps
	Kernels []KernelProfile `json:"kernels"` // the longest first
	Threads []ThreadProfile `json:"threads"` // 0 is the one that calls
}

// KernelProfile is the time of the nodes of one kind.
type KernelProfile struct {
	Name  string        `json:"name"`     // of the nodes without their layers, and of a part, as "attn_q/round"
	Loops int           `json:"loops"`    // that several threads shared, each with a wait for all of them at its end
	Time  time.Duration `json:"ns"`       // until the next kernel
	Busy  time.Duration `json:"busy_ns"`  // of all threads in shared loops
	Alone time.Duration `json:"alone_ns"` // of Time: outside of shared loops, where only one thread works
}

// ThreadProfile is what one worker did.
type ThreadProfile struct {
	Busy    time.Duration `json:"busy_ns"`    // in pieces of shared loops, and, for thread 0, outside
	Waiting time.Duration `json:"waiting_ns"` // in shared loops, without a piece
	Between time.Duration `json:"between_ns"` // outside of shared loops
}

// Tap receives the output of a wanted node.
type Tap func(n *graph.Node, out []float32)

// Cache holds keys and values.
type Cache interface {
	Bytes() int64 // memory in use
	Close() error
}

// Step is what one run computes: T rows, each a token at a position of a
// sequence. Rows of one sequence follow each other in order of position; the
// sequence has already grown to hold them.
type Step struct {
	Tokens  []int32
	Pos     []int32
	Seqs    []*kv.Sequence // of each row
	Outputs []int32        // rows whose logits are wanted, ascending
	Cache   Cache
}

// Wanted is the rows of s whose logits are wanted: what nodes behind Rows compute.
func (s *Step) Wanted() *Step {
	if len(s.Outputs) == len(s.Tokens) {
		return s
	}
	w := &Step{Cache: s.Cache}
	for _, r := range s.Outputs {
		w.Tokens, w.Pos, w.Seqs = append(w.Tokens, s.Tokens[r]), append(w.Pos, s.Pos[r]), append(w.Seqs, s.Seqs[r])
	}
	return w
}

// Check tells whether s is well formed for a plan of at most rows rows over a
// vocabulary of vocab.
func (s *Step) Check(rows, vocab int) error {
	t := len(s.Tokens)
	if t == 0 || t > rows {
		return fmt.Errorf("backend: step of %d rows, the plan is for 1 to %d", t, rows)
	}
	if len(s.Pos) != t || len(s.Seqs) != t {
		return fmt.Errorf("backend: step of %d tokens has %d positions and %d sequences", t, len(s.Pos), len(s.Seqs))
	}
	for i, id := range s.Tokens {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("backend: token id %d at row %d, the vocabulary has %d", id, i, vocab)
		}
		if p := int(s.Pos[i]); p < 0 || p >= s.Seqs[i].Len() {
			return fmt.Errorf("backend: position %d at row %d, the sequence has room for %d", p, i, s.Seqs[i].Len())
		}
		if i > 0 && s.Seqs[i] == s.Seqs[i-1] && s.Pos[i] != s.Pos[i-1]+1 {
			return fmt.Errorf("backend: position %d at row %d follows %d", s.Pos[i], i, s.Pos[i-1])
		}
	}
	for i, o := range s.Outputs {
		if o < 0 || int(o) >= t || i > 0 && o <= s.Outputs[i-1] {
			return fmt.Errorf("backend: output rows %v of %d", s.Outputs, t)
		}
	}
	return nil
}

// Windows lists the windows of g's stores without duplicates, full layers (0)
// first: the classes of its pool.
func Windows(g *graph.Graph) []int {
	var w []int
	for _, kv := range g.KVs() {
		if !slices.Contains(w, kv.Window) {
			w = append(w, kv.Window)
		}
	}
	slices.Sort(w)
	return w
}

// Vocab is the number of token ids that all of g's embeddings have.
func Vocab(g *graph.Graph) int {
	vocab := math.MaxInt
	for _, n := range g.Nodes {
		if n.Op == graph.Embed {
			vocab = min(vocab, n.W[0].Shape[0])
		}
	}
	return vocab
}

// CacheBytes is the memory for the keys and values of one sequence of the full
// context, elements having size bytes.
func CacheBytes(g *graph.Graph, context, chunk int, size int64) int64 {
	windows := Windows(g)
	pool := kv.NewPool(windows, context, chunk, 0)
	var n int64
	for _, s := range g.KVs() {
		n += int64(pool.Positions(slices.Index(windows, s.Window), context)) * PositionBytes(s, size)
	}
	return n
}

// PositionBytes is the memory that one position takes in a store.
func PositionBytes(s *graph.KV, size int64) int64 { return 2 * int64(s.Heads) * int64(s.Dim) * size }
