package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/mcp"
	"github.com/spf13/cobra"
)

// errEmpty is the error of a text without tokens.
var errEmpty = errors.New("the prompt is empty, and the model has no token that begins a text")

// runFlags are the flags of run.
type runFlags struct {
	prompt   string
	files    []string
	images   []string
	chat     chatFlags
	max      int // 0 is the default: defaultMost of a raw text, none of a chat
	stop     []string
	json     bool
	logprobs int
	sampling samplingFlags
	grammar  grammarFlags
	engine   engineFlags
	receipt  receiptFlags
	tools    toolFlags

	verbose, plain, keepAll, noHistory bool
}

// defaultMost is the number of tokens after a raw text, which seldom ends by itself.
const defaultMost = 256

func newRunCommand() *cobra.Command {
	var f runFlags
	c := define("run", f.run)
	c.texts = true
	c.takesModel()
	c.flags("prompt", &f.prompt, "file", &f.files, "image", &f.images)
	f.chat.add(c)
	f.chat.reasoning.add(c)
	c.flags("tokens", &f.max, "stop", &f.stop)
	f.sampling.add(c)
	f.grammar.add(c)
	c.flags("ctx", &f.engine.context, "keep-all", &f.keepAll, "no-history", &f.noHistory, "plain", &f.plain,
		"verbose", &f.verbose, "lora", f.engine.addLora, "mmproj", file(&f.engine.projector))
	f.engine.addSharing(c)
	f.engine.addDraft(c)
	_ = c.Flags().MarkHidden("parallel") // a run has a single request
	c.flags("json", &f.json, "logprobs", &f.logprobs)
	f.receipt.add(c)
	f.tools.add(c)
	f.engine.add(c, karat.Fast)
	return c.Command
}

// options checks the flags.
func (f *runFlags) options(changed func(flag string) bool) (o karat.Options, g karat.GenerateOptions, err error) {
	o = must(f.engine.options(changed))
	throw(f.sampling.check())
	switch {
	case f.max < -1 || f.max == 0 && changed("tokens"):
		return o, g, usagef("-n %d: want 1 or more, or -1 for no limit", f.max)
	case f.logprobs < 0 || f.logprobs > maxTop:
		return o, g, usagef("--logprobs %d: want 0 to %d", f.logprobs, maxTop)
	case f.logprobs > 0 && !f.json:
		return o, g, usagef("--logprobs needs --json")
	case f.chat.reasoning.think && f.chat.reasoning.no:
		return o, g, usagef("--think, --no-think: give one of them")
	case f.receipt.check() != nil:
		return o, g, f.receipt.check()
	case f.tools.check(f.json, f.receipt.out != "") != nil:
		return o, g, f.tools.check(f.json, f.receipt.out != "")
	case slices.Contains(f.stop, ""):
		return o, g, usagef("--stop: the text is empty")
	}
	g = must(f.chat.options())
	g.Stop, g.Logprobs, g.Logits = f.stop, f.json, f.logprobs > 0
	g.Grammar, err = f.grammar.grammar()
	return o, g, err
}

// text returns the prompt, and whether there is a prompt, and takes MODEL from the arguments.
func (f *runFlags) text(x *call) (string, bool, error) {
	args := must(x.textArgs(1))
	if x.changed("prompt") {
		if len(args) > 0 {
			return "", false, usagef("the prompt is given twice: -p and %q", args[0])
		}
		args = []string{f.prompt}
	}
	must2(x.look(x.model))
	if x.model.name == "" && len(args) > 0 && f.prompt == "" && hub.CheckName(args[0]) == nil {
		x.say("%q is taken for a prompt, since no model has this name; \"karat list\" shows the names", args[0])
	}
	prompt, ok := x.joinInput(args, f.files)
	switch {
	case !ok && !isTerminal(x.in), ok && len(args) == 0 && prompt == "":
		return "", false, usagef("the prompt is empty; give \"\" if that is meant")
	case !ok && f.json:
		return "", false, usagef("--json needs a prompt")
	}
	return prompt, ok, nil
}

