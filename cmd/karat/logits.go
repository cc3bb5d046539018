package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/lab"
	"github.com/spf13/cobra"
)

// maxTop bounds a list of likeliest tokens.
const maxTop = 1 << 20

// textFlags are the flags of commands computing a text after MODEL and showing tokens.
type textFlags struct {
	file   string
	top    int
	tokens []string
	chat   chatFlags
	json   bool
	engine engineFlags
}

func (f *textFlags) add(c *command) {
	c.texts = true
	c.takesModel()
	c.flags("file", file(&f.file), "top", &f.top, "token", &f.tokens)
	f.chat.add(c)
	c.flags("json", &f.json)
	f.engine.add(c, karat.Fast)
	c.flags("lora", f.engine.addLora)
}

// options checks the flags.
func (f *textFlags) options(x *call) (karat.Options, error) {
	f.chat.imply()
	if f.top < 0 || f.top > maxTop {
		return karat.Options{}, usagef("--top %d: want 0 to %d", f.top, maxTop)
	}
	return f.engine.options(x.changed)
}

// text takes MODEL from the arguments, and returns the text.
func (f *textFlags) text(x *call) (string, error) {
	texts := 1
	if f.file != "" {
		texts = 0
	}
	args := must(x.textArgs(texts))
	must(x.find())
	return x.needText(args, f.file)
}

// tokenIDs returns the ids of --token.
func (f *textFlags) tokenIDs(ctx context.Context, m *karat.Model) (ids []int) {
	for _, t := range f.tokens {
		ids = append(ids, must(tokenID(ctx, m, t)))
	}
	return ids
}

// logitsFlags are the flags of logits.
type logitsFlags struct {
	textFlags
	against string
	prompt  int
}

func newLogitsCommand() *cobra.Command {
	var f logitsFlags
	f.top = 10
	c := define("logits", f.run)
	f.add(c)
	c.flags("against", file(&f.against), "prompt-index", &f.prompt)
	rename(c.Flags(), "prompt", "p", "TEXT is the argument; the index of a dump's prompt is --prompt-index")
	return c.Command
}

// logitsReport is the JSON of logits.
type logitsReport struct {
	Model    string         `json:"model"`
	Template string         `json:"template"` // none, model, dump, or a file's name
	IDs      []int          `json:"ids"`
	Vocab    int            `json:"vocab_size"`
	Against  *logitsAgainst `json:"against,omitempty"`
	*lab.Next
}

// logitsAgainst is the prompt of another engine's dump.
type logitsAgainst struct {
	Path   string `json:"path"`
	Prompt int    `json:"prompt"`
}

func (f *logitsFlags) run(x *call) error {
	o := must(f.options(x))
	var text string
	byPrompt := x.changed("prompt-index")
	switch {
	case !byPrompt:
		text = must(f.text(x))
	case f.against == "":
		return usagef("--prompt-index needs --against DUMP")
	case f.chat.chat || f.file != "":
		return usagef("--prompt-index takes the dump's ids: --chat and -f do not work with it")
	default:
		must(x.textArgs(0))
	}
	g := must(f.chat.options())
	var dump *lab.Record
	if f.against != "" {
		dump = must(lab.ReadDump(f.against))
		defer dump.Close()
	}
	m := must(x.load(o))
	defer m.Close()
	r := logitsReport{Model: m.Info().Path}
	if !byPrompt {
		r.IDs, r.Template = must2(f.chat.ids(x.ctx, m, text, g))
	} else if p := dump.Prompt(f.prompt); p == nil || len(p.IDs) == 0 {
		return fmt.Errorf("%s: no prompt %d with ids", f.against, f.prompt)
	} else {
		r.IDs, r.Template = idsAs[int](p.IDs), "dump"
	}
	f.compute(x, m, dump, &r)
	if f.json {
		return x.json(r)
	}
	return x.printf("%s", r.text())
}

// compute computes the logits of r's ids.
func (f *logitsFlags) compute(x *call, m *karat.Model, dump *lab.Record, r *logitsReport) {
	tokens := f.tokenIDs(x.ctx, m)
	var other []float64
	if dump != nil {
		at, logits := must2(dump.Last(idsAs[int32](r.IDs)))
		r.Against, other = &logitsAgainst{f.against, at}, logits
	}
	logits := must(nextLogits(x.ctx, m, r.IDs))
	r.Vocab = len(logits)
	r.Next = must(lab.NewNext(logits, other, f.top, tokens))
	r.Name(m.TokenText)
}

// nextLogits returns the logits after ids, in float64.
func nextLogits(ctx context.Context, m *karat.Model, ids []int) ([]float64, error) {
	for t, err := range m.GenerateIDs(ctx, ids, karat.GenerateOptions{MaxTokens: 1, Logits: true,
		Sampling: &karat.Sampling{}}) {
		if err != nil {
			return nil, err
		}
		return lab.Widen(t.Logits), nil
	}
	return nil, errors.New("no token follows: the context is full")
}

func (r *logitsReport) text() string {
	var b strings.Builder
	said := map[string]string{"none": "raw text, no chat template", "model": "the model's chat template",
		"dump": "as the dump has them"}
	fmt.Fprintf(&b, "%s: %s\n", count(len(r.IDs), "id"), shorten(numberList(r.IDs), 400))
	fmt.Fprintf(&b, "template: %s\n", oneLine(cmp.Or(said[r.Template], r.Template)))
	if r.Against != nil {
		fmt.Fprintf(&b, "theirs: prompt %d of %s\n", r.Against.Prompt, oneLine(r.Against.Path))
	}
	return b.String() + r.Next.Text()
}

// tokenID returns the token of an id, or of a text, in quotation marks or not. A text of several tokens is an error.
func tokenID(ctx context.Context, m *karat.Model, s string) (int, error) {
	vocab := m.Info().VocabSize
	if id, err := strconv.Atoi(s); err == nil {
		if id < 0 || id >= vocab {
			return 0, usagef("--token %d: want 0 to %d", id, vocab-1)
		}
		return id, nil
	}
	s = unquoted(s)
	ids, err := m.Tokenize(ctx, s, karat.TokenizeOptions{ParseSpecial: true, OmitSpecial: true})
	if err != nil {
		return 0, err
	}
	if len(ids) == 1 && m.TokenText(ids[0]) == s {
		return ids[0], nil
	}
	for id := range vocab { // a tokenizer with a space before a text cannot spell some tokens alone
		if string(m.TokenBytes(id)) == s {
			return id, nil
		}
	}
	if len(ids) == 1 {
		return ids[0], nil
	}
	var parts []string
	for _, id := range ids[:min(len(ids), 8)] {
		parts = append(parts, fmt.Sprintf("%d (%s)", id, strconv.Quote(m.TokenText(id))))
	}
	return 0, usagef("--token %q is no token of this model but %s: %s", s, count(len(ids), "token"),
		strings.Join(parts, ", "))
}
