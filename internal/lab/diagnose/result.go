package diagnose

import (
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
)

// Verdict sums up a dump.
type Verdict string

// The verdicts, in the order of accusation: of several kinds of trouble the
// earliest is the verdict.
const (
	Instrument  Verdict = "instrument"  // the probe is broken, not the engine
	Input       Verdict = "input"       // the engine was given other tokens
	Weights     Verdict = "weights"     // a weight was read wrongly
	Structural  Verdict = "structural"  // an operation computes something else
	Reference   Verdict = "reference"   // the golden record and the reference disagree
	Unexplained Verdict = "unexplained" // the equations hold, the logits do not follow
	Sensitivity Verdict = "sensitivity" // right, but the model amplifies the engine's rounding
	Numeric     Verdict = "numeric"     // right up to the named rounding
	Clean       Verdict = "clean"
)

// Diagnosis holds the findings of Run about a dump.
type Diagnosis struct {
	Verdict  Verdict   `json:"verdict"`
	Errors   []string  `json:"errors,omitempty"` // taps that were not looked at by mistake, a sentence each
	Findings []Finding `json:"findings"`         // first cause first
	Closure  Closure   `json:"closure"`
	Floors   Floors    `json:"floors"`
	Coverage Coverage  `json:"coverage"`
	Inferred []string  `json:"inferred"` // what the dump did not say, a sentence each
	Next     []Step    `json:"next"`     // what to do, first step first

	Hashes *model.Hashes `json:"hashes,omitempty"` // of the model and the program; set by the caller

	Model   string   `json:"model"`
	Dump    string   `json:"dump"`
	Layers  int      `json:"layers"`
	Curves  []Curve  `json:"curves"` // measurements, equation by equation
	Logits  []Logits `json:"logits"` // of each prompt
	Seconds float64  `json:"seconds"`
}

// Finding is a cause.
type Finding struct {
	Cause  string         `json:"cause"`           // an ID of package cause
	Op     string         `json:"op"`              // the graph's operation: Linear, RMSNorm, RoPE ...
	Layers []int          `json:"layers"`          // sorted; empty outside the layers
	Tower  int            `json:"tower,omitempty"` // layers of the part that sees, where the finding is in this part
	Tap    string         `json:"tap"`             // the first tap at or after the fault, by PyTorch's name
	From   []string       `json:"from"`            // the taps the equation starts at
	Span   []string       `json:"span"`            // the operations between these and Tap, that no tap separates
	Detail map[string]any `json:"detail"`

	// Of an unknown cause: the operations that no tap separates, with their names, first
	// to last, and the taps, by PyTorch's names, that would separate them. Op is then a guess. Empty with a single one.
	Among   []string `json:"among,omitempty"`
	AddTaps []string `json:"add_taps,omitempty"`

	Nodes    []string   `json:"nodes"`          // of the graph, by name
	Residual lab.Number `json:"residual"`       // relative error of the worst row, without the cause
	Floor    lab.Number `json:"floor"`          // and what rounding alone puts there
	Computed string     `json:"computed"`       // what the engine must have computed instead
	Evidence string     `json:"evidence"`       // one line
	Fix      string     `json:"fix"`            // one line
	Also     []string   `json:"also,omitempty"` // other causes that explain as much
}

// Step is something to do after a diagnosis.
type Step struct {
	Do  Do     `json:"do"`
	Why string `json:"why"`

	Finding  *int              `json:"finding,omitempty"`  // its place in the list of findings
	Taps     []string          `json:"taps,omitempty"`     // to add or to look at, by PyTorch's names
	Callback []string          `json:"callback,omitempty"` // these taps by the names of llama.cpp's callback, if any
	Rename   map[string]string `json:"rename,omitempty"`   // names of taps, and the names that they should have
	Tokens   int               `json:"tokens,omitempty"`   // least length of a prompt to add
	Decode   int               `json:"decode,omitempty"`   // last tokens of prompts to decode one by one
	Command  []string          `json:"command,omitempty"`  // of Karat, word by word
}

// Do is a kind of step.
type Do string

