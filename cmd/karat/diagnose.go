package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	reports "github.com/karat-run/karat/internal/lab/report"
	"github.com/spf13/cobra"
)

// diagnoseFlags are the flags of lab diagnose.
type diagnoseFlags struct {
	names                choice
	golden, json, report string
}

func newDiagnoseCommand() *cobra.Command {
	names := []string{lab.NamesAuto, lab.NamesHF, lab.NamesLlamaCpp, lab.NamesKarat}
	f := diagnoseFlags{names: choice{lab.NamesAuto, names}}
	c := define("lab diagnose", f.run)
	c.flags("names", &f.names, "golden", file(&f.golden), "json-file", file(&f.json), "report", file(&f.report))
	rename(c.Flags(), "json", "", "the file for JSON is --json-file")
	c.takesModel()
	return c.Command
}

func (f *diagnoseFlags) run(x *call) error {
	path, err := x.find()
	if err != nil {
		return failure{statusUsage, err}
	}
	dump := x.args[0]
	if err := f.checkOutputs(path, dump); err != nil {
		return err
	}
	d, err := f.diagnose(x, path, dump)
	switch {
	case err != nil && x.ctx.Err() != nil:
		return err
	case err != nil:
		return failure{statusNotCompare, err}
	}
	if err := f.write(x.out, d); err != nil {
		return failure{statusNotCompare, err}
	}
	switch d.Verdict {
	case diagnose.Clean, diagnose.Numeric, diagnose.Sensitivity:
		return nil
	}
	return failure{status: statusOutside}
}

// checkOutputs refuses, before the work, outputs in the place of an input (a dump's JSON file lies beside it), and
// outputs impossible to write.
func (f *diagnoseFlags) checkOutputs(model, dump string) error {
	for _, in := range []string{model, dump, f.golden} {
		if in == "" {
			continue
		}
		beside := strings.TrimSuffix(in, filepath.Ext(in)) + ".json"
		if err := refuseOverwrite("--json-file "+f.json, f.json, in, beside,
			filepath.Join(in, "manifest.json")); err != nil {
			return err
		}
	}
	if st, err := os.Stat(f.report); err == nil && !st.IsDir() {
		return usagef("--report %s: not a folder", f.report)
	}
	if f.json != "" {
		if _, err := os.Stat(filepath.Dir(f.json)); err != nil {
			return usagef("--json-file %s: there is no such folder", f.json)
		}
	}
	return nil
}

// write writes the diagnosis to the terminal, with unsafe characters escaped, and to the files of the flags.
func (f *diagnoseFlags) write(w io.Writer, d *diagnose.Diagnosis) error {
	if err := reports.Text(w, d, layout(isTerminal(w))); err != nil {
		return err
	}
	if f.json != "" {
		if err := atomicfile.Write(f.json, func(w io.Writer) error { return writeJSON(w, d) }); err != nil {
			return err
		}
	}
	if f.report != "" {
		return reports.WriteDir(f.report, d)
	}
	return nil
}

// layout returns the layout of a terminal, or of another output. NO_COLOR is no-color.org's.
func layout(terminal bool) reports.Terminal {
	if !terminal {
		return reports.Terminal{}
	}
	return reports.Terminal{Width: 80, Color: os.Getenv("NO_COLOR") == ""}
}

func (f *diagnoseFlags) diagnose(x *call, path, dump string) (*diagnose.Diagnosis, error) {
	record, err := lab.ReadDump(dump)
	if err != nil {
		return nil, err
	}
	defer record.Close()
	prompts := record.Prompts
	var golden *lab.Record
	if f.golden != "" {
		if golden, err = lab.ReadRecord(f.golden); err != nil {
			return nil, err
		}
		defer golden.Close()
		prompts = append(prompts[:len(prompts):len(prompts)], golden.Prompts...)
	}
	m, err := x.openFiles(path, lab.Longest(prompts))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	s := stages{progress: newProgress(x.log, "")}
	defer func() { s.end() }()
	d, err := diagnose.Run(x.ctx, diagnose.Options{Model: path, Graph: m.Graph, Dump: record, Names: f.names.value,
		Golden: golden, Asked: &diagnose.Asked{Tokenizer: m.Tokenizer, Template: m.Checkpoint.Template()},
		Progress: s.report})
	if err != nil {
		return nil, err
	}
	hashes, err := hashesOf(x.ctx, m.Checkpoint, m.Tokenizer)
	d.Hashes = &hashes
	return d, err
}
