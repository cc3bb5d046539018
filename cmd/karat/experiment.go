package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/lab"
	"github.com/spf13/cobra"
)

// experimentFlags are the flags of lab experiment.
type experimentFlags struct {
	model, out string
	json       bool
	engine     engineFlags
}

// experimentDone is the JSON of an experiment that was computed, or verified.
type experimentDone struct {
	Folder    string   `json:"folder"`
	Cells     int      `json:"cells"`
	Strongest []string `json:"strongest,omitempty"` // cells, a line each
}

func newExperimentCommand() *cobra.Command {
	var f experimentFlags
	run, verify := define("lab experiment run", f.run), define("lab experiment verify", f.verify)
	run.flags("output", file(&f.out))
	for _, c := range []*command{run, verify} {
		c.flags("model", file(&f.model), "json", &f.json)
		f.engine.addDevice(c)
	}
	compare := define("lab experiment compare", f.compare)
	compare.flags("json", &f.json)
	return group(define("lab experiment", nil), run.Command, verify.Command, compare.Command)
}

// runner loads the model of a spec.
func (f *experimentFlags) runner(x *call, s *experiment.Spec, named string) (*experiment.Runner, *karat.Model) {
	path := must(findModel(strings.TrimPrefix(cmp.Or(f.model, s.Model, named), demoName)))
	o := karat.Options{Backend: karat.Backend(f.engine.backend), Threads: f.engine.threads,
		Precision: karat.Precision(s.Precision), NoFit: f.engine.noFit}
	m := must(loadModel(x.ctx, path, o, x.log))
	return &experiment.Runner{Spec: s, Model: m, Token: func(ctx context.Context, s string) (int, error) {
		id, err := tokenID(ctx, m, s)
		if err != nil { // the error names a flag
			err = errors.New(strings.TrimPrefix(err.Error(), "--token "))
		}
		return id, err
	}}, m
}

// cellProgress reports the finished cells of an experiment, some perhaps from an earlier run.
func cellProgress(x *call) (p *progress, report func(done, total int)) {
	p = newProgress(x.log, "")
	p.before = -1
	return p, func(done, total int) {
		if p.before < 0 {
			p.before = done - 1
		}
		p.pieces("cells", done, total)
	}
}

func (f *experimentFlags) run(x *call) error {
	if f.out == "" {
		return usagef("-o FOLDER is needed")
	}
	text := must(readWhole(x.args[0], experiment.MaxSpec))
	s, err := experiment.ParseSpec(text)
	if err != nil {
		return fmt.Errorf("%s: %w", x.args[0], err)
	}
	runner, m := f.runner(x, s, "")
	defer m.Close()
	p, report := cellProgress(x)
	b, err := experiment.RunInto(x.ctx, f.out, text, cmp.Or(f.model, s.Model, demoName), runner, report)
	p.end()
	if err != nil && x.ctx.Err() != nil {
		return x.interrupted(": the same command goes on where this one stopped")
	}
	if err != nil {
		return err
	}
	if f.json {
		return x.json(&experimentDone{Folder: b.Dir, Cells: len(b.Cells), Strongest: b.Strongest(5)})
	}
	for _, line := range b.Strongest(5) {
		fmt.Fprintln(x.out, oneLine(line))
	}
	return x.printf("%s in %s\n", count(len(b.Cells), "cell"), filepath.Join(b.Dir, "index.html"))
}

func (f *experimentFlags) verify(x *call) error {
	dir := x.args[0]
	b, text := must2(experiment.Open(dir))
	s, err := experiment.ParseSpec(text)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	runner, m := f.runner(x, s, b.Manifest.Model)
	defer m.Close()
	p, report := cellProgress(x)
	err = b.Verify(x.ctx, runner, report)
	p.end()
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if f.json {
		return x.json(&experimentDone{Folder: dir, Cells: len(b.Cells)})
	}
	return x.printf("%s: all %s have the same bits\n", oneLine(dir), count(len(b.Cells), "cell"))
}

func (f *experimentFlags) compare(x *call) error {
	a, _ := must2(experiment.Open(x.args[0]))
	b, _ := must2(experiment.Open(x.args[1]))
	d := experiment.Compare(a, b)
	if f.json {
		return x.json(d)
	}
	var t strings.Builder
	fmt.Fprintf(&t, "%s of both, %d with the same bits; %d only of the first, %d only of the second\n",
		count(d.Cells, "cell"), d.Same, d.OnlyA, d.OnlyB)
	for _, m := range d.Metrics {
		if d.Cells == 0 {
			break
		}
		fmt.Fprintf(&t, "%s: differs by %s on average, at most by %s", strings.ReplaceAll(m.Metric, "_", " "),
			lab.Digits(float64(m.Mean)), lab.Digits(float64(m.Most)))
		if m.Node != "" {
			fmt.Fprintf(&t, " (%s at %s)", oneLine(m.Node), oneLine(m.At))
		}
		t.WriteByte('\n')
	}
	return x.printf("%s", t.String())
}
