package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errEmpty is the error of a text that has no tokens.
var errEmpty = errors.New("the prompt is empty, and the model has no token that begins a text")

// runFlags are the flags of run.
type runFlags struct {
	model      modelArg
	prompt     string
	files      []string
	chat       chatFlags
	max        int // 0 is the default: defaultMost of a raw text, none of a chat
	stop       []string
	context    int
	sharing    sharing
	json       bool
	logprobs   int
	sampling   samplingFlags
	grammar    grammarFlags
	arithmetic arithmetic
	lora       adapters

	verbose, plain, keepAll, noHistory bool
}

// defaultMost is how many tokens continue a raw text, which seldom ends by itself.
const defaultMost = 256

func newRunCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [MODEL] [PROMPT]",
		Short: "Continue a text, or chat",
		Long: `Run continues a text, or answers a message with --chat. Without a prompt, at a terminal, it
chats until /bye; /help lists the commands there.

MODEL is a file, a folder, a pulled name or a reference such as hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M,
which is downloaded first if it is not here yet (see --pull). Without MODEL the small demo
model inside the program answers.

The prompt is PROMPT or the text after -p, then the files after -f, then standard input, with
an empty line between them. A trailing newline of a file is removed. Without --chat the prompt
is raw text: no chat template is applied, and special-token names such as <eos> have no effect.

The answer goes to standard output, and warnings to standard error. At a terminal, Markdown is
shown, and reasoning is dim and folded when it ends. Elsewhere the answer comes as it is,
without the reasoning.

Tokens are chosen as the model's publisher recommends, or greedily without a recommendation.
Each sampling flag overrides one setting. The same seed gives the same text, on every machine
and with any number of threads.

With --json-schema, --grammar or --regex every answer fits a schema, a grammar or a pattern
(docs/grammar.md), unless -n cuts it off.

With --json each token is an object on its own line: id, text and logprob, the natural
logarithm of the model's probability of the token. The last line has "stop" (end, stop,
length, interrupted or error), the text of the answer, its reasoning, whether a template was
applied, the ids of the prompt, the counts, the seconds and the seed. With --logprobs N each
token has "top", the N likeliest in its place, as "karat logits" prints them.

Ctrl-C stops the answer, a second Ctrl-C the program. The exit status is then 130.`,
		Example: `  karat run "The color of the sky is"
  karat run model.gguf
  karat run model.gguf --chat "Why is the sky blue?"
  karat run --pull hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M --chat "Why is the sky blue?"
  karat run model.gguf -n 64 --temp 0.7 --seed 1 "Once upon a time"
  git diff | karat run model.gguf --system "Be brief." "Write a commit message for this diff."
  karat run model.gguf --no-think "2+2?"
  karat run model.gguf --chat --json-schema person.json "Who wrote Faust?"
  karat run --json "The color of the sky is" | tail -n 1 | jq -r .text`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.add(c)
	return c
}

// add registers the flags.
func (f *runFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.SortFlags = false
	f.model.add(c, false)
	fs.StringVarP(&f.prompt, "prompt", "p", "", "`text` of the prompt, which is then no argument")
	fs.StringArrayVarP(&f.files, "file", "f", nil, "add this `file` to the prompt; - is standard input; may be given again")
	f.chat.add(fs)
	f.chat.reasoning.add(fs)
	addMost(fs, &f.max, 0, "maximum `tokens` to generate, -1 for no limit (default: 256 for a raw text, -1 for a chat)")
	fs.StringArrayVar(&f.stop, "stop", nil, "end before this `text`; may be given again")
	f.sampling.add(fs)
	f.grammar.add(fs)
	addContext(fs, &f.context, "maximum `tokens` of prompt and answer (default: the model's context, at most 8192)")
	fs.BoolVar(&f.keepAll, "keep-all", false, "in a chat whose context is full, refuse a message instead of dropping the oldest ones")
	fs.BoolVar(&f.noHistory, "no-history", false, "keep neither the lines nor the conversation of a chat on disk")
	fs.BoolVar(&f.plain, "plain", false, "show the answer as it is, without Markdown and colors")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print the speeds, and which chat template is applied")
	f.lora.add(c)
	f.sharing.add(c, 0)
	_ = fs.MarkHidden("parallel") // a run has one request
	fs.BoolVar(&f.json, "json", false, "print JSON: a line for each token, then a summary")
	fs.IntVar(&f.logprobs, "logprobs", 0, "with --json, list this `number` of likeliest tokens for each token")
	f.arithmetic.add(c, karat.Fast)
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
	case f.max < -1 || f.max == 0 && fs.Changed("tokens"):
		return o, g, usagef("-n %d: want 1 or more, or -1 for no limit", f.max)
	case f.logprobs < 0 || f.logprobs > maxTop:
		return o, g, usagef("--logprobs %d: want 0 to %d", f.logprobs, maxTop)
	case f.logprobs > 0 && !f.json:
		return o, g, usagef("--logprobs needs --json")
	case (f.context < 1 || f.context > model.MaxContext) && fs.Changed("ctx"):
		return o, g, usagef("--ctx %d: want 1 to %d", f.context, model.MaxContext)
	case f.chat.reasoning.think && f.chat.reasoning.no:
		return o, g, usagef("--think, --no-think: give one of them")
	}
	for _, s := range f.stop {
		if s == "" {
			return o, g, usagef("--stop: the text is empty")
		}
	}
	g = karat.GenerateOptions{Stop: f.stop, Logprobs: f.json, Logits: f.logprobs > 0}
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
	if _, _, err := f.model.look(c); err != nil {
		return err
	}
	if f.model.name == "" && len(args) > 0 && f.prompt == "" && hub.CheckName(args[0]) == nil {
		fmt.Fprintf(c.ErrOrStderr(), "karat: %q is taken for a prompt, since no model has this name; \"karat list\" shows the names\n", args[0])
	}
	prompt, ok, err := joinInput(context.Background(), c, args, f.files)
	switch {
	case err != nil:
		return err
	case !ok && !isTerminal(c.InOrStdin()), ok && len(args) == 0 && prompt == "":
		return usagef("the prompt is empty; give \"\" if that is meant")
	case !ok && f.json:
		return usagef("--json needs a prompt")
	}
	path, err := f.model.find(c) // a download, once there is a prompt
	if err != nil {
		return err
	}
	if g.Grammar != nil && len(g.Grammar.Ignored()) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "karat: warning: the answer is not held to these unknown formats: %s\n", oneLine(strings.Join(g.Grammar.Ignored(), ", ")))
	}
	f.chat.imply()
	f.chat.chat = f.chat.chat || !ok
	ctx, stop := untilSignal()
	defer stop()
	m, err := loadModel(ctx, path, o, c.ErrOrStderr())
	if err != nil && ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	if err != nil {
		return err
	}
	t := &talk{flags: f, command: c, options: o, g: g}
	t.use(m)
	defer func() { t.close() }()
	if !ok {
		if err := t.describe(ctx, "Hello"); err != nil {
			return err // now, and not after the user has written something
		}
		stop() // converse listens itself
		return t.converse()
	}
	t.hintSampling("--temp 0.8")
	a := answer{output: t.output()}
	tokens, err := t.tokens(ctx, prompt, &a)
	if err != nil {
		tokens = func(yield func(karat.Token, error) bool) { yield(karat.Token{}, err) }
	}
	return a.write(ctx, tokens)
}

