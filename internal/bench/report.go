package bench

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/model"
)

// Options holds the tests to measure. Each combination of the lists is a test.
type Options struct {
	Prompts, Tokens, Depths, Threads, Parallel []int
	Prompt                                     *Prompt // text of Prompts and Depths; nil is random tokens
	Arrive                                     []int   // of prompts beside decoding sequences
	Drafts                                     bool    // answers with drafts and without
	Head                                       bool    // drafts also by the model's head
	Repeat                                     int     // runs of a test, after a run to warm up
	Budget                                     int64   // most bytes of keys and values; 0 is enough for all sequences
	Numerics                                   numerics.Numerics
	NoFuse                                     []string          // fusions to do without
	Adapters                                   []model.Adapter   // of all sequences
	NoFit                                      bool              // no limit by the machine's memory
	Limits                                     bool              // also measure the machine's
	Free                                       int64             // free memory, a quarter for Limits; 0 is unknown
	Profile                                    bool              // of each test, by another run
	Peer                                       *Peer             // measured in turns; may be nil
	Progress                                   func(test string) // may be nil
}

// lengths returns the tokens of the longest sequence, and of all sequences at a time at the greatest length.
func (o *Options) lengths() (longest, all int) {
	depth, together := slices.Max(o.Depths), max(maximum(o.Parallel), 1)
	longest = depth + max(maximum(o.Prompts), o.Prompt.length()+maximum(o.Tokens), 1)
	// a step has at least a token of the prompt, and a token of each decoding sequence
	if late := maximum(o.Arrive); late > 0 {
		longest, together = max(longest, depth+late+2*settled), together+1
	}
	if o.Drafts {
		for _, x := range scripts(1 << 16) {
			longest = max(longest, len(x.prompt)+len(x.answer))
		}
	}
	return longest, longest * together
}

// budget returns the bound on keys and values.
func (o *Options) budget() int64 { return cmp.Or(o.Budget, math.MaxInt64) }

// Prompt is the beginning of all sequences. Tests of decoding follow the prompt.
type Prompt struct {
	Template string `json:"template"` // template applied: none, model, or a file's name
	IDs      []int  `json:"ids"`
}

// length returns the number of p's ids; a nil p has none.
func (p *Prompt) length() int {
	if p == nil {
		return 0
	}
	return len(p.IDs)
}

// tokens returns a fixed random text, beginning with p's ids.
func (p *Prompt) tokens(n, vocab int) []int32 {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]int32, n)
	for i := range all {
		if all[i] = random.Int32N(int32(vocab)); i < p.length() {
			all[i] = int32(p.IDs[i])
		}
	}
	return all
}

// Result holds the measurements of a test.
type Result struct {
	Test     string `json:"test"` // as pp512 or tg64 @ d4096
	Threads  int    `json:"n_threads"`
	Prompt   int    `json:"n_prompt"`
	Tokens   int    `json:"n_gen"`
	Depth    int    `json:"n_depth"`
	Parallel int    `json:"n_parallel"`
	// sequences within Options.Budget at a time, if fewer than Parallel
	Holds   int       `json:"n_held,omitempty"`
	Samples []float64 `json:"samples_ts"` // tokens of all sequences for each second, a run each
	Median  float64   `json:"median_ts"`
	Stddev  float64   `json:"stddev_ts"`
	GBs     float64   `json:"weights_gb_s,omitempty"` // read in decode; 0 for several sequences
	Bound   string    `json:"bound,omitempty"`        // nearest limit: memory or compute
	Share   float64   `json:"limit_share,omitempty"`  // median of the runs' shares of the limit
	// most processors of other programs during a run; 0 if unknown
	Others    float64          `json:"others_processors"`
	Peer      []float64        `json:"peer_samples_ts,omitempty"`
	PeerRate  float64          `json:"peer_median_ts,omitempty"`
	PeerShare float64          `json:"peer_limit_share,omitempty"`
	Ratio     *Ratio           `json:"ratio,omitempty"`   // to the peer
	Draft     *Drafts          `json:"draft,omitempty"`   // of an answer with drafts
	Arrival   *Arrival         `json:"arrival,omitempty"` // of a prompt beside decoding sequences
	Step      *Step            `json:"step,omitempty"`    // where a GPU computes
	Scaling   float64          `json:"scaling,omitempty"` // median, relative to the first number of threads
	Profile   *backend.Profile `json:"profile,omitempty"`
}

// name returns the test's name.
func (t *Result) name() string {
	return fmt.Sprintf("%s, threads %d, parallel %d", t.Test, t.Threads, t.Parallel)
}

// Step holds the average costs of a step: a token of decoding, or a chunk of a prompt.
type Step struct {
	Dispatches float64 `json:"dispatches"`
	Device     float64 `json:"device_s"`
	Host       float64 `json:"host_s"`     // the rest, while the device waits
	Read       float64 `json:"read_share"` // of the limit, in decode; 0 for several sequences
}

