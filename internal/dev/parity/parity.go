// Package parity is ParityBench: it scores the diagnosis on engines that are wrong
// on purpose. It runs the interpreter with mistakes of package mistake, diagnoses the
// dump, and compares the findings with the faults. Package fault shares nothing with
// the code that names causes.
//
// Files, users before the used: run.go, engine.go, page.go, text.go, right.go, score.go, seen.go, cases.go, within.go,
// sight.go, parity.go, processor_unix.go.
package parity

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Condition is a kind of case.
type Condition string

// The conditions.
const (
	Single   Condition = "single"   // one fault, all taps
	Pictures Condition = "pictures" // one fault in preparing pictures, in the tower or in pictures' rows, all taps
	Multi    Condition = "multi"    // 2 to 5 faults, all taps
	Within   Condition = "within"   // 2 to 5 faults, 2 or 3 of them in one equation; taps of PyTorch's modules alone
	Clean    Condition = "clean"    // none: every class of rounding, and the same function written otherwise
	Probe    Condition = "probe"    // the engine is right, its probe is broken
	Coarse   Condition = "coarse"   // one fault; the layers' outputs are the only taps
	Logits   Condition = "logits"   // one fault, no taps
	Right    Condition = "right"    // none: every class and precision of keys and values, taps of every coarseness
)

// Conditions are all of them, in the order of tables.
var Conditions = []Condition{Single, Pictures, Multi, Within, Clean, Probe, Coarse, Logits, Right}

// Model is one that engines run.
type Model struct {
	Name      string
	Graph     *graph.Graph
	Tokenizer *tokenizer.Tokenizer
	Template  string // "" if it has none

	Tower *checkpoint.Tower // of a model that sees; nil for others
	Eye   *lab.Eye          // the right one; pictures of prompts lie in its folder
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

// Taps is how much of an engine a dump shows.
type Taps string

// The coarsenesses, from fine to coarse.
const (
	AllTaps Taps = "all"     // every module, and queries and keys behind rope
	Modules Taps = "modules" // PyTorch's modules, which rope is none of
	Outputs Taps = "layers"  // the layers' outputs
	States  Taps = "states"  // the hidden states of the last positions, as lab record has them by default
	NoTaps  Taps = "logits"
)

// Coarseness is all of them, in the order of tables.
var Coarseness = []Taps{AllTaps, Modules, Outputs, States, NoTaps}

// own is Karat's engine on the processor, "" in both being none.
type own struct{ precision, kv string }

func (o own) String() string { return fmt.Sprintf("karat %s, kv=%s", o.precision, o.kv) }

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
