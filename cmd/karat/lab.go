package main

import (
	"fmt"

	"github.com/karat-run/karat/internal/lab"
	"github.com/spf13/cobra"
)

func newLabCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Find out whether an engine's logits are right, and if not, where it is wrong",
		Long: `Lab tests an engine whose logits should be those of a model. "record" writes the values that
Karat computes, "hook" prints programs that dump those of PyTorch or llama.cpp, and "import"
converts the dumps of other tools. "compare" measures how far a record is from a golden one.
"diagnose" names the operation of the engine that is wrong, the layers, and the cause.
"causes" lists the causes that it can name, "floor" measures the effect of rounding alone on a
model, and "bench" scores the diagnosis on engines that are wrong on purpose.

"ablate", "scale", "replace", "patch" and "steer" change values on the way and show what that changes. "experiment" does it
at a grid of nodes and positions, and "extract" writes the hidden states of prompts.`,
		Example: `  karat lab hook --print torch > dump.py
  karat lab diagnose model.gguf dump.safetensors --report report
  karat lab record model.gguf --prompts prompts.json -o mine.safetensors --precision f32
  karat lab compare golden.safetensors mine.safetensors
  karat lab floor model.gguf`,
	}
	c.AddCommand(newRecordCommand(), newCompareCommand(), newDiagnoseCommand(), newCausesCommand(), newImportCommand(), newHookCommand(), newFloorCommand(), newParityCommand())
	c.AddCommand(newInterventions()...)
	c.AddCommand(newExperimentCommand(), newExtractCommand())
	return group(c)
}

// The exit statuses of lab compare.
const (
	statusOutside    = 1
	statusNotCompare = 2
)

const compareHelp = `Compare prints for each prompt that both records have: whether the ids are equal, the
largest and the mean difference of the logits, their cosine, the KL divergence,
how many of the likeliest 1, 5 and 10 tokens are the same, and the entropy of both,
with the golden record's noise floor beside them. For taps it prints the relative error,
worst first.

A prompt passes ("inside") if the largest difference of a logit is at most 4 times that of
the golden engine's own float32 pass (float32.max_abs_diff in the golden record's JSON
file), or at most --max-diff, and if its KL divergence is at most --max-kl. A NaN
anywhere fails, and so does an infinity that only one side has.

--by-layer prints the hidden states instead, or the taps, in the order of layers: the cosine of the worst row, the
relative L2 error and the norms of both. --floor is a record of the golden engine in less precision: its error stands
beside. --history takes several records, such as the dumps of a port from week to week, and prints how far each
is; --svg draws their KL divergence. Both only show: their exit status is 0.

The exit status is 0 if all of the golden record's prompts are inside, 1 if one is not
or is missing (which --partial allows), and 2 if the records could not be compared, or if
nothing sets a limit.`

func newCompareCommand() *cobra.Command {
	var asJSON, partial bool
	var maxDiff, maxKL float64
	var other comparing
	c := &cobra.Command{
		Use:   "compare GOLDEN.safetensors RECORD.safetensors...",
		Short: "Measure how far a record is from a golden one",
		Long:  compareHelp,
		Example: `  karat lab compare golden.safetensors mine.safetensors
  karat lab compare golden.safetensors fast.safetensors --max-kl 1e-6
  karat lab compare golden.safetensors mine.safetensors --json | jq .all
  karat lab compare golden.safetensors mine.safetensors --by-layer --floor f32.safetensors
  karat lab compare golden.safetensors week1.safetensors week2.safetensors --history --svg port.svg`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 2 && !other.history {
				return usagef("%q: more than one RECORD is for --history", args[2])
			}
			return byUse(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			o := lab.Options{Partial: partial}
			for _, f := range []struct {
				name  string
				value *float64
				to    **float64
			}{{"max-diff", &maxDiff, &o.MaxDiff}, {"max-kl", &maxKL, &o.MaxKL}} {
				if !(*f.value >= 0) {
					return usagef("--%s %v: want 0 or more", f.name, *f.value)
				}
				if c.Flags().Changed(f.name) {
					*f.to = f.value
				}
			}
			if err := other.check(); err != nil {
				return err
			}
			if other.layers || other.history {
				return other.run(c, args, o, asJSON)
			}
			return compare(c, args[0], args[1], o, asJSON)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Float64Var(&maxDiff, "max-diff", 0, "largest `difference` of a logit (default: 4 times the golden record's float32 distance)")
	fs.Float64Var(&maxKL, "max-kl", 0, "largest KL divergence of a prompt in `nats` (default: no limit)")
	fs.BoolVar(&partial, "partial", false, "the record may lack prompts of the golden one")
	other.add(fs)
	fs.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func compare(c *cobra.Command, goldenPath, recordPath string, o lab.Options, asJSON bool) error {
	golden, err := lab.ReadRecord(goldenPath)
	if err != nil {
		return failure{statusNotCompare, err}
	}
	defer golden.Close()
	record, err := lab.ReadRecord(recordPath)
	if err != nil {
		return failure{statusNotCompare, err}
	}
	defer record.Close()
	result, err := lab.Compare(golden, record, o)
	if err != nil {
		return failure{statusNotCompare, err}
	}
	if asJSON {
		e := newEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		err = e.Encode(result)
	} else {
		err = result.WriteText(c.OutOrStdout())
	}
	if err != nil {
		return failure{statusNotCompare, err}
	}
	if err := result.Limited(); err != nil {
		return failure{statusNotCompare, fmt.Errorf("%w; --max-diff or --max-kl sets one", err)}
	}
	if !result.Inside() {
		return failure{status: statusOutside}
	}
	return nil
}
