package karat

import (
	"context"
	"slices"

	"github.com/karat-run/karat/internal/check"
)

// CheckOptions are options of Check. The zero value is usable.
type CheckOptions struct {
	// Against is the Hugging Face folder behind the model, "" for none: Check compares every tensor, the settings, the
	// tokenizer and the chat template with the folder's.
	Against string
	// Progress is called with the bytes of tensors read so far and their total. Progress may be nil. Calls come in
	// sequence, on Check's own goroutine.
	Progress func(done, total int64)
}

// CheckReport is the result of Check. Its JSON form is printed by "karat check --json".
type CheckReport struct {
	Path         string    `json:"path"`
	Format       string    `json:"format"` // GGUF or Hugging Face
	Architecture string    `json:"architecture"`
	Against      string    `json:"against,omitempty"` // the source's folder, "" for none
	Tensors      int       `json:"tensors"`
	Bytes        int64     `json:"bytes"`              // of the tensors
	Compared     int       `json:"compared,omitempty"` // tensors compared with the source's
	Findings     []Finding `json:"findings"`           // by area, in each the worst first
	Unproven     []string  `json:"unproven"`           // faults invisible to every check of this model's files
}

// Finding is a fault in a model's files, with all places of its occurrence. docs/checking.md lists all IDs.
type Finding struct {
	ID       string   `json:"id"` // the same from version to version
	Severity Severity `json:"severity"`
	Area     string   `json:"area"`  // configuration, tensors, values, text or source
	What     string   `json:"what"`  // a sentence with the numbers
	Where    []string `json:"where"` // tensors, keys or files, by their names in the model
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

// Check looks for faults in the model at path, a GGUF file (any part of a split file) or a Hugging Face folder, without
// running it. Check reads the tensors once, in pieces. Faults are in the report. The error is for unreadable files, of
// the model or of its source.
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
		c.Findings = append(c.Findings, Finding{f.ID, Severity(f.Severity), string(f.Area), f.What, f.Where, f.Means,
			f.Fix})
	}
	return c, nil
}
