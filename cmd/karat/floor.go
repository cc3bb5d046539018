package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// floorTexts are the prompts of lab floor if it is given none.
var floorTexts = []string{
	"The color of the sky is",
	"Grüße, 世界! كتب الطالب: 12, 14, 16.",
	"func (r *Reader) Read(p []byte) (n int, err error) { return r.read(p) }\n",
}

func newFloorCommand() *cobra.Command {
	var prompts string
	var asJSON bool
	c := &cobra.Command{
		Use:   "floor [MODEL]",
		Short: "Measure the effect of rounding alone on a model",
		Long: `Floor computes prompts in float64, and again with the rounding of other engines: float32
in three orders of summation, binary16, bfloat16, llama.cpp's 8-bit activations, keys and
values in 16 bits, and more. It prints how far the results are apart.

The first table is about the logits, over the last 32 positions of each prompt: the KL
divergence from float64 in nats, the largest difference of a logit, and how often the
likeliest token is the same. An engine of that class with a much larger difference is
wrong, however plausible its text.

The second table is about single operations, computed from float64's values: the relative
error of the worst row. It is small even in a model that amplifies rounding. That is why
a diagnosis looks at operations.`,
		Example: `  karat lab floor
  karat lab floor ./tiny-gemma4
  karat lab floor model.gguf --prompts prompts.json --json | jq '.[] | {class, kl_mean}'`,
		Args: atMost(1, "MODEL is one file or folder"),
		RunE: func(c *cobra.Command, args []string) error {
			path, err := modelArgument(args)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal()
			defer stop()
			floors, err := measureFloors(ctx, path, prompts, c.ErrOrStderr())
			switch {
			case err != nil && ctx.Err() != nil:
				fmt.Fprintln(c.ErrOrStderr(), "karat: interrupted")
				return failure{status: statusInterrupted}
			case err != nil:
				return err
			case !asJSON:
				return writeFloors(c.OutOrStdout(), floors)
			}
			e := newEncoder(c.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(floors)
		},
	}
	c.Flags().Var((*name)(&prompts), "prompts", "`file` with prompts, as lab record's (default: three short texts)")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return leadModel(c, true)
}

func measureFloors(ctx context.Context, path, promptsPath string, log io.Writer) ([]diagnose.Floor, error) {
	var inputs []lab.Input
	for _, text := range floorTexts {
		inputs = append(inputs, lab.Input{Text: &text})
	}
	if promptsPath != "" {
		var err error
		if inputs, err = lab.ReadInputs(promptsPath); err != nil {
			return nil, err
		}
	}
	prompts, err := tokenizePrompts(ctx, path, karat.Options{Precision: karat.Float64}, inputs, log)
	if err != nil {
		return nil, err
	}
	m, err := openCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	g, _, err := model.Graph(ctx, m, lab.Longest(prompts))
	if err != nil {
		return nil, err
	}
	var ids [][]int32
	for _, p := range prompts {
		ids = append(ids, p.IDs)
	}
	s := stages{newProgress(log, "")}
	defer s.end()
	return diagnose.MeasureFloors(ctx, g, ids, s.report)
}

func writeFloors(w io.Writer, floors []diagnose.Floor) error {
	t := newTable(w)
	fmt.Fprintln(t, "class\tmean KL\tmax KL\tmax |diff|\ttop-1\twhat rounds")
	for _, f := range floors {
		fmt.Fprintf(t, "%s\t%.1e\t%.1e\t%.1e\t%.1f %%\t%s\n", f.Class, f.MeanKL, f.MaxKL, f.MaxDiff, 100*f.Top1, f.Meaning)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	var ops []string
	for op := range floors[0].Ops {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	fmt.Fprint(t, "class")
	for _, op := range ops {
		fmt.Fprintf(t, "\t%s", op)
	}
	fmt.Fprintln(t)
	for _, f := range floors {
		fmt.Fprint(t, f.Class)
		for _, op := range ops {
			fmt.Fprintf(t, "\t%.1e", f.Ops[op])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
