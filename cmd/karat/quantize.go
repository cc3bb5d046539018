package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/autoquant"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/gguf"
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
		plan, err = f.target.choose(x, f.from, &o)
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
		return x.unwritten(err, f.to)
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
