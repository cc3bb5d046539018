package eval

import (
	_ "embed"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/karat-run/karat/internal/lab"
)

// WriteText writes the result as tables.
func (r *Result) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s of %d tokens, %s\n\n", count(r.Windows, "window"), r.Context, count(r.Tokens, "prediction"))
	fmt.Fprintln(t, "\tvalue\t± standard error\t95 %")
	line := func(name string, e Estimate, times float64, unit string) {
		x := lab.Number(times)
		if e.Error != e.Error { // of one prediction
			fmt.Fprintf(t, "%s\t%.6g%s\tunknown\n", name, e.Value*x, unit)
			return
		}
		fmt.Fprintf(t, "%s\t%.6g%s\t± %.2g\t%.6g … %.6g\n", name, e.Value*x, unit, e.Error*x, e.Low*x, e.High*x)
	}
	line("perplexity", r.Perplexity, 1, "")
	c := r.Base
	if c == nil {
		return t.Flush()
	}
	line("perplexity of the base", c.Perplexity, 1, "")
	line("ln of their ratio", c.LogRatio, 1, "")
	line("ratio", c.Ratio, 1, "")
	line("difference", c.Difference, 1, "")
	line("mean KL, nats", c.KL.Mean, 1, "")
	line("mean Δp", c.DeltaP.Mean, 100, " %")
	line("RMS Δp", c.RMSDeltaP, 100, " %")
	line("same top token", c.SameTop, 100, " %")
	fmt.Fprintf(t, "correlation of ln p\t%.4f %%\n", 100*c.Correlation)
	fmt.Fprintln(t, "\nquantile\tKL\tΔp")
	for _, q := range quantiles {
		fmt.Fprintf(t, "%s\t%.6f\t%.3f %%\n", q.name, *q.of(&c.KL), 100**q.of(&c.DeltaP))
	}
	return t.Flush()
}

// Text is the default text of evaluations, and Calibration the default text that effects are measured on: excerpts of
// Karat's own sources and documents, made-up sentences in the manner of the demo's training, and pieces written for it
// in nine languages, in turns. They share no piece, and none is from the text that the models in this repository were
// trained on, though simple sentences recur.
//
//go:embed text.txt
var Text string

// Calibration is like Text.
//
//go:embed calibration.txt
var Calibration string

// count returns a number of things, of which one has no s.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