// Load holds the costs before a model runs, with the page cache as found.
type Load struct {
	Threads int     `json:"n_threads"`
	Seconds float64 `json:"load_s"`
	First   float64 `json:"first_token_s"` // loading included, after a prompt of a single token

	// Seconds of processes loading a file from the page cache and computing a token: of this program, and of the peer.
	Process []float64 `json:"process_s,omitempty"`
	Peer    []float64 `json:"peer_process_s,omitempty"`
	Ratio   *Ratio    `json:"ratio,omitempty"`
}

// Adapter describes the adapter of all sequences.
type Adapter struct {
	Path  string  `json:"path"`
	Scale float64 `json:"scale"`
}

// Report holds all measurements.
type Report struct {
	Model    string        `json:"model_filename"`
	Arch     string        `json:"model_type"`
	Size     int64         `json:"model_size"`
	Params   int64         `json:"model_n_params"`
	Backend  string        `json:"backends"`
	PeerName string        `json:"peer,omitempty"`
	Adapters []Adapter     `json:"adapters,omitempty"`
	*Prompt                // nil is random tokens
	Hashes   *model.Hashes `json:"hashes,omitempty"` // of the files and the program, if asked for
	Loads    []Load        `json:"loads"`
	Limits   []Limit       `json:"limits,omitempty"`
	Results  []Result      `json:"results"`
	Memory
}

func maximum(x []int) (most int) {
	for _, n := range x {
		most = max(most, n)
	}
	return most
}

// spread returns the median, and the standard deviation of a sample.
func spread(x []float64) (median, deviation float64) {
	sorted := slices.Sorted(slices.Values(x))
	n, mean := len(sorted), 0.0
	if n == 0 {
		return 0, 0
	}
	for _, v := range sorted {
		mean += v / float64(n)
	}
	for _, v := range sorted {
		deviation += (v - mean) * (v - mean)
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, math.Sqrt(deviation / float64(max(n-1, 1)))
}

// Arrival holds the waits of decoding sequences while a prompt is computed beside. A gap is the seconds
// between two tokens of a sequence.
type Arrival struct {
	Tokens  int     `json:"n_prompt"`
	Steps   int     `json:"steps"`         // of the prompt, counted by the sequence of most tokens
	Fewest  int     `json:"fewest_steps"`  // with a sequence: fewer where a sequence missed some
	Alone   float64 `json:"gap_alone_s"`   // the median before the prompt arrives
	Mixed   float64 `json:"gap_mixed_s"`   // the median of steps with parts of the prompt
	Slowest float64 `json:"gap_slowest_s"` // median of all sequences in the slowest step
	Longest float64 `json:"gap_longest_s"` // of all sequences, steps and runs
}

// Limit holds the machine's most with so many threads, at each measurement: before and after each run of a test.
type Limit struct {
	Threads int       `json:"n_threads"`
	Read    []float64 `json:"read_gb_s"`
	Ints    []float64 `json:"int_gops"`     // 16-bit activations, 8-bit weights
	Floats  []float64 `json:"float_gops"`   // float32
	Names   [2]string `json:"instructions"` // of Ints and Floats
}

// Ratio says how much faster Karat is, run by run.
type Ratio struct {
	Samples []float64 `json:"samples"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
}

// ratio divides x by y, run by run, nil if there is nothing to divide.
func ratio(x, y []float64) *Ratio {
	n := min(len(x), len(y))
	if n == 0 {
		return nil
	}
	r := &Ratio{Min: x[0] / y[0]}
	for i := range n {
		q := x[i] / y[i]
		r.Samples = append(r.Samples, q)
		r.Min, r.Max = min(r.Min, q), max(r.Max, q)
	}
	r.Median, _ = spread(r.Samples)
	return r
}

// String also says when Karat is slower.
func (r *Ratio) String() string {
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("%.2f (%.2f..%.2f)", r.Median, r.Min, r.Max)
	if r.Median < 1 {
		text += " slower"
	}
	return text
}

// Memory holds the process's memory as reported by Linux; all is 0 elsewhere. Memory allocated for other
// ends, as for Limits, is left out.
type Memory struct {
	Resident int64 `json:"resident_bytes,omitempty"` // after the tests: the sum of the parts below
	Peak     int64 `json:"resident_peak_bytes,omitempty"`
	Files    int64 `json:"resident_files_bytes,omitempty"`   // the program, and the pages read of the mapped model
	Weights  int64 `json:"resident_weights_bytes,omitempty"` // repacked
	KV       int64 `json:"resident_kv_bytes,omitempty"`      // keys and values
	Heap     int64 `json:"resident_heap_bytes,omitempty"`    // all else: activations, logits, Go's own
}
