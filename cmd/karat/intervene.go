package main

import (
	"cmp"
	"context"
	"fmt"
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

// interveneFlags are the flags of the commands for changing values at nodes: ablate, scale, replace, patch and steer.
type interveneFlags struct {
	textFlags
	verb                string
	place               placeFlags
	channels            string
	values, name        string
	from, minus, fromOn string
	by                  float64
	mean, subtract      bool
	most                int
}

// placeFlags choose nodes and positions.
type placeFlags struct{ at, layers, heads, on string }

// place checks the flags. The error names the flag.
func (f *placeFlags) place() (p experiment.Place, at experiment.Positions, err error) {
	p.Node = f.at
	if p.Layers, err = experiment.ParseSet(f.layers); err != nil {
		return p, at, usagef("--layers %w", err)
	}
	if p.Heads, err = experiment.ParseSet(f.heads); err != nil {
		return p, at, usagef("--heads %w", err)
	}
	if at, err = experiment.ParsePositions(f.on); err != nil {
		return p, at, usageError{err}
	}
	return p, at, nil
}

// newInterventions makes a command of each verb. Flags say where values come from.
func newInterventions() (all []*cobra.Command) {
	for _, verb := range []string{"ablate", "scale", "replace", "patch", "steer"} {
		f := &interveneFlags{verb: verb, most: 12}
		f.top = 5
		c := define("lab "+verb, f.run)
		c.Long += "\n\n" + helpWords()["interventions"].long
		f.add(c)
		c.flags("at", &f.place.at, "layers", &f.place.layers, "heads", &f.place.heads, "channels", &f.channels,
			"positions", &f.place.on, "tokens", &f.most)
		switch verb {
		case "ablate":
			c.flags("mean", &f.mean)
		case "scale":
			c.flags("by", &f.by)
		case "steer":
			f.by = 1
			c.flags("by", &f.by, "minus-prompt", &f.minus)
		}
		if verb == "replace" || verb == "steer" {
			c.flags("values", file(&f.values), "name", &f.name)
		}
		if verb == "patch" || verb == "steer" {
			c.flags("from-prompt", &f.from, "from-positions", &f.fromOn)
		}
		all = append(all, c.Command)
	}
	return all
}

func (f *interveneFlags) run(x *call) error {
	o := must(f.options(x))
	edit := must(f.edit(x))
	text := must(f.text(x))
	m := must(x.load(o))
	defer m.Close()
	return f.show(x, m, text, edit)
}

// edit returns the edit of the flags, without values.
func (f *interveneFlags) edit(x *call) (e experiment.Edit, err error) {
	f.subtract = x.changed("minus-prompt") // an empty prompt may have a BOS
	switch {
	case f.place.at == "":
		return e, usagef("--at NODE is needed: \"karat inspect --graph\" lists the nodes")
	case f.verb == "scale" && !x.changed("by"):
		return e, usagef("--by is needed")
	case f.by-f.by != 0:
		return e, usagef("--by %v: want a number", f.by)
	case f.verb == "patch" && f.from == "":
		return e, usagef("--from-prompt TEXT is needed")
	case f.verb == "replace" && f.values == "":
		return e, usagef("--values FILE is needed")
	case f.verb == "steer" && (f.values == "") == (f.from == ""):
		return e, usagef("give --values or --from-prompt, one of them")
	case f.from == "" && (f.subtract || f.fromOn != ""), f.values == "" && f.name != "":
		return e, usagef("--minus-prompt and --from-positions need --from-prompt, --name needs --values")
	case f.most < 0 || f.most > 1<<20:
		return e, usagef("-n %d: want 0 to %d", f.most, 1<<20)
	}
	e = experiment.Edit{Kind: experiment.Kind(f.verb), By: f.by}
	switch {
	case f.mean:
		e.Kind = experiment.Mean
	case f.verb == "patch":
		e.Kind = experiment.Replace
	}
	e.Place, e.At = must2(f.place.place())
	if e.Place.Channels, err = experiment.ParseSet(f.channels); err != nil {
		return e, usagef("--channels %w", err)
	}
	if _, err = experiment.ParsePositions(f.fromOn); err != nil {
		return e, usageError{err}
	}
	return e, nil
}

// prompt returns a text as read by the model.
func (f *interveneFlags) prompt(ctx context.Context, m *karat.Model, text string) (*experiment.Prompt, string, error) {
	g, err := f.chat.options()
	if err != nil {
		return nil, "", err
	}
	ids, template, err := f.chat.ids(ctx, m, text, g)
	if err != nil {
		return nil, "", err
	}
	return experiment.NewPrompt(m, text, ids), template, nil
}

// rows sets the values of e for a prompt.
func (f *interveneFlags) rows(ctx context.Context, m *karat.Model, p *experiment.Prompt, e *experiment.Edit) error {
	if f.values != "" {
		rows := must(experiment.ReadRows(f.values, f.name))
		e.Rows = must(experiment.RowsOf(m, e.Place, rows))
		return nil
	}
	if f.from == "" {
		return nil
	}
	where := cmp.Or(f.fromOn, f.place.on)
	if f.verb == "steer" {
		where = cmp.Or(f.fromOn, "last")
	}
	at, err := experiment.ParsePositions(where)
	if err != nil {
		return usageError{err}
	}
	other, _, err := f.prompt(ctx, m, f.from)
	if err != nil {
		return fmt.Errorf("--from-prompt: %w", err)
	}
	if f.verb == "patch" {
		e.Rows, err = experiment.Capture(ctx, m, other, e.Place, at)
		if err == nil && where == "" && len(p.IDs) != len(other.IDs) {
			return usagef("the prompts have %s and %d: name positions of both, with --positions and --from-positions",
				count(len(p.IDs), "token"), len(other.IDs))
		}
		return err
	}
	var minus *experiment.Prompt
	if f.subtract {
		if minus, _, err = f.prompt(ctx, m, f.minus); err != nil {
			return fmt.Errorf("--minus-prompt: %w", err)
		}
	}
	e.Rows, err = experiment.Direction(ctx, m, e.Place, at, other, minus)
	return err
}

// show computes the prompt with the edit and without, and prints the difference.
func (f *interveneFlags) show(x *call, m *karat.Model, text string, e experiment.Edit) error {
	p, template := must2(f.prompt(x.ctx, m, text))
	tokens := f.tokenIDs(x.ctx, m)
	throw(f.rows(x.ctx, m, p, &e))
	effect := must(experiment.Measure(x.ctx, m, p, []experiment.Edit{e}, f.top, tokens, f.most))
	effect.Model, effect.Template = m.Info().Path, template
	effect.Edits = []string{f.words(effect.Nodes)}
	if !f.json {
		return effect.WriteText(x.out)
	}
	effect.Fingerprint = must(m.Fingerprint(x.ctx))
	return x.json(effect)
}

// words name the edited values.
func (f *interveneFlags) words(nodes []string) string {
	s := f.verb
	if f.mean {
		s = "set to the mean"
	}
	if f.verb == "scale" || f.verb == "steer" {
		s += fmt.Sprintf(" by %v", f.by)
	}
	nodes = slices.Compact(nodes)
	shown := nodes[:min(3, len(nodes))]
	s += " " + strings.Join(shown, ", ")
	if more := len(nodes) - len(shown); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	for _, x := range [][2]string{{"heads", f.place.heads}, {"elements", f.channels}} {
		if x[1] != "" {
			s += ", " + x[0] + " " + x[1]
		}
	}
	return s + ", positions " + cmp.Or(f.place.on, "all")
}

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
