package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/lab"
	"github.com/spf13/cobra"
)

// maxTop bounds a list of likeliest tokens.
const maxTop = 1 << 20

type logitsFlags struct {
	named                modelArg
	model, file, against string
	prompt, top          int
	tokens               []string
	chat                 chatFlags
	json                 bool
	arithmetic           arithmetic
	lora                 adapters
}

func newLogitsCommand() *cobra.Command {
	var f logitsFlags
	c := &cobra.Command{
		Use:   "logits [MODEL] TEXT",
		Short: "Show the logits of the next token after a text, beside another engine's",
		Long: `Logits computes a text once and prints the likeliest next tokens: rank, id, logit, and the
natural logarithm of the probability. It prints the text's ids, and whether a chat template
was applied: none is without --chat. With one argument, that is TEXT.

--token shows a token whatever its rank: an id, or its text. In quotation marks digits are text.

--against reads another engine's dump (a record, or a folder of NumPy files), finds the prompt with
the same ids, and prints that engine's numbers beside these. If no prompt has these ids, it says
where the nearest differs. --prompt-index N takes the ids of the dump's prompt N in the place of TEXT.`,
		Example: `  karat logits model.gguf "The color of the sky is"
  karat logits model.gguf "The color of the sky is" --token 138 --token " blue"
  karat logits model.gguf --chat "Why is the sky blue?" --json | jq '.top[0]'
  karat logits model.gguf "The color of the sky is" --against theirs.safetensors
  karat logits model.gguf --against theirs.safetensors --prompt-index 2`,
		Args: atMost(2, "quote the text"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.named.add(c, false)
	fs.VarP((*name)(&f.file), "file", "f", "read the text from this `file`; - is standard input")
	fs.IntVar(&f.top, "top", 10, "how many likeliest `tokens` to show")
	fs.StringArrayVar(&f.tokens, "token", nil, "show this `token`, an id or its text; may be given again")
	fs.Var((*name)(&f.against), "against", "`dump` of another engine to show beside")
	fs.IntVar(&f.prompt, "prompt-index", 0, "take the ids of the dump's prompt of this `index`")
	renamed(fs, "prompt", "p", "TEXT is the argument; the index of a dump's prompt is --prompt-index")
	f.chat.add(fs)
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	f.arithmetic.add(c, karat.Fast)
	f.lora.add(c)
	return c
}

// logitsReport is what --json prints.
type logitsReport struct {
	Model    string         `json:"model"`
	Template string         `json:"template"` // none, model, dump, or the file of one
	IDs      []int          `json:"ids"`
	Vocab    int            `json:"vocab_size"`
	Against  *logitsAgainst `json:"against,omitempty"`
	*lab.Next
}

type logitsAgainst struct {
	Path   string `json:"path"`
	Prompt int    `json:"prompt"`
}

func (f *logitsFlags) run(c *cobra.Command, args []string) error {
	o, err := f.arithmetic.options()
	if err != nil {
		return err
	}
	byPrompt := c.Flags().Changed("prompt-index")
	if args, err = f.check(c, byPrompt, args); err != nil {
		return err
	}
	var text string
	if !byPrompt {
		ok := false
		if text, ok, err = readInput(context.Background(), c, args, f.file); err != nil {
			return err
		}
		if !ok {
			return usagef("give TEXT, -f FILE, or a text on standard input")
		}
	}
	var g karat.GenerateOptions
	if g.Template, g.TemplateArgs, err = f.chat.template(); err != nil {
		return err
	}
	var dump *lab.Record
	if f.against != "" {
		if dump, err = lab.ReadDump(f.against); err != nil {
			return err
		}
		defer dump.Close()
	}
	ctx, stop := untilSignal()
	defer stop()
	o.Adapters = f.lora
	m, err := loadModel(ctx, f.model, o, c.ErrOrStderr())
	if err == nil {
		defer m.Close()
		err = f.show(ctx, c.OutOrStdout(), m, dump, byPrompt, text, g)
	}
	if err != nil && ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	return err
}

// check checks the flags against each other, takes MODEL from args if it is there, and returns the others.
func (f *logitsFlags) check(c *cobra.Command, byPrompt bool, args []string) ([]string, error) {
	f.chat.imply()
	texts := 1 // arguments that are no MODEL
	if byPrompt || f.file != "" {
		texts = 0
	}
	switch {
	case f.top < 0 || f.top > maxTop:
		return nil, usagef("--top %d: want 0 to %d", f.top, maxTop)
	case byPrompt && f.against == "":
		return nil, usagef("--prompt-index needs --against DUMP")
	case byPrompt && (f.chat.chat || f.file != ""):
		return nil, usagef("--prompt-index takes the dump's ids: --chat and -f do not work with it")
	}
	args, err := f.named.takeBefore(args, texts)
	if err == nil {
		f.model, err = f.named.find(c)
	}
	return args, err
}

// ids are those of the text or of the dump's prompt, and where the template is from.
func (f *logitsFlags) ids(ctx context.Context, m *karat.Model, dump *lab.Record, byPrompt bool, text string, g karat.GenerateOptions) (ids []int, template string, err error) {
	if !byPrompt {
		return f.chat.ids(ctx, m, text, g)
	}
	p := dump.Prompt(f.prompt)
	if p == nil || len(p.IDs) == 0 {
		return nil, "", fmt.Errorf("%s: no prompt %d with ids", f.against, f.prompt)
	}
	for _, id := range p.IDs {
		ids = append(ids, int(id))
	}
	return ids, "dump", nil
}

// show computes and prints.
func (f *logitsFlags) show(ctx context.Context, w io.Writer, m *karat.Model, dump *lab.Record, byPrompt bool, text string, g karat.GenerateOptions) error {
	ids, template, err := f.ids(ctx, m, dump, byPrompt, text, g)
	if err != nil {
		return err
	}
	var tokens []int
	for _, t := range f.tokens {
		id, err := tokenID(ctx, m, t)
		if err != nil {
			return err
		}
		tokens = append(tokens, id)
	}
	r := logitsReport{Model: cmp.Or(f.model, demoName), Template: template, IDs: ids}
	var other []float64
	if dump != nil {
		var narrow []int32
		for _, id := range ids {
			narrow = append(narrow, int32(id))
		}
		at, logits, err := dump.Last(narrow)
		if err != nil {
			return err
		}
		r.Against, other = &logitsAgainst{f.against, at}, logits
	}
	logits, err := nextLogits(ctx, m, ids)
	if err != nil {
		return err
	}
	r.Vocab = len(logits)
	if r.Next, err = lab.NewNext(logits, other, f.top, tokens); err != nil {
		return err
	}
	r.Name(m.TokenText)
	if f.json {
		e := newEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	_, err = io.WriteString(w, r.text())
	return err
}

// nextLogits is the logits after ids, in float64. Those of the positions before are not kept.
func nextLogits(ctx context.Context, m *karat.Model, ids []int) ([]float64, error) {
	for t, err := range m.GenerateIDs(ctx, ids, karat.GenerateOptions{MaxTokens: 1, Logits: true, Sampling: &karat.Sampling{}}) {
		if err != nil {
			return nil, err
		}
		return lab.Widen(t.Logits), nil
	}
	return nil, errors.New("no token follows: the context is full")
}

func (r *logitsReport) text() string {
	var b strings.Builder
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.IDs), " ", ","), "[]")
	said := map[string]string{"none": "raw text, no chat template", "model": "the model's chat template", "dump": "as the dump has them"}
	fmt.Fprintf(&b, "%s: %s\n", count(len(r.IDs), "id"), shorten(list, 400))
	fmt.Fprintf(&b, "template: %s\n", oneLine(cmp.Or(said[r.Template], r.Template)))
	if r.Against != nil {
		fmt.Fprintf(&b, "theirs: prompt %d of %s\n", r.Against.Prompt, oneLine(r.Against.Path))
	}
	return b.String() + r.Next.Text()
}

// tokenID is the token of an id, or of a text, in quotation marks or not. A text that is several tokens is an error.
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
	for id := range vocab { // tokenizers that add a space before a text do not make all of their tokens of one
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
	return 0, usagef("--token %q is no token of this model but %s: %s", s, count(len(ids), "token"), strings.Join(parts, ", "))
}
