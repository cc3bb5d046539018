package report

import (
	"slices"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
)

// Brief holds the parts of a diagnosis that a program acts on.
type Brief struct {
	Verdict  diagnose.Verdict  `json:"verdict"`
	Passed   bool              `json:"passed"`           // nothing is wrong: the exit status is 0
	Headline string            `json:"headline"`         // the first causes and their places
	Errors   []string          `json:"errors,omitempty"` // taps that were not looked at by mistake, a sentence each
	Findings []BriefFinding    `json:"findings"`         // first cause first
	AddTaps  []string          `json:"add_taps"`         // of all findings
	Next     []diagnose.Step   `json:"next"`             // what to do, first step first
	Closure  diagnose.Closure  `json:"closure"`
	Rounding string            `json:"rounding"` // class of the engine's activations
	Blind    []string          `json:"blind"`    // what these taps and prompts cannot show, a sentence each
	Misspelt map[string]string `json:"misspelt,omitempty"`
}

// BriefFinding is a cause and its place.
type BriefFinding struct {
	Cause    string         `json:"cause"` // stable ID of "karat lab causes"
	Op       string         `json:"op"`
	Layers   []int          `json:"layers"`
	Tap      string         `json:"tap"`
	From     []string       `json:"from"`
	Computed string         `json:"computed"`
	Detail   map[string]any `json:"detail,omitempty"`
	Fix      string         `json:"fix"`
	Residual lab.Number     `json:"residual"`
	Floor    lab.Number     `json:"floor"`
	Among    []string       `json:"among,omitempty"`
	AddTaps  []string       `json:"add_taps,omitempty"`
	Also     []string       `json:"also,omitempty"`
}

// NewBrief returns the brief form of a diagnosis.
func NewBrief(d *diagnose.Diagnosis) *Brief {
	b := &Brief{Verdict: d.Verdict, Passed: Passed(d), Headline: headline(d), Errors: d.Errors,
		Findings: []BriefFinding{}, AddTaps: []string{}, Next: d.Next, Closure: d.Closure,
		Rounding: d.Floors.Activations, Blind: d.Coverage.Blind, Misspelt: d.Coverage.Misspelt}
	for _, f := range d.Findings {
		for _, tap := range f.AddTaps {
			if !slices.Contains(b.AddTaps, tap) {
				b.AddTaps = append(b.AddTaps, tap)
			}
		}
		b.Findings = append(b.Findings, BriefFinding{Cause: f.Cause, Op: f.Op, Layers: f.Layers, Tap: f.Tap,
			From: f.From, Computed: f.Computed, Detail: f.Detail, Fix: f.Fix, Residual: f.Residual, Floor: f.Floor,
			Among: f.Among, AddTaps: f.AddTaps, Also: f.Also})
	}
	return b
}
