package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/logprob"
	"github.com/spf13/cobra"
)

// textFlags are those of a text that is cut into windows.
type textFlags struct {
	text             string
	context, windows int
}

// add registers them, but for the text.
func (f *textFlags) add(c *cobra.Command) {
	addWindow(c, &f.context, 512)
	c.Flags().IntVar(&f.windows, "chunks", 0, "`windows` at most (default: all of the text)")
}

// addWindow registers --window. A window is no context of a conversation, which -c is.
func addWindow(c *cobra.Command, to *int, tokens int) {
	c.Flags().IntVar(to, "window", tokens, "`tokens` of a window of the text")
	renamed(c.Flags(), "ctx", "c", "the text's windows have --window tokens, and the model's context is one window")
}

// cut makes windows of the text for m, or of text if none was given.
func (f *textFlags) cut(ctx context.Context, c *cobra.Command, m *eval.Model, text string) (*eval.Windows, error) {
	if f.context < 3 || f.context > 1<<24 || f.windows < 0 {
		if f.windows < 0 {
			return nil, usagef("--chunks %d: want 0 for all windows, or more", f.windows)
		}
		return nil, usagef("--window %d: a window has 3 to %d tokens", f.context, 1<<24)
	}
	if f.text != "" {
		var err error
		if text, _, err = readInput(ctx, c, nil, f.text); err != nil {
			return nil, err
		}
	}
	if most := m.Checkpoint.ContextLength(); most > 0 && f.context > most {
		fmt.Fprintf(c.ErrOrStderr(), "karat: note: windows of %d tokens, but the model was made for %d\n", f.context, most)
	}
	return m.Windows(ctx, text, f.context, f.windows)
}

type evalFlags struct {
	textFlags
	base, baseLogits, save string
	budget                 size
	json                   bool
	arithmetic             arithmetic
	lora                   adapters
}

func newEvalCommand() *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use:   "eval [MODEL]",
		Short: "Measure how well a model predicts a text, and the cost of quantizing it",
		Long: `Eval computes a model's perplexity over a text: e to the mean of -ln p over its tokens.
The text is cut into windows of --window tokens, each of which begins with the model's BOS
token, if it has one. The tokens of each window's second half are scored. llama-perplexity
does the same, so the figures can be compared.

--base compares the predictions with those of another model, such as the model before
quantizing. It prints the KL divergence in nats, the change Δp of the probability of the
text's tokens, and how often the likeliest token is the same. Adapters (--lora) are the
model's, not the base's: with the same model as --base, eval measures their effect.
--save-logits writes the predictions to a file, in 16 bits. --base-logits reads such a
file instead of the base model. llama-perplexity reads and writes the same files
(--kl-divergence-base). They hold their text.

Standard errors treat predictions as independent, as in llama-perplexity.
The text that comes with Karat is small (prose, code, and a few languages); the perplexity
on it says little about other texts. After Ctrl-C, eval prints the results so far.`,
		Example: `  karat eval model.gguf --text wiki.test.raw
  karat eval model.Q4_K_M.gguf --base model.bf16.gguf --text wiki.test.raw --chunks 20
  karat eval model.bf16.gguf --text wiki.test.raw --save-logits base.kld
  karat eval model.Q4_K_M.gguf --base-logits base.kld --json | jq .base.kl.mean`,
		Args: atMost(1, "MODEL is one file or folder, and the text goes after --text"),
		RunE: func(c *cobra.Command, args []string) error {
			path, err := modelArgument(args)
			if err != nil {
				return err
			}
			return f.run(c, path)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Var((*name)(&f.text), "text", "`file` with the text, - for standard input (default: one that comes with Karat)")
	f.textFlags.add(c)
	fs.Var((*modelFlag)(&f.base), "base", "model `file, folder or name` to compare with")
	fs.Var((*name)(&f.baseLogits), "base-logits", "`file` of its predictions to compare with")
	fs.Var((*name)(&f.save), "save-logits", "`file` to write the predictions to")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	f.arithmetic.add(c, "fast")
	addBudget(c, &f.budget)
	f.lora.add(c)
	return leadModel(c, true)
}

// openModel opens the model at path, or the demo, for windows of so many tokens, and says
// what there is to know about it.
func openModel(ctx context.Context, path string, tokens int, log io.Writer) (*eval.Model, error) {
	sayModel(path, log)
	c, err := openCheckpoint(path)
	if err != nil {
		return nil, err
	}
	m, err := eval.Open(ctx, c, tokens)
	if err != nil {
		return nil, err
	}
	for _, n := range m.Notes {
		fmt.Fprintln(log, "karat: note:", oneLine(n))
	}
	return m, nil
}

// windowsOf cuts the text for m, where w is not a file's windows.
func (f *evalFlags) windowsOf(ctx context.Context, c *cobra.Command, m *eval.Model, w *eval.Windows) (*eval.Windows, error) {
	if w == nil {
		return f.cut(ctx, c, m, eval.Text)
	}
	if !m.Own(w) {
		fmt.Fprintf(c.ErrOrStderr(), "karat: note: this model splits the text of %s into other tokens: the file looks like another model's\n", oneLine(f.baseLogits))
	}
	return w, nil
}

