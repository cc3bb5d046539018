package karat

import (
	"context"
	"slices"

	"github.com/karat-run/karat/internal/check"
)

// CheckOptions are options of Check. The zero value is usable.
type CheckOptions struct {
	// Against is the Hugging Face folder that the model was made from, "" for none:
	// every tensor, the settings, the tokenizer and the chat template are compared
	// with it.
	Against string
	// Progress is called with the bytes of tensors read so far and their total. It may be
	// nil. Calls come one at a time, on Check's own goroutine.
	Progress func(done, total int64)
}

// CheckReport is the result of Check. Its JSON form is that of "karat check --json".
type CheckReport struct {
	Path         string    `json:"path"`
	Format       string    `json:"format"` // GGUF or Hugging Face
	Architecture string    `json:"architecture"`
	Against      string    `json:"against,omitempty"` // the source's folder, "" for none
	Tensors      int       `json:"tensors"`
	Bytes        int64     `json:"bytes"`              // of the tensors
	Compared     int       `json:"compared,omitempty"` // tensors, with those of the source
	Findings     []Finding `json:"findings"`           // by area, in each the worst first
	Unproven     []string  `json:"unproven"`           // what no check of files can see in this model
}

// Finding is one fault in a model's files, with all places where it occurs.
// docs/checking.md lists all IDs.
type Finding struct {
	ID       string   `json:"id"` // the same from version to version
	Severity Severity `json:"severity"`
	Area     string   `json:"area"`  // configuration, tensors, values, text or source
	What     string   `json:"what"`  // a sentence with the numbers
	Where    []string `json:"where"` // tensors, keys or files, as these name them
	Means    string   `json:"means"` // for the logits
	Fix      string   `json:"fix"`
}

// Severity is how bad a Finding is.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // logits are wrong, or the model does not run
	SeverityWarning Severity = "warning" // logits are likely wrong
	SeverityNote    Severity = "note"    // something is assumed, or odd, and most likely right
)

// Clean reports whether the report has no errors and no warnings.
func (r *CheckReport) Clean() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != SeverityNote })
}

// Check looks for faults in the model at path, a GGUF file (any part of a
// split one) or a Hugging Face folder, without running it. The tensors are read
// once, in pieces. Faults are in the report. The error is for files, of the model or
// of its source, that cannot be read at all.
func Check(ctx context.Context, path string, o CheckOptions) (*CheckReport, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	r, err := check.Run(ctx, path, check.Options{Against: o.Against, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	c := &CheckReport{Path: r.Path, Format: r.Format, Architecture: r.Architecture, Against: r.Against,
		Tensors: r.Tensors, Bytes: r.Bytes, Compared: r.Compared, Findings: []Finding{}, Unproven: r.Unproven}
	for _, f := range r.Findings {
		c.Findings = append(c.Findings, Finding{f.ID, Severity(f.Severity), string(f.Area), f.What, f.Where, f.Means, f.Fix})
	}
	return c, nil
}
