package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/spf13/cobra"
)

// choice is a flag that takes one of a few values.
type choice struct {
	value  string
	values []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.values, "|") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.values, s) {
		return fmt.Errorf("possible are %s", strings.Join(c.values, ", "))
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
		return "", usagef("MODEL is empty; the embedded demo is used if there is none")
	}
	return args[0], nil
}

// arithmetic is the flags of every command that runs a model.
type arithmetic struct {
	backend       string
	threads       int
	precision, kv choice
}

// add registers the flags; precision is the default.
func (a *arithmetic) add(c *cobra.Command, precision karat.Precision) {
	a.precision = choice{string(precision), []string{string(karat.Fast), string(karat.Float32), string(karat.Float64)}}
	a.kv = choice{values: []string{"f16", "f32"}}
	addBackend(c, &a.backend)
	c.Flags().IntVar(&a.threads, "threads", 0, "`number` of threads (default: one a core that may be used)")
	a.precision.add(c, "precision", "arithmetic: fast has 16-bit activations with quantized weights and is else f32; a GPU has it on matrix units alone; f64 is slow, for comparison")
	a.kv.add(c, "kv", "how keys and values are kept (default f16 with fast, else f32; f64 keeps them in float64)")
}

// addBackend registers --backend.
func addBackend(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "backend", "cpu", "`name` of what computes: cpu, webgpu for the first GPU of \"karat devices\", or webgpu:N for another; see --precision")
}

// options are the library's for the flags.
func (a *arithmetic) options() (karat.Options, error) {
	if a.threads < 0 || a.threads > 1024 {
		return karat.Options{}, usagef("--threads %d: possible are 1 to 1024, and 0 for one a core", a.threads)
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
	return karat.Options{Backend: a.backend, Threads: a.threads, Precision: karat.Precision(a.precision.value), KV: a.kv.value}, nil
}

// numerics are the flags for commands that have an engine of their own.
func (a *arithmetic) numerics() (n numerics.Numerics, threads int, err error) {
	if _, err := a.options(); err != nil {
		return n, 0, err
	}
	if n, err = numerics.Parse(a.precision.value, a.kv.value); err == nil {
		n, err = n.On(a.backend)
	}
	return n, a.threads, err
}

// load loads the model at path, or the demo, and tells how far it is if that takes
// more than a second. Where ctx ends first so does load, and leaves what is under
// way to the end of the program.
func load(ctx context.Context, path string, o karat.Options, stderr io.Writer) (*karat.Model, error) {
	start := time.Now()
	p := progress{w: stderr, terminal: isTerminal(stderr), start: start, last: start.Add(time.Second)}
	var mu sync.Mutex // of p
	o.Progress = func(done, all int64) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			p.report(done, all)
		}
	}
	type result struct {
		m   *karat.Model
		err error
	}
	loaded := make(chan result, 1)
	go func() {
		var r result
		if path == "" {
			r.m, r.err = karat.LoadGGUF(demoName, demo, o)
		} else {
			r.m, r.err = karat.Load(path, o)
		}
		loaded <- r
	}()
	var r result
	select {
	case r = <-loaded:
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	mu.Lock()
	defer mu.Unlock()
	p.end()
	return r.m, r.err
}

// loadModel loads the model at path, or the demo if path is empty, and says what
// there is to know about it.
func loadModel(ctx context.Context, path string, o karat.Options, stderr io.Writer) (*karat.Model, error) {
	sayModel(path, stderr)
	m, err := load(ctx, path, o, stderr)
	if err != nil {
		return nil, err
	}
	info := m.Info()
	for _, n := range info.Notes {
		fmt.Fprintln(stderr, "karat: note:", oneLine(n))
	}
	if info.MaxContext > 0 && info.Context > info.MaxContext {
		fmt.Fprintf(stderr, "karat: note: a context of %d tokens, but the model was made for %d\n", info.Context, info.MaxContext)
	}
	return m, nil
}
