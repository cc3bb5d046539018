package karat

import (
	"context"
	"fmt"

	"github.com/karat-run/karat/internal/check"
)

// CheckOptions say what Check looks at besides the model. The zero value is usable.
type CheckOptions struct {
	// Against is the Hugging Face folder that the model was made from, "" for none:
	// every tensor, the settings, the tokenizer and the chat template are compared
	// with it.
	Against string
	// Progress is called with the bytes of tensors that are read, and all. It may be
	// nil. Calls come one at a time, on Check's own goroutine.
	Progress func(done, total int64)
}

// A CheckReport is what Check found: Path, Format, Architecture, Against, the
// number and Bytes of Tensors, how many were Compared with the source, the
// Findings, worst first in each area, and what is Unproven by such a check. Its
// JSON form is that of "karat check --json". Clean tells whether there is nothing
// but notes.
type CheckReport = check.Report

// A Finding is one thing that is wrong with a model's files: a stable ID, its
// Severity (error, warning or note) and Area, What it is in a sentence with the
// numbers, Where (tensors, keys or files), what it Means for the logits, and how
// to Fix it. docs/checking.md lists all IDs.
type Finding = check.Finding

// Check looks for what is wrong with the model at path, a GGUF file (any part of a
// split one) or a Hugging Face folder, without running it. The tensors are read
// once, in pieces. Files that cannot be read as what they are give an error, and
// so does a source that cannot; what is wrong with a model is in the report.
func Check(ctx context.Context, path string, o CheckOptions) (*CheckReport, error) {
	if ctx == nil {
		return nil, fmt.Errorf("karat: %w", errNilContext)
	}
	return check.Run(ctx, path, check.Options{Against: o.Against, Progress: o.Progress})
}
