package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/dev/synth"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/pflag"
)

const synthHelp = `Synth writes a GGUF file with the shape of a published model, or a tiny one, and random
weights. It is as fast and as large as the trained model, and its text makes no sense.
Equal seeds give equal files.

Types are mixed as in llama-quantize: Q4_K_M has Q6_K for the embedding and
for half of attn_v and ffn_down. Blocks are random integers with
fitting scales; nothing is quantized. The vocabulary is made up, or that of the
GGUF file after --vocab, which also sets its size. There is no chat template.

Usage:
  go run ./internal/dev/task synth -o FILE.gguf

Examples:
  go run ./internal/dev/task synth -o 1b.gguf
  go run ./internal/dev/task synth --arch gemma4 --shape e2b --type Q4_0 -o e2b.gguf
  go run ./internal/dev/task synth --arch llama --shape 1b --type Q8_0 --vocab llama.gguf -o 1b.gguf

Shapes:
`

// synthTask writes a model.
func synthTask(ctx context.Context, args []string, out, log io.Writer) (err error) {
	var o synth.Options
	var output, vocabulary string
	var size int64
	fs := pflag.NewFlagSet("synth", pflag.ContinueOnError)
	fs.SetOutput(log)
	fs.Usage = func() {
		fmt.Fprint(log, synthHelp)
		for _, arch := range synth.Archs() {
			fmt.Fprintf(log, "  %-15s %s\n", arch, strings.Join(synth.Shapes(arch), ", "))
		}
		fmt.Fprint(log, "\nFlags:\n", fs.FlagUsages())
	}
	fs.StringVar(&o.Arch, "arch", registry.Families[0].Name, "`architecture`, one of those above")
	fs.StringVar(&o.Shape, "shape", "1b", "`name` of the architecture's shape")
	fs.StringVar(&o.Type, "type", "Q4_K_M", "`types` of the weights, in llama.cpp's words: "+
		strings.Join(synth.Types(), ", "))
	fs.StringVarP(&output, "output", "o", "", "`file` to write, or to replace")
	fs.StringVar(&vocabulary, "vocab", "", "GGUF `file` whose tokenizer is taken")
	fs.Uint64Var(&o.Seed, "seed", 0, "`number` that seeds the weights")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case output == "" || fs.NArg() > 0:
		return errors.New("-o FILE.gguf is needed, and no other argument")
	case filepath.Clean(output) == filepath.Clean(vocabulary):
		return fmt.Errorf("-o %s would replace %s, which is read", output, vocabulary)
	case vocabulary != "":
		if o.Vocab, err = gguf.Open(vocabulary); err != nil {
			return err
		}
		defer o.Vocab.Close()
	}
	if err := synth.Check(o); err != nil {
		return err
	}
	need, err := synth.Size(o)
	if err == nil {
		err = sysinfo.CheckDisk(output, need)
	}
	if err != nil {
		return err
	}
	o.Progress = func(_, all int64) { size = all }
	if err := atomicfile.Write(output, func(w io.Writer) error { return synth.Write(ctx, w, o) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s %s %s, %d bytes of weights\n", output, o.Arch, o.Shape, o.Type, size)
	return err
}
