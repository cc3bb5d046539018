package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	reports "github.com/karat-run/karat/internal/lab/report"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// diagnoseFlags are the flags of lab diagnose.
type diagnoseFlags struct {
	names                choice
	golden, file, report string
	json, brief, head    bool
	projector            string
}

func newDiagnoseCommand() *cobra.Command {
	f := diagnoseFlags{names: newNames()}
	c := define("lab diagnose", f.run)
	c.flags("names", &f.names, "golden", file(&f.golden), "json-file", file(&f.file), "report", file(&f.report),
		"draft-head", &f.head, "brief", &f.brief, "json", &f.json, "mmproj", file(&f.projector))
	c.takesModel()
	return c.Command
}

// newNames returns the flag of the naming schemes of taps.
func newNames() choice {
	return choice{lab.NamesAuto, []string{lab.NamesAuto, lab.NamesHF, lab.NamesLlamaCpp, lab.NamesKarat}}
}

func (f *diagnoseFlags) run(x *call) error {
	path, err := x.find()
	if err != nil {
		return failure{statusUsage, err}
	}
	dump := x.args[0]
	throw(f.checkOutputs(path, dump))
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
	if !reports.Passed(d) {
		return failure{status: statusOutside}
	}
	return nil
}

// checkOutputs refuses, before the work, outputs in the place of an input (a dump's JSON file lies beside it), and
// outputs impossible to write.
func (f *diagnoseFlags) checkOutputs(model, dump string) error {
	for _, in := range []string{model, dump, f.golden} {
		if in == "" {
			continue
		}
		beside := strings.TrimSuffix(in, filepath.Ext(in)) + ".json"
		throw(refuseOverwrite("--json-file "+f.file, f.file, in, beside,
			filepath.Join(in, "manifest.json")))
	}
	if st, err := os.Stat(f.report); err == nil && !st.IsDir() {
		return usagef("--report %s: not a folder", f.report)
	}
	if f.json && f.brief {
		return usagef("--json and --brief do not work together")
	}
	if f.file != "" {
		if _, err := os.Stat(filepath.Dir(f.file)); err != nil {
			return usagef("--json-file %s: there is no such folder", f.file)
		}
	}
	return nil
}

// write writes the diagnosis to standard output, unsafe characters escaped in text, and to the files of the flags.
func (f *diagnoseFlags) write(w io.Writer, d *diagnose.Diagnosis) (err error) {
	switch {
	case f.json:
		err = writeJSON(w, d)
	case f.brief:
		err = writeJSON(w, reports.NewBrief(d))
	default:
		err = reports.Text(w, d, layout(isTerminal(w)))
	}
	if err != nil {
		return err
	}
	if f.file != "" {
		if err := atomicfile.Write(f.file, func(w io.Writer) error { return writeJSON(w, d) }); err != nil {
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

func (f *diagnoseFlags) diagnose(x *call, path, dump string) (d *diagnose.Diagnosis, err error) {
	x.head = f.head
	err = withDump(x, path, dump, f.golden, f.projector, func(o diagnose.Options, m *model.Files) error {
		o.Names = f.names.value
		if d, err = diagnose.Run(x.ctx, o); err != nil {
			return err
		}
		hashes, err := hashesOf(x.ctx, m.Checkpoint, m.Tokenizer)
		d.Hashes = &hashes
		return err
	})
	return d, err
}

// withDump opens a dump, a golden record if there is one, and MODEL, which the dump's engine ran, and calls do.
func withDump(x *call, path, dump, golden, projector string, do func(diagnose.Options, *model.Files) error) error {
	o := diagnose.Options{Model: path}
	var err error
	if o.Dump, err = lab.ReadDump(dump); err != nil {
		return err
	}
	defer o.Dump.Close()
	prompts := o.Dump.Prompts
	if golden != "" {
		if o.Golden, err = lab.ReadRecord(golden); err != nil {
			return err
		}
		defer o.Golden.Close()
		prompts = append(prompts[:len(prompts):len(prompts)], o.Golden.Prompts...)
	}
	m, err := x.openFiles(path, projector, lab.Longest(prompts))
	if err != nil {
		return err
	}
	defer m.Close()
	var eye *lab.Eye
	if m.Checkpoint.Tower != nil {
		if eye, err = lab.OpenEye(m.Checkpoint, m.Tokenizer, reference.Backend{}, filepath.Dir(dump)); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(prompts, func(p *lab.Prompt) bool { return len(p.Pictures) > 0 }) && eye == nil {
		return fmt.Errorf("the dump has pictures: %w; --mmproj names the file for pictures of a GGUF model",
			karat.ErrBlind)
	}
	s := stages{progress: newProgress(x.log, "")}
	defer func() { s.end() }()
	o.Graph, o.Asked = m.Graph, &diagnose.Asked{Tokenizer: m.Tokenizer, Template: m.Checkpoint.Template()}
	o.Progress, o.Eye = s.report, eye
	return do(o, m)
}
