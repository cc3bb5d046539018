package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// importFlags are the flags of lab import.
type importFlags struct {
	out, from, model, golden, name string
	shape                          []int
}

func newImportCommand() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import SRC -o OUT.safetensors",
		Short: "Turn another tool's dump into a record",
		Long: `Import converts the dump of another tool to a record, OUT.safetensors and OUT.json.
SRC is one of

  dump       a record; a folder of NumPy files, with a manifest.json or without; a .npy or .npz file
  llama.cpp  a record of llama.cpp's graph callback ("karat lab hook --print llama.cpp")
  hf-debug   the folder of transformers' model_addition_debugger_context(model, FOLDER,
             do_prune_layers=False, use_repr=False)
  logits     the file of llama-perplexity --kl-divergence-base
  bin        llama-debug --save-logits's NAME.bin, NAME-tokens.bin beside it

With --shape, SRC is the float32 numbers of one array and nothing else, little endian, the last
dimension innermost. --name says what a single array is: logits, hidden, ids, or the name of a
tap; else its file's name says it.

--model is the model that the tool ran. With it, taps get PyTorch's names (or those of
Karat's graph where PyTorch has none) and PyTorch's order of values, and values that the
graph does not have are dropped. With --golden, prompts without ids take the ids of that
record.`,
		Example: `  karat lab import llamacpp.safetensors -o theirs.safetensors --model model.gguf --golden golden.safetensors
  karat lab import ./debug_tree -o transformers.safetensors
  karat lab import logits.npy -o theirs.safetensors --golden golden.safetensors
  karat lab import logits.bin --shape 7,6144 --name logits -o theirs.safetensors
  karat lab import base.kld -o theirs.safetensors --model model.gguf`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := interruptible()
			defer stop()
			err := f.run(ctx, args[0], c.ErrOrStderr())
			if err != nil && ctx.Err() != nil {
				fmt.Fprintln(c.ErrOrStderr(), "karat: interrupted")
				return failure{status: statusInterrupted}
			}
			return err
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.VarP((*name)(&f.out), "output", "o", "`file` to write")
	fs.StringVar(&f.from, "from", "", "`form` of SRC: "+strings.Join(lab.Forms, ", ")+" (default: detected)")
	fs.IntSliceVar(&f.shape, "shape", nil, "`dimensions` of SRC, a file of float32 numbers alone, as in 7,6144")
	fs.StringVar(&f.name, "name", "", "what a single array is: logits, hidden, ids, or a `tap`")
	fs.VarP((*modelFlag)(&f.model), "model", "m", "model `file, folder or name`, for the names of the taps")
	fs.Var((*name)(&f.golden), "golden", "`record` that has the prompts' ids")
	return c
}

func (f *importFlags) run(ctx context.Context, src string, log io.Writer) error {
	switch {
	case f.out == "":
		return usagef("-o OUT.safetensors is needed")
	case filepath.Ext(f.out) != ".safetensors":
		return usagef("-o %s: want a name that ends in .safetensors", f.out)
	}
	if err := spare("-o "+f.out, f.out, src, f.golden, f.model); err != nil {
		return err
	}
	if f.from != "" && (f.shape != nil || f.name != "") {
		return usagef("--shape and --name are of a single array: --from does not work with them")
	}
	open := func() (*lab.Import, error) { return lab.OpenImport(src, f.from) }
	if f.shape != nil || f.name != "" {
		open = func() (*lab.Import, error) { return lab.OpenArray(src, f.name, f.shape) }
	}
	in, err := open()
	if err != nil {
		return err
	}
	defer in.Close()
	var gold *lab.Record
	if f.golden != "" {
		if gold, err = lab.ReadRecord(f.golden); err != nil {
			return err
		}
		defer gold.Close()
	}
	var g *graph.Graph
	if f.model == "" && in.Form == lab.FormLogits {
		in.Notes = append(in.Notes, "the first id of each prompt is the text's; if the model wants a token that begins a text, the logits are of that one in its place (--model tells)")
	}
	if f.model != "" {
		m, err := openCheckpoint(f.model)
		if err != nil {
			return err
		}
		defer m.Close()
		if g, _, err = model.Graph(ctx, m, 0); err != nil {
			return err
		}
		if in.Form == lab.FormLogits {
			t, err := m.Tokenizer()
			if err != nil {
				return err
			}
			if bos, ok := t.BOS(); ok && t.AddsBOS() {
				in.Begin(int32(bos))
			}
		}
	}
	return f.write(ctx, in, g, gold, log)
}

func (f *importFlags) write(ctx context.Context, in *lab.Import, g *graph.Graph, gold *lab.Record, log io.Writer) error {
	w, err := lab.Create(f.out)
	if err != nil {
		return err
	}
	defer w.Close()
	w.Names = cmp.Or(in.Names, lab.NamesAuto)
	n, left := 0, leftOut{}
	err = in.Each(func(p *lab.Prompt) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		if gold != nil {
			if err := p.Take(gold.Prompt(p.Index)); err != nil {
				return err
			}
		}
		if g != nil {
			unplaced, err := p.Translate(g, in.Names)
			if err != nil {
				return err
			}
			left.add(unplaced)
		}
		return w.Add(p)
	})
	if err != nil {
		return err
	}
	if g != nil {
		w.Names = lab.NamesKarat
	}
	var numerics any
	if in.Numerics != nil {
		numerics = in.Numerics
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.Commit(numerics); err != nil {
		return err
	}
	fmt.Fprintf(log, "karat: %s: %s\n", in.Form, count(n, "prompt"))
	for _, note := range in.Notes {
		fmt.Fprintf(log, "karat: note: %s\n", note)
	}
	left.print(log)
	return nil
}

// leftOut counts taps without a place, by the reason.
type leftOut struct {
	reasons []string // in the order of their first
	counts  map[string]int
	example map[string]string
}

func (l *leftOut) add(unplaced []lab.Unplaced) {
	if l.counts == nil {
		l.counts, l.example = map[string]int{}, map[string]string{}
	}
	for _, u := range unplaced {
		if l.counts[u.Why]++; l.counts[u.Why] == 1 {
			l.reasons = append(l.reasons, u.Why)
			l.example[u.Why] = u.Name
		}
	}
}

func (l *leftOut) print(w io.Writer) {
	for _, why := range l.reasons {
		fmt.Fprintf(w, "karat: note: left out: %s, such as %s: %s\n", count(l.counts[why], "tap"), l.example[why], why)
	}
}
