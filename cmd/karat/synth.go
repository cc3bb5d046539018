package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/dev/synth"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
)

type synthFlags struct {
	arch, kind         choice
	shape              string
	output, vocabulary string
	seed               uint64
}

func newSynthCommand() *cobra.Command {
	f := synthFlags{arch: choice{registry.Families[0].Name, synth.Archs()}, kind: choice{"Q4_K_M", synth.Types()}}
	c := &cobra.Command{
		Use:   "synth -o FILE.gguf",
		Short: "Write a model of a real shape with random weights, to measure speed",
		Long: `Synth writes a GGUF file with the shape of a published model, or a tiny one, and random
weights. It is as fast and as large as the trained model, and its text makes no sense.
Equal seeds give equal files.

Types are mixed as in llama-quantize: Q4_K_M has Q6_K for the embedding and
for half of attn_v and ffn_down. Blocks are random integers with
fitting scales; nothing is quantized. The vocabulary is made up, or that of the
GGUF file after --vocab, which also sets its size. There is no chat template.

` + shapesText(),
		Example: `  karat synth -o 1b.gguf
  karat synth --arch gemma4 --shape e2b --type Q4_0 -o e2b.gguf
  karat synth --arch gemma4 --shape moe --type MXFP4_MOE -o moe.gguf
  karat synth --arch llama --shape 1b --type Q8_0 --vocab llama.gguf -o 1b.gguf`,
		Args: atMost(0, "the file goes after -o"),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.arch.add(c, "arch", "architecture, one of those above")
	fs.StringVar(&f.shape, "shape", "1b", "`name` of the architecture's shape")
	f.kind.add(c, "type", "types of the weights, in llama.cpp's words")
	fs.VarP((*name)(&f.output), "output", "o", "`file` to write, or to replace")
	fs.Var((*name)(&f.vocabulary), "vocab", "GGUF `file` whose tokenizer is taken")
	fs.Uint64Var(&f.seed, "seed", 0, "`number` that seeds the weights")
	return c
}

func shapesText() string {
	var b strings.Builder
	b.WriteString("Shapes:")
	for _, arch := range synth.Archs() {
		fmt.Fprintf(&b, "\n  %-15s %s", arch, strings.Join(synth.Shapes(arch), ", "))
	}
	return b.String()
}

func (f *synthFlags) run(c *cobra.Command) (err error) {
	if f.output == "" {
		return usagef("-o FILE.gguf is needed")
	}
	if err := spare("-o "+f.output, f.output, f.vocabulary); err != nil {
		return err
	}
	p := newProgress(c.ErrOrStderr(), f.output)
	o := synth.Options{Arch: f.arch.value, Shape: f.shape, Type: f.kind.value, Seed: f.seed, Progress: p.report}
	if f.vocabulary != "" {
		if o.Vocab, err = gguf.Open(f.vocabulary); err != nil {
			return err
		}
		defer o.Vocab.Close()
	}
	if err := synth.Check(o); err != nil {
		return usageError{err}
	}
	need, err := synth.Size(o)
	if err != nil {
		return err
	}
	if err := sysinfo.CheckDisk(f.output, need); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	err = atomicfile.Write(f.output, func(w io.Writer) error { return synth.Write(ctx, w, o) })
	p.end()
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return failure{statusInterrupted, fmt.Errorf("interrupted: %s was not written", f.output)}
	case err != nil:
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%s: %s %s %s, %s of weights\n", oneLine(f.output), f.arch.value, f.shape, f.kind.value, bytesText(p.all))
	return nil
}
