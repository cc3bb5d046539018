package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	reports "github.com/karat-run/karat/internal/lab/report"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

type statsFlags struct {
	prompts, nodes           string
	weights, json, csv, html bool
	arithmetic               arithmetic
}

func newStatsCommand() *cobra.Command {
	var f statsFlags
	c := &cobra.Command{
		Use:   "stats MODEL [TEXT]",
		Short: "Show min, max, mean and RMS of every value that a model computes, and of its weights",
		Long: `Stats computes a text, or the prompts of a file, and prints for each node of the graph how many
values it had, their min, max, mean, RMS (root of the mean square) and largest absolute value,
and how many are zero, NaN and infinite. They are of all positions of all prompts. Min to
max_abs are of the finite values. "karat inspect --graph" lists the nodes.

--nodes takes names with * for any characters, separated by commas, as in
"blk.0.*,output_norm". PyTorch's names work, too.

--weights prints the same of the weights, after dequantization. The gain of a norm is the RMS
of what it multiplies with: its weight, plus 1 where the family adds it. Without TEXT and
--prompts nothing is computed.

--html writes a page with three charts: RMS, largest value and mean, in the graph's order.`,
		Example: `  karat stats model.gguf "The color of the sky is"
  karat stats model.gguf "The color of the sky is" --nodes "*.attn_output,*.out"
  karat stats model.gguf --prompts prompts.json --html > stats.html
  karat stats model.gguf --weights --nodes "*norm*"
  karat stats model.gguf --weights --json | jq '.weights[] | select(.gain.rms > 10).name'`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0], args[1:]) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Var((*name)(&f.prompts), "prompts", "`file` with prompts, as lab record's")
	fs.StringVar(&f.nodes, "nodes", "", "`names` of nodes, with * for any characters (default: all but views of others)")
	fs.BoolVar(&f.weights, "weights", false, "describe the weights, too")
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	fs.BoolVar(&f.csv, "csv", false, "print CSV")
	fs.BoolVar(&f.html, "html", false, "print a page with charts")
	f.arithmetic.add(c, karat.Float32)
	c.MarkFlagsMutuallyExclusive("csv", "json", "html")
	return leadModel(c, true)
}

// nodePattern reads names with *, separated by commas.
func nodePattern(list string) (func(*graph.Node) bool, error) {
	if list == "" {
		return func(n *graph.Node) bool { return n.Op != graph.View }, nil // which has the values of another
	}
	var parts []string
	for _, p := range strings.Split(list, ",") {
		if p = strings.TrimSpace(p); p == "" {
			return nil, usagef("--nodes %q: a name is empty", list)
		}
		parts = append(parts, strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*"))
	}
	re, err := regexp.Compile("^(" + strings.Join(parts, "|") + ")$")
	if err != nil {
		return nil, usagef("--nodes %q: %w", list, err)
	}
	return func(n *graph.Node) bool { return re.MatchString(n.Name) || n.HF != "" && re.MatchString(n.HF) }, nil
}

func (f *statsFlags) run(c *cobra.Command, name string, text []string) error {
	o, err := f.arithmetic.options()
	if err != nil {
		return err
	}
	match, err := nodePattern(f.nodes)
	if err != nil {
		return err
	}
	var inputs []lab.Input
	switch {
	case len(text) > 0 && f.prompts != "":
		return usagef("give TEXT or --prompts, not both")
	case len(text) > 0:
		inputs = []lab.Input{{Text: &text[0]}}
	case f.prompts != "":
		if inputs, err = lab.ReadInputs(f.prompts); err != nil {
			return err
		}
	case !f.weights:
		return usagef("give TEXT, --prompts FILE or --weights")
	}
	file, err := findModel(name)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	var prompts []*lab.Prompt
	if len(inputs) > 0 {
		prompts, err = tokenizePrompts(ctx, file, o, inputs, c.ErrOrStderr())
	}
	var r *lab.RunStats
	if err == nil {
		r, err = f.measure(ctx, file, prompts, match)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return failure{statusInterrupted, errors.New("interrupted")}
	case err != nil:
		return err
	case f.json:
		e := newEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(r)
	case f.csv:
		return r.WriteCSV(c.OutOrStdout())
	case f.html:
		r.Model = path.Base(strings.ReplaceAll(r.Model, `\`, "/"))
		return reports.StatsHTML(c.OutOrStdout(), r)
	}
	return r.WriteText(c.OutOrStdout())
}

// measure computes the prompts, and looks at the weights.
func (f *statsFlags) measure(ctx context.Context, file string, prompts []*lab.Prompt, match func(*graph.Node) bool) (*lab.RunStats, error) {
	m, err := openCheckpoint(file)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	longest := lab.Longest(prompts)
	g, _, err := model.Graph(ctx, m, longest)
	if err != nil {
		return nil, err
	}
	r := &lab.RunStats{Model: file, Prompts: len(prompts)}
	var ids [][]int32
	for _, p := range prompts {
		ids = append(ids, p.IDs)
		r.IDs += len(p.IDs)
	}
	if len(ids) > 0 {
		o, err := f.arithmetic.model()
		if err != nil {
			return nil, err
		}
		b, err := o.Numerics.Backend(o.Threads)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		r.Nodes, err = lab.MeasureNodes(ctx, g, b, longest, ids, match)
		switch {
		case errors.Is(err, lab.ErrNoNode):
			return nil, fmt.Errorf("--nodes %q: %w: \"karat inspect --graph\" lists them", f.nodes, err)
		case err != nil:
			return nil, err
		}
	}
	if f.weights {
		if r.Weights, err = lab.MeasureWeights(ctx, g, match); err != nil {
			return nil, err
		}
		if len(r.Weights) == 0 {
			return nil, fmt.Errorf("--nodes %q: no node that matches has weights", f.nodes)
		}
	}
	return r, nil
}
