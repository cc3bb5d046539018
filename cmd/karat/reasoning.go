package main

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
)

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
		g.Template, g.TemplateArgs = "", nil // the ids include them
	}
	r.g, r.parser = g, s.NewParser(nil, limits.InReasoning)
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
