package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/syntax"
	"github.com/karat-run/karat/jinja"
)

// maxTemplate bounds a template's size, in bytes, like the interpreter.
const maxTemplate = 1 << 20

// chatFlags say how a prompt becomes a conversation.
type chatFlags struct {
	chat         bool
	system, file string
	args         []string
	images       []karat.Part   // of run alone
	reasoning    reasoningFlags // of run alone
	budget       bool           // the chat template has no switch for reasoning
}

func (f *chatFlags) add(c *command) {
	c.flags("chat", &f.chat, "system", &f.system, "chat-template", file(&f.file), "template-arg", &f.args)
}

// isImplied reports whether a flag makes a chat of a command without --chat.
func (f *chatFlags) isImplied() bool {
	return f.system != "" || f.file != "" || len(f.args) > 0 || len(f.images) > 0 || f.reasoning != reasoningFlags{}
}

// imply makes a chat of a command with a flag of chats.
func (f *chatFlags) imply() { f.chat = f.chat || f.isImplied() }

// options returns the options of a request with the template of --chat-template and its variables.
func (f *chatFlags) options() (g karat.GenerateOptions, err error) {
	for _, a := range f.args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return g, usagef("--template-arg %q: want NAME=VALUE", a)
		}
		if g.TemplateArgs == nil {
			g.TemplateArgs = map[string]any{}
		}
		if g.TemplateArgs[name] = value; json.Valid([]byte(value)) {
			g.TemplateArgs[name] = json.RawMessage(value)
		}
	}
	if f.file != "" {
		g.Template, err = f.read()
	}
	return g, err
}

// read reads the template and checks its syntax.
func (f *chatFlags) read() (string, error) {
	text, err := readWhole(f.file, maxTemplate)
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", fmt.Errorf("%s: an empty chat template", f.file)
	}
	_, err = chat.Parse(text, chat.Limits{})
	return text, f.addName(err)
}

// addName adds the template's file name to an error.
func (f *chatFlags) addName(err error) error {
	if e := (*jinja.Error)(nil); f.file != "" && errors.As(err, &e) {
		return fmt.Errorf("%s: %s", f.file, e.Error())
	}
	return err
}

// messages returns a conversation beginning with a user's text.
func (f *chatFlags) messages(user string) []karat.Message {
	return append(f.opening(), karat.Message{Role: karat.RoleUser, Parts: append(f.images, karat.Text(user))})
}

// opening returns the messages before the user's first.
func (f *chatFlags) opening() []karat.Message {
	if f.system == "" {
		return nil
	}
	return []karat.Message{karat.TextMessage(karat.RoleSystem, f.system)}
}

// source returns the source of the template: the model or a file.
func (f *chatFlags) source() string {
	if f.file == "" {
		return "model"
	}
	return f.file
}

// ids returns the ids of a prompt, or, with --chat, of a conversation with the text as its message. template is the
// template's source: none, model, or a file.
func (f *chatFlags) ids(ctx context.Context, m *karat.Model, text string, g karat.GenerateOptions) (ids []int,
	template string, err error) {
	if f.chat {
		template = f.source()
		if _, err = f.describe(ctx, m, text, g); err == nil {
			ids, err = m.TokenizeChat(ctx, f.messages(text), g)
		}
	} else {
		template = "none"
		ids, err = m.Tokenize(ctx, text, karat.TokenizeOptions{})
	}
	if err == nil && len(ids) == 0 {
		err = errEmpty
	}
	return ids, template, err
}

// describe names the template applied, after a check with the user's first message.
func (f *chatFlags) describe(ctx context.Context, m *karat.Model, user string, g karat.GenerateOptions) (string,
	error) {
	info := m.Info()
	if f.file == "" && info.Template == "" {
		or := ", and a PROMPT without --chat needs none"
		if f.isImplied() {
			or = ""
		}
		return "", fmt.Errorf("%s has no chat template: --chat-template FILE gives one%s", info.Path, or)
	}
	if _, err := m.Render(ctx, f.messages(user), g); err != nil {
		return "", f.addName(err)
	}
	if f.file != "" {
		return fmt.Sprintf("the chat template of %s is applied", oneLine(f.file)), nil
	}
	sum := sha256.Sum256([]byte(info.Template))
	return fmt.Sprintf("the model's chat template is applied (sha256 %x…)", sum[:6]), nil
}

// reasoningFlags say whether a model reasons before its answer. Neither think nor no leaves the choice to the chat
// template.
type reasoningFlags struct{ think, no, hide bool }

