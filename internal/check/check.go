// Package check finds the faults of a model's files before any forward pass: settings that nothing reads, tensors that
// are missing or hold other data, damaged values, a tokenizer or a chat template that does not fit. Given the folder
// that a file was made from, it compares both, tensor by tensor.
//
// catalogue.txt lists all findings; docs/checking.md is its table. A file is read once, a few rows of a tensor at a
// time.
//
// Files in reading order: check.go, tower.go, compare.go, text.go, explain.go, settings.go, structure.go, values.go,
// scan.go, prose.go, files.go, template.go, report.go.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// Options extend a check. The zero value checks a model by itself.
type Options struct {
	// Against is the Hugging Face folder that the model was made from; "" for none.
	Against string
	// Progress, if set, is called with the bytes of tensors done, and of all. Calls are sequential, on the goroutine of
	// the caller.
	Progress func(done, total int64)
}

// Run checks the model at path, a GGUF file (any part of a split file) or a Hugging Face folder. The error is about
// unreadable files, of the model or of its source: faults of a model are in the report.
func Run(ctx context.Context, path string, o Options) (*Report, error) {
	f, err := open(path)
	var row *tensor.RowError
	var at *gguf.Error
	if errors.As(err, &row) && errors.As(err, &at) { // nothing else can be said of such a file
		c := &checker{report: Report{Path: path, Format: string(checkpoint.GGUF), Unproven: []string{}}}
		c.add("row-blocks", []string{at.Name}, "%s: %v", at.Name, row)
		return &c.report, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.close()
	c := &checker{Options: o, ctx: ctx, files: f,
		report: Report{Path: path, Format: string(f.format), Against: o.Against,
			Tensors: len(f.tensors), Findings: []Finding{}, Unproven: []string{}}}
	for _, t := range f.tensors {
		c.report.Bytes += int64(t.Stored())
	}
	if err := c.run(path); err != nil {
		return nil, err
	}
	severities := []Severity{Error, Warning, Note} // the worst first in each area
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(areas, a.Area), slices.Index(areas, b.Area)),
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)))
	})
	return &c.report, nil
}

func (c *checker) run(path string) error {
	if c.files.gguf != nil && c.files.arch == "clip" {
		return c.runTower(path)
	}
	m, err := checkpoint.Open(path)
	if err == nil {
		defer m.Close()
		c.model = m
	}
	c.refused = err
	c.arch = c.files.arch
	c.report.Architecture = c.files.arch
	judgeStructure(c)
	judgeTower(c)
	if c.model != nil && !c.unfit {
		judgeSettings(c)
	}
	if err := c.guard(func() { judgeText(c) }); err != nil {
		return err
	}
	c.ensureError()
	if err := errors.Join(c.guard(func() { judgeScales(c) }), c.scan()); err != nil {
		return err
	}
	judgeValues(c)
	judgeSiblings(c)
	judgeNorms(c)
	c.listUnproven()
	if c.Against == "" {
		return nil
	}
	return compareSource(c)
}

// ensureError adds an error for a model that cannot be loaded, unless there is an error already.
func (c *checker) ensureError() {
	err := c.refused
	if c.model != nil {
		_, _, err = arch.Stored(c.model)
	}
	if err != nil && !slices.ContainsFunc(c.report.Findings, func(f Finding) bool { return f.Severity == Error }) {
		c.add("not-loaded", nil, "%s", stripPrefix(err))
	}
}

// listUnproven lists the faults that only --against, or a run, would show.
func (c *checker) listUnproven() {
	square := 0
	for _, t := range c.files.tensors {
		if len(t.Shape) == 2 && t.Shape[0] == t.Shape[1] {
			square++
		}
	}
	list := &c.report.Unproven
	if square > 0 && c.Against == "" {
		*list = append(*list,
			fmt.Sprintf("%d matrices are square: that they are not transposed cannot be told by their shape", square))
	}
	if c.Against == "" {
		*list = append(*list,
			"values that are wrong but plausible (scaled by less than 8, permuted, of an older checkpoint) need "+
				"the source: "+
				"--against")
	}
}
