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
	"time"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/autoquant"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/spf13/cobra"
)

// quantizeFlags are the flags of quantize.
type quantizeFlags struct {
	imatrix      string
	rules        []string
	again, json  bool
	threads      int
	from, to, as string
	target       targetFlags
}

func newQuantizeCommand() *cobra.Command {
	f := quantizeFlags{threads: sysinfo.Threads()}
	c := define("quantize", f.run)
	c.flags("imatrix", file(&f.imatrix), "tensor-type", &f.rules, "allow-requantize", &f.again, "threads", &f.threads,
		"json", &f.json)
	f.target.add(c)
	c.takesModel()
	c.ValidArgsFunction = completeQuantize
	return c.Command
}

// completeQuantize completes IN as a model, OUT as a file, and TYPE.
func completeQuantize(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	at := len(args)
	if c.Flags().Changed("model") {
		at++
	}
	switch at {
	case 0:
		return completeModels(c, args, text)
	case 2:
		return quantmix.Names(), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// options checks the flags.
func (f *quantizeFlags) options() (o convert.QuantizeOptions, err error) {
	if f.threads < 1 || f.threads > 1024 {
		return o, usagef("-t %d: want 1 to 1024", f.threads)
	}
	o = convert.QuantizeOptions{Type: f.as, Imatrix: f.imatrix, Requantize: f.again, Threads: f.threads}
	for _, text := range f.rules {
		i := strings.LastIndexByte(text, '=')
		if i < 1 {
			return o, usagef("--tensor-type %s: want REGEX=TYPE", text)
		}
		d, ok := tensor.ParseDType(strings.ToUpper(text[i+1:]))
		if !ok {
			return o, usagef("--tensor-type %s: want the type of a block, such as Q4_K", text)
		}
		pattern, err := regexp.Compile(text[:i])
		if err != nil {
			return o, usagef("--tensor-type %s: %w", text, err)
		}
		o.Rules = append(o.Rules, quantmix.Rule{Pattern: pattern, Type: d})
	}
	if f.target.set() {
		o.Type = "Q8_0" // until another is chosen
	}
	if st, err := os.Stat(f.from); err == nil && st.IsDir() {
		return o, usagef("%s is a folder: karat convert makes GGUF of it, and quantizes with --type", f.from)
	}
	if err := convert.CheckQuantize(f.to, o); err != nil {
		return o, usageError{err}
	}
	if f.target.plan != "" && filepath.Clean(f.target.plan) == filepath.Clean(f.to) {
		return o, usagef("--plan %s and OUT are the same file", f.target.plan)
	}
	return o, refuseOverwrite("OUT "+f.to, f.to, f.from, f.imatrix, f.target.text.text)
}

// quantized is the output of --json.
type quantized struct {
	File    string          `json:"file"`
	Type    string          `json:"type"`
	Arch    string          `json:"architecture"`
	Source  int64           `json:"source_bytes"` // of tensors, as is the next
	Bytes   int64           `json:"bytes"`
	Weights int64           `json:"weights"`
	Bits    float64         `json:"bits_per_weight"`
	Types   map[string]int  `json:"types"` // how many tensors there are of each
	Notes   []string        `json:"notes,omitempty"`
	Seconds float64         `json:"seconds"`
	Plan    *autoquant.Plan `json:"plan,omitempty"`
	conversionHashes
}

func (f *quantizeFlags) run(x *call) (err error) {
	throw(f.target.check(x, x.args[1:]))
	if f.to = x.args[0]; len(x.args) > 1 {
		f.as = x.args[1]
	}
	f.from = must(x.find())
	o := must(f.options())
	start := time.Now()
	var plan *autoquant.Plan
	if f.target.set() {
		err = catch(func() (err error) { plan, err = f.target.choose(x, f.from, &o); return err })
	}
	var r *convert.Result
	if err == nil {
		p := newProgress(x.log, f.to)
		o.Progress = p.bytes
		r, err = convert.Quantize(x.ctx, f.from, f.to, o)
		p.end()
	}
	switch {
	case errors.Is(err, convert.ErrRequantize):
		return fmt.Errorf("%w, with --allow-requantize", err)
	case err != nil:
		return x.orInterrupted(err, ": "+f.to+" was not written")
	}
	q := quantized{File: f.to, Type: strings.ToUpper(o.Type), Arch: r.Architecture, Bytes: r.Bytes, Types: r.Types,
		Notes: r.Notes, Seconds: time.Since(start).Seconds(), Plan: plan}
	throw(q.measure(f.from))
	if f.json {
		throw(q.compute(x.ctx, f.from, f.to))
		return x.json(q)
	}
	for _, n := range q.Notes {
		x.note(n)
	}
	if plan != nil { // the most frequent type is not the file's
		q.Type = "a mix of types"
	}
	text := fmt.Sprintf("%s: %s, %s of weights instead of %s, %.2f bits each\n", oneLine(f.to), q.Type,
		bytesText(q.Bytes), bytesText(q.Source), q.Bits)
	if plan != nil {
		text += f.target.summary(plan) + "\n"
	}
	return x.printf("%s", text)
}

// measure counts the weights of the source.
func (q *quantized) measure(path string) error {
	f := must(gguf.Open(path))
	for _, t := range f.Tensors() {
		q.Source += int64(len(t.Data))
		q.Weights += int64(t.Shape.Size())
	}
	q.Bits = float64(q.Bytes) * 8 / float64(max(q.Weights, 1))
	return f.Close()
}

// targetFlags are the flags for types chosen by their effect.
type targetFlags struct {
	size size
	kl   float64
	text windowFlags
	plan string
	log  io.Writer
}

func (f *targetFlags) add(c *command) {
	f.text.context, f.text.windows = 256, 4
	c.flags("target-size", &f.size, "target-kl", &f.kl, "calibration", file(&f.text.text))
	f.text.add(c)
	c.flags("plan", file(&f.plan))
}

func (f *targetFlags) set() bool { return f.size != 0 || f.kl != 0 }

// check checks the flags against each other, and against TYPE.
func (f *targetFlags) check(x *call, types []string) error {
	switch {
	case f.set() && len(types) > 0:
		return usagef("give TYPE or a target, not both")
	case x.changed("target-kl") && !(f.kl > 0 && f.kl <= math.MaxFloat32):
		return usagef("--target-kl %v: want a number above 0, up to %.2g", f.kl, math.MaxFloat32)
	case !f.set() && len(types) == 0:
		if _, ok := quantmix.Find(x.args[0]); ok {
			return usagef("%s was taken for OUT.gguf: give IN.gguf OUT.gguf TYPE", x.args[0])
		}
		return usagef("TYPE, --target-size or --target-kl is needed")
	case f.size != 0 && f.kl != 0:
		return usagef("give --target-size or --target-kl, not both")
	}
	for _, flag := range []string{"calibration", "window", "chunks", "plan"} {
		if !f.set() && x.changed(flag) {
			return usagef("--%s needs --target-size or --target-kl", flag)
		}
	}
	return nil
}

// choose sets o's type and rules.
func (f *targetFlags) choose(x *call, path string, o *convert.QuantizeOptions) (*autoquant.Plan, error) {
	if f.plan != "" {
		throw(atomicfile.Check(f.plan))
		throw(refuseOverwrite("--plan "+f.plan, f.plan, path, f.text.text, o.Imatrix))
	}
	file := must(gguf.Open(path))
	defer file.Close()
	m := must(x.openModel(path, f.text.context))
	defer m.Close()
	a := autoquant.Options{Model: m, Tensors: file.Tensors(), Alignment: file.Alignment, Threads: o.Threads,
		Rules: o.Rules}
	a.Numerics = must(numerics.Parse("", ""))
	if o.Imatrix != "" {
		a.Imatrix = must(imatrix.Read(o.Imatrix))
	}
	a.Windows = must(f.text.cut(x, m, eval.Calibration))
	f.log = x.log
	p := stages{progress: newProgress(f.log, ""), ends: true}
	defer func() { p.end() }()
	a.Report = p.report
	var plan *autoquant.Plan
	err := catch(func() (err error) { plan, err = f.search(x.ctx, a, file, o.Imatrix); return err })
	if plan != nil { // measured, also for other targets if this target is out of reach
		plan.Imatrix = o.Imatrix
		err = errors.Join(err, f.save(plan))
	}
	if err != nil {
		return nil, err
	}
	o.Rules = nil
	for i, w := range plan.Weights {
		o.Rules = append(o.Rules, quantmix.Rule{Pattern: regexp.MustCompile("^" + regexp.QuoteMeta(w.Name) + "$"),
			Type: plan.Type(i)})
	}
	if o.Type = plan.Most().String(); o.Type == "MXFP4" {
		o.Type = "MXFP4_MOE"
	}
	return plan, nil
}

// save writes the file of measurements, if wanted.
func (f *targetFlags) save(plan *autoquant.Plan) error {
	if f.plan == "" {
		return nil
	}
	return atomicfile.Write(f.plan, func(w io.Writer) error { return writeJSON(w, plan) })
}

func (f *targetFlags) search(ctx context.Context, a autoquant.Options, file *gguf.File,
	imatrixPath string) (*autoquant.Plan, error) {
	s := must(autoquant.New(a))
	rest := must(metadataBytes(file, a.Imatrix, imatrixPath))
	if least := s.Least() + rest; f.size != 0 && least > int64(f.size) {
		return nil, usagef("--target-size %d: the smallest possible file has %d bytes", f.size, least)
	}
	measured := must(f.useMeasured(s, a.Model.Checkpoint.Path, imatrixPath))
	throw(s.Learn(ctx))
	if !measured {
		throw(s.Measure(ctx))
	}
	if f.kl > 0 {
		return s.Below(ctx, f.kl)
	}
	return s.Within(ctx, int64(f.size)-rest)
}

// useMeasured takes the measurements of the plan, if there is a plan, and notes a plan of another model, importance
// matrix or text.
func (f *targetFlags) useMeasured(s *autoquant.Search, model, imatrixPath string) (bool, error) {
	data, err := readPlan(f.plan)
	if err != nil || data == nil {
		return false, err
	}
	other, err := s.Read(data)
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.plan, err)
	}
	var was autoquant.Plan
	throw(json.Unmarshal(data, &was)) // Read has accepted the data
	for _, x := range []struct{ what, was, is string }{{"model", was.Model, model},
		{"importance matrix", was.Imatrix, imatrixPath}} {
		if filepath.Base(x.was) != filepath.Base(x.is) {
			fmt.Fprintf(f.log, "karat: note: the effects in %s were measured with the %s %s, not %s\n",
				oneLine(f.plan), x.what, oneLine(cmp.Or(x.was, "none")), oneLine(cmp.Or(x.is, "none")))
		}
	}
	if other != nil {
		fmt.Fprintf(f.log, "karat: note: the effects in %s are of another text (%s of %d tokens); only the choice "+
			"is measured on this one\n", oneLine(f.plan), count(other.Windows, "window"), other.Context)
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
	text, err := readWhole(path, maxPlan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return []byte(text), err
}

// metadataBytes returns the number of bytes in the quantized file outside the weights, including the keys added by
// quantization and by the importance matrix.
func metadataBytes(f *gguf.File, m *imatrix.Matrix, path string) (n int64, err error) {
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
	return fmt.Sprintf("KL divergence %.3g (%.3g expected) over %d predictions; %s", p.KL, p.Expected, p.Predictions,
		strings.Join(list, ", "))
}
