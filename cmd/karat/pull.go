package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
)

type pullFlags struct {
	rate  size
	lines int
	check bool
}

func newPullCommand() *cobra.Command {
	var f pullFlags
	c := &cobra.Command{
		Use:   "pull REFERENCE [NAME]",
		Short: "Get a model, to be used by its name",
		Long: `Pull gets a model's files and keeps them in a store. The model then has a name, which
stands for it wherever a MODEL goes. For example, "karat pull hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M"
makes Qwen3-0.6B:Q4_K_M. NAME is another name. Without a tag, Q4_K_M of several GGUF files is taken.

A REFERENCE is one of

  hf:ORG/NAME-GGUF:Q4_K_M    a GGUF file of Hugging Face, by its quantization or its path
  ORG/NAME, hf.co/ORG/NAME   the same as hf:ORG/NAME; also with :TAG
  hf:ORG/NAME                a folder of Hugging Face; no programs and no pickles come with it
  hf:ORG/NAME@REVISION       a branch, tag or commit of it
  oci://REGISTRY/NAME:TAG    a model in a registry, as Docker and Ollama keep them
  https://HOST/FILE.gguf     a file; #sha256=HEX behind it says what it has to be

Files are verified by the SHA-256 that the server promises. A pull that ends early goes on when
it is given again. The store is ~/.karat/models, or the folder that KARAT_MODELS names.

HF_TOKEN, or the file that huggingface-cli keeps, has the token for private models. HF_ENDPOINT
names a mirror. The token is sent there and nowhere else.`,
		Example: `  karat pull hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M
  karat run -m Qwen3-0.6B:Q4_K_M "Once upon a time"
  karat pull oci://registry.ollama.ai/library/qwen3:0.6b qwen
  karat pull --limit-rate 5M --check hf:Qwen/Qwen3-0.6B`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, append(args, "")) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Var(&f.rate, "limit-rate", "maximum bytes a second, for example 5M")
	fs.IntVar(&f.lines, "connections", 4, "`number` of parallel downloads of one file")
	fs.BoolVar(&f.check, "check", false, "look for faults in the files, as karat check does")
	return c
}

func (f *pullFlags) run(c *cobra.Command, args []string) error {
	if f.lines < 1 || f.lines > 32 {
		return usagef("--connections %d: want 1 to 32", f.lines)
	}
	if _, err := hub.ParseReference(args[0]); err != nil {
		return usageError{err}
	}
	if args[1] != "" {
		if err := hub.CheckName(args[1]); err != nil {
			return usageError{err}
		}
	}
	ctx, stop := untilSignal()
	defer stop()
	log := c.ErrOrStderr()
	s, err := openStore()
	if err != nil {
		return err
	}
	defer s.Close()
	p := pullProgress{progress: newProgress(log, args[0])}
	m, err := s.Pull(ctx, args[0], hub.PullOptions{Name: args[1], Rate: int64(f.rate), Lines: f.lines, Progress: p.report,
		Note: func(text string) { fmt.Fprintln(log, "karat: note:", oneLine(text)) }})
	p.end()
	if err != nil {
		return interruptedPull(ctx, err)
	}
	path, err := s.Path(m)
	if err != nil {
		return err
	}
	if err := tellPulled(ctx, c.OutOrStdout(), s, m, path); err != nil {
		return err
	}
	stop()
	if f.check {
		return new(checkFlags).run(c, path)
	}
	return nil
}

// interruptedPull returns the error of a pull, or of its interruption.
func interruptedPull(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return failure{statusInterrupted, errors.New("interrupted: what has come is kept, and the same command goes on with it")}
	}
	return err
}

// tellPulled says what was pulled, and the notes to read before using it.
func tellPulled(ctx context.Context, w io.Writer, s *hub.Store, m *hub.Manifest, path string) error {
	if _, err := fmt.Fprintf(w, "%s: %s in %s, from %s\n", m.Name, bytesIn(m.Bytes()), count(len(m.Files), "file"), oneLine(m.Source)); err != nil {
		return err
	}
	facts, broken := describe(ctx, path)
	if facts == nil {
		return fmt.Errorf("it was pulled, but does not open: %w", broken)
	}
	if err := s.SetType(ctx, m.Name, facts.kind); err != nil {
		return err
	}
	if m.License == "" {
		m.License = facts.license
	}
	if err := facts.write(w, m); err != nil {
		return err
	}
	if broken != nil {
		return fmt.Errorf("it was pulled, but does not run: %w", broken)
	}
	return nil
}

// facts are what a user wants to know of a model before it runs.
type facts struct {
	kind           string // format, family and type of weights
	use            string // the command for it
	weights, cache int64  // bytes; cache is 0 where the model does not load
	context        int
	license        string
	template       *templateFacts
}

// describe opens a model to see what it is. Facts come also with an error of a model that has no graph.
func describe(ctx context.Context, path string) (*facts, error) {
	m, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r := newReport(m, nil)
	f := &facts{kind: fmt.Sprintf("%s %s", m.Format, m.Arch), weights: m.Bytes(), context: model.DefaultContext, template: r.Template}
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
		fmt.Fprintf(t, "memory\t%s: weights %s, KV cache of %d tokens %s", gibibytes(f.weights+f.cache), gibibytes(f.weights), f.context, gibibytes(f.cache))
		if free := sysinfo.Memory(); free > 0 {
			fmt.Fprintf(t, "; %s is free", gibibytes(free))
		}
		fmt.Fprintln(t)
	}
	if m.License == "" {
		fmt.Fprintf(t, "license\tnot said\n")
	} else {
		fmt.Fprintf(t, "license\t%s\n", oneLine(m.License))
	}
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

// gibibytes is a size in memory.
func gibibytes(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

// pullProgress is progress that several goroutines report, and whose end may be unknown.
type pullProgress struct {
	mu sync.Mutex
	progress
}

func (p *pullProgress) report(at hub.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, ok := p.due()
	if !ok {
		return
	}
	rate := float64(at.Came) / now.Sub(p.start).Seconds()
	if at.All <= 0 || at.Done > at.All {
		p.show(bytesIn(at.Done), perSecond(rate))
		return
	}
	left := leftAt(at.All-at.Done, rate)
	if at.Done == at.All {
		left = "verifying"
	}
	p.show(percent(at.Done, at.All), fmt.Sprintf("%s of %s", bytesLike(at.Done, at.All), bytesIn(at.All)), perSecond(rate), left)
}
