package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
)

// pullFlags are the flags of pull.
type pullFlags struct {
	rate  size
	lines int
	check bool
}

func newPullCommand() *cobra.Command {
	f := pullFlags{lines: 4}
	c := define("pull", f.run)
	c.flags("limit-rate", &f.rate, "connections", &f.lines, "check", &f.check)
	return c.Command
}

func (f *pullFlags) run(x *call) error {
	if f.lines < 1 || f.lines > 32 {
		return usagef("--connections %d: want 1 to 32", f.lines)
	}
	reference, name := x.args[0], ""
	if _, err := hub.ParseReference(reference); err != nil {
		return usageError{err}
	}
	if len(x.args) > 1 {
		name = x.args[1]
		if err := hub.CheckName(name); err != nil {
			return usageError{err}
		}
	}
	s := must(openStore())
	defer s.Close()
	p := newProgress(x.log, reference)
	m, err := s.Pull(x.ctx, reference, hub.PullOptions{Name: name, Rate: int64(f.rate), Lines: f.lines,
		Progress: p.download, Note: x.note})
	p.end()
	if err != nil {
		return x.interruptedPull(err)
	}
	path := must(s.Path(m))
	if err := tellPulled(x, s, m, path); err != nil || !f.check {
		return err
	}
	return new(checkFlags).run(x, path)
}

// interruptedPull returns the error of a pull, or of its interruption.
func (x *call) interruptedPull(err error) error {
	if x.isEnded(err) {
		return x.interrupted(": what has come is kept, and the same command goes on with it")
	}
	return err
}

// tellPulled describes the pulled model, with the notes to read before using it.
func tellPulled(x *call, s *hub.Store, m *hub.Manifest, path string) error {
	if err := x.printf("%s: %s in %s, from %s\n", m.Name, bytesIn(m.Bytes()), count(len(m.Files), "file"),
		oneLine(m.Source)); err != nil {
		return err
	}
	facts, broken := describe(x.ctx, path)
	if facts == nil {
		return fmt.Errorf("it was pulled, but does not open: %w", broken)
	}
	if err := s.SetType(x.ctx, m.Name, facts.kind); err != nil {
		return err
	}
	if err := facts.write(x.out, m); err != nil {
		return err
	}
	if broken != nil {
		return fmt.Errorf("it was pulled, but does not run: %w", broken)
	}
	return nil
}

// facts are the facts of a model of interest before a run.
type facts struct {
	kind           string // format, family and type of weights
	use            string // the command for the model
	weights, cache int64  // bytes; cache is 0 where the model does not load
	context        int
	license        string
	template       *templateFacts
}

// describe opens a model and returns its facts, also beside the error of a model without a graph.
func describe(ctx context.Context, path string) (*facts, error) {
	m, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r := newReport(m, nil)
	f := &facts{kind: fmt.Sprintf("%s %s", m.Format, m.Arch), weights: m.Bytes(), context: model.DefaultContext,
		template: r.Template}
	if len(r.Types) > 0 {
		f.kind += " " + r.Types[0].Type
	}
	for _, e := range m.Metadata {
		if e.Key == "general.license" {
			f.license = e.Value
		}
	}
	g, _, err := model.Graph(ctx, m, 0)
	if err != nil {
		return f, err
	}
	f.use = "run"
	if e, err := describeEncoder(m, g); err == nil && e != nil {
		if f.use = "embed"; e.Ranks {
			f.use = "rerank"
		}
	}
	n, err := numerics.Parse(string(karat.Fast), "")
	if err != nil {
		return f, err
	}
	if most := m.ContextLength(); most > 0 {
		f.context = min(f.context, most)
	}
	f.weights, f.cache = f.weights+n.Repacked(g), n.CacheBytes(g, 0, f.context)
	_, err = m.Tokenizer()
	return f, err
}

func (f *facts) write(w io.Writer, m *hub.Manifest) error {
	t := newTable(w)
	fmt.Fprintf(t, "type\t%s\n", oneLine(f.kind))
	if f.cache > 0 {
		fmt.Fprintf(t, "memory\t%s: weights %s, KV cache of %d tokens %s", gibibytes(f.weights+f.cache),
			gibibytes(f.weights), f.context, gibibytes(f.cache))
		if free := sysinfo.Memory(); free > 0 {
			fmt.Fprintf(t, "; %s is free", gibibytes(free))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "license\t%s\n", oneLine(cmp.Or(m.License, f.license, "not said")))
	if f.template == nil {
		fmt.Fprintf(t, "chat template\tnone\n")
	} else {
		fmt.Fprintf(t, "chat template\t%s, sha256 %s\n", count(f.template.Bytes, "byte"), f.template.SHA256)
	}
	if f.use != "" {
		fmt.Fprintf(t, "next\tkarat %s %s\n", f.use, m.Name)
	}
	return t.Flush()
}
