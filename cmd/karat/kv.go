package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/kvfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/spf13/cobra"
)

// maxState bounds a file of keys and values, in bytes.
const maxState = 64 << 30

func newKVCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "kv",
		Short: "Keep what a model holds of a text in a file, and go on from it",
		Long: `KV keeps a prefix's state: the keys and values of a text (all positions of full layers, the window of others), and the states of
convolutions and scans. The file has a hash of the model, its vocabulary, template and numerics, and a checksum. A file that was
changed, and one of another model or other settings, is refused.

The answer behind a state has the same bits as without it. The hash cannot detect a file forged for the same model: "verify"
computes it again.`,
		Example: `  karat kv export model.gguf -f document.txt -o document.kv
  karat kv inspect document.kv
  karat kv replay model.gguf document.kv --prompt "What is it about?"`,
	}
	c.AddCommand(newKVExport(), newKVInspect(), newKVVerify(), newKVReplay())
	return group(c)
}

type kvFlags struct {
	file, out, prompt string
	context, most     int
	json              bool
	arithmetic        arithmetic
	lora              adapters
}

func (f *kvFlags) add(c *cobra.Command) {
	addContext(c.Flags(), &f.context, "maximum `tokens` of a text (default: the model's, at most 8192)")
	f.arithmetic.add(c, karat.Fast)
	f.lora.add(c)
}

func newKVExport() *cobra.Command {
	var f kvFlags
	c := &cobra.Command{
		Use:     "export [MODEL] TEXT -o FILE",
		Short:   "Compute a text and write its state",
		Long:    `Export computes all tokens of the text but the last, and writes what the model then holds. TEXT is raw; with -f it is a file's.`,
		Example: `  karat kv export model.gguf -f document.txt -o document.kv`,
		Args:    atMost(2, "quote the text"),
		RunE:    func(c *cobra.Command, args []string) error { return f.export(c, args) },
	}
	c.Flags().SortFlags = false
	c.Flags().VarP((*name)(&f.file), "file", "f", "read the text from this `file`; - is standard input")
	c.Flags().VarP((*name)(&f.out), "output", "o", "`file` to write")
	f.add(c)
	return leadModel(c, true)
}

func newKVInspect() *cobra.Command {
	var f kvFlags
	c := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Show what a state's file holds, without a model",
		Long:    `Inspect checks the checksum and prints the model's hash, the tokens, and what is kept of them.`,
		Example: `  karat kv inspect document.kv`,
		Args:    byUse,
		RunE:    func(c *cobra.Command, args []string) error { return f.inspect(c, args[0]) },
	}
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

func newKVVerify() *cobra.Command {
	var f kvFlags
	c := &cobra.Command{
		Use:     "verify [MODEL] FILE",
		Short:   "Compute a state again and compare every byte",
		Long:    `Verify computes the file's tokens anew and wants the same bytes. The exit status is 1 if one differs.`,
		Example: `  karat kv verify model.gguf document.kv`,
		Args:    byUse,
		RunE:    func(c *cobra.Command, args []string) error { return f.verify(c, args) },
	}
	c.Flags().SortFlags = false
	f.add(c)
	return leadModel(c, true)
}

func newKVReplay() *cobra.Command {
	var f kvFlags
	c := &cobra.Command{
		Use:     "replay [MODEL] FILE",
		Short:   "Go on from a state",
		Long:    `Replay generates what follows the text of a state, or the text and --prompt. Each token is the likeliest.`,
		Example: `  karat kv replay model.gguf document.kv -n 40`,
		Args:    byUse,
		RunE:    func(c *cobra.Command, args []string) error { return f.replay(c, args) },
	}
	c.Flags().SortFlags = false
	c.Flags().StringVarP(&f.prompt, "prompt", "p", "", "`text` that follows that of the state")
	addMost(c.Flags(), &f.most, 32, "maximum `tokens` to generate")
	f.add(c)
	return leadModel(c, true)
}

// with loads a model and calls do.
func (f *kvFlags) with(c *cobra.Command, named []string, do func(ctx context.Context, m *karat.Model) error) error {
	o, err := f.arithmetic.options()
	if err != nil {
		return err
	}
	if (f.context < 1 || f.context > model.MaxContext) && c.Flags().Changed("ctx") {
		return usagef("--ctx %d: want 1 to %d", f.context, model.MaxContext)
	}
	path, err := modelArgument(named)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	o.Adapters, o.Context = f.lora, f.context
	m, err := loadModel(ctx, path, o, c.ErrOrStderr())
	if err == nil {
		defer m.Close()
		err = do(ctx, m)
	}
	return interruptedOr(ctx, err)
}

