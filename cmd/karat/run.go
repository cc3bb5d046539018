package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errEmpty is the error of a text that has no tokens.
var errEmpty = errors.New("the prompt is empty, and the model has no token that begins a text")

// runFlags are the flags of run.
type runFlags struct {
	model        modelArg
	prompt, file string
	chat         chatFlags
	max          int
	stop         []string
	context      int
	sharing      sharing
	json         bool
	logprobs     int
	sampling     samplingFlags
	grammar      grammarFlags
	arithmetic   arithmetic
	lora         adapters
}

func newRunCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [MODEL] [PROMPT]",
		Short: "Continue a text, or chat",
		Long: `Run continues a text and prints the new text as it is generated. The prompt is PROMPT,
the file after -f, or standard input; the last line end of a file is dropped.
The prompt is raw text: no chat template is applied, and names of special tokens are text.

With --chat the prompt is a message of the user, and the model's chat template is applied
to it. Without a prompt and a file, at a terminal, run chats until /bye.
A summary goes to standard error.

Tokens are chosen as the model's publisher recommends, or greedily without a
recommendation. Each sampling flag overrides one setting. The same seed gives the same
text, on every machine and with any number of threads.

With --json-schema, --grammar or --regex every answer fits a schema, a grammar or a pattern
(docs/grammar.md). -n may cut it.

With --json each token is an object on its own line: id, text and logprob, the natural
logarithm of the model's probability of the token. The last line has "stop" (end, stop,
length, interrupted or error), the whole text, whether a template was applied, the ids of
the prompt, the counts, the seconds and the seed. With --logprobs N each token has "top",
the N likeliest in its place, as "karat logits" prints them: of the first token that is
the distribution after the prompt.

Ctrl-C stops the answer, a second Ctrl-C the program. The exit status is then 130.`,
		Example: `  karat run "The color of the sky is"
  karat run model.gguf -n 64 --temp 0.7 --seed 1 "Once upon a time"
  karat run model.gguf --chat --system "Be brief." "Why is the sky blue?"
  karat run model.gguf --lora style.gguf --lora facts:0.5 "Once upon a time"
  karat run model.gguf
  git diff | karat run model.gguf --chat --system "Write a commit message for this diff."
  karat run model.gguf --chat --template-arg enable_thinking=false "2+2?"
  karat run model.gguf --chat --json-schema person.json "Who wrote Faust?"
  karat run --json "The color of the sky is" | tail -n 1 | jq -r .text`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.model.add(c, false)
	fs.StringVarP(&f.prompt, "prompt", "p", "", "`text` of the prompt, which is then no argument")
	f.lora.add(c)
	fs.VarP((*name)(&f.file), "file", "f", "read the prompt from this `file`; - is standard input")
	f.chat.add(fs)
	addMost(fs, &f.max, 256, "most `tokens` to generate; with -1 only the context limits them")
	fs.StringArrayVar(&f.stop, "stop", nil, "end before this `text`; may be given again")
	f.sampling.add(fs)
	f.grammar.add(fs)
	addContext(fs, &f.context, "most `tokens` of prompt and answer together (default: the model's context length, at most 8192)")
	f.sharing.add(c, 0)
	fs.BoolVar(&f.json, "json", false, "print JSON: a line for each token, then a summary")
	fs.IntVar(&f.logprobs, "logprobs", 0, "with --json, list this `number` of likeliest tokens for each token")
	f.arithmetic.add(c, karat.Fast)
	return c
}

// options checks the flags.
func (f *runFlags) options(fs *pflag.FlagSet) (o karat.Options, g karat.GenerateOptions, err error) {
	if o, err = f.arithmetic.options(); err != nil {
		return o, g, err
	}
	o.Context, o.Adapters = f.context, f.lora
	if err = cmp.Or(f.sharing.set(&o, fs.Changed), f.sampling.check()); err != nil {
		return o, g, err
	}
	switch {
	case f.max == 0 || f.max < -1:
		return o, g, usagef("-n %d: want 1 or more, or -1 for no limit", f.max)
	case f.logprobs < 0 || f.logprobs > maxTop:
		return o, g, usagef("--logprobs %d: want 0 to %d", f.logprobs, maxTop)
	case f.logprobs > 0 && !f.json:
		return o, g, usagef("--logprobs needs --json")
	case (f.context < 1 || f.context > model.MaxContext) && fs.Changed("ctx"):
		return o, g, usagef("--ctx %d: want 1 to %d", f.context, model.MaxContext)
	}
	for _, s := range f.stop {
		if s == "" {
			return o, g, usagef("--stop: the text is empty")
		}
	}
	g = karat.GenerateOptions{MaxTokens: f.max, Stop: f.stop, Logprobs: f.json, Logits: f.logprobs > 0}
	if g.Grammar, err = f.grammar.grammar(); err != nil {
		return o, g, err
	}
	g.Template, g.TemplateArgs, err = f.chat.template()
	return o, g, err
}

