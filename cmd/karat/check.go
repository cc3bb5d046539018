package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

type checkFlags struct {
	against, fix string
	json         bool
}

func newCheckCommand() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check MODEL",
		Short: "Find faults in a model's files before they run",
		Long: `Check reads a model's settings, every value of its tensors, its tokenizer and its
chat template, and reports faults: settings that nothing reads, tensors
that are missing or hold another tensor's bytes, damaged blocks, norms with their 1
added twice, lost merges, a template for another vocabulary.

--against compares the model with the Hugging Face folder that it was made from: each
tensor after dequantization, within the error of its type. For a tensor that differs, check
says how: transposed, permuted, exchanged, scaled, shifted, from an older checkpoint,
damaged in part. Settings, token ids and template are compared, too.

--fix FILE.gguf writes a repaired copy of a GGUF file: with the settings, the tokenizer and the chat template that "karat
convert" makes of the folder of --against. Each change is printed, and then what a check of the copy still finds. Tensors are
not changed: where they are wrong, convert again.

A finding is an error (logits are wrong, or there are none), a warning (they are
probably wrong), or a note. docs/checking.md lists all findings.

Exit status: 0 without errors and warnings, 1 with some, 2 if the files cannot be read
or the report cannot be written.`,
		Example: `  karat check model.gguf
  karat check ./Qwen3-0.6B
  karat check model.gguf --against ./Qwen3-0.6B
  karat check model.gguf --against ./Qwen3-0.6B --fix fixed.gguf
  karat check model.gguf --json | jq '.findings[] | {id, where}'`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error {
			path, err := findModel(args[0])
			if err != nil {
				return failure{statusUsage, err}
			}
			if f.fix != "" {
				if path, err = f.repair(c, path); err != nil {
					return failure{statusUsage, err}
				}
			}
			return f.run(c, path)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Var((*modelFlag)(&f.against), "against", "Hugging Face `folder` that the model was made from")
	fs.Var((*name)(&f.fix), "fix", "write a repaired copy to this `file`, and check that")
	fs.BoolVar(&f.json, "json", false, "print the findings as one JSON object")
	return leadModel(c, false)
}

func (f *checkFlags) run(c *cobra.Command, path string) error {
	ctx, stop := interruptible()
	defer stop()
	start := time.Now()
	p := newProgress(c.ErrOrStderr(), path)
	p.last = start.Add(time.Second)
	r, err := karat.Check(ctx, path, karat.CheckOptions{Against: f.against, Progress: p.report})
	p.end()
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return failure{statusInterrupted, fmt.Errorf("interrupted: %s was not checked to the end", path)}
	case err != nil:
		return failure{statusUsage, err}
	}
	w := c.OutOrStdout()
	if f.json {
		e := newEncoder(w)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = writeCheck(w, r)
	}
	switch {
	case err != nil:
		return failure{statusUsage, err} // no finding
	case !r.Clean():
		return failure{status: statusError}
	}
	return nil
}

// writeCheck writes a report for people, an area after the other.
func writeCheck(w io.Writer, r *karat.CheckReport) error {
	out := &printer{w: w}
	out.printf("%s: %s, %s, %s, %s\n", oneLine(r.Path), r.Format, oneLine(r.Architecture), count(r.Tensors, "tensor"), bytesText(r.Bytes))
	if r.Against != "" {
		out.printf("%s compared with %s\n", count(r.Compared, "tensor"), oneLine(r.Against))
	}
	number := map[string]int{}
	area := ""
	for _, f := range r.Findings {
		if string(f.Area) != area {
			area = string(f.Area)
			out.printf("\n%s\n", area)
		}
		number[string(f.Severity)]++
		out.printf("  %s: %s\n", f.Severity, f.ID)
		out.entry("", f.What)
		if len(f.Where) > 1 {
			out.entry("in", few(f.Where, 3))
		}
		out.entry("means", f.Means)
		out.entry("fix", f.Fix)
	}
	if len(r.Findings) == 0 {
		out.printf("\nnothing was found\n")
	} else {
		out.printf("\n%s, %s, %s\n", count(number["error"], "error"), count(number["warning"], "warning"), count(number["note"], "note"))
	}
	if len(r.Unproven) > 0 {
		out.printf("\nwhat such a check does not see:\n")
	}
	for _, u := range r.Unproven {
		out.printf("  - %s\n", oneLine(u))
	}
	return out.err
}

// few names up to n of many.
func few(names []string, n int) string {
	text := ""
	for i, s := range names {
		if i == n {
			return fmt.Sprintf("%s and %d more", text, len(names)-n)
		}
		if i > 0 {
			text += ", "
		}
		text += s
	}
	return text
}

// entry prints a text beside its label, in lines that are not too long.
func (p *printer) entry(label, text string) {
	const width = 100
	line := fmt.Sprintf("    %-6s", label)
	for _, word := range strings.Fields(oneLine(text)) {
		if len(line)+len(word) >= width && len(line) > 10 {
			p.printf("%s\n", line)
			line = strings.Repeat(" ", 10)
		}
		line += " " + word
	}
	p.printf("%s\n", line)
}

// printer prints until a write fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// repair writes the copy, prints the changes, and returns its name.
func (f *checkFlags) repair(c *cobra.Command, path string) (string, error) {
	if f.against == "" {
		return "", usagef("--fix needs --against FOLDER, which the model was made from")
	}
	if err := spare("--fix "+f.fix, f.fix, path, f.against); err != nil {
		return "", err
	}
	ctx, stop := interruptible()
	defer stop()
	changes, err := convert.Repair(ctx, path, f.against, f.fix, func(m *checkpoint.Checkpoint) error {
		_, _, err := model.Graph(ctx, m, 0)
		return err
	})
	if err != nil {
		return "", err
	}
	w := c.OutOrStdout()
	if f.json { // the report alone is there
		w = c.ErrOrStderr()
	}
	for _, x := range changes {
		fmt.Fprintf(w, "%s: %s -> %s\n", oneLine(x.Key), oneLine(cmp.Or(x.Was, "(none)")), oneLine(cmp.Or(x.Is, "(none)")))
	}
	_, err = fmt.Fprintf(w, "%s: %s\n\n", oneLine(f.fix), count(len(changes), "change"))
	return f.fix, err
}
