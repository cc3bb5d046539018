package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/spf13/cobra"
)

// expectFlags are the flags of lab expect.
type expectFlags struct {
	names            choice
	tap, out         string
	projector        string
	prompt, position int
	json, head       bool
}

func newExpectCommand() *cobra.Command {
	f := expectFlags{names: newNames(), prompt: -1, position: -1}
	c := define("lab expect", f.run)
	c.flags("mmproj", file(&f.projector), "tap", &f.tap, "prompt-index", &f.prompt, "position", &f.position,
		"names", &f.names, "output", file(&f.out), "draft-head", &f.head, "json", &f.json)
	c.takesModel()
	return c.Command
}

func (f *expectFlags) run(x *call) error {
	path, err := x.find()
	if err != nil {
		return failure{statusUsage, err}
	}
	dump := x.args[0]
	switch {
	case f.tap == "":
		return usagef("--tap NAME is needed")
	case f.out != "" && filepath.Ext(f.out) != ".safetensors":
		return usagef("-o %s: want a name that ends in .safetensors", f.out)
	}
	throw(refuseOverwrite("-o "+f.out, f.out, path, dump))
	e, err := f.expect(x, path, dump)
	switch {
	case err != nil && x.ctx.Err() != nil:
		return err
	case err != nil:
		return failure{statusNotCompare, err}
	case slices.ContainsFunc(e.Rows, func(r diagnose.ExpectedRow) bool { return r.IsOff() }):
		return failure{status: statusOutside}
	}
	return nil
}

func (f *expectFlags) expect(x *call, path, dump string) (e *diagnose.Expectation, err error) {
	x.head = f.head
	err = withDump(x, path, dump, "", f.projector, func(o diagnose.Options, _ *model.Files) error {
		o.Names = f.names.value
		if e, err = diagnose.Expect(x.ctx, o, f.tap); err != nil || f.out == "" {
			return err
		}
		if e.Sight {
			return fmt.Errorf("-o %s: %s is before the text, and a record has rows of the text's positions", f.out,
				e.Tap)
		}
		return writeExpected(f.out, e, o.Dump)
	})
	if err != nil {
		return nil, err
	}
	shown := *e
	if shown.Rows = f.choose(e); len(shown.Rows) == 0 {
		return nil, fmt.Errorf("%s: no taps before it in the dump, or no such prompt and position", e.Tap)
	}
	if f.json {
		return e, x.json(&shown)
	}
	return e, writeExpectation(x.out, e, &shown.Rows[shown.Worst()])
}

// choose returns the rows of the flags: without a position the worst row of each prompt.
func (f *expectFlags) choose(e *diagnose.Expectation) (rows []diagnose.ExpectedRow) {
	byPrompt := map[int]*diagnose.Expectation{}
	var prompts []int
	for _, r := range e.Rows {
		if f.prompt >= 0 && r.Prompt != f.prompt || f.position >= 0 && r.Position != f.position {
			continue
		}
		if byPrompt[r.Prompt] == nil {
			byPrompt[r.Prompt], prompts = &diagnose.Expectation{}, append(prompts, r.Prompt)
		}
		byPrompt[r.Prompt].Rows = append(byPrompt[r.Prompt].Rows, r)
	}
	for _, i := range prompts {
		rows = append(rows, byPrompt[i].Rows[byPrompt[i].Worst()])
	}
	return rows
}

// writeExpected writes the expected values of all rows as a record.
func writeExpected(path string, e *diagnose.Expectation, dump *lab.Record) error {
	w, err := lab.Create(path)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, p := range dump.Prompts {
		t := &tensor.Tensor{DType: tensor.F32}
		for _, r := range e.Rows {
			if r.Prompt == p.Index {
				for _, v := range r.Expected {
					t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(v)))
				}
			}
		}
		width := max(tensor.Shape(e.Shape).Size(), 1)
		if t.Shape = append(tensor.Shape{len(t.Data) / 4 / width}, e.Shape...); len(t.Data) == 0 {
			continue
		}
		if err := w.Add(&lab.Prompt{Index: p.Index, IDs: p.IDs, Text: p.Text, Input: p.Input,
			Taps: map[string]*tensor.Tensor{e.Tap: t}}); err != nil {
			return err
		}
	}
	return w.Commit(nil)
}

// writeExpectation prints an expectation: how far the rows are off, then the values of a row.
func writeExpectation(w io.Writer, e *diagnose.Expectation, r *diagnose.ExpectedRow) error {
	var b strings.Builder
	off := 0
	for i := range e.Rows {
		if e.Rows[i].IsOff() {
			off++
		}
	}
	fmt.Fprintf(&b, "%s\n", lab.Printable(e.Tap))
	for _, l := range [][2]string{
		{"operation", e.Op + ", " + e.Node}, {"computed from", cmp.Or(strings.Join(e.From, ", "), "the token ids")},
		{"by", strings.Join(e.Span, ", ")}, {"a row", fmt.Sprintf("%v", e.Shape)}, {"rounding", e.Class},
	} {
		fmt.Fprintf(&b, "  %-15s%s\n", l[0], lab.Printable(l[1]))
	}
	switch {
	case !e.Tapped:
		fmt.Fprintf(&b, "  %-15s%s\n", "the dump", "does not have it")
	case off == 0:
		fmt.Fprintf(&b, "  %-15sall %d rows are as expected\n", "the dump", len(e.Rows))
	default:
		fmt.Fprintf(&b, "  %-15s%d of %d rows are off\n", "the dump", off, len(e.Rows))
	}
	if e.Relation != "" {
		fmt.Fprintf(&b, "  %-15s%s\n", "relation", e.Relation)
	}
	at := "prompt %d, position %d"
	if e.Sight {
		at = "tile %d, row %d"
	}
	fmt.Fprintf(&b, "\n"+at, r.Prompt, r.Position)
	if e.Tapped {
		fmt.Fprintf(&b, ": relative error %s, rounding makes %s", lab.Digits(float64(r.Residual)),
			lab.Digits(float64(r.Floor)))
	}
	b.WriteString("\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return writeValues(w, e.Shape, r)
}

// writeValues prints the first values of a row, and after them the values that are farthest off.
func writeValues(w io.Writer, shape []int, r *diagnose.ExpectedRow) error {
	const first, farthest = 4, 8
	var at []int
	for i := range r.Expected {
		at = append(at, i)
	}
	if rest := at[min(first, len(at)):]; r.Engine != nil {
		off := func(i int) float64 { return math.Abs(float64(r.Engine[i] - r.Expected[i])) }
		slices.SortStableFunc(rest, func(a, b int) int { return cmp.Compare(off(b), off(a)) })
	}
	t := newTable(w)
	fmt.Fprint(t, "element\texpected")
	if r.Engine != nil {
		fmt.Fprint(t, "\tengine\tdifference")
	}
	fmt.Fprintln(t)
	for _, i := range at[:min(len(at), first+farthest)] {
		fmt.Fprintf(t, "%s\t%.6g", elementOf(shape, i), float64(r.Expected[i]))
		if r.Engine != nil {
			fmt.Fprintf(t, "\t%.6g\t%.2g", float64(r.Engine[i]), float64(r.Engine[i]-r.Expected[i]))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// elementOf prints the indices of an element of a row.
func elementOf(shape []int, i int) string {
	at := make([]int, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		at[k], i = i%shape[k], i/shape[k]
	}
	return strings.ReplaceAll(fmt.Sprint(at), " ", ", ")
}
