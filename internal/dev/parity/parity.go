// Package parity is ParityBench: it scores the diagnosis on engines that are wrong
// on purpose. It runs the interpreter with mistakes of package mistake, diagnoses the
// dump, and compares the findings with the faults. Package fault shares nothing with
// the code that names causes.
package parity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Condition is a kind of case.
type Condition string

// The conditions.
const (
	Single Condition = "single" // one fault, all taps
	Multi  Condition = "multi"  // 2 to 5 faults, all taps
	Within Condition = "within" // 2 to 5 faults, of which 2 or 3 in one equation; PyTorch's modules are the only taps
	Clean  Condition = "clean"  // none: every class of rounding, and the same function written otherwise
	Probe  Condition = "probe"  // the engine is right, its probe is broken
	Coarse Condition = "coarse" // one fault; the layers' outputs are the only taps
	Logits Condition = "logits" // one fault, no taps
	Right  Condition = "right"  // none: every class and precision of keys and values, through taps of every coarseness
)

// Conditions are all of them, in the order of tables.
var Conditions = []Condition{Single, Multi, Within, Clean, Probe, Coarse, Logits, Right}

// Model is one that engines run.
type Model struct {
	Name      string
	Graph     *graph.Graph
	Tokenizer *tokenizer.Tokenizer
	Template  string // "" if it has none
}

// Options of Run.
type Options struct {
	Models     []*Model
	Conditions []Condition // none is all
	Class      round.Class // how the faulty engines compute; the zero value is float64
	Seed       uint64      // of the prompts, the sets and the order
	Sets       int         // random sets of faults for each model
	Every      int         // only one case in so many; 0 is 1
	Most       int         // cases of a condition and a model; 0 is no limit
	Longest    int         // tokens of a prompt; what only a longer one shows is left out; 0 is no limit
	Match      string      // only cases with this in their name
	Jobs       int         // cases at a time; 0 is 1

	Progress func(done, total int, last *Result) // called by one goroutine at a time; may be nil
}

// Result is one case and how it came out.
type Result struct {
	Model     string             `json:"model"`
	Condition Condition          `json:"condition"`
	Case      string             `json:"case"` // the faults as mistake.Parse reads them, or the class
	Numerics  string             `json:"numerics,omitempty"`
	Taps      Taps               `json:"taps"`
	Want      []mistake.Injected `json:"want"` // but for what another fault hides
	Verdict   diagnose.Verdict   `json:"verdict"`
	Got       []Place            `json:"got"` // findings but for rounding
	Rounding  string             `json:"rounding"`
	Error     string             `json:"error,omitempty"` // of the diagnosis, which then found nothing
	Scores    Scores             `json:"scores"`
	Failed    []string           `json:"failed,omitempty"` // the scores that are missing

	// Processor is the seconds of processor time that recording and diagnosing the engine took; 0 where it
	// cannot be told, since several cases ran at a time or the system does not say.
	Processor float64 `json:"processor,omitempty"`
}

// Report is what Run measured.
type Report struct {
	Seed     uint64 `json:"seed"`
	Every    int    `json:"every"`
	Most     int    `json:"most,omitempty"`
	Numerics string `json:"numerics,omitempty"`
	// planned; as many results unless interrupted, but for cases that cannot be built
	Cases   int                `json:"cases"`
	Unmade  int                `json:"unmade"`
	Total   map[Condition]*Sum `json:"total"`
	Models  []ModelSum         `json:"models"`
	Results []*Result          `json:"results"`
	Seconds float64            `json:"seconds"`
}

// Sum is the scores of some results.
type Sum struct {
	Scores
	Runs    int     `json:"runs"`    // of engines
	Slowest float64 `json:"slowest"` // diagnosis, in seconds
}

// ModelSum is the scores of a model.
type ModelSum struct {
	Model string             `json:"model"`
	Total map[Condition]*Sum `json:"total"`
}

// Run runs the cases in a random order, so that the cases finished when ctx ends are a
// sample of all: then the report is of that, and the error is ctx's.
func Run(ctx context.Context, o Options) (*Report, error) {
	start := time.Now()
	cases := plan(&o)
	r := &Report{Seed: o.Seed, Every: max(o.Every, 1), Most: o.Most, Numerics: o.Class.String(), Cases: len(cases),
		Total: map[Condition]*Sum{}, Results: []*Result{}}
	for _, m := range o.Models {
		r.Models = append(r.Models, ModelSum{m.Name, map[Condition]*Sum{}})
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan *example)
	var mu sync.Mutex // of r
	var workers sync.WaitGroup
	done := 0
	for range max(o.Jobs, 1) {
		workers.Go(func() {
			for c := range queue {
				begun := processor()
				x, err := c.run(ctx)
				if x != nil && o.Jobs <= 1 {
					x.Processor = processor() - begun
				}
				mu.Lock()
				switch done++; {
				case ctx.Err() != nil:
				case err != nil:
					stop(fmt.Errorf("%s: %s: %w", c.model.Name, c.name(), err))
				case x == nil:
					r.Unmade++
				default:
					r.add(x)
				}
				if o.Progress != nil && ctx.Err() == nil {
					o.Progress(done, len(cases), x)
				}
				mu.Unlock()
			}
		})
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			break
		}
		select {
		case queue <- c:
		case <-ctx.Done():
		}
	}
	close(queue)
	workers.Wait()
	r.Seconds = time.Since(start).Seconds()
	return r, context.Cause(ctx)
}

func (r *Report) add(x *Result) {
	r.Results = append(r.Results, x)
	totals := []map[Condition]*Sum{r.Total}
	for _, m := range r.Models {
		if m.Model == x.Model {
			totals = append(totals, m.Total)
		}
	}
	for _, t := range totals {
		if t[x.Condition] == nil {
			t[x.Condition] = &Sum{}
		}
		s := t[x.Condition]
		s.Runs++
		s.Slowest = max(s.Slowest, x.Scores.Seconds)
		s.Scores.add(&x.Scores)
	}
}

// Line is a result in one line: the answer key, the diagnosis, the missed scores.
func (x *Result) Line() string {
	var want, got []string
	for _, p := range wanted(x.Want) {
		want = append(want, p.String())
	}
	for _, p := range x.Got {
		got = append(got, p.String())
	}
	if len(want) == 0 {
		want = []string{"nothing"}
	}
	s := fmt.Sprintf("%s %s %s: want %s; got %s", x.Model, x.Condition, x.Case, strings.Join(want, " + "), x.Verdict)
	if len(got) > 0 {
		s += ": " + strings.Join(got, " + ")
	}
	if x.Error != "" {
		s += " (" + x.Error + ")"
	}
	if len(x.Failed) > 0 {
		s += " [" + strings.Join(x.Failed, ", ") + "]"
	}
	return s
}

// random is the source of one purpose, so that a slice of the cases has the same ones.
func random(seed uint64, purpose string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(purpose) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}
