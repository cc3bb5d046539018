package main

import (
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// extractFlags are the flags of lab extract.
type extractFlags struct {
	prompts, out string
	place        placeFlags
	engine       engineFlags
	json         bool
}

func newExtractCommand() *cobra.Command {
	f := extractFlags{place: placeFlags{at: "out", on: "last"}}
	c := define("lab extract", f.run)
	c.flags("prompts", file(&f.prompts), "output", file(&f.out), "at", &f.place.at, "layers", &f.place.layers,
		"heads", &f.place.heads, "positions", &f.place.on, "json", &f.json)
	f.engine.add(c, karat.Fast)
	c.flags("lora", f.engine.addLora)
	c.takesModel()
	return c.Command
}

func (f *extractFlags) run(x *call) error {
	o := must(f.engine.options(x.changed))
	place, at, err := f.place.place()
	kind := strings.ToLower(filepath.Ext(f.out))
	switch {
	case err != nil:
		return err
	case f.prompts == "" || f.out == "":
		return usagef("--prompts FILE.json and -o OUT are needed")
	case !slices.Contains([]string{".safetensors", ".npy", ".jsonl"}, kind):
		return usagef("-o %s: want a name that ends in .safetensors, .npy or .jsonl", f.out)
	}
	path := must(x.find())
	inputs := must(lab.ReadInputs(f.prompts))
	throw(cmp.Or(refuseOverwrite("-o "+f.out, f.out, f.prompts, path), atomicfile.Check(f.out)))
	m := must(x.load(o))
	defer m.Close()
	encoded := must(x.encodePrompts(&model.Opened(m).Files, inputs))
	var prompts []*experiment.Prompt
	for _, p := range encoded {
		prompts = append(prompts, experiment.NewPrompt(m, p.Text, idsAs[int](p.IDs)))
	}
	p := newProgress(x.log, "")
	s, err := experiment.Extract(x.ctx, m, prompts, place, at, func(done, total int) {
		p.pieces("prompts", done, total)
	})
	p.end()
	if err != nil {
		return err
	}
	print := must(m.Fingerprint(x.ctx))
	s.Notes = map[string]string{"program": "karat " + karat.Version(), "model_fingerprint": print,
		"positions": f.place.on, "precision": string(o.Precision)}
	write := map[string]func(io.Writer) error{".safetensors": s.WriteSafetensors, ".npy": s.WriteNumPy,
		".jsonl": s.WriteJSONLines}[kind]
	throw(atomicfile.Write(f.out, write))
	if f.json {
		return x.json(&labFile{Path: f.out, Prompts: s.Count, Nodes: len(s.Nodes)})
	}
	return x.printf("%s: %s of %s\n", oneLine(f.out), count(len(s.Nodes), "node"), count(s.Count, "prompt"))
}
