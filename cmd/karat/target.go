package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/autoquant"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/spf13/cobra"
)

// targetFlags are those of types that are chosen by their effect.
type targetFlags struct {
	size size
	kl   float64
	text textFlags
	plan string
	log  io.Writer
}

const targetHelp = `
--target-size and --target-kl take the place of TYPE. They choose each weight's type by its
effect on the model's predictions: the least KL divergence within a size of the file, or
the smallest file within a divergence (the mean over a text, in nats: 0.01 is hard to
notice, 0.1 easy). Each weight is quantized alone, and the model's predictions with it are
compared with its own. This takes one pass for each weight, by default over 4 windows of
256 tokens. Ctrl-C ends it. --plan keeps the measurements; another target then takes
seconds.`

func (f *targetFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.Var(&f.size, "target-size", "maximum bytes of the file, for example 500M")
	fs.Float64Var(&f.kl, "target-kl", 0, "maximum KL `divergence` from the model's predictions, in nats")
	fs.Var((*name)(&f.text.text), "calibration", "`file` with the text to measure on (default: one that comes with Karat)")
	addWindow(c, &f.text.context, 256)
	fs.IntVar(&f.text.windows, "chunks", 4, "`windows` of the text at most")
	fs.Var((*name)(&f.plan), "plan", "`file` of measurements: read if it exists, and written")
}

func (f *targetFlags) set() bool { return f.size != 0 || f.kl != 0 }

// check checks the flags against each other, and the number of TYPEs.
func (f *targetFlags) check(c *cobra.Command, types int) error {
	switch {
	case f.set() && types > 0:
		return usagef("give TYPE or a target, not both")
	case c.Flags().Changed("target-kl") && !(f.kl > 0 && f.kl <= math.MaxFloat32):
		return usagef("--target-kl %v: want a number above 0, up to %.2g", f.kl, math.MaxFloat32)
	case !f.set() && types == 0:
		if _, ok := quantmix.Find(c.Flags().Arg(1)); ok {
			return usagef("%s was taken for OUT.gguf: give IN.gguf OUT.gguf TYPE", c.Flags().Arg(1))
		}
		return usagef("TYPE, --target-size or --target-kl is needed")
	case f.size != 0 && f.kl != 0:
		return usagef("give --target-size or --target-kl, not both")
	}
	for _, flag := range []string{"calibration", "window", "chunks", "plan"} {
		if !f.set() && c.Flags().Changed(flag) {
			return usagef("--%s needs --target-size or --target-kl", flag)
		}
	}
	return nil
}

