package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/spf13/cobra"
)

func newLabCommand() *cobra.Command {
	c := define("lab", nil)
	c.AddCommand(newInterventions()...)
	return group(c, newRecordCommand(), newCompareCommand(), newDiagnoseCommand(), newExpectCommand(),
		newCausesCommand(), newImportCommand(), newHookCommand(), newFloorCommand(), newExperimentCommand(),
		newExtractCommand(), newSkillCommand(), newMCPCommand())
}

// labFile is the JSON of a file that a command wrote.
type labFile struct {
	Path    string         `json:"path"`
	Form    string         `json:"form,omitempty"` // of an imported dump
	Prompts int            `json:"prompts"`
	Nodes   int            `json:"nodes,omitempty"`    // of hidden states
	Notes   []string       `json:"notes,omitempty"`    // what an imported dump cannot tell
	LeftOut map[string]int `json:"left_out,omitempty"` // taps without a place, by the reason
}

// The exit statuses of lab compare.
const (
	statusOutside    = 1
	statusNotCompare = 2
)

// compareFlags are the flags of lab compare. By layer and over a history lab compare shows the distance and judges
// nothing.
type compareFlags struct {
	maxDiff, maxKL                 float64
	partial, layers, history, json bool
	floor, svg                     string
}

func newCompareCommand() *cobra.Command {
	var f compareFlags
	c := define("lab compare", f.run)
	c.flags("max-diff", &f.maxDiff, "max-kl", &f.maxKL, "partial", &f.partial, "by-layer", &f.layers, "floor",
		file(&f.floor), "history", &f.history, "svg", file(&f.svg), "json", &f.json)
	return c.Command
}

// options checks the flags.
func (f *compareFlags) options(x *call) (o lab.Options, err error) {
	switch {
	case len(x.args) > 2 && !f.history:
		return o, usagef("%q: more than one RECORD is for --history", x.args[2])
	case !(f.maxDiff >= 0):
		return o, usagef("--max-diff %v: want 0 or more", f.maxDiff)
	case !(f.maxKL >= 0):
		return o, usagef("--max-kl %v: want 0 or more", f.maxKL)
	case f.layers && f.history:
		return o, usagef("--by-layer and --history do not work together")
	case f.floor != "" && !f.layers:
		return o, usagef("--floor needs --by-layer")
	case f.svg != "" && !f.history:
		return o, usagef("--svg needs --history")
	}
	o.Partial = f.partial
	if x.changed("max-diff") {
		o.MaxDiff = &f.maxDiff
	}
	if x.changed("max-kl") {
		o.MaxKL = &f.maxKL
	}
	for _, p := range x.args {
		throw(refuseOverwrite("--svg "+f.svg, f.svg, p, strings.TrimSuffix(p,
			filepath.Ext(p))+".json"))
	}
	return o, nil
}

func (f *compareFlags) run(x *call) error {
	o := must(f.options(x))
	paths := x.args
	if f.floor != "" {
		paths = append(paths, f.floor)
	}
	var records []*lab.Record
	for _, p := range paths {
		r, err := lab.ReadRecord(p)
		if err != nil {
			return failure{statusNotCompare, err}
		}
		defer r.Close()
		records = append(records, r)
	}
	inside, err := true, error(nil)
	switch {
	case f.layers:
		err = f.showLayers(x, records)
	case f.history:
		err = f.showHistory(x, records, o)
	default:
		inside, err = f.judge(x, records, o)
	}
	switch {
	case err != nil:
		return failure{statusNotCompare, err}
	case !inside:
		return failure{status: statusOutside}
	}
	return nil
}

// judge prints the distance of a record from a golden record, and reports whether the record is inside the limits.
func (f *compareFlags) judge(x *call, records []*lab.Record, o lab.Options) (bool, error) {
	result, err := lab.Compare(records[0], records[1], o)
	switch {
	case err != nil:
	case f.json:
		err = x.json(result)
	default:
		err = result.WriteText(x.out)
	}
	if err != nil {
		return false, err
	}
	if err := result.Limited(); err != nil {
		return false, fmt.Errorf("%w; --max-diff or --max-kl sets one", err)
	}
	return result.Inside(), nil
}

func (f *compareFlags) showLayers(x *call, records []*lab.Record) error {
	var floor *lab.Record
	if len(records) > 2 {
		floor = records[2]
	}
	all, err := lab.Layers(records[0], records[1], floor)
	switch {
	case err != nil:
		return err
	case f.json:
		return x.json(map[string]any{"golden": records[0].Path, "record": records[1].Path, "layers": all})
	}
	return lab.WriteLayers(x.out, all)
}

