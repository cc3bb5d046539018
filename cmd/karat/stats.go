package main

import (
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

// statsFlags are the flags of stats.
type statsFlags struct {
	prompts, nodes           string
	weights, json, csv, html bool
	engine                   engineFlags
}

func newStatsCommand() *cobra.Command {
	var f statsFlags
	c := define("stats", f.run)
	c.flags("prompts", file(&f.prompts), "nodes", &f.nodes, "weights", &f.weights, "json", &f.json, "csv", &f.csv,
		"html", &f.html)
	f.engine.add(c, karat.Float32)
	c.MarkFlagsMutuallyExclusive("csv", "json", "html")
	c.takesModel()
	return c.Command
}

// nodePattern reads names with *, separated by commas.
func nodePattern(list string) (func(*graph.Node) bool, error) {
	if list == "" {
		return func(n *graph.Node) bool { return n.Op != graph.View }, nil // a view has another's values
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

func (f *statsFlags) run(x *call) error {
	must(f.engine.numerics())
	match := must(nodePattern(f.nodes))
	var inputs []lab.Input
	switch {
	case len(x.args) > 0 && f.prompts != "":
		return usagef("give TEXT or --prompts, not both")
	case len(x.args) > 0:
		inputs = []lab.Input{{Text: &x.args[0]}}
	case f.prompts != "":
		inputs = must(lab.ReadInputs(f.prompts))
	case !f.weights:
		return usagef("give TEXT, --prompts FILE or --weights")
	}
	r, err := f.measure(x, inputs, match)
	switch {
	case err != nil:
		return err
	case f.json:
		return x.json(r)
	case f.csv:
		return r.WriteCSV(x.out)
	case f.html:
		r.Model = path.Base(strings.ReplaceAll(r.Model, `\`, "/"))
		return reports.StatsHTML(x.out, r)
	}
	return r.WriteText(x.out)
}

// measure computes the prompts, and looks at the weights.
func (f *statsFlags) measure(x *call, inputs []lab.Input, match func(*graph.Node) bool) (*lab.RunStats, error) {
	m, prompts := must2(x.openPrompts(inputs, &f.engine, nil))
	defer m.Close()
	r := &lab.RunStats{Model: m.Checkpoint.Path, Prompts: len(prompts)}
	for _, p := range prompts {
		r.IDs += len(p.IDs)
	}
	if len(prompts) > 0 {
		r.Nodes = must(f.nodeStats(x, m, prompts, match))
	}
	if f.weights {
		r.Weights = must(lab.MeasureWeights(x.ctx, m.Graph, match))
		if len(r.Weights) == 0 {
			return nil, fmt.Errorf("--nodes %q: no node that matches has weights", f.nodes)
		}
	}
	return r, nil
}

func (f *statsFlags) nodeStats(x *call, m *model.Files, prompts []*lab.Prompt,
	match func(*graph.Node) bool) ([]lab.NodeStats, error) {
	n := must(f.engine.numerics())
	b := must(n.Backend(f.engine.threads))
	defer b.Close()
	nodes, err := lab.MeasureNodes(x.ctx, m.Graph, b, lab.Longest(prompts), idsOf(prompts), match)
	if errors.Is(err, lab.ErrNoNode) {
		err = fmt.Errorf("--nodes %q: %w: \"karat inspect --graph\" lists them", f.nodes, err)
	}
	return nodes, err
}