func (f *reasoningFlags) add(c *command) {
	c.flags("think", &f.think, "no-think", &f.no, "hide-thinking", &f.hide)
}

// request is a conversation in a model's form.
type request struct {
	ids    []int
	g      karat.GenerateOptions
	parser *syntax.Parser  // of the answer
	seen   []karat.Message // the conversation, if it has pictures: ids alone do not say what they show
}

// tokens yields the tokens of the answer.
func (r *request) tokens(ctx context.Context, s *karat.Session) iter.Seq2[karat.Token, error] {
	if r.seen != nil {
		return s.Chat(ctx, r.seen, r.g)
	}
	return s.GenerateIDs(ctx, r.ids, r.g)
}

// hasImages reports whether a conversation has pictures.
func hasImages(messages []karat.Message) bool {
	return slices.ContainsFunc(messages, func(m karat.Message) bool { return len(imagesOf(m)) > 0 })
}

// imagesOf returns the pictures of a message.
func imagesOf(m karat.Message) (all []karat.Part) {
	for _, p := range m.Parts {
		if _, ok := p.(karat.Image); ok {
			all = append(all, p)
		}
	}
	return all
}

// request renders a conversation. limits is the form of the answer after any reasoning.
func (f *chatFlags) request(ctx context.Context, m *karat.Model, messages []karat.Message, g karat.GenerateOptions,
	limits karat.ResponseFormat) (r request, err error) {
	source := g.Template
	if source == "" {
		source = m.Info().Template
	}
	s := syntax.Of(source)
	if err := f.reason(ctx, m, messages, &g, &s); err != nil {
		return r, f.addName(err)
	}
	if r.ids, err = m.TokenizeChat(ctx, messages, g); err != nil {
		return r, f.addName(err)
	}
	if len(r.ids) == 0 {
		return r, errEmpty
	}
	limits.InReasoning = s.Opens(m.Detokenize(r.ids[max(0, len(r.ids)-16):]))
	marks, err := m.SpecialTokens(ctx)
	if err != nil {
		return r, err
	}
	for _, mark := range marks {
		g.Special = append(g.Special, syntax.Control(mark))
	}
	if g.End, err = m.TurnEnds(ctx, g); err != nil {
		return r, err
	}
	limits.Tools = g.Tools
	var tools syntax.Tools
	for _, t := range g.Tools {
		tools.Add(t.Name, t.Parameters)
	}
	own := g.Template == "" // for ResponseGrammar and ReasoningBudget
	if g.Grammar != nil && own && s.Open != "" {
		if g.Grammar, err = m.ResponseGrammar(ctx, limits); err != nil {
			return r, err
		}
	}
	if f.reasoning.no && f.budget && own && s.Open != "" {
		if g.Grammar, err = m.ReasoningBudget(ctx, g.Grammar, 0, limits); err != nil {
			return r, err
		}
	}
	if hasImages(messages) {
		r.seen = messages
	} else {
		g.Template, g.TemplateArgs, g.Tools = "", nil, nil // the ids include them
	}
	r.g, r.parser = g, s.NewParser(tools, limits.InReasoning)
	r.parser.Control = marks
	return r, nil
}

// switches are chat templates' variables for switching reasoning on and off.
var switches = []string{"enable_thinking", "thinking"}

// reason sets the template's variable for reasoning: the variable with an effect. For a template without such a
// variable, --no-think becomes a budget of no tokens.
func (f *chatFlags) reason(ctx context.Context, m *karat.Model, messages []karat.Message, g *karat.GenerateOptions,
	s *syntax.Syntax) error {
	f.budget = false
	if !f.reasoning.think && !f.reasoning.no {
		return nil
	}
	for _, name := range switches {
		if _, given := g.TemplateArgs[name]; given {
			return nil
		}
		var texts [2]string
		of := *g
		for i, on := range []bool{!f.reasoning.think, f.reasoning.think} {
			of.TemplateArgs = map[string]any{}
			maps.Copy(of.TemplateArgs, g.TemplateArgs)
			of.TemplateArgs[name] = on
			var err error
			if texts[i], err = m.Render(ctx, messages, of); err != nil {
				return err
			}
		}
		if texts[0] != texts[1] {
			g.TemplateArgs = of.TemplateArgs
			return nil
		}
	}
	if f.reasoning.think && s.Open == "" {
		return errors.New("--think: the model's chat template shows no reasoning")
	}
	f.budget = true
	return nil
}