// arguments takes MODEL from the arguments and returns the prompt alone, if there is one.
func (f *runFlags) arguments(args []string, prompted bool) ([]string, error) {
	args, err := f.model.takeBefore(args, 1)
	switch {
	case err == nil && prompted && len(args) > 0:
		return nil, usagef("the prompt is given twice: -p and %q", args[0])
	case err == nil && prompted:
		return []string{f.prompt}, nil
	}
	return args, err
}

func (f *runFlags) run(c *cobra.Command, args []string) error {
	o, g, err := f.options(c.Flags())
	if err != nil {
		return err
	}
	if args, err = f.arguments(args, c.Flags().Changed("prompt")); err != nil {
		return err
	}
	path, err := f.model.find(c)
	if err != nil {
		return err
	}
	prompt, ok, err := readInput(context.Background(), c, args, f.file)
	switch {
	case err != nil:
		return err
	case ok && len(args) == 0 && prompt == "":
		return usagef("the prompt is empty; give \"\" if that is meant")
	case !ok && f.json:
		return usagef("--json needs a prompt")
	case ok && !f.chat.chat && f.chat.given():
		return usagef("--system, --chat-template and --template-arg need --chat")
	}
	ctx, stop := untilSignal()
	defer stop()
	m, err := loadModel(ctx, path, o, c.ErrOrStderr())
	if err != nil && ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	if err != nil {
		return err
	}
	defer m.Close()
	sampling := f.sampling.over(m.Sampling())
	g.Sampling = &sampling
	s := m.NewSession()
	defer s.Close()
	to := output{out: c.OutOrStdout(), log: c.ErrOrStderr(), json: f.json, session: s, context: m.Info().Context, sampling: sampling, template: "none", adapters: f.lora}
	if f.chat.chat || !ok {
		to.template = f.chat.source()
	}
	if !ok {
		applied, err := f.chat.describe(ctx, m, "Hello", g)
		if err != nil {
			return err // now, and not after the user has written something
		}
		fmt.Fprintln(to.log, "karat:", applied)
		stop() // converse listens itself
		return f.chat.converse(c, m, g, to)
	}
	a := answer{output: to}
	tokens, err := f.tokens(ctx, m, prompt, g, &a)
	if err != nil {
		tokens = func(yield func(karat.Token, error) bool) { yield(karat.Token{}, err) }
	}
	return a.write(ctx, tokens)
}

// tokens are those after a prompt, whose ids a tells in JSON.
func (f *runFlags) tokens(ctx context.Context, m *karat.Model, prompt string, g karat.GenerateOptions, a *answer) (iter.Seq2[karat.Token, error], error) {
	applied := "raw text: no chat template is applied"
	if f.chat.chat {
		var err error
		if applied, err = f.chat.describe(ctx, m, prompt, g); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(a.log, "karat:", applied)
	switch {
	case f.json:
		ids, _, err := f.chat.ids(ctx, m, prompt, g)
		a.ids, a.logprobs, a.name = ids, f.logprobs, m.TokenText
		g.Template, g.TemplateArgs = "", nil // which the ids have
		return a.session.GenerateIDs(ctx, ids, g), err
	case f.chat.chat:
		return a.session.Chat(ctx, f.chat.messages(prompt), g), nil
	case prompt == "":
		if ids, err := m.Tokenize(ctx, prompt, karat.TokenizeOptions{}); err != nil || len(ids) == 0 {
			return nil, cmp.Or(err, errEmpty)
		}
	}
	return a.session.Generate(ctx, prompt, g), nil
}