func (f *kvFlags) export(c *cobra.Command, args []string) error {
	if f.out == "" {
		return usagef("-o FILE is needed")
	}
	texts := 1
	if f.file != "" {
		texts = 0
	}
	model := args[:max(0, len(args)-texts)]
	path, err := modelArgument(model)
	if err == nil {
		err = spare("-o "+f.out, f.out, path, f.file)
	}
	if err != nil {
		return err
	}
	text, ok, err := readInput(context.Background(), c, args[len(model):], f.file)
	switch {
	case err != nil:
		return err
	case !ok:
		return usagef("give TEXT, -f FILE, or a text on standard input")
	}
	return f.with(c, model, func(ctx context.Context, m *karat.Model) error {
		ids, err := m.Tokenize(ctx, text, karat.TokenizeOptions{})
		if err != nil {
			return err
		}
		err = atomicfile.Write(f.out, func(w io.Writer) error { return m.ExportState(ctx, w, ids) })
		if err != nil {
			return err
		}
		st, err := os.Stat(f.out)
		if err != nil {
			return patherr.Plain(err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, %s\n", oneLine(f.out), count(len(ids), "token"), bytesText(st.Size()))
		return err
	})
}

// readState reads a state's file.
func readState(path string) ([]byte, error) { return mmap.ReadFile(path, maxState) }

func (f *kvFlags) inspect(c *cobra.Command, path string) error {
	data, err := readState(path)
	if err != nil {
		return err
	}
	x, err := kvfile.Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if f.json {
		e := newEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(x)
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "program: %s\nmodel: fingerprint %s\ntokens: %d, the state is of the first %d\nelements: %d bits\n", oneLine(x.Program), oneLine(x.Model), len(x.Tokens), x.Held, 8*x.Element)
	for _, s := range x.Stores {
		kind := "pages"
		if s.Window > 0 {
			kind = fmt.Sprintf("ring of %d", s.Window)
		}
		fmt.Fprintf(w, "layer %d: %s, positions %d to %d, %d heads of %d and %d, %s\n", s.Layer, kind, s.From, x.Held-1, s.Heads, s.Dim, s.Values, bytesText(int64(len(s.Data))))
	}
	for i, s := range x.States {
		fmt.Fprintf(w, "state %d: a slot, %d elements, %s\n", i, s.Size, bytesText(int64(len(s.Data))))
	}
	_, err = fmt.Fprintln(w, "checksum: right")
	return err
}

func (f *kvFlags) verify(c *cobra.Command, args []string) error {
	path := args[len(args)-1]
	data, err := readState(path)
	if err != nil {
		return err
	}
	x, err := kvfile.Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.with(c, args[:len(args)-1], func(ctx context.Context, m *karat.Model) error {
		print, err := m.Fingerprint(ctx)
		if err != nil {
			return err
		}
		if print != x.Model {
			return fmt.Errorf("%s: of another model, or of other numerics: fingerprint %s, this is %s", path, x.Model, print)
		}
		var ids []int
		for _, id := range x.Tokens {
			ids = append(ids, int(id))
		}
		var b bytes.Buffer
		if err := m.ExportState(ctx, &b, ids); err != nil {
			return err
		}
		mine, err := kvfile.Parse(b.Bytes())
		if err == nil {
			err = mine.Same(x)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: the same bytes\n", oneLine(path))
		return err
	})
}

func (f *kvFlags) replay(c *cobra.Command, args []string) error {
	if f.most < 1 {
		return usagef("-n %d: want 1 or more", f.most)
	}
	path := args[len(args)-1]
	data, err := readState(path)
	if err != nil {
		return err
	}
	return f.with(c, args[:len(args)-1], func(ctx context.Context, m *karat.Model) error {
		s, ids, err := m.ImportState(ctx, data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer s.Close()
		more, err := m.Tokenize(ctx, f.prompt, karat.TokenizeOptions{OmitSpecial: true})
		if err != nil {
			return err
		}
		for t, err := range s.GenerateIDs(ctx, append(ids, more...), karat.GenerateOptions{MaxTokens: f.most, Sampling: &karat.Sampling{}}) {
			if err != nil {
				return err
			}
			text := t.Text
			if isTerminal(c.OutOrStdout()) {
				text = printable(text)
			}
			if _, err := io.WriteString(c.OutOrStdout(), text); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(c.OutOrStdout()); err != nil {
			return err
		}
		n, kept := s.PromptTokens()
		_, err = fmt.Fprintf(c.ErrOrStderr(), "karat: %d of %s were in the state\n", kept, count(n, "token"))
		return err
	})
}