// check checks the flags against each other, and the model at path.
func (f *evalFlags) check(c *cobra.Command, path string) error {
	for _, flag := range []string{"base", "text", "window"} {
		if f.baseLogits != "" && c.Flags().Changed(flag) {
			return usagef("--%s does not work with --base-logits: the file sets base, text and windows", flag)
		}
	}
	return spare("--save-logits "+f.save, f.save, path, f.base, f.baseLogits, f.text)
}

func (f *evalFlags) run(c *cobra.Command, path string) error {
	log := c.ErrOrStderr()
	o, err := f.arithmetic.model()
	if err != nil {
		return err
	}
	if err := f.check(c, path); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	var e eval.Options
	var w *eval.Windows
	if f.baseLogits != "" {
		file, err := eval.OpenFile(f.baseLogits)
		if err != nil {
			return err
		}
		defer file.Close()
		if w, err = file.Windows(f.windows); err != nil {
			return err
		}
		e.Base, f.context = file, w.Context
	}
	m, err := openModel(ctx, path, f.context, log)
	if err != nil {
		return early(ctx, err)
	}
	defer m.Close()
	if w, err = f.windowsOf(ctx, c, m, w); err != nil {
		return early(ctx, err)
	}
	o.Engine.Context, o.Engine.Budget, o.Adapters = w.Context, int64(f.budget), f.lora.model()
	runner, err := m.Start(ctx, o)
	if err != nil {
		return early(ctx, explainBudget(err))
	}
	defer runner.Close()
	e.Model = runner
	if f.base != "" {
		b, err := openModel(ctx, f.base, f.context, log)
		if err != nil {
			return early(ctx, err)
		}
		defer b.Close()
		if err := m.SameTokens(b, w); err != nil {
			return err
		}
		o.Adapters = nil
		base, err := b.Start(ctx, o)
		if err != nil {
			return early(ctx, err)
		}
		defer base.Close()
		e.Base = base
	}
	return f.measure(ctx, c, w, e)
}

// early is err, or the message for a ctx that ended before the first window was finished.
func early(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return failure{statusInterrupted, errors.New("interrupted before the first window was finished")}
	}
	return err
}

func (f *evalFlags) measure(ctx context.Context, c *cobra.Command, w *eval.Windows, e eval.Options) error {
	p := newEvalProgress(c.ErrOrStderr(), w.Count())
	e.Report = p.report
	var r *eval.Result
	measure := func() (err error) {
		r, err = eval.Run(ctx, w, e)
		return err
	}
	var err error
	if f.save == "" {
		err = measure()
	} else {
		err = atomicfile.Write(f.save, func(to io.Writer) error {
			b := bufio.NewWriterSize(to, 1<<20)
			l, err := logprob.NewWriter(b, w.Context, e.Model.Vocab(), w.IDs)
			if err != nil {
				return err
			}
			e.Save = l.Row
			return inTurn(measure, l.Close, b.Flush)
		})
	}
	p.end()
	interrupted := ctx.Err() != nil && errors.Is(err, ctx.Err())
	if r == nil || err != nil && !interrupted {
		return early(ctx, err)
	}
	if err := f.write(c.OutOrStdout(), r); err != nil {
		return err
	}
	if interrupted {
		text := fmt.Sprintf("interrupted: %d of %d windows", r.Windows, r.All)
		if f.save != "" {
			text += "; " + f.save + " was not written"
		}
		return failure{statusInterrupted, errors.New(text)}
	}
	return nil
}

// inTurn calls functions until one fails.
func inTurn(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

func (f *evalFlags) write(w io.Writer, r *eval.Result) error {
	if !f.json {
		return r.WriteText(w)
	}
	e := newEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// evalProgress tells of windows, or of other pieces of work.
type evalProgress struct {
	progress
	pieces int
}

func newEvalProgress(w io.Writer, pieces int) *evalProgress {
	return &evalProgress{newProgress(w, ""), pieces}
}

func (p *evalProgress) report(r *eval.Result) {
	if _, ok := p.due(); !ok {
		return
	}
	r.Update()
	text := fmt.Sprintf("perplexity %.4f ± %.4f", r.Perplexity.Value, r.Perplexity.Error)
	if b := r.Base; b != nil {
		text += fmt.Sprintf(", KL %.5f ± %.5f, same top %.1f %%", b.KL.Mean.Value, b.KL.Mean.Error, 100*b.SameTop.Value)
	}
	p.tell(text, r.Windows)
}

// say tells that a number of pieces are done, where it is time.
func (p *evalProgress) say(text string, done int) {
	if _, ok := p.due(); ok {
		p.tell(text, done)
	}
}

func (p *evalProgress) tell(text string, done int) {
	left := ""
	if done > 0 {
		left = leftIn(time.Duration(float64(time.Since(p.start)) / float64(done) * float64(p.pieces-done)))
	}
	p.show(fmt.Sprintf("%d of %d", done, p.pieces), left, text)
}
