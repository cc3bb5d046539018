package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

type quantizeFlags struct {
	imatrix      string
	rules        []string
	again, json  bool
	threads      int
	from, to, as string
	target       targetFlags
}

func newQuantizeCommand() *cobra.Command {
	var f quantizeFlags
	c := &cobra.Command{
		Use:   "quantize IN.gguf OUT.gguf [TYPE]",
		Short: "Store a model's weights in fewer bits",
		Long: `Quantize writes the weights of a GGUF file (any part of a split one) as blocks of small
integers with scales. The result has the same bytes as llama-quantize's: the same mix of
types, chosen tensor by tensor, the same search for scales, and the same metadata.

TYPE is one of ` + strings.Join(quantmix.Names(), ", ") + `.
Most weights get the type of that name. Weights that matter more get a better type, and
rows that are no multiple of 256 a wider one. Norms, vectors and routers keep their types.

An importance matrix says which columns of a weight matter; the search for scales
then spends its precision on them. --tensor-type sets the type of the weights whose name
matches a regular expression (a block's type such as Q4_K, not a mix).
` + targetHelp + `

Weights that are quantized already are an error, because each quantization loses more.
Ctrl-C leaves nothing behind.`,
		Example: `  karat quantize model.bf16.gguf model.Q4_K_M.gguf Q4_K_M
  karat quantize --imatrix imatrix.gguf model.bf16.gguf model.IQ4_XS.gguf IQ4_XS
  karat quantize --tensor-type 'ffn_(up|gate)=Q3_K' --tensor-type attn_v=Q8_0 in.gguf out.gguf Q4_K_M
  karat quantize --json in.gguf out.gguf Q8_0 | jq .types
  karat quantize --target-size 4GiB --plan effects.json model.bf16.gguf model.4g.gguf
  karat quantize --target-kl 0.01 --calibration text.txt --imatrix imatrix.gguf in.gguf out.gguf`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.target.check(c, len(args)-2); err != nil {
				return err
			}
			if f.from, f.to = args[0], args[1]; len(args) > 2 {
				f.as = args[2]
			}
			var err error
			if f.from, err = findModel(f.from); err != nil {
				return err
			}
			return f.run(c)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Var((*name)(&f.imatrix), "imatrix", "importance matrix, a `file` of karat imatrix or llama-imatrix")
	fs.StringArrayVar(&f.rules, "tensor-type", nil, "`REGEX=TYPE`: TYPE for the weights whose name matches REGEX; the first match counts")
	fs.BoolVar(&f.again, "allow-requantize", false, "quantize weights that are quantized already")
	fs.IntVarP(&f.threads, "threads", "t", sysinfo.Threads(), "`number` of threads")
	fs.BoolVar(&f.json, "json", false, "print JSON, with hashes of both models")
	f.target.add(c)
	leadModel(c, true)
	c.ValidArgsFunction = completeQuantize
	return c
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
	return o, spare("OUT "+f.to, f.to, f.from, f.imatrix, f.target.text.text)
}

// quantized is what --json prints.
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

func (f *quantizeFlags) run(c *cobra.Command) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	start := time.Now()
	var plan *autoquant.Plan
	if f.target.set() {
		plan, err = f.target.choose(ctx, c, f.from, &o)
	}
	var r *convert.Result
	if err == nil {
		p := newProgress(c.ErrOrStderr(), f.to)
		o.Progress = p.report
		r, err = convert.Quantize(ctx, f.from, f.to, o)
		p.end()
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return failure{statusInterrupted, fmt.Errorf("interrupted: %s was not written", f.to)}
	case errors.Is(err, convert.ErrRequantize):
		return fmt.Errorf("%w, with --allow-requantize", err)
	case err != nil:
		return err
	}
	q := quantized{File: f.to, Type: strings.ToUpper(o.Type), Arch: r.Architecture, Bytes: r.Bytes, Types: r.Types, Notes: r.Notes, Seconds: time.Since(start).Seconds(), Plan: plan}
	if err := q.measure(f.from); err != nil {
		return err
	}
	if f.json {
		if err := q.of(ctx, f.from, f.to); err != nil {
			return interruptedOr(ctx, err)
		}
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(q)
	}
	for _, n := range q.Notes {
		fmt.Fprintln(c.ErrOrStderr(), "karat: note:", oneLine(n))
	}
	if plan != nil { // the most frequent type is not the file's
		q.Type = "a mix of types"
	}
	text := fmt.Sprintf("%s: %s, %s of weights instead of %s, %.2f bits each\n", oneLine(f.to), q.Type, bytesText(q.Bytes), bytesText(q.Source), q.Bits)
	if plan != nil {
		text += f.target.summary(plan) + "\n"
	}
	_, err = io.WriteString(c.OutOrStdout(), text)
	return err
}

// measure counts the weights of the source.
func (q *quantized) measure(path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	for _, t := range f.Tensors() {
		q.Source += int64(len(t.Data))
		q.Weights += int64(t.Shape.Size())
	}
	q.Bits = float64(q.Bytes) * 8 / float64(max(q.Weights, 1))
	return f.Close()
}
