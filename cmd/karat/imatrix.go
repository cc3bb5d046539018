package main

import (
	"context"
	"fmt"
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
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

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
	c := define("imatrix", f.run)
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
	m, err := x.openModel(path, f.context)
	if err != nil {
		return x.explainEarly(err)
	}
	defer m.Close()
	all := must(f.before(m.Graph))
	w, err := f.cut(x, m, eval.Calibration)
	if err != nil {
		return x.explainEarly(err)
	}
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
		return x.explainEarly(explainBudget(err))
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
	switch {
	case interrupted && got.Chunks == 0:
		return x.explainEarly(err)
	case err != nil && !interrupted:
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
