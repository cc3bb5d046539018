package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/spf13/cobra"
)

// diagnoseFlags are the flags of lab diagnose.
type diagnoseFlags struct {
	names, golden, json, report string
}

func newDiagnoseCommand() *cobra.Command {
	var f diagnoseFlags
	c := &cobra.Command{
		Use:   "diagnose MODEL DUMP",
		Short: "Say which operation of an engine is wrong, in which layers, and why",
		Args:  cobra.ExactArgs(2),
		RunE:  func(c *cobra.Command, args []string) error { return f.run(c, args[0], args[1]) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.names, "names", "", "whose names the taps have: auto, hf, llama.cpp or karat")
	fs.Var((*name)(&f.golden), "golden", "golden `record` of the same prompts, to judge the ids by")
	fs.Var((*name)(&f.json), "json", "`file` to write the diagnosis to, as JSON")
	fs.Var((*name)(&f.report), "report", "`folder` to write the report to")
	return c
}

func (f *diagnoseFlags) run(c *cobra.Command, model, dump string) error {
	d, err := f.diagnose(c, model, dump)
	if err != nil {
		return failure{statusNotCompare, err}
	}
	if f.json != "" {
		err := atomicfile.Write(f.json, func(w io.Writer) error {
			e := newEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(d)
		})
		if err != nil {
			return failure{statusNotCompare, err}
		}
	}
	fmt.Fprintln(c.OutOrStdout(), d.Verdict, d.Closure, d.Floors, d.Inferred, d.Seconds)
	if d.Verdict != diagnose.Clean && d.Verdict != diagnose.Numeric && d.Verdict != diagnose.Sensitivity {
		return failure{status: statusOutside}
	}
	return nil
}

func (f *diagnoseFlags) diagnose(c *cobra.Command, model, dump string) (*diagnose.Diagnosis, error) {
	ctx, stop := untilSignal()
	defer stop()
	m, err := openCheckpoint(model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	t, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	g, _, err := arch.Load(m)
	if err != nil {
		return nil, err
	}
	record, err := lab.ReadRecord(dump)
	if err != nil {
		return nil, err
	}
	defer record.Close()
	var golden *lab.Record
	if f.golden != "" {
		if golden, err = lab.ReadRecord(f.golden); err != nil {
			return nil, err
		}
		defer golden.Close()
	}
	o := diagnose.Options{Golden: golden, Model: model, Graph: g, Dump: record, Names: f.names, Asked: &diagnose.Asked{Tokenizer: t, Template: m.Template()}}
	d, err := diagnose.Run(ctx, o)
	if errors.Is(err, diagnose.ErrUnusable) {
		return nil, err
	}
	return d, err
}
