package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/logprob"
	"github.com/spf13/cobra"
)

// windowFlags are the flags of a text cut into windows.
type windowFlags struct {
	text             string
	context, windows int
}

// add registers the flags, without the text. A window is no context of a conversation, unlike -c.
func (f *windowFlags) add(c *command) {
	f.context = cmp.Or(f.context, 512)
	c.flags("window", &f.context, "chunks", &f.windows)
	rename(c.Flags(), "ctx", "c", "the text's windows have --window tokens, and the model's context is one window")
}

// cut makes windows of the text for m, or of the given text without one.
func (f *windowFlags) cut(x *call, m *eval.Model, text string) (*eval.Windows, error) {
	switch {
	case f.windows < 0:
		return nil, usagef("--chunks %d: want 0 for all windows, or more", f.windows)
	case f.context < 3 || f.context > 1<<24:
		return nil, usagef("--window %d: a window has 3 to %d tokens", f.context, 1<<24)
	}
	if f.text != "" {
		var err error
		if text, _, err = x.readInput(nil, f.text); err != nil {
			return nil, err
		}
	}
	if most := m.Checkpoint.ContextLength(); most > 0 && f.context > most {
		x.say("note: windows of %d tokens, but the model was made for %d", f.context, most)
	}
	return m.Windows(x.ctx, text, f.context, f.windows)
}

// evalFlags are the flags of eval.
type evalFlags struct {
	windowFlags
	base, baseLogits, save string
	json                   bool
	engine                 engineFlags
}

func newEvalCommand() *cobra.Command {
	var f evalFlags
	c := define("eval", f.run)
	c.flags("text", file(&f.text))
	f.windowFlags.add(c)
	c.flags("base", file(&f.base), "base-logits", file(&f.baseLogits), "save-logits", file(&f.save), "json", &f.json)
	f.engine.add(c, karat.Fast)
	c.flags("kv-budget", &f.engine.budget, "lora", f.engine.addLora)
	c.takesModel()
	return c.Command
}

// openModel opens the model at path, or the demo, for windows of tokens tokens, and prints notes about the model for
// the user.
func (x *call) openModel(path string, tokens int) (*eval.Model, error) {
	sayDemo(path, x.log)
	m, err := x.openFiles(path, tokens)
	if err != nil {
		return nil, err
	}
	for _, n := range m.Notes {
		x.note(n)
	}
	return &eval.Model{Files: *m}, nil
}

// windowsOf cuts the text for m, where w is not a file's windows.
func (f *evalFlags) windowsOf(x *call, m *eval.Model, w *eval.Windows) (*eval.Windows, error) {
	if w == nil {
		return f.cut(x, m, eval.Text)
	}
	if !m.Own(w) {
		x.say("note: this model splits the text of %s into other tokens: the file looks like another model's",
			oneLine(f.baseLogits))
	}
	return w, nil
}

// check checks the flags against each other, and the model at path.
func (f *evalFlags) check(x *call, path string) error {
	for _, flag := range []string{"base", "text", "window"} {
		if f.baseLogits != "" && x.changed(flag) {
			return usagef("--%s does not work with --base-logits: the file sets base, text and windows", flag)
		}
	}
	resolve(&f.base)
	return refuseOverwrite("--save-logits "+f.save, f.save, path, f.base, f.baseLogits, f.text)
}

func (f *evalFlags) run(x *call) error {
	o := must(f.engine.model())
	path := must(x.find())
	throw(f.check(x, path))
	var e eval.Options
	var w *eval.Windows
	if f.baseLogits != "" {
		file := must(eval.OpenFile(f.baseLogits))
		defer file.Close()
		w = must(file.Windows(f.windows))
		e.Base, f.context = file, w.Context
	}
	m, err := x.openModel(path, f.context)
	if err != nil {
		return x.explainEarly(err)
	}
	defer m.Close()
	if w, err = f.windowsOf(x, m, w); err != nil {
		return x.explainEarly(err)
	}
	o.Engine.Context, o.Engine.Budget = w.Context, int64(f.engine.budget)
	runner, err := m.Start(x.ctx, o)
	if err != nil {
		return x.explainEarly(explainBudget(err))
	}
	defer runner.Close()
	e.Model = runner
	if f.base != "" {
		b, err := x.openModel(f.base, f.context)
		if err != nil {
			return x.explainEarly(err)
		}
		defer b.Close()
		throw(m.SameTokens(b, w))
		o.Adapters = nil
		base, err := b.Start(x.ctx, o)
		if err != nil {
			return x.explainEarly(err)
		}
		defer base.Close()
		e.Base = base
	}
	return f.measure(x, w, e)
}

// explainEarly returns err, or, for a signal before the first finished window, a failure saying so.
func (x *call) explainEarly(err error) error {
	if x.isEnded(err) {
		return x.interrupted(" before the first window was finished")
	}
	return err
}

func (f *evalFlags) measure(x *call, w *eval.Windows, e eval.Options) error {
	p := newProgress(x.log, "")
	e.Report = func(r *eval.Result) { reportEval(p, r, w.Count()) }
	r, err := f.computed(x.ctx, w, e)
	p.end()
	interrupted := x.isEnded(err)
	switch {
	case r == nil || err != nil && !interrupted:
		return x.explainEarly(err)
	case f.json:
		err = x.json(r)
	default:
		err = r.WriteText(x.out)
	}
	switch {
	case err != nil || !interrupted:
		return err
	case f.save != "":
		return x.interrupted(fmt.Sprintf(": %d of %d windows; %s was not written", r.Windows, r.All, f.save))
	}
	return x.interrupted(fmt.Sprintf(": %d of %d windows", r.Windows, r.All))
}

// computed computes the windows, and writes the predictions if a file is wanted.
func (f *evalFlags) computed(ctx context.Context, w *eval.Windows, e eval.Options) (r *eval.Result, err error) {
	if f.save == "" {
		return eval.Run(ctx, w, e)
	}
	err = atomicfile.Write(f.save, func(to io.Writer) error {
		b := bufio.NewWriterSize(to, 1<<20)
		l, err := logprob.NewWriter(b, w.Context, e.Model.Vocab(), w.IDs)
		if err != nil {
			return err
		}
		e.Save = l.Row
		if r, err = eval.Run(ctx, w, e); err != nil {
			return err
		}
		return cmp.Or(l.Close(), b.Flush())
	})
	return r, err
}

// reportEval reports the results of the first windows windows.
func reportEval(p *progress, r *eval.Result, windows int) {
	if _, ok := p.isDue(); !ok {
		return
	}
	r.Update()
	text := fmt.Sprintf("perplexity %.4f ± %.4f", r.Perplexity.Value, r.Perplexity.Error)
	if b := r.Base; b != nil {
		text += fmt.Sprintf(", KL %.5f ± %.5f, same top %.1f %%", b.KL.Mean.Value, b.KL.Mean.Error, 100*b.SameTop.Value)
	}
	p.tell(text, r.Windows, windows)
}
