package main

import (
	"cmp"
	"path/filepath"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// importFlags are the flags of lab import.
type importFlags struct {
	out, from, model, golden, name string
	shape, layers                  []int
	json                           bool
}

func newImportCommand() *cobra.Command {
	var f importFlags
	c := define("lab import", func(x *call) error { return f.run(x, x.args[0]) })
	c.flags("output", file(&f.out), "from", &f.from, "shape", &f.shape, "name", &f.name, "model", file(&f.model),
		"hidden-layers", &f.layers, "golden", file(&f.golden), "json", &f.json)
	return c.Command
}

// open opens SRC in the form of the flags.
func (f *importFlags) open(src string) (*lab.Import, error) {
	switch {
	case f.out == "":
		return nil, usagef("-o OUT.safetensors is needed")
	case filepath.Ext(f.out) != ".safetensors":
		return nil, usagef("-o %s: want a name that ends in .safetensors", f.out)
	case f.from != "" && (f.shape != nil || f.name != ""):
		return nil, usagef("--shape and --name are of a single array: --from does not work with them")
	}
	resolve(&f.model)
	if err := refuseOverwrite("-o "+f.out, f.out, src, f.golden, f.model); err != nil {
		return nil, err
	}
	if f.shape != nil || f.name != "" {
		return lab.OpenArray(src, f.name, f.shape)
	}
	return lab.OpenImport(src, f.from, f.layers...)
}

func (f *importFlags) run(x *call, src string) error {
	in, err := f.open(src)
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
		in.Notes = append(in.Notes, "the first id of each prompt is the text's; if the model wants a token that "+
			"begins a text, "+
			"the logits are of that one in its place (--model tells)")
	}
	if f.model != "" {
		m, err := openCheckpoint(f.model)
		if err != nil {
			return err
		}
		defer m.Close()
		if g, _, err = model.Graph(x.ctx, m, 0); err != nil {
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
	return f.write(x, in, g, gold)
}

func (f *importFlags) write(x *call, in *lab.Import, g *graph.Graph, gold *lab.Record) error {
	w, err := lab.Create(f.out)
	if err != nil {
		return err
	}
	defer w.Close()
	w.Names = cmp.Or(in.Names, lab.NamesAuto)
	n, bare, left := 0, 0, leftOut{}
	err = in.Each(func(p *lab.Prompt) error {
		n++
		if err := x.ctx.Err(); err != nil {
			return err
		}
		if gold != nil {
			if err := p.Take(gold.Prompt(p.Index)); err != nil {
				return err
			}
			if p.IDs == nil {
				bare++
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
	if g != nil {
		w.Names = lab.NamesKarat
	}
	var numerics any
	if in.Numerics != nil {
		numerics = in.Numerics
	}
	if err = cmp.Or(err, x.ctx.Err()); err != nil {
		return err
	}
	if err := w.Commit(numerics); err != nil {
		return err
	}
	if bare > 0 {
		in.Notes = append(in.Notes, count(bare, "prompt")+" without ids: the golden record has none of that index")
	}
	if f.json {
		return x.json(&labFile{Path: f.out, Form: in.Form, Prompts: n, Notes: in.Notes, LeftOut: left.counts})
	}
	x.say("%s: %s", in.Form, count(n, "prompt"))
	for _, note := range in.Notes {
		x.say("note: %s", note)
	}
	for _, why := range left.reasons {
		x.say("note: left out: %s, such as %s: %s", count(left.counts[why], "tap"), left.example[why], why)
	}
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
