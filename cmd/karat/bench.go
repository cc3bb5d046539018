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
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type benchFlags struct {
	named                             modelArg
	model                             string
	prompt                            benchPrompt
	chat                              chatFlags
	tokens, depths, threads, parallel []int
	arrive                            []int
	repeat                            int
	csv, json, markdown               bool
	peer                              string
	limits, profile                   bool
	backend                           string
	precision, kv                     choice
	budget                            size
	lora                              adapters
	noFuse, quantize                  []string
	noFit                             bool
}

const benchHelp = `Bench measures a model with the tests of llama-bench: pp512 is a prompt of 512
tokens, tg64 is 64 tokens one by one, and @ d4096 means after a context of 4096 tokens.
Each number of -p and -n is combined with each of -d, --parallel and -t (a GPU takes the
first of -t). -p TEXT is the prompt of that text, raw or with --chat by the chat template,
and -n decodes after it; JSON has its ids and says which template was applied, none or
whose. The model is loaded once before, to make the ids. A test runs once to warm up, then -r times. The rate is the median, ± the
standard deviation, in tokens a second of all sequences.

GB/s is the rate at which decoding reads the weights; parallel sequences have none.
Resident memory counts weights once: the repacked ones, and the part of the mapped
file that is read. Without -p and -n only loading is measured. On Linux the processor
time that other programs took is shown.

--arrive 4096 measures a prompt of 4096 tokens that arrives while the parallel sequences
decode: how long a sequence waits for its next token before, meanwhile, and at most.

--limits measures how fast this machine reads memory and multiplies, before and after each
run, and prints results as shares of the nearest limit: memory, for the weights, keys and
values that decoding reads; or compute, two operations for each weight and token.
"Scaling" is the rate relative to that with the first number of threads. --profile runs
each test once more and prints the time of a step by kernel and thread.
--peer runs llama.cpp's llama-bench (and llama-batched-bench for parallel sequences) on
the same file, in turns with Karat, which stays loaded. It prints the ratio of each pair of
runs: the median and the extremes. Below 1 Karat is slower. After a context llama.cpp
has flash attention on. Whole processes are compared, too: the time from start to end, for
one token after a prompt of one.

--quantize measures "karat quantize" instead, to each type; its --peer is llama-quantize.
Both are processes that read the page cache and write temporary files.`

