package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/kvfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/spf13/cobra"
)

// maxState bounds a file of keys and values, in bytes.
const maxState = 64 << 30

// kvFlags are the flags of the commands of kv.
type kvFlags struct {
	file, out, prompt string
	most              int
	json              bool
	engine            engineFlags
}

func newKVCommand() *cobra.Command {
	f := kvFlags{most: 32}
	export, replay, verify := define("kv export", f.export), define("kv replay", f.replay), define("kv verify",
		f.verify)
	export.texts = true
	export.flags("file", file(&f.file), "output", file(&f.out))
	replay.flags("prompt", &f.prompt, "tokens", &f.most)
	for _, c := range []*command{export, replay, verify} {
		c.takesModel()
		c.flags("ctx", &f.engine.context)
		f.engine.add(c, karat.Fast)
		c.flags("lora", f.engine.addLora)
	}
	inspect := define("kv inspect", f.inspect)
	inspect.flags("json", &f.json)
	return group(define("kv", nil), export.Command, inspect.Command, verify.Command, replay.Command)
}

// load loads MODEL.
func (f *kvFlags) load(x *call) (*karat.Model, error) {
	o := must(f.engine.options(x.changed))
	return x.load(o)
}

func (f *kvFlags) export(x *call) error {
	if f.out == "" {
		return usagef("-o FILE is needed")
	}
	texts := 1
	if f.file != "" {
		texts = 0
	}
	args := must(x.textArgs(texts))
	path := must(x.find())
	throw(refuseOverwrite("-o "+f.out, f.out, path, f.file))
	text := must(x.needText(args, f.file))
	m := must(f.load(x))
	defer m.Close()
	ids := must(m.Tokenize(x.ctx, text, karat.TokenizeOptions{}))
	throw(atomicfile.Write(f.out, func(w io.Writer) error { return m.ExportState(x.ctx, w, ids) }))
	st, err := os.Stat(f.out)
	if err != nil {
		return patherr.Plain(err)
	}
	return x.printf("%s: %s, %s\n", oneLine(f.out), count(len(ids), "token"), bytesText(st.Size()))
}

// readState reads the file of a state.
func readState(path string) ([]byte, *kvfile.File, error) {
	data := must(mmap.ReadFile(path, maxState))
	s, err := kvfile.Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, s, nil
}

func (f *kvFlags) inspect(x *call) error {
	_, k := must2(readState(x.args[0]))
	if f.json {
		return x.json(k)
	}
	fmt.Fprintf(x.out, "program: %s\nmodel: fingerprint %s\ntokens: %d, the state is of the first %d\nelements: %d "+
		"bits\n", oneLine(k.Program), oneLine(k.Model), len(k.Tokens), k.Held, 8*k.Element)
	for _, s := range k.Stores {
		kind := "pages"
		if s.Window > 0 {
			kind = fmt.Sprintf("ring of %d", s.Window)
		}
		fmt.Fprintf(x.out, "layer %d: %s, positions %d to %d, %d heads of %d and %d, %s\n", s.Layer, kind, s.From,
			k.Held-1, s.Heads, s.Dim, s.Values, bytesText(int64(len(s.Data))))
	}
	for i, s := range k.States {
		fmt.Fprintf(x.out, "state %d: a slot, %d elements, %s\n", i, s.Size, bytesText(int64(len(s.Data))))
	}
	return x.printf("checksum: right\n")
}

func (f *kvFlags) verify(x *call) error {
	must(x.find())
	path := x.args[0]
	_, k := must2(readState(path))
	m := must(f.load(x))
	defer m.Close()
	print := must(m.Fingerprint(x.ctx))
	if print != k.Model {
		return fmt.Errorf("%s: of another model, or of other numerics: fingerprint %s, this is %s", path, k.Model,
			print)
	}
	var b bytes.Buffer
	throw(m.ExportState(x.ctx, &b, idsAs[int](k.Tokens)))
	mine, err := kvfile.Parse(b.Bytes())
	if err == nil {
		err = mine.Same(k)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return x.printf("%s: the same bytes\n", oneLine(path))
}

func (f *kvFlags) replay(x *call) error {
	if f.most < 1 {
		return usagef("-n %d: want 1 or more", f.most)
	}
	must(x.find())
	path := x.args[0]
	data := must(mmap.ReadFile(path, maxState))
	m := must(f.load(x))
	defer m.Close()
	s, ids, err := m.ImportState(x.ctx, data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer s.Close()
	more := must(m.Tokenize(x.ctx, f.prompt, karat.TokenizeOptions{OmitSpecial: true}))
	for t, err := range s.GenerateIDs(x.ctx, append(ids, more...), karat.GenerateOptions{MaxTokens: f.most,
		Sampling: &karat.Sampling{}}) {
		if err != nil {
			return err
		}
		text := t.Text
		if isTerminal(x.out) {
			text = printable(text)
		}
		throw(x.printf("%s", text))
	}
	n, kept := s.PromptTokens()
	x.say("%d of %s were in the state", kept, count(n, "token"))
	return x.printf("\n")
}