// choose sets o's type and rules.
func (f *targetFlags) choose(ctx context.Context, c *cobra.Command, path string, o *convert.QuantizeOptions) (*autoquant.Plan, error) {
	if f.plan != "" {
		if err := atomicfile.Check(f.plan); err != nil {
			return nil, err
		}
		if err := spare("--plan "+f.plan, f.plan, path, f.text.text, o.Imatrix); err != nil {
			return nil, err
		}
	}
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	m, err := openModel(ctx, path, f.text.context, c.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	defer m.Close()
	a := autoquant.Options{Model: m, Tensors: file.Tensors(), Alignment: file.Alignment, Threads: o.Threads, Rules: o.Rules}
	if a.Numerics, err = numerics.Parse("", ""); err != nil {
		return nil, err
	}
	if o.Imatrix != "" {
		if a.Imatrix, err = imatrix.Read(o.Imatrix); err != nil {
			return nil, err
		}
	}
	if a.Windows, err = f.text.cut(ctx, c, m, eval.Calibration); err != nil {
		return nil, err
	}
	f.log = c.ErrOrStderr()
	p := &stageProgress{w: f.log}
	defer p.end()
	a.Report = p.report
	plan, err := f.search(ctx, a, file, o.Imatrix)
	if plan != nil { // measured, for other targets too where this one is out of reach
		plan.Imatrix = o.Imatrix
		err = errors.Join(err, f.save(plan))
	}
	if err != nil {
		return nil, err
	}
	o.Rules = nil
	for i, w := range plan.Weights {
		o.Rules = append(o.Rules, quantmix.Rule{Pattern: regexp.MustCompile("^" + regexp.QuoteMeta(w.Name) + "$"), Type: plan.Type(i)})
	}
	if o.Type = plan.Most().String(); o.Type == "MXFP4" {
		o.Type = "MXFP4_MOE"
	}
	return plan, nil
}

// save writes the file of measurements, if one is wanted.
func (f *targetFlags) save(plan *autoquant.Plan) error {
	if f.plan == "" {
		return nil
	}
	return atomicfile.Write(f.plan, func(w io.Writer) error {
		e := newEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(plan)
	})
}

func (f *targetFlags) search(ctx context.Context, a autoquant.Options, file *gguf.File, imatrixPath string) (*autoquant.Plan, error) {
	s, err := autoquant.New(a)
	if err != nil {
		return nil, err
	}
	rest, err := besides(file, a.Imatrix, imatrixPath)
	if err != nil {
		return nil, err
	}
	if least := s.Least() + rest; f.size != 0 && least > int64(f.size) {
		return nil, usagef("--target-size %d: the smallest possible file has %d bytes", f.size, least)
	}
	measured, err := f.measured(s, a.Model.Checkpoint.Path, imatrixPath)
	if err != nil {
		return nil, err
	}
	if err := s.Learn(ctx); err != nil {
		return nil, err
	}
	if !measured {
		if err := s.Measure(ctx); err != nil {
			return nil, err
		}
	}
	if f.kl > 0 {
		return s.Below(ctx, f.kl)
	}
	return s.Within(ctx, int64(f.size)-rest)
}

// measured takes the measurements of the plan, if there is one, and says where they are not
// of this model, importance matrix or text.
func (f *targetFlags) measured(s *autoquant.Search, model, imatrixPath string) (bool, error) {
	data, err := readPlan(f.plan)
	if err != nil || data == nil {
		return false, err
	}
	other, err := s.Read(data)
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.plan, err)
	}
	var was autoquant.Plan
	if err := json.Unmarshal(data, &was); err != nil { // Read has taken it
		return false, err
	}
	for _, x := range []struct{ what, was, is string }{{"model", was.Model, model}, {"importance matrix", was.Imatrix, imatrixPath}} {
		if filepath.Base(x.was) != filepath.Base(x.is) {
			fmt.Fprintf(f.log, "karat: note: the effects in %s were measured with the %s %s, not %s\n", oneLine(f.plan), x.what, oneLine(cmp.Or(x.was, "none")), oneLine(cmp.Or(x.is, "none")))
		}
	}
	if other != nil {
		fmt.Fprintf(f.log, "karat: note: the effects in %s are of another text (%s of %d tokens); only the choice is measured on this one\n",
			oneLine(f.plan), count(other.Windows, "window"), other.Context)
	}
	return true, nil
}

// maxPlan is far above the plan of any model.
const maxPlan = 64 << 20

// readPlan returns the contents of the file at path, nil if there is none.
func readPlan(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := readAll(f, path, maxPlan)
	return []byte(text), err
}

// besides is how many bytes of the quantized file are not of its weights. Keys are added to it,
// also of the importance matrix if there is one.
func besides(f *gguf.File, m *imatrix.Matrix, path string) (n int64, err error) {
	n = 128
	if m != nil {
		n += int64(256 + len(path) + len(strings.Join(m.Datasets, "")))
	}
	for _, path := range f.Paths() {
		st, err := os.Stat(path)
		if err != nil {
			return 0, patherr.Plain(err)
		}
		n += st.Size()
	}
	for _, t := range f.Tensors() {
		if !quantmix.Keeps(t) {
			n -= int64(len(t.Data))
		}
	}
	return n, nil
}

// summary describes the result.
func (f *targetFlags) summary(p *autoquant.Plan) string {
	var list []string
	count := map[string]int{}
	for _, w := range p.Weights {
		if count[w.Type]++; count[w.Type] == 1 {
			list = append(list, w.Type)
		}
	}
	for i, t := range list {
		list[i] = fmt.Sprintf("%d %s", count[t], t)
	}
	return fmt.Sprintf("KL divergence %.3g (%.3g expected) over %d predictions; %s", p.KL, p.Expected, p.Predictions, strings.Join(list, ", "))
}

// stageProgress shows the progress of stages of work, and the time left for each.
type stageProgress struct {
	w     io.Writer
	stage string
	*evalProgress
}

func (p *stageProgress) report(stage string, done, total int) {
	if stage != p.stage {
		p.end()
		p.stage, p.evalProgress = stage, newEvalProgress(p.w, total)
		p.name = stage
	}
	if p.columns == nil && done == total { // each stage has a line at its end
		p.tell("", done)
		return
	}
	p.say("", done)
}

func (p *stageProgress) end() {
	if p.evalProgress != nil {
		p.evalProgress.end()
	}
}
