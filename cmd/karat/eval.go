package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/logprob"
	"github.com/karat-run/karat/internal/model"
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
	c := define("eval", early(f.run))
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
	m, err := x.openFiles(path, "", tokens)
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
	m := must(x.openModel(path, f.context))
	defer m.Close()
	w = must(f.windowsOf(x, m, w))
	o.Engine.Context, o.Engine.Budget = w.Context, int64(f.engine.budget)
	runner, err := m.Start(x.ctx, o)
	if err != nil {
		return explainBudget(err)
	}
	defer runner.Close()
	e.Model = runner
	if f.base != "" {
		b := must(x.openModel(f.base, f.context))
		defer b.Close()
		throw(m.SameTokens(b, w))
		o.Adapters = nil
		base := must(b.Start(x.ctx, o))
		defer base.Close()
		e.Base = base
	}
	return f.measure(x, w, e)
}

// early returns a run that says of an end by a signal that no window was finished.
func early(run func(*call) error) func(*call) error {
	return func(x *call) error {
		err := catch(func() error { return run(x) })
		return x.orInterrupted(err, " before the first window was finished")
	}
}

func (f *evalFlags) measure(x *call, w *eval.Windows, e eval.Options) error {
	p := newProgress(x.log, "")
	e.Report = func(r *eval.Result) { reportEval(p, r, w.Count()) }
	r, err := f.computed(x.ctx, w, e)
	p.end()
	interrupted := x.isEnded(err)
	switch {
	case r == nil || err != nil && !interrupted:
		return err
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

// imatrixFlags are the flags of imatrix.
type imatrixFlags struct {
	windowFlags
	output     string
	in         []string
	skip       int
	head, json bool
	engine     engineFlags
}

func newImatrixCommand() *cobra.Command {
	var f imatrixFlags
	c := define("imatrix", early(f.run))
	c.flags("output", file(&f.output))
	f.windowFlags.add(c)
	c.flags("skip", &f.skip, "in-file", &f.in, "process-output", &f.head, "json", &f.json, "kv-budget",
		&f.engine.budget)
	f.engine.add(c, karat.Fast)
	c.takesModel()
	return c.Command
}

func (f *imatrixFlags) run(x *call) error {
	if len(x.args) > 0 {
		f.text = x.args[0]
	}
	o, err := f.engine.model()
	switch {
	case err != nil:
		return err
	case f.output == "":
		return usagef("-o FILE.gguf is needed")
	case f.skip < 0:
		return usagef("--skip %d: want 0 or more", f.skip)
	}
	path := must(x.find())
	throw(refuseOverwrite("-o "+f.output, f.output, path, f.text)) // a file may be read and replaced
	throw(atomicfile.Check(f.output))
	m := must(x.openModel(path, f.context))
	defer m.Close()
	all := must(f.before(m.Graph))
	w := must(f.cut(x, m, eval.Calibration))
	if f.skip >= w.Count() {
		return usagef("--skip %d: want 0 to %d, of %s", f.skip, w.Count()-1, count(w.Count(), "window"))
	}
	w.IDs = w.IDs[f.skip*w.Context:]
	return f.collect(x, m, o, w, all)
}

// before adds up the matrices of earlier runs, for a model's graph.
func (f *imatrixFlags) before(g *graph.Graph) (*imatrix.Matrix, error) {
	all := &imatrix.Matrix{Entries: map[string]*imatrix.Entry{}}
	for _, in := range f.in {
		m := must(imatrix.Read(in))
		if m.ChunkSize == 0 {
			m.Scale(f.context) // as llama-imatrix does
		}
		err := m.Fits(g)
		if err == nil {
			err = all.Add(m)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in, err)
		}
	}
	return all, nil
}

// collect computes the windows, and writes their sums and all together.
func (f *imatrixFlags) collect(x *call, m *eval.Model, o model.Options, w *eval.Windows, all *imatrix.Matrix) error {
	collector := imatrix.NewCollector(m.Graph, f.head)
	o.Engine = engine.Options{Context: w.Context, Budget: int64(f.engine.budget), Want: collector.Want,
		Tap: collector.Tap, Expert: collector.Expert()}
	r, err := m.Start(x.ctx, o)
	if err != nil {
		return explainBudget(err)
	}
	defer r.Close()
	got := &imatrix.Matrix{Entries: map[string]*imatrix.Entry{}, Datasets: []string{f.text}, ChunkSize: w.Context}
	if f.text == "" {
		got.Datasets[0] = "karat " + karat.Version()
	}
	p := newProgress(x.log, "")
	for i := range w.Count() {
		if err = window(x.ctx, r, w.Window(i), f.head); err != nil {
			break
		}
		if err = collector.Drain(got); err != nil {
			break
		}
		got.Chunks++
		p.pieces("windows", i+1, w.Count())
	}
	p.end()
	interrupted := x.isEnded(err)
	if err != nil && (!interrupted || got.Chunks == 0) {
		return err
	}
	all.ChunkSize = w.Context
	throw(all.Add(got))
	if interrupted { // a file of this name may have all windows
		f.output = partialPath(f.output)
	}
	throw(gguf.WriteFile(f.output, all.Write))
	throw(f.write(x, all))
	if interrupted {
		return x.interrupted(fmt.Sprintf(": %d of %d windows are in %s; --in-file %[3]s --skip %d goes on",
			got.Chunks, w.Count(), f.output, f.skip+got.Chunks))
	}
	return nil
}

// partialPath returns the name of a file left unfinished by an interrupt: im.gguf becomes im.partial.gguf.
func partialPath(path string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + ".partial" + ext
}

// window computes a window, with all its logits if head is true.
func window(ctx context.Context, r *eval.Runner, ids []int32, head bool) error {
	if !head {
		return r.Window(ctx, 0, ids, len(ids))
	}
	if err := r.Window(ctx, 0, ids, 0); err != nil {
		return err
	}
	_, err := r.Rows(ctx, len(ids))
	return err
}

// write describes the file.
func (f *imatrixFlags) write(x *call, all *imatrix.Matrix) error {
	type weight struct {
		Name   string    `json:"name"`
		Counts []float64 `json:"rows"` // of each matrix
		Mean   float64   `json:"mean_square"`
	}
	var s struct {
		File     string   `json:"file"`
		Datasets []string `json:"datasets"`
		Windows  int      `json:"windows"`
		Context  int      `json:"context"`
		Weights  []weight `json:"weights"`
	}
	s.File, s.Datasets, s.Windows, s.Context = f.output, all.Datasets, all.Chunks, all.ChunkSize
	idle := 0 // experts without a row
	for _, name := range slices.Sorted(maps.Keys(all.Entries)) {
		e := all.Entries[name]
		w := weight{Name: name, Counts: e.Counts}
		rows := 0.
		for _, n := range e.Counts {
			if rows += n; n == 0 {
				idle++
			}
		}
		for _, sum := range e.Sums {
			w.Mean += sum / max(1, rows) / float64(len(e.Sums)/len(e.Counts))
		}
		s.Weights = append(s.Weights, w)
	}
	if idle > 0 {
		x.say("note: no token of the text reached %d of the experts' matrices: all of their columns get the same "+
			"importance", idle)
	}
	if f.json {
		return x.json(s)
	}
	return x.printf("%s: %s, %s of %d tokens\n", oneLine(f.output), count(len(s.Weights), "weight"),
		count(s.Windows, "window"), s.Context)
}
