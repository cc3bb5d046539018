package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	reports "github.com/karat-run/karat/internal/lab/report"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// diagnoseFlags are the flags of lab diagnose.
type diagnoseFlags struct {
	names                choice
	golden, json, report string
}

func newDiagnoseCommand() *cobra.Command {
	f := diagnoseFlags{names: choice{lab.NamesAuto, []string{lab.NamesAuto, lab.NamesHF, lab.NamesLlamaCpp, lab.NamesKarat}}}
	c := &cobra.Command{
		Use:   "diagnose MODEL DUMP",
		Short: "Find the operation of an engine that is wrong, the layers, and the cause",
		Long: `Diagnose looks for the reason why an engine's logits differ from the model's. It names
the operation that is wrong, the layers, and the cause. Or it says that rounding explains
the difference, and how this was measured.

MODEL is the model that the engine ran: a GGUF file or a Hugging Face folder. DUMP holds the
values that it computed: a record of "karat lab record" (OUT.safetensors, with OUT.json
beside it), a folder of .npy files, or a record of llama.cpp. "karat lab hook" prints programs
that make one, and "karat lab import" converts others. A dump of logits alone can be judged,
but only taps show where a fault is. Dump as many as you can, for three prompts: a short one,
one of a few dozen tokens, and one longer than the model's sliding window.

Each tapped value is computed again from the engine's own values at the taps before it.
The effect of rounding is measured by emulating the engine's arithmetic. A cause is named
only if the reference with that cause computes the engine's numbers. "karat lab causes"
lists the causes that can be named. Any other fault is called unknown, with its place.

The exit status is 0 if the verdict is clean, numeric or sensitivity, 1 for the other
verdicts, and 2 if there was nothing to judge.`,
		Example: `  karat lab diagnose model.gguf dump.safetensors
  karat lab diagnose ./tiny-qwen3 dump.safetensors --report report --json-file diagnosis.json
  karat lab diagnose model.gguf dump.safetensors --golden golden.safetensors`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error {
			path, err := findModel(args[0])
			if err != nil {
				return failure{statusUsage, err}
			}
			return f.run(c, path, args[1])
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.names.add(c, "names", "whose names the taps have")
	fs.Var((*name)(&f.golden), "golden", "golden record of the same prompts: supplies ids that the dump lacks, and checks the others")
	renamed(fs, "json", "", "the file for JSON is --json-file")
	fs.Var((*name)(&f.json), "json-file", "`file` to write the diagnosis to, as JSON")
	fs.Var((*name)(&f.report), "report", "`folder` to write a report to: index.html, junit.xml, diagnosis.json")
	return leadModel(c, false)
}

func (f *diagnoseFlags) run(c *cobra.Command, model, dump string) error {
	if err := f.spare(model, dump); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	d, err := f.diagnose(ctx, model, dump, c.ErrOrStderr())
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(c.ErrOrStderr(), "karat: interrupted")
		return failure{status: statusInterrupted}
	case err != nil:
		return failure{statusNotCompare, err}
	}
	if err := f.write(c.OutOrStdout(), d); err != nil {
		return failure{statusNotCompare, err}
	}
	switch d.Verdict {
	case diagnose.Clean, diagnose.Numeric, diagnose.Sensitivity:
		return nil
	}
	return failure{status: statusOutside}
}

// spare refuses, before the work, outputs that would replace an input (a dump's JSON file lies
// beside it), or that cannot be written.
func (f *diagnoseFlags) spare(model, dump string) error {
	for _, in := range []string{model, dump, f.golden} {
		if in == "" {
			continue
		}
		if err := spare("--json-file "+f.json, f.json, in, strings.TrimSuffix(in, filepath.Ext(in))+".json", filepath.Join(in, "manifest.json")); err != nil {
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

// write writes the diagnosis to the terminal, where it is safe, and to where the flags want it.
func (f *diagnoseFlags) write(w io.Writer, d *diagnose.Diagnosis) error {
	if err := reports.Text(w, d, layout(isTerminal(w))); err != nil {
		return err
	}
	if f.json != "" {
		err := atomicfile.Write(f.json, func(w io.Writer) error {
			e := newEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(d)
		})
		if err != nil {
			return err
		}
	}
	if f.report != "" {
		return reports.WriteDir(f.report, d)
	}
	return nil
}

// layout is that of a terminal, or of another output. NO_COLOR is no-color.org's.
func layout(terminal bool) reports.Terminal {
	if !terminal {
		return reports.Terminal{}
	}
	return reports.Terminal{Width: 80, Color: os.Getenv("NO_COLOR") == ""}
}

func (f *diagnoseFlags) diagnose(ctx context.Context, path, dump string, stderr io.Writer) (*diagnose.Diagnosis, error) {
	m, err := openCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	t, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
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
	g, _, err := model.Graph(ctx, m, lab.Longest(prompts))
	if err != nil {
		return nil, err
	}
	s := stages{newProgress(stderr, "")}
	defer s.end()
	d, err := diagnose.Run(ctx, diagnose.Options{Model: path, Graph: g, Dump: record, Names: f.names.value, Golden: golden,
		Asked: &diagnose.Asked{Tokenizer: t, Template: m.Template()}, Progress: s.report})
	if err != nil {
		return nil, err
	}
	hashes, err := hashesOf(ctx, m, t)
	d.Hashes = &hashes
	return d, err
}

// stages tells of stages of work, whose number of steps is known or 0.
type stages struct{ progress }

func (s *stages) report(stage string, done, total int) {
	if _, ok := s.due(); !ok {
		return
	}
	if total > 0 {
		s.show(stage, fmt.Sprintf("%d of %d", done, total))
	} else {
		s.show(stage)
	}
}
