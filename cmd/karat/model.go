package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// choice is a flag that takes one of a few values.
type choice struct {
	value  string
	values []string
}

func (c *choice) String() string { return c.value }

// Type lists the values, but not so many that they would push all help to the right.
func (c *choice) Type() string {
	if list := strings.Join(c.values, "|"); len(list) <= 80 {
		return list
	}
	return "name"
}

func (c *choice) Set(s string) error {
	if !slices.Contains(c.values, s) {
		return fmt.Errorf("want %s", strings.Join(c.values, ", "))
	}
	c.value = s
	return nil
}

// add registers the flag.
func (c *choice) add(command *cobra.Command, name, usage string) {
	command.Flags().Var(c, name, usage)
	complete := cobra.FixedCompletions(c.values, cobra.ShellCompDirectiveNoFileComp)
	if err := command.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // a name twice in the program
	}
}

// name is a flag that takes the name of a file. An empty one, as that of a variable
// which is not set, is none.
type name string

func (n *name) String() string { return string(*n) }
func (n *name) Type() string   { return "file" }

func (n *name) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*n = name(s)
	return nil
}

// modelArgument is the MODEL of a command that takes one, "" if it is not given.
func modelArgument(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", nil
	case args[0] == "":
		return "", usagef("MODEL is empty; leave it out to use the embedded demo")
	}
	return findModel(args[0])
}

// arithmetic is the flags of every command that runs a model.
type arithmetic struct {
	backend       string
	threads       int
	precision, kv choice
	noFit         bool
}

// add registers the flags; precision is the default.
func (a *arithmetic) add(c *cobra.Command, precision karat.Precision) {
	a.precision = choice{string(precision), []string{string(karat.Fast), string(karat.Float32), string(karat.Float64)}}
	a.kv = choice{values: []string{"f16", "f32"}}
	addBackend(c, &a.backend)
	addThreads(c.Flags(), &a.threads)
	a.precision.add(c, "precision", "arithmetic: fast rounds activations to 16 bits where weights are quantized, else it is f32 (on a GPU fast differs from f32 on matrix units only); f64 is slow, for comparison")
	a.kv.add(c, "kv", "type of the KV cache (default f16 with fast, else f32; f64 keeps them in float64)")
	addNoFit(c, &a.noFit)
}

// addNoFit registers --no-fit.
func addNoFit(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "no-fit", false, "run a model even if it does not fit the free memory")
}

// addBudget registers --kv-budget.
func addBudget(c *cobra.Command, to *size) {
	c.Flags().Var(to, "kv-budget", "size limit of the KV cache, for example 4GiB (default: half of the free memory, or one sequence if that is more; on a GPU at most four sequences)")
}

// sharing is the flags of commands whose requests share a model's steps and memory. A command
// that computes one sequence after another, such as eval, has --kv-budget alone.
type sharing struct {
	budget   size
	parallel int // 0 is as many as budget holds
}

// add registers the flags; parallel is the default.
func (s *sharing) add(c *cobra.Command, parallel int) {
	addBudget(c, &s.budget)
	usage := "maximum number of `requests` run at once"
	if parallel == 0 {
		usage += " (default: as many as --kv-budget holds)"
	}
	c.Flags().IntVar(&s.parallel, "parallel", parallel, usage)
}

// set checks the flags and sets o's.
func (s *sharing) set(o *karat.Options, changed func(name string) bool) error {
	if changed("parallel") && (s.parallel < 1 || s.parallel > maxParallel) {
		return usagef("--parallel %d: want 1 to %d", s.parallel, maxParallel)
	}
	o.KVBudget, o.Parallel = int64(s.budget), s.parallel
	return nil
}

// maxParallel is the most that --parallel takes.
const maxParallel = 1024

// explainBudget names the flag of an error of the budget, which has the numbers.
func explainBudget(err error) error {
	if errors.Is(err, karat.ErrBudget) {
		return fmt.Errorf("--kv-budget: %w", err)
	}
	return err
}

// addBackend registers --backend.
func addBackend(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "backend", "cpu", "`name` of the device: cpu, webgpu for the first GPU of \"karat devices\", or webgpu:N for another; see --precision")
	if err := c.RegisterFlagCompletionFunc("backend", completeBackends); err != nil {
		panic(err) // a name twice in the program
	}
}

// completeBackends completes the devices of "karat devices".
func completeBackends(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := []string{"cpu\tthe processor", "webgpu\tthe first GPU"}
	if d, err := findDevices(); err == nil {
		for i, g := range d.GPUs {
			names = append(names, fmt.Sprintf("webgpu:%d\t%s", i, oneLine(g.Name)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// options are the library's for the flags.
func (a *arithmetic) options() (karat.Options, error) {
	if a.threads < 0 || a.threads > 1024 {
		return karat.Options{}, usagef("--threads %d: want 1 to 1024, or 0 for one for each core", a.threads)
	}
	if a.precision.value == string(karat.Float64) && a.kv.value == "f16" {
		return karat.Options{}, usagef("--precision f64 keeps keys and values in float64: --kv f16 contradicts it")
	}
	n, err := numerics.Parse(a.precision.value, a.kv.value)
	if err == nil {
		_, err = n.On(a.backend)
	}
	if err != nil {
		return karat.Options{}, usageError{err}
	}
	return karat.Options{Backend: karat.Backend(a.backend), Threads: a.threads, Precision: karat.Precision(a.precision.value), KV: karat.KVType(a.kv.value), NoFit: a.noFit}, nil
}

// model are the flags for commands that have an engine of their own.
func (a *arithmetic) model() (o model.Options, err error) {
	if _, err := a.options(); err != nil {
		return o, err
	}
	o = model.Options{Threads: a.threads, NoFit: a.noFit}
	if o.Numerics, err = numerics.Parse(a.precision.value, a.kv.value); err == nil {
		o.Numerics, err = o.Numerics.On(a.backend)
	}
	return o, err
}

// load loads the model at path, or the demo, and tells how far it is if that takes
// more than a second.
func load(ctx context.Context, path string, o karat.Options, stderr io.Writer) (*karat.Model, error) {
	start := time.Now()
	p := newProgress(stderr, path)
	p.last = start.Add(time.Second)
	defer p.end()
	o.Progress = p.report
	if path == "" {
		return karat.LoadSources(ctx, []karat.Source{{Name: demoName, Data: demo}}, o)
	}
	path, err := findModel(path)
	if err != nil {
		return nil, err
	}
	return karat.Load(ctx, path, o)
}

// loadModel loads the model at path, or the demo if path is empty, and says what
// there is to know about it.
func loadModel(ctx context.Context, path string, o karat.Options, stderr io.Writer) (*karat.Model, error) {
	sayModel(path, stderr)
	m, err := load(ctx, path, o, stderr)
	if err != nil {
		return nil, explainBudget(err)
	}
	info := m.Info()
	for _, n := range info.Notes {
		fmt.Fprintln(stderr, "karat: note:", oneLine(n))
	}
	if info.MaxContext > 0 && info.Context > info.MaxContext {
		fmt.Fprintf(stderr, "karat: note: a context of %s, but the model was made for %d\n", count(info.Context, "token"), info.MaxContext)
	}
	return m, nil
}
