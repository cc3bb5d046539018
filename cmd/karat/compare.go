package main

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/lab"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// comparing is the views of lab compare that judge nothing.
type comparing struct {
	layers, history bool
	floor, svg      string
}

func (f *comparing) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.layers, "by-layer", false, "print the hidden states, in the order of layers")
	alias(fs, "by-layer", "layers")
	fs.Var((*name)(&f.floor), "floor", "`record` of the golden engine in less precision, for --by-layer")
	fs.BoolVar(&f.history, "history", false, "print how far each of several records is")
	fs.Var((*name)(&f.svg), "svg", "`file` to draw --history into")
}

func (f *comparing) check() error {
	switch {
	case f.layers && f.history:
		return usagef("--by-layer and --history do not work together")
	case f.floor != "" && !f.layers:
		return usagef("--floor needs --by-layer")
	case f.svg != "" && !f.history:
		return usagef("--svg needs --history")
	}
	return nil
}

func (f *comparing) run(c *cobra.Command, paths []string, o lab.Options, asJSON bool) error {
	for _, p := range paths {
		if err := spare("--svg "+f.svg, f.svg, p, strings.TrimSuffix(p, filepath.Ext(p))+".json"); err != nil {
			return err
		}
	}
	var records []*lab.Record
	if f.floor != "" {
		paths = append(paths, f.floor)
	}
	for _, p := range paths {
		r, err := lab.ReadRecord(p)
		if err != nil {
			return failure{statusNotCompare, err}
		}
		defer r.Close()
		records = append(records, r)
	}
	var err error
	if f.layers {
		err = f.showLayers(c.OutOrStdout(), records, asJSON)
	} else {
		err = f.showHistory(c.OutOrStdout(), records, o, asJSON)
	}
	if err != nil {
		return failure{statusNotCompare, err}
	}
	return nil
}

func (f *comparing) showLayers(w io.Writer, records []*lab.Record, asJSON bool) error {
	var floor *lab.Record
	if len(records) > 2 {
		floor = records[2]
	}
	all, err := lab.Layers(records[0], records[1], floor)
	if err != nil {
		return err
	}
	if asJSON {
		return indented(w, map[string]any{"golden": records[0].Path, "record": records[1].Path, "layers": all})
	}
	return lab.WriteLayers(w, all)
}

func indented(w io.Writer, v any) error {
	e := newEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (f *comparing) showHistory(w io.Writer, records []*lab.Record, o lab.Options, asJSON bool) error {
	var all []lab.Era
	for _, r := range records[1:] {
		x, err := lab.Compare(records[0], r, o)
		if err != nil {
			return err
		}
		era := lab.Era{Record: r.Path, Distance: x.All}
		if x.Limited() == nil {
			era.Inside = new(x.Inside())
		}
		all = append(all, era)
	}
	if f.svg != "" {
		if err := atomicfile.Write(f.svg, func(w io.Writer) error { return lab.HistorySVG(w, all) }); err != nil {
			return err
		}
	}
	if asJSON {
		return indented(w, map[string]any{"golden": records[0].Path, "history": all})
	}
	return lab.WriteHistory(w, all)
}