func newBenchCommand() *cobra.Command {
	f := benchFlags{precision: choice{"fast", []string{"fast", "f32", "f64"}}, kv: choice{values: []string{"f16", "f32"}}}
	c := &cobra.Command{
		Use:   "bench [MODEL]",
		Short: "Measure how fast a model runs",
		Long:  benchHelp,
		Example: `  karat bench model.gguf
  karat bench model.gguf -p 512 -n 64 -d 0,4096 -t 1,2 -r 5
  karat bench model.gguf -p 0 -n 64 --parallel 1,8 --csv
  karat bench model.gguf --chat -p "Why is the sky blue?" --json
  karat bench model.gguf -p 0 -n 0 --parallel 12 --arrive 4096
  karat bench model.gguf --limits --peer llama.cpp/build/bin/llama-bench
  karat bench model.gguf --quantize=Q8_0,Q4_K_M --peer llama.cpp/build/bin/llama-quantize`,
		Args: atMost(1, "MODEL is one file or folder, and types go after --quantize="),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := f.named.take(args); err != nil {
				return err
			}
			var err error
			if f.model, err = f.named.find(c); err != nil {
				return err
			}
			return f.run(c)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.named.add(c, false)
	f.addTests(fs)
	fs.BoolVar(&f.limits, "limits", false, "measure the machine's limits, too")
	fs.BoolVar(&f.profile, "profile", false, "print the time of a step by kernel and thread")
	fs.Var((*name)(&f.peer), "peer", "`path` of the llama-bench to compare with")
	fs.StringSliceVar(&f.quantize, "quantize", nil, "measure quantizing to `types` (alone: Q8_0, Q4_0, Q4_K_M)")
	fs.Lookup("quantize").NoOptDefVal = "Q8_0,Q4_0,Q4_K_M"
	fs.BoolVar(&f.csv, "csv", false, "print CSV")
	fs.BoolVar(&f.json, "json", false, "print JSON, with every run")
	fs.BoolVar(&f.markdown, "markdown", false, "print a Markdown table (the default)")
	f.addArithmetic(c)
	f.lora.add(c)
	c.MarkFlagsMutuallyExclusive("csv", "json", "markdown")
	return c
}

// addTests registers the flags of the tests to run.
func (f *benchFlags) addTests(fs *pflag.FlagSet) {
	f.prompt.counts = []int{512}
	fs.VarP(&f.prompt, "prompt", "p", "`tokens` of a prompt, or its text; 0 skips this test")
	f.chat.add(fs)
	fs.IntSliceVarP(&f.tokens, "tokens", "n", []int{64}, "`tokens` to decode; 0 skips this test")
	alias(fs, "tokens", "gen")
	fs.IntSliceVarP(&f.depths, "depth", "d", []int{0}, "`tokens` of context before the test")
	fs.IntSliceVarP(&f.threads, "threads", "t", []int{sysinfo.Threads()}, "`numbers` of threads")
	fs.IntSliceVar(&f.parallel, "parallel", []int{1}, "`numbers` of sequences computed together")
	fs.IntSliceVar(&f.arrive, "arrive", []int{0}, "`tokens` of a prompt that arrives while the parallel sequences decode")
	fs.IntVarP(&f.repeat, "repetitions", "r", 5, "`runs` of each test")
}

// addArithmetic registers the flags that say what computes, and how.
func (f *benchFlags) addArithmetic(c *cobra.Command) {
	addBackend(c, &f.backend)
	addBudget(c, &f.budget)
	renamed(c.Flags(), "ctx", "c", "a test takes the context that it needs: -p, -n and -d")
	c.Flags().Lookup("kv-budget").Usage = "size limit of the KV cache, for example 4GiB: sequences beyond it wait (default: what all take)"
	f.precision.add(c, "precision", "arithmetic, as in run")
	f.kv.add(c, "kv", "type of keys and values, as in run")
	addNoFit(c, &f.noFit)
	c.Flags().StringSliceVar(&f.noFuse, "no-fuse", nil, "`fusions` to turn off: glu and beside, or on a GPU "+strings.Join(webgpu.Fusions, ", "))
}

// options checks the flags.
func (f *benchFlags) options() (o bench.Options, err error) {
	for _, list := range []struct {
		flag        string
		values      []int
		least, most int
	}{{"-n", f.tokens, 0, 1 << 20}, {"-d", f.depths, 0, 1 << 20}, {"-t", f.threads, 1, 1024}, {"--parallel", f.parallel, 1, 256}, {"--arrive", f.arrive, 0, 1 << 20}, {"-r", []int{f.repeat}, 1, 10000}} {
		if len(list.values) == 0 {
			return o, usagef("%s: the list is empty", list.flag)
		}
		for _, n := range list.values {
			if n < list.least || n > list.most {
				return o, usagef("%s %d: want %d to %d", list.flag, n, list.least, list.most)
			}
		}
	}
	o = bench.Options{Prompts: positive(f.prompt.counts), Tokens: positive(f.tokens), Depths: f.depths, Threads: f.threads, Parallel: f.parallel, Arrive: positive(f.arrive), Budget: int64(f.budget), Repeat: f.repeat, NoFuse: f.noFuse, NoFit: f.noFit, Adapters: f.lora.model()}
	if f.csv && len(o.Prompts)+len(f.prompt.text)+len(o.Tokens)+len(o.Arrive) == 0 {
		return o, usagef("--csv cannot show loading, the only test here: use --json")
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
			return o, usagef("--limits works on the CPU only, and not with --precision f64")
		}
		o.Limits, o.Free = true, sysinfo.Memory()
	}
	if f.profile && (o.Numerics.Precision == "f64" || o.Numerics.GPU > 0) {
		return o, usagef("--profile works on the CPU only, and not with --precision f64")
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
		return nil, usagef("--peer needs a MODEL")
	case n.KV == "f64":
		return nil, usagef("--peer does not work with --precision f64")
	}
	if info, err := os.Stat(f.model); err == nil && info.IsDir() {
		return nil, usagef("--peer reads GGUF files, but %s is a folder", f.model)
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
	f.chat.imply()
	switch {
	case f.prompt.text == "" && f.chat.chat:
		return usagef("--chat needs the text of a message: -p TEXT")
	case f.prompt.text != "" && (c.Flags().Changed("depth") || len(o.Arrive) > 0):
		return usagef("-d and --arrive do not work with the text of a prompt")
	}
	o.Progress = func(test string) { fmt.Fprintln(c.ErrOrStderr(), "karat:", test) }
	name, err := deviceName(o.Numerics)
	if err != nil {
		return err
	}
	sayModel(f.model, c.ErrOrStderr())
	ctx, stop := untilSignal()
	defer stop()
	if err := f.readPrompt(ctx, &o, c.ErrOrStderr()); err != nil {
		return interruptedOr(ctx, explainBudget(err))
	}
	r, err := bench.Run(ctx, func() (*checkpoint.Checkpoint, error) { return openCheckpoint(f.model) }, o)
	err = explainBudget(err)
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
		if !interrupted {
			var failed error
			if r.Hashes, failed = hashesAt(ctx, f.model); failed != nil {
				return failed
			}
		}
	}
	if err := write(c.OutOrStdout()); err != nil { // results before an error, too
		return err
	}
	if interrupted {
		return failure{statusInterrupted, errors.New("interrupted: some tests did not run")}
	}
	return err
}

// runQuantize measures quantizing.
func (f *benchFlags) runQuantize(c *cobra.Command) error {
	for _, flag := range []string{"prompt", "chat", "system", "chat-template", "template-arg", "tokens", "depth", "parallel", "arrive", "kv-budget", "limits", "profile", "csv", "backend", "precision", "kv", "no-fuse", "no-fit"} {
		if c.Flags().Changed(flag) {
			return usagef("--%s does not work with --quantize", flag)
		}
	}
	if f.model == "" {
		return usagef("--quantize needs a MODEL")
	}
	if len(f.quantize) == 0 {
		return usagef("--quantize: the list of types is empty")
	}
	if f.repeat < 1 || f.repeat > 10000 || slices.Min(append(f.threads, 1)) < 1 || slices.Max(append(f.threads, 1)) > 1024 {
		return usagef("-r %d, -t %v: want 1 to 10000 runs and 1 to 1024 threads", f.repeat, f.threads)
	}
	for _, kind := range f.quantize {
		if _, ok := quantmix.Find(kind); !ok {
			return usagef("--quantize: type %q, want %s", kind, strings.Join(quantmix.Names(), ", "))
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
		return failure{statusInterrupted, errors.New("interrupted: some tests did not run")}
	}
	return err
}
