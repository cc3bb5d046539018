package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/spf13/cobra"
)

func newExperimentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "experiment",
		Short: "Find the nodes, heads and positions on which an answer depends",
		Long: `Experiment runs a grid of interventions that a TOML file describes, and keeps the results in a folder with
hashes, which "verify" computes again.

  kind = "trace"                 values of a clean prompt's run are written into the corrupted prompt's run; or
                                 "ablate" (0) or "mean" (the mean over the prompt) in the clean prompt's run; or
                                 "path": as in a trace, but they reach only the receivers, and only by the residual
                                 stream: what other attention and feed-forward networks add is the corrupted run's
  sites = ["blk.*.out"]          nodes, as --at of "karat lab patch" has them
  layers = "0-3"                 (default: all)
  heads = "each"                 one head at a time, or numbers (default: whole values)
  receivers = ["blk.3.attn_q"]   for a path: nodes at which it ends. receiver_heads are heads of them
  positions = ["each"]           each position of the prompt, or last, root (the first), mean (the mean over the prompt,
                                 at all), numbers, ranges, text:PATTERN
  metrics = ["logit_difference", "probability", "kl"]
  templates = ["The color of the {} is"]
  precision = "fast"             or f32 or f64

  [[stimuli]]
  clean = "sky"
  corrupted = "grass"            for a trace
  target = " blue."              a token, by text or id
  foil = " green."               whose logit is subtracted

logit_difference is the target's logit less the foil's, probability the target's, and kl the divergence of the distribution
from the clean run's, in nats.`,
	}
	c.AddCommand(newExperimentRun(), newExperimentVerify(), newExperimentCompare())
	return group(c)
}

type experimentFlags struct {
	model, out, backend string
	threads             int
	noFit, json         bool
}

func (f *experimentFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.VarP((*modelFlag)(&f.model), "model", "m", "model `file, folder or name` (default: the spec's, or the embedded demo)")
	addThreads(fs, &f.threads)
	addBackend(c, &f.backend)
	addNoFit(c, &f.noFit)
}

func newExperimentRun() *cobra.Command {
	var f experimentFlags
	c := &cobra.Command{
		Use:   "run SPEC.toml -o FOLDER",
		Short: "Compute an experiment, or what is left of it",
		Long: `Run computes the cells of the grid and writes FOLDER: spec.toml, cells.jsonl, a line for each cell, manifest.json with
hashes of model, program and files, and index.html with heat maps, which needs no network. An interrupted run goes on where it stopped when it is
given the same folder.`,
		Example: `  karat lab experiment run sky.toml -m model.gguf -o sky`,
		Args:    byUse,
		RunE:    func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	c.Flags().SortFlags = false
	c.Flags().VarP((*name)(&f.out), "output", "o", "`folder` to write")
	f.add(c)
	return c
}

func newExperimentVerify() *cobra.Command {
	var f experimentFlags
	c := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Compute an experiment again and compare every bit of its logits",
		Long: `Verify checks the hashes of a folder's files, computes every cell again, and wants logits of the same bits. Metrics may
differ by rounding of the machine's exponential function. The exit status is 1 at the first difference.`,
		Example: `  karat lab experiment verify sky -m model.gguf`,
		Args:    byUse,
		RunE:    func(c *cobra.Command, args []string) error { return f.verify(c, args[0]) },
	}
	c.Flags().SortFlags = false
	f.add(c)
	return c
}