// The kinds of steps.
const (
	DoRename    Do = "rename_taps" // taps have names without a place
	DoMendProbe Do = "mend_probe"  // the dump is wrong: mend its writer
	DoMend      Do = "mend"        // the cause is known: mend the engine by the finding's fix
	DoAddTaps   Do = "add_taps"    // dump these values as well, and diagnose again
	DoExpect    Do = "expect"      // compare a tap's values with the expected ones
	DoAddPrompt Do = "add_prompt"  // dump a prompt of so many tokens as well
	DoDecode    Do = "decode"      // let the engine decode the last tokens one by one
	Done        Do = "done"        // nothing is left to do
)

// Closure tells whether the findings explain the engine's logits: KL divergences
// (nats, mean over positions) of the engine's logits from the reference's, before and
// after the findings are built into the reference.
type Closure struct {
	Before      lab.Number `json:"kl_before"`
	After       lab.Number `json:"kl_after"`
	Floor       lab.Number `json:"floor"`             // KL rounding alone makes
	Unexplained lab.Number `json:"unexplained"`       // share of Before that is left, 0..1
	Unbuilt     int        `json:"unbuilt,omitempty"` // findings that cannot be built in, since their cause is unknown
	Prompts     int        `json:"prompts"`
}

// Floors are the noise floors that were measured.
type Floors struct {
	Activations string `json:"activations"` // the class of rounding: f64, f32, bf16, q8_32 ...
	KV          string `json:"kv"`
	GELU        string `json:"gelu,omitempty"`
	Declared    bool   `json:"declared"` // by the dump; else inferred
	// By operation: median relative error of an equation's worst row.
	Ops map[string]lab.Number `json:"ops"`
}

// Coverage tells what could be seen.
type Coverage struct {
	Prompts   int      `json:"prompts"`   // with taps
	Positions int      `json:"positions"` // the longest of them
	Taps      int      `json:"taps"`      // placed
	Equations int      `json:"equations"`
	Nodes     float64  `json:"nodes"`              // share of the graph's nodes inside an equation
	Spanning  int      `json:"spanning,omitempty"` // equations of several operations with room for a tap between
	Longest   int      `json:"longest,omitempty"`  // the most operations of such an equation
	Unplaced  []string `json:"unplaced,omitempty"` // taps without a place in the graph
	// Taps without a place whose name looks like another's, and that name.
	Misspelt map[string]string `json:"misspelt,omitempty"`
	Blind    []string          `json:"blind"` // what these taps and prompts cannot show, a sentence each
}

// Curve is an equation, measured on all prompts: its target recomputed from the
// engine's own taps before it.
type Curve struct {
	Tap       string       `json:"tap"`
	Node      string       `json:"node"`
	Op        string       `json:"op"`
	Layer     int          `json:"layer"`      // -1 outside the layers
	Residual  lab.Number   `json:"residual"`   // relative error of the worst row
	Floor     lab.Number   `json:"floor"`      // at that row
	Free      lab.Number   `json:"free"`       // relative error of the worst row against the reference's own run
	FreeFloor lab.Number   `json:"free_floor"` // what rounding alone makes of that
	Rows      []lab.Number `json:"rows"`       // residual by row, of the prompt with the most rows
	Positions []int        `json:"positions"`  // of Rows
	Flagged   bool         `json:"flagged"`
	Causes    []string     `json:"causes,omitempty"`
}

// Logits compares the engine's logits of one prompt with the reference's, and with
// the reference's after the findings were built in.
type Logits struct {
	Prompt     int             `json:"prompt"`
	Text       string          `json:"text"`
	KLBefore   lab.Number      `json:"kl_before"`
	KLAfter    lab.Number      `json:"kl_after"`
	Cosine     lab.Number      `json:"cosine"`
	Top1       lab.Number      `json:"top1"`
	Top10      lab.Number      `json:"top10"`
	ByPosition []lab.Number    `json:"by_position"` // KL before
	Positions  []int           `json:"positions"`   // of ByPosition: the positions the dump kept
	Engine     []Token         `json:"engine"`      // the likeliest at the last position
	Reference  []Token         `json:"reference"`
	Scatter    [][2]lab.Number `json:"scatter"` // reference, engine; some of the last position's logits
}

// Token is a candidate for the next token.
type Token struct {
	ID          int        `json:"id"`
	Text        string     `json:"text"`
	Probability lab.Number `json:"probability"`
}