func (f *runFlags) run(x *call) error {
	o, g := must2(f.options(x.changed))
	f.chat.images = must(x.readImages(f.images))
	prompt, ok := must2(f.text(x))
	if !ok && len(f.images) > 0 {
		return usagef("--image needs a prompt; in a chat /image shows a picture")
	}
	servers := must(f.tools.read())
	path := must(x.find()) // a download, once there is a prompt
	if g.Grammar != nil && len(g.Grammar.Ignored()) > 0 {
		x.say("warning: the answer is not held to these unknown formats: %s",
			oneLine(strings.Join(g.Grammar.Ignored(), ", ")))
	}
	f.chat.imply()
	f.chat.chat = f.chat.chat || !ok || servers != nil
	if !ok && f.receipt.out != "" {
		return usagef("--receipt needs a prompt")
	}
	if f.receipt.out != "" { // before the work
		f.receipt.signer = must(signingKey(x, f.receipt.key))
	}
	m := must(loadModel(x.ctx, path, o, x.log))
	if len(f.images) > 0 && !m.Sees() {
		m.Close()
		return fmt.Errorf("--image: %w; --mmproj names the file for pictures of a GGUF model", karat.ErrBlind)
	}
	t := &talk{flags: f, call: x, options: o, g: g}
	t.use(m)
	defer func() { t.close() }()
	if servers != nil {
		throw(t.start(servers))
		defer t.tools.Close()
	}
	if !ok {
		throw(t.describe(x.ctx, "Hello")) // now, and not after the user has written something
		x.stop()                          // converse listens itself
		x.ctx = context.Background()
		return t.converse()
	}
	t.hintSampling("--temp 0.8")
	messages := f.chat.messages(prompt)
	for turn := 1; ; turn++ {
		a := answer{output: t.output()}
		tokens, err := t.answer(x.ctx, prompt, messages, &a)
		if err != nil {
			tokens = func(yield func(karat.Token, error) bool) { yield(karat.Token{}, err) }
		}
		if throw(a.write(x.ctx, tokens)); t.g.Receipt != nil {
			return f.receipt.write(t.g.Receipt)
		}
		if a.calls == nil {
			return nil
		}
		messages = append(messages, must(t.callTools(x.ctx, &a, turn))...)
	}
}

// talk is a conversation's model with its session.
type talk struct {
	flags   *runFlags
	call    *call
	options karat.Options
	g       karat.GenerateOptions
	model   *karat.Model
	session *karat.Session
	tools   *mcp.Tools // nil for none
	calls   int        // of tools so far

	ask func(ctx context.Context) (string, error) // reads the user's answer to a question
}

// use makes m the model of the conversation, in place of another.
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
	o := output{out: t.call.out, log: t.call.log, json: f.json, verbose: f.verbose, session: t.session,
		context: t.model.Info().Context, sampling: f.sampling.override(t.model.Sampling()), template: "none",
		adapters: f.engine.lora}
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

// describe checks the chat template with a user's first message, and names the template with -v.
func (t *talk) describe(ctx context.Context, user string) error {
	applied, err := t.flags.chat.describe(ctx, t.model, user, t.g)
	if err == nil && t.flags.verbose {
		t.call.say("%s", applied)
	}
	return err
}

// hintSampling explains at a terminal how to get other answers, for greedy choices wished by nobody.
func (t *talk) hintSampling(how string) {
	drawn := t.flags.sampling.override(t.model.Sampling()).Temperature > 0
	if !drawn && !t.call.changed("temp") && !t.flags.json && isTerminal(t.call.out) {
		t.call.say("greedy, as the model recommends no sampling; %s varies the answers", how)
	}
}

// answer returns the tokens after a prompt, or after messages in a chat. a says its ids in JSON.
func (t *talk) answer(ctx context.Context, prompt string, messages []karat.Message, a *answer) (
	iter.Seq2[karat.Token, error], error) {
	f := t.flags
	if f.receipt.out != "" {
		t.g.Receipt = t.model.NewReceipt()
	}
	if err := t.offerTools(ctx); err != nil {
		return nil, err
	}
	g := t.g
	var ids []int
	var r request
	if f.chat.chat {
		if err := t.describe(ctx, prompt); err != nil {
			return nil, err
		}
		var err error
		r, err = f.chat.request(ctx, t.model, messages, g, f.grammar.turn)
		if err != nil {
			return nil, err
		}
		ids, g, a.parser = r.ids, r.g, r.parser
		if g.Receipt != nil {
			g.Receipt.RenderedBy(t.model, g.Template)
		}
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
	r.ids, a.ids, a.logprobs, a.name = ids, ids, f.logprobs, t.model.TokenText
	r.g = g
	return r.tokens(ctx, t.session), nil
}
