package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/lab"
	"github.com/spf13/cobra"
)

type extractFlags struct {
	prompts, out          string
	at, layers, heads, on string
	arithmetic            arithmetic
	lora                  adapters
}

func newExtractCommand() *cobra.Command {
	var f extractFlags
	c := &cobra.Command{
		Use:   "extract [MODEL] --prompts FILE.json -o OUT",
		Short: "Write the hidden states of prompts, to train probes on",
		Long: `Extract computes prompts and writes one row of each node for each prompt: the values at the last position, or the mean over
--positions. OUT.safetensors has a tensor [prompts, elements] for each node, OUT.npy one array [prompts, nodes, elements], or
[prompts, elements] of one node, and OUT.jsonl a row for each prompt and node: prompt, text, position, token, node, layer and
values, a list. Position and token are -1 for a mean over several.

FILE.json is as for "karat lab record": a list of objects with text, chat or ids. --at, --layers, --heads and --positions are as for "karat lab patch".
The default is the output of every layer.`,
		Example: `  karat lab extract model.gguf --prompts prompts.json -o states.safetensors
  karat lab extract model.gguf --prompts prompts.json --at blk.12.out --positions prompt -o states.npy`,
		Args: atMost(1, "MODEL is one file or folder"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Var((*name)(&f.prompts), "prompts", "`file` with the prompts")
	fs.VarP((*name)(&f.out), "output", "o", "`file` to write, .safetensors, .npy or .jsonl")
	fs.StringVar(&f.at, "at", "out", "`node` whose values are written")
	fs.StringVar(&f.layers, "layers", "", "only in these `layers`, as 0,3-5")
	fs.StringVar(&f.heads, "heads", "", "only these `heads`")
	fs.StringVar(&f.on, "positions", "last", "`positions` over which the mean is taken")
	f.arithmetic.add(c, karat.Fast)
	f.lora.add(c)
	return leadModel(c, true)
}

func (f *extractFlags) run(c *cobra.Command, args []string) error {
	o, err := f.arithmetic.options()
	if err != nil {
		return err
	}
	place := experiment.Place{Node: f.at}
	if place.Layers, err = experiment.ParseSet(f.layers); err != nil {
		return usagef("--layers %w", err)
	}
	if place.Heads, err = experiment.ParseSet(f.heads); err != nil {
		return usagef("--heads %w", err)
	}
	at, err := experiment.ParsePositions(f.on)
	kind := strings.ToLower(filepath.Ext(f.out))
	switch {
	case err != nil:
		return usageError{err}
	case f.prompts == "" || f.out == "":
		return usagef("--prompts FILE.json and -o OUT are needed")
	case !slices.Contains([]string{".safetensors", ".npy", ".jsonl"}, kind):
		return usagef("-o %s: want a name that ends in .safetensors, .npy or .jsonl", f.out)
	}
	path, err := modelArgument(args)
	if err != nil {
		return err
	}
	inputs, err := lab.ReadInputs(f.prompts)
	if err != nil {
		return err
	}
	if err := spareNew("-o "+f.out, f.out, f.prompts, path); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	err = f.extract(ctx, c, path, o, inputs, place, at, kind)
	return interruptedOr(ctx, err)
}

func (f *extractFlags) extract(ctx context.Context, c *cobra.Command, path string, o karat.Options, inputs []lab.Input, place experiment.Place, at experiment.Positions, kind string) error {
	tokenized, err := tokenizePrompts(ctx, path, o, inputs, c.ErrOrStderr())
	if err != nil {
		return err
	}
	o.Adapters = f.lora
	m, err := load(ctx, path, o, c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer m.Close()
	var prompts []*experiment.Prompt
	for _, p := range tokenized {
		var ids []int
		for _, id := range p.IDs {
			ids = append(ids, int(id))
		}
		prompts = append(prompts, experiment.NewPrompt(m, p.Text, ids))
	}
	tell, end := cellsLeft(c.ErrOrStderr(), "prompt")
	s, err := experiment.Extract(ctx, m, prompts, place, at, tell)
	end()
	if err != nil {
		return err
	}
	print, err := m.Fingerprint(ctx)
	if err != nil {
		return err
	}
	s.Notes = map[string]string{"program": "karat " + karat.Version(), "model_fingerprint": print, "positions": f.on, "precision": string(o.Precision)}
	write := map[string]func(io.Writer) error{".safetensors": s.WriteSafetensors, ".npy": s.WriteNumPy, ".jsonl": s.WriteJSONLines}[kind]
	if err := atomicfile.Write(f.out, write); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s of %s\n", oneLine(f.out), count(len(s.Nodes), "node"), count(s.Count, "prompt"))
	return err
}
