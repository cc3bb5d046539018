package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

type imatrixFlags struct {
	textFlags
	output     string
	in         []string
	skip       int
	head, json bool
	budget     size
	arithmetic arithmetic
}

func newImatrixCommand() *cobra.Command {
	var f imatrixFlags
	c := &cobra.Command{
		Use:   "imatrix [MODEL [TEXT]] -o FILE.gguf",
		Short: "Measure which columns of the weights matter, for quantizing",
		Long: `Imatrix computes a text. For each column of each weight it sums the squares of the
activations that the column multiplies; for a weight with experts, separately for each
expert. Quantizers spend their precision on columns with a large sum (karat quantize
--imatrix).

FILE has llama.cpp's GGUF form, which llama-quantize --imatrix reads. --in-file adds to a
file of Karat or of llama-imatrix. It also reads the older .dat files; their windows are
taken to have --window tokens. The text is cut into windows of --window tokens as in karat eval, and
all of their tokens count. Without TEXT, a small text that comes with Karat is used; - is
standard input.

After Ctrl-C, imatrix writes the sums up to the last whole window to FILE.partial.gguf, and
leaves FILE as it was. --in-file with --skip continues from there.`,
		Example: `  karat imatrix model.bf16.gguf calibration.txt -o imatrix.gguf
  karat imatrix model.bf16.gguf more.txt --in-file imatrix.gguf -o both.gguf
  karat imatrix model.bf16.gguf calibration.txt --chunks 50 --json -o imatrix.gguf | jq -r '.weights[].name'`,
		Args: atMost(2, "MODEL is one file or folder, TEXT one file"),
		RunE: func(c *cobra.Command, args []string) error {
			path, err := modelArgument(args)
			if err != nil {
				return err
			}
			if len(args) > 1 {
				if f.text = args[1]; f.text == "" {
					return usagef("TEXT is empty; leave it out to use the text that comes with Karat")
				}
			}
			return f.run(c, path)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.VarP((*name)(&f.output), "output", "o", "`file` to write, or to replace")
	f.textFlags.add(c)
	fs.IntVar(&f.skip, "skip", 0, "`windows` at the beginning of the text to leave out")
	fs.StringArrayVar(&f.in, "in-file", nil, "importance matrix `file` to add to; may be given several times")
	fs.BoolVar(&f.head, "process-output", false, "include the head's weight")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	addBudget(c, &f.budget)
	f.arithmetic.add(c, "fast")
	return leadModel(c, true)
}

func (f *imatrixFlags) run(c *cobra.Command, path string) error {
	o, err := f.arithmetic.model()
	switch {
	case err != nil:
		return err
	case f.output == "":
		return usagef("-o FILE.gguf is needed")
	case f.skip < 0:
		return usagef("--skip %d: want 0 or more", f.skip)
	}
	if err := spare("-o "+f.output, f.output, path, f.text); err != nil { // a file that is added to may be replaced
		return err
	}
	if err := atomicfile.Check(f.output); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	m, err := openModel(ctx, path, f.context, c.ErrOrStderr())
	if err != nil {
		return early(ctx, err)
	}
	defer m.Close()
	all, err := f.before(m.Graph)
	if err != nil {
		return err
	}
	w, err := f.cut(ctx, c, m, eval.Calibration)
	if err != nil {
		return early(ctx, err)
	}
	if f.skip >= w.Count() {
		return usagef("--skip %d: want 0 to %d, of %s", f.skip, w.Count()-1, count(w.Count(), "window"))
	}
	w.IDs = w.IDs[f.skip*w.Context:]
	return f.collect(ctx, c, m, o, w, all)
}

// before adds up the matrices of earlier runs, for a model's graph.
func (f *imatrixFlags) before(g *graph.Graph) (*imatrix.Matrix, error) {
	all := &imatrix.Matrix{Entries: map[string]*imatrix.Entry{}}
	for _, in := range f.in {
		m, err := imatrix.Read(in)
		if err != nil {
			return nil, err
		}
		if m.ChunkSize == 0 {
			m.Scale(f.context) // as llama-imatrix does
		}
		if err = m.Fits(g); err == nil {
			err = all.Add(m)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in, err)
		}
	}
	return all, nil
}

// collect computes the windows, and writes what they give and all.
func (f *imatrixFlags) collect(ctx context.Context, c *cobra.Command, m *eval.Model, o model.Options, w *eval.Windows, all *imatrix.Matrix) error {
	collector := imatrix.NewCollector(m.Graph, f.head)
	o.Engine = engine.Options{Context: w.Context, Budget: int64(f.budget), Want: collector.Want, Tap: collector.Tap, Expert: collector.Expert()}
	r, err := m.Start(ctx, o)
	if err != nil {
		return early(ctx, explainBudget(err))
	}
	defer r.Close()
	got := &imatrix.Matrix{Entries: map[string]*imatrix.Entry{}, Datasets: []string{f.text}, ChunkSize: w.Context}
	if f.text == "" {
		got.Datasets[0] = "karat " + c.Root().Version
	}
	p := newEvalProgress(c.ErrOrStderr(), w.Count())
	for i := range w.Count() {
		if err = window(ctx, r, w.Window(i), f.head); err != nil {
			break
		}
		if err = collector.Drain(got); err != nil {
			break
		}
		got.Chunks++
		p.say("windows", i+1)
	}
	p.end()
	interrupted := err != nil && errors.Is(err, ctx.Err())
	switch {
	case interrupted && got.Chunks == 0:
		return early(ctx, err)
	case err != nil && !interrupted:
		return err
	}
	all.ChunkSize = w.Context
	if err := all.Add(got); err != nil {
		return err
	}
	if interrupted { // a file of that name may have all windows
		f.output = partial(f.output)
	}
	if err := gguf.WriteFile(f.output, all.Write); err != nil {
		return err
	}
	if err := f.write(c, m, all); err != nil {
		return err
	}
	if interrupted {
		return failure{statusInterrupted, fmt.Errorf("interrupted: %d of %d windows are in %s; --in-file %[3]s --skip %d goes on", got.Chunks, w.Count(), f.output, f.skip+got.Chunks)}
	}
	return nil
}

// partial returns the name of a file that an interrupt left unfinished: im.gguf becomes im.partial.gguf.
func partial(path string) string {
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
func (f *imatrixFlags) write(c *cobra.Command, m *eval.Model, all *imatrix.Matrix) error {
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
	idle := 0 // experts that no row reached
	for _, name := range slices.Sorted(maps.Keys(all.Entries)) {
		e := all.Entries[name]
		x := weight{Name: name, Counts: e.Counts}
		rows := 0.
		for _, n := range e.Counts {
			if rows += n; n == 0 {
				idle++
			}
		}
		for _, sum := range e.Sums {
			x.Mean += sum / max(1, rows) / float64(len(e.Sums)/len(e.Counts))
		}
		s.Weights = append(s.Weights, x)
	}
	if idle > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "karat: note: no token of the text reached %d of the experts' matrices: all of their columns get the same importance\n", idle)
	}
	if !f.json {
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s: %s, %s of %d tokens\n", oneLine(f.output), count(len(s.Weights), "weight"), count(s.Windows, "window"), s.Context)
		return err
	}
	e := newEncoder(c.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(s)
}