func (f *compareFlags) showHistory(x *call, records []*lab.Record, o lab.Options) error {
	var all []lab.Era
	for _, r := range records[1:] {
		d, err := lab.Compare(records[0], r, o)
		if err != nil {
			return err
		}
		era := lab.Era{Record: r.Path, Distance: d.All}
		if d.Limited() == nil {
			era.Inside = new(d.Inside())
		}
		all = append(all, era)
	}
	if f.svg != "" {
		if err := atomicfile.Write(f.svg, func(w io.Writer) error { return lab.HistorySVG(w, all) }); err != nil {
			return err
		}
	}
	if f.json {
		return x.json(map[string]any{"golden": records[0].Path, "history": all})
	}
	return lab.WriteHistory(x.out, all)
}

func newCausesCommand() *cobra.Command {
	var asJSON bool
	c := define("lab causes", func(x *call) error {
		if asJSON {
			return x.json(mistake.All())
		}
		return writeCauses(x)
	})
	c.flags("json", &asJSON)
	return c.Command
}

func writeCauses(x *call) error {
	var b strings.Builder
	kind := mistake.Kind("")
	for _, c := range mistake.All() {
		if c.Kind != kind {
			kind = c.Kind
			fmt.Fprintf(&b, "%s\n", kind)
		}
		fmt.Fprintf(&b, "  %s", c.ID)
		if c.Op != "" {
			fmt.Fprintf(&b, " (%s)", c.Op)
		}
		fmt.Fprintf(&b, "\n      %s\n", c.Sentence)
		if numbers := strings.Trim(fmt.Sprint(c.Numbers), "[]"); numbers != "" {
			fmt.Fprintf(&b, "      known faults: %s\n", strings.ReplaceAll(numbers, " ", ", "))
		}
		if c.Story != "" {
			fmt.Fprintf(&b, "      met: %s\n", c.Story)
		}
		fmt.Fprintf(&b, "      fix: %s\n", c.Fix)
	}
	return x.printf("%s", b.String())
}

//go:embed hooks
var hooks embed.FS

// hookFiles are the printed files by their engine.
var hookFiles = map[string]string{"torch": "hooks/pytorch.py", "llama.cpp": "hooks/llamacpp.cpp", "mlx": "hooks/mlx.py",
	"head": "hooks/head.py"}

func newHookCommand() *cobra.Command {
	var engine string
	var asJSON bool
	c := define("lab hook", func(x *call) error {
		file, ok := hookFiles[engine]
		if !ok {
			return usagef("--print %q: want torch, llama.cpp, mlx or head", engine)
		}
		text, err := hooks.ReadFile(file)
		if err != nil {
			return err
		}
		if asJSON {
			return x.json(map[string]string{"engine": engine, "text": string(text)})
		}
		return x.printf("%s\n", strings.TrimRight(string(text), "\n"))
	})
	c.flags("print", &engine, "json", &asJSON)
	return c.Command
}

// floorTexts are the default prompts of lab floor.
var floorTexts = []string{
	"The color of the sky is",
	"Grüße, 世界! كتب الطالب: 12, 14, 16.",
	"func (r *Reader) Read(p []byte) (n int, err error) { return r.read(p) }\n",
}

func newFloorCommand() *cobra.Command {
	var prompts string
	var asJSON bool
	c := define("lab floor", func(x *call) error {
		floors, err := measureFloors(x, prompts)
		switch {
		case err != nil:
			return err
		case asJSON:
			return x.json(floors)
		}
		return writeFloors(x.out, floors)
	})
	c.flags("prompts", file(&prompts), "json", &asJSON)
	c.takesModel()
	return c.Command
}

func measureFloors(x *call, promptsPath string) ([]diagnose.Floor, error) {
	var inputs []lab.Input
	for _, text := range floorTexts {
		inputs = append(inputs, lab.Input{Text: &text})
	}
	if promptsPath != "" {
		inputs = must(lab.ReadInputs(promptsPath))
	}
	m, prompts := must2(x.openPrompts(inputs, &engineFlags{precision: choice{value: "f64"}}, nil))
	defer m.Close()
	s := stages{progress: newProgress(x.log, "")}
	defer func() { s.end() }()
	return diagnose.MeasureFloors(x.ctx, m.Graph, idsOf(prompts), s.report)
}

func writeFloors(w io.Writer, floors []diagnose.Floor) error {
	t := newTable(w)
	fmt.Fprintln(t, "class\tmean KL\tmax KL\tmax |diff|\ttop-1\twhat rounds")
	for _, f := range floors {
		fmt.Fprintf(t, "%s\t%.1e\t%.1e\t%.1e\t%.1f %%\t%s\n", f.Class, f.MeanKL, f.MaxKL, f.MaxDiff, 100*f.Top1,
			f.Meaning)
	}
	err := t.Flush()
	fmt.Fprintln(w)
	var ops []string
	for op := range floors[0].Ops {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	fmt.Fprintln(t, "class\t"+strings.Join(ops, "\t"))
	for _, f := range floors {
		fmt.Fprint(t, f.Class)
		for _, op := range ops {
			fmt.Fprintf(t, "\t%.1e", f.Ops[op])
		}
		fmt.Fprintln(t)
	}
	return errors.Join(err, t.Flush())
}