func newExperimentCompare() *cobra.Command {
	var f experimentFlags
	c := &cobra.Command{
		Use:     "compare FOLDER OTHER",
		Short:   "Show how far the results of two experiments lie apart",
		Long:    `Compare compares the cells of the same stimulus, node, head and position of two folders, such as those of a model and its quantized form.`,
		Example: `  karat lab experiment compare sky sky-q4`,
		Args:    byUse,
		RunE:    func(c *cobra.Command, args []string) error { return f.compare(c, args[0], args[1]) },
	}
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

// runner loads the model of a spec.
func (f *experimentFlags) runner(ctx context.Context, c *cobra.Command, s *experiment.Spec, named string) (*experiment.Runner, *karat.Model, error) {
	path := cmp.Or(f.model, s.Model, named)
	if path == demoName {
		path = ""
	}
	o := karat.Options{Backend: karat.Backend(f.backend), Threads: f.threads, Precision: karat.Precision(s.Precision), NoFit: f.noFit}
	m, err := loadModel(ctx, path, o, c.ErrOrStderr())
	if err != nil {
		return nil, nil, err
	}
	return &experiment.Runner{Spec: s, Model: m, Token: func(ctx context.Context, s string) (int, error) {
		id, err := tokenID(ctx, m, s)
		if err != nil { // which speaks of a flag
			err = errors.New(strings.TrimPrefix(err.Error(), "--token "))
		}
		return id, err
	}}, m, nil
}

// cellsLeft tells how far an experiment is.
func cellsLeft(w io.Writer, what string) (tell func(done, total int), end func()) {
	p := newProgress(w, "")
	first := -1
	return func(done, total int) {
		if first < 0 {
			first = done - 1
		}
		p.all = int64(total)
		now, ok := p.due()
		if !ok {
			return
		}
		p.show(percent(int64(done), int64(total)), fmt.Sprintf("%d of %s", done, count(total, what)),
			leftIn(time.Duration(float64(now.Sub(p.start))/float64(done-first)*float64(total-done))))
	}, p.end
}

func (f *experimentFlags) run(c *cobra.Command, path string) error {
	if f.out == "" {
		return usagef("-o FOLDER is needed")
	}
	r, err := os.Open(path)
	if err != nil {
		return patherr.Plain(err)
	}
	defer r.Close()
	text, err := readAll(r, path, experiment.MaxSpec)
	if err != nil {
		return err
	}
	s, err := experiment.ParseSpec(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	ctx, stop := interruptible()
	defer stop()
	x, m, err := f.runner(ctx, c, s, "")
	if err != nil {
		return interruptedOr(ctx, err)
	}
	defer m.Close()
	tell, end := cellsLeft(c.ErrOrStderr(), "cell")
	b, err := experiment.RunInto(ctx, f.out, text, cmp.Or(f.model, s.Model, demoName), x, tell)
	end()
	if err != nil && ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted: the same command goes on where this one stopped")}
	}
	if err != nil {
		return err
	}
	return showBundle(c.OutOrStdout(), b)
}

// interruptedOr is err, or that a signal came.
func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	return err
}

// showBundle prints the strongest cells.
func showBundle(w io.Writer, b *experiment.Bundle) error {
	for _, line := range b.Strongest(5) {
		fmt.Fprintln(w, oneLine(line))
	}
	_, err := fmt.Fprintf(w, "%s in %s\n", count(len(b.Cells), "cell"), filepath.Join(b.Dir, "index.html"))
	return err
}

func (f *experimentFlags) verify(c *cobra.Command, dir string) error {
	b, text, err := experiment.Open(dir)
	if err != nil {
		return err
	}
	s, err := experiment.ParseSpec(text)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	ctx, stop := interruptible()
	defer stop()
	x, m, err := f.runner(ctx, c, s, b.Manifest.Model)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	defer m.Close()
	tell, end := cellsLeft(c.ErrOrStderr(), "cell")
	err = b.Verify(ctx, x, tell)
	end()
	if err != nil {
		return interruptedOr(ctx, fmt.Errorf("%s: %w", dir, err))
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: all %s have the same bits\n", oneLine(dir), count(len(b.Cells), "cell"))
	return err
}

func (f *experimentFlags) compare(c *cobra.Command, first, second string) error {
	a, _, err := experiment.Open(first)
	if err != nil {
		return err
	}
	b, _, err := experiment.Open(second)
	if err != nil {
		return err
	}
	x := experiment.Compare(a, b)
	if f.json {
		e := newEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(x)
	}
	var t strings.Builder
	fmt.Fprintf(&t, "%s of both, %d with the same bits; %d only of the first, %d only of the second\n", count(x.Cells, "cell"), x.Same, x.OnlyA, x.OnlyB)
	for _, m := range x.Metrics {
		if x.Cells == 0 {
			break
		}
		fmt.Fprintf(&t, "%s: differs by %s on average, at most by %s", strings.ReplaceAll(m.Metric, "_", " "), lab.Digits(float64(m.Mean)), lab.Digits(float64(m.Most)))
		if m.Node != "" {
			fmt.Fprintf(&t, " (%s at %s)", oneLine(m.Node), oneLine(m.At))
		}
		t.WriteByte('\n')
	}
	_, err = io.WriteString(c.OutOrStdout(), t.String())
	return err
}