// talk is a model that is asked.
type talk struct {
	flags   *runFlags
	command *cobra.Command
	options karat.Options
	g       karat.GenerateOptions
	model   *karat.Model
	session *karat.Session
}

// use makes m the model that is asked, in place of another one.
func (t *talk) use(m *karat.Model) {
	t.close()
	t.model, t.session = m, m.NewSession()
}

func (t *talk) close() {
	if t.model != nil {
		t.session.Close()
		t.model.Close()
	}
}

// output returns where an answer goes, with a new seed for its draws.
func (t *talk) output() output {
	f := t.flags
	o := output{out: t.command.OutOrStdout(), log: t.command.ErrOrStderr(), json: f.json, verbose: f.verbose, session: t.session,
		context: t.model.Info().Context, sampling: f.sampling.over(t.model.Sampling()), template: "none", adapters: f.lora}
	if f.chat.chat {
		o.template = f.chat.source()
	}
	t.g.Sampling = &o.sampling
	t.g.MaxTokens = f.max
	if f.max == 0 {
		t.g.MaxTokens, o.cut = -1, true
		if !f.chat.chat {
			t.g.MaxTokens = defaultMost
		}
	}
	if !f.json {
		o.screen = newScreen(o.out, f.plain || !f.chat.chat || t.g.Grammar != nil, f.chat.reasoning.hide)
	}
	return o
}

// describe checks that the chat template can be applied to a user's first message, and says which it is with -v.
func (t *talk) describe(ctx context.Context, user string) error {
	applied, err := t.flags.chat.describe(ctx, t.model, user, t.g)
	if err == nil && t.flags.verbose {
		fmt.Fprintln(t.command.ErrOrStderr(), "karat:", applied)
	}
	return err
}

// hintSampling says at a terminal how to have other answers, if the likeliest token is taken because nobody said what to do.
func (t *talk) hintSampling(how string) {
	c := t.command
	if t.flags.sampling.over(t.model.Sampling()).Temperature > 0 || c.Flags().Changed("temp") || t.flags.json || !isTerminal(c.OutOrStdout()) {
		return
	}
	fmt.Fprintf(c.ErrOrStderr(), "karat: greedy, as the model recommends no sampling; %s varies the answers\n", how)
}

// tokens returns the tokens after a prompt, whose ids a says in JSON.
func (t *talk) tokens(ctx context.Context, prompt string, a *answer) (iter.Seq2[karat.Token, error], error) {
	f, g := t.flags, t.g
	var ids []int
	if f.chat.chat {
		if err := t.describe(ctx, prompt); err != nil {
			return nil, err
		}
		r, err := f.chat.request(ctx, t.model, f.chat.messages(prompt), g, f.grammar.turn)
		if err != nil {
			return nil, err
		}
		ids, g, a.parser = r.ids, r.g, r.parser
	} else {
		if t.model.ExceedsContext(prompt) {
			return nil, karat.ErrFull
		}
		var err error
		if ids, err = t.model.Tokenize(ctx, prompt, karat.TokenizeOptions{}); err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, errEmpty
		}
		if f.verbose {
			fmt.Fprintln(a.log, "karat: raw text: no chat template is applied")
		}
	}
	a.ids, a.logprobs, a.name = ids, f.logprobs, t.model.TokenText
	return t.session.GenerateIDs(ctx, ids, g), nil
}
