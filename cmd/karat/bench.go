package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/bench"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/machine"
	"github.com/karat-run/karat/internal/mix"
	"github.com/spf13/cobra"
)

type benchFlags struct {
	model                                      string
	prompts, tokens, depths, threads, parallel []int
	repeat                                     int
	csv, json, markdown                        bool
	peer                                       string
	limits, profile                            bool
	backend                                    string
	precision, kv                              choice
	noFuse, quantize                           []string
}

func newBenchCommand() *cobra.Command {
	f := benchFlags{precision: choice{"fast", []string{"fast", "f32", "f64"}}, kv: choice{values: []string{"f16", "f32"}}}
	c := &cobra.Command{
		Use:   "bench [-m MODEL]",
		Short: "Measure how fast a model runs",
		Long: `Bench measures a model with the tests of llama-bench: pp512 is a prompt of 512
tokens, tg64 is 64 tokens one by one, @ d4096 behind 4096 tokens. Each number of
-p and -n is tried with each of -d, --parallel and -t, of which a GPU takes the first:
once to warm up, then -r times; the rate is the median, ± the standard deviation, in
tokens a second of all sequences.

GB/s is the weights that decoding reads: not given for sequences in parallel.
Resident memory counts weights once: those repacked, and what else is read of the
mapped file. Without -p and -n only loading is measured. Linux tells how many
processors other programs took meanwhile.

--limits measures before and after each run how fast this machine reads memory and
multiplies, and gives results as shares of the limit that is nearest: memory, for
the weights, keys and values that decoding reads; or compute, two operations for
each weight and token.
"Scaling" is the rate to that with the first number of threads. --profile tells where a
step's time goes, by kernel and thread, of one more run of each test.
--peer runs llama.cpp's llama-bench (and llama-batched-bench beside it, for
sequences in parallel) on the same file, in turns with Karat, which stays loaded,
and gives the ratio of each pair of runs: the median, and the extremes. Below 1 Karat
is slower. Behind a depth llama.cpp has flash attention on. Processes are compared,
too: the time from their start to their end, for a token after a prompt of one.

--quantize measures "karat quantize" instead, to each type; its --peer is llama-quantize.
Processes that read the page cache and write temporary files are compared, and these.`,
		Example: `  karat bench -m model.gguf
  karat bench -m model.gguf -p 512 -n 64 -d 0,4096 -t 1,2 -r 5
  karat bench -m model.gguf -p 0 -n 64 --parallel 1,8 --csv
  karat bench -m model.gguf --limits --peer llama.cpp/build/bin/llama-bench
  karat bench -m model.gguf --quantize=Q8_0,Q4_K_M --peer llama.cpp/build/bin/llama-quantize`,
		Args: atMost(0, "the model goes after -m, and types after --quantize="),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.VarP((*name)(&f.model), "model", "m", "model `file or folder` (default: the embedded demo)")
	fs.IntSliceVarP(&f.prompts, "prompt", "p", []int{512}, "`tokens` of a prompt; 0 is no such test")
	fs.IntSliceVarP(&f.tokens, "gen", "n", []int{64}, "`tokens` to decode; 0 is no such test")
	fs.IntSliceVarP(&f.depths, "depth", "d", []int{0}, "`tokens` that are there before")
	fs.IntSliceVarP(&f.threads, "threads", "t", []int{machine.Threads()}, "`numbers` of threads")
	fs.IntSliceVar(&f.parallel, "parallel", []int{1}, "`numbers` of sequences computed together")
	fs.IntVarP(&f.repeat, "repetitions", "r", 5, "`runs` of each test")
	fs.BoolVar(&f.limits, "limits", false, "measure this machine, too")
	fs.BoolVar(&f.profile, "profile", false, "tell where a step's time goes, by kernel and thread")
	fs.Var((*name)(&f.peer), "peer", "`path` of the llama-bench to compare with")
	fs.StringSliceVar(&f.quantize, "quantize", nil, "measure quantizing to `types` (alone: Q8_0, Q4_0, Q4_K_M)")
	fs.Lookup("quantize").NoOptDefVal = "Q8_0,Q4_0,Q4_K_M"
	fs.BoolVar(&f.csv, "csv", false, "print CSV")
	fs.BoolVar(&f.json, "json", false, "print JSON, with every run")
	fs.BoolVar(&f.markdown, "markdown", false, "print a Markdown table (the default)")
	f.addArithmetic(c)
	c.MarkFlagsMutuallyExclusive("csv", "json", "markdown")
	return c
}

// addArithmetic registers the flags that say what computes, and how.
func (f *benchFlags) addArithmetic(c *cobra.Command) {
	addBackend(c, &f.backend)
	f.precision.add(c, "precision", "arithmetic, as run has it")
	f.kv.add(c, "kv", "how keys and values are kept, as run has it")
	c.Flags().StringSliceVar(&f.noFuse, "no-fuse", nil, "`fusions` to do without: glu and beside, or on a GPU "+strings.Join(webgpu.Fusions, ", "))
}

// options checks the flags.
func (f *benchFlags) options() (o bench.Options, err error) {
	for _, list := range []struct {
		flag        string
		values      []int
		least, most int
	}{{"-p", f.prompts, 0, 1 << 20}, {"-n", f.tokens, 0, 1 << 20}, {"-d", f.depths, 0, 1 << 20}, {"-t", f.threads, 1, 1024}, {"--parallel", f.parallel, 1, 256}, {"-r", []int{f.repeat}, 1, 10000}} {
		if len(list.values) == 0 {
			return o, usagef("%s: it is empty", list.flag)
		}
		for _, n := range list.values {
			if n < list.least || n > list.most {
				return o, usagef("%s %d: possible are %d to %d", list.flag, n, list.least, list.most)
			}
		}
	}
	o = bench.Options{Prompts: positive(f.prompts), Tokens: positive(f.tokens), Depths: f.depths, Threads: f.threads, Parallel: f.parallel, Repeat: f.repeat, NoFuse: f.noFuse}
	if f.csv && len(o.Prompts)+len(o.Tokens) == 0 {
		return o, usagef("--csv: it has no lines for loading, and nothing else is measured; --json has it")
	}
	if o.Numerics, err = numerics.Parse(f.precision.value, f.kv.value); err == nil {
		o.Numerics, err = o.Numerics.On(f.backend)
	}
	if err != nil {
		return o, usageError{err}
	}
	if o.Numerics.GPU > 0 {
		o.Threads = o.Threads[:1] // it is as fast with any number
	}
	if f.limits {
		if o.Numerics.Precision == "f64" || o.Numerics.GPU > 0 {
			return o, usagef("--limits: there are none for precision f64, and for GPUs")
		}
		o.Limits, o.Free = true, machine.Memory()
	}
	if f.profile && (o.Numerics.Precision == "f64" || o.Numerics.GPU > 0) {
		return o, usagef("--profile: threads are not measured with precision f64, and on GPUs")
	}
	o.Profile = f.profile
	o.Peer, err = f.peerOf(o.Numerics)
	return o, err
}

// peerOf is the programs to compare with: nil without --peer.
func (f *benchFlags) peerOf(n numerics.Numerics) (*bench.Peer, error) {
	switch {
	case f.peer == "":
		return nil, nil
	case f.model == "":
		return nil, usagef("--peer: it needs a file after -m")
	case n.KV == "f64":
		return nil, usagef("--peer: it does not keep keys and values in float64")
	}
	if info, err := os.Stat(f.model); err == nil && info.IsDir() {
		return nil, usagef("--peer: it reads GGUF files, and %s is a folder", f.model)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(f.peer)
	if err != nil {
		return nil, err
	}
	p := &bench.Peer{Bench: path, KV: n.KV, Self: []string{program, "bench", "-m", f.model, "-p", "0", "-n", "0", "--backend", f.backend, "--precision", n.Asked(), "--kv", n.KV}}
	for _, name := range f.noFuse {
		p.Self = append(p.Self, "--no-fuse", name)
	}
	return p, p.Check(f.parallel)
}

func positive(list []int) (some []int) {
	for _, n := range list {
		if n > 0 {
			some = append(some, n)
		}
	}
	return some
}

func (f *benchFlags) run(c *cobra.Command) error {
	if f.quantize != nil {
		return f.runQuantize(c)
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	o.Progress = func(test string) { fmt.Fprintln(c.ErrOrStderr(), "karat:", test) }
	name, err := deviceName(o.Numerics)
	if err != nil {
		return err
	}
	sayModel(f.model, c.ErrOrStderr())
	ctx, stop := untilSignal()
	defer stop()
	r, err := bench.Run(ctx, func() (*checkpoint.Checkpoint, error) { return openCheckpoint(f.model) }, o)
	interrupted := ctx.Err() != nil && errors.Is(err, ctx.Err())
	if err != nil && !interrupted && len(r.Results) == 0 {
		return err
	}
	r.Backend = name
	write := r.WriteMarkdown
	switch {
	case f.csv:
		write = r.WriteCSV
	case f.json:
		write = r.WriteJSON
	}
	if err := write(c.OutOrStdout()); err != nil { // what was measured before an error, too
		return err
	}
	if interrupted {
		return failure{statusInterrupted, errors.New("interrupted: tests are missing")}
	}
	return err
}

// runQuantize measures quantizing.
func (f *benchFlags) runQuantize(c *cobra.Command) error {
	for _, flag := range []string{"prompt", "gen", "depth", "parallel", "limits", "profile", "csv", "backend", "precision", "kv", "no-fuse"} {
		if c.Flags().Changed(flag) {
			return usagef("--%s: it has nothing to do with --quantize", flag)
		}
	}
	if f.model == "" {
		return usagef("--quantize: it needs a file after -m")
	}
	if len(f.quantize) == 0 {
		return usagef("--quantize: it is empty")
	}
	if f.repeat < 1 || f.repeat > 10000 || slices.Min(append(f.threads, 1)) < 1 || slices.Max(append(f.threads, 1)) > 1024 {
		return usagef("-r %d, -t %v: possible are 1 to 10000 runs and 1 to 1024 threads", f.repeat, f.threads)
	}
	for _, kind := range f.quantize {
		if _, ok := mix.Find(kind); !ok {
			return usagef("--quantize: type %q, possible are %s", kind, strings.Join(mix.Names(), ", "))
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	o := bench.QuantizeOptions{File: f.model, Types: f.quantize, Threads: f.threads, Repeat: f.repeat, Self: program}
	o.Progress = func(test string) { fmt.Fprintln(c.ErrOrStderr(), "karat:", test) }
	if f.peer != "" {
		if o.Peer, err = filepath.Abs(f.peer); err != nil {
			return err
		}
	}
	ctx, stop := untilSignal()
	defer stop()
	all, err := bench.Quantize(ctx, o)
	if len(all) > 0 {
		err = errors.Join(err, bench.WriteQuantizing(c.OutOrStdout(), all, f.json))
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return failure{statusInterrupted, errors.New("interrupted: tests are missing")}
	}
	return err
}
