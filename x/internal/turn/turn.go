// Package turn asks a model for an answer in the way of clients: with a choice of tools or a form, in parts and whole.
package turn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
)

// Request is a question to a model. The zero values of Choice and Schema leave the answer free.
type Request struct {
	Messages []karat.Message
	Options  karat.GenerateOptions
	Choice   Choice
	Schema   []byte // JSON schema of the answer's text
}

// Choice says whether an answer calls tools.
type Choice struct {
	None     bool     // the answer calls none
	Required bool     // the answer calls at least a tool
	Names    []string // of the tools for calls; nil is all
}

// Ask answers a request. see sees each part as soon as certain, and ends the answer by an error. Beside an error, Ask
// returns the answer so far.
func Ask(ctx context.Context, m *karat.Model, r Request, see func(karat.Part) error) (karat.Answer, error) {
	o, err := r.options(ctx, m)
	if err != nil {
		return karat.Answer{}, err
	}
	a := karat.Answer{Message: karat.Message{Role: karat.RoleAssistant}}
	own := o.OnToken
	o.OnToken = func(t karat.Token) {
		a.GeneratedTokens++
		if a.Stop, a.Stopped = t.Stop, t.Stopped; own != nil {
			own(t)
		}
	}
	s := m.NewSession()
	defer s.Close()
	var failed error
	for p, err := range s.ChatParts(ctx, r.Messages, o) {
		if failed = err; err != nil {
			break
		}
		a.Message.Parts = append(a.Message.Parts, p)
		if t, is := p.(karat.Text); is {
			a.Text += string(t)
		}
		if failed = see(p); failed != nil {
			break
		}
	}
	a.PromptTokens, a.CachedTokens = s.PromptTokens()
	a.Seed = s.Seed()
	return a, failed
}

// options returns the options with the grammar of the choice or of the schema.
func (r *Request) options(ctx context.Context, m *karat.Model) (karat.GenerateOptions, error) {
	o := r.Options
	if r.Choice.Names != nil {
		for _, name := range r.Choice.Names {
			if !slices.ContainsFunc(o.Tools, func(t karat.Tool) bool { return t.Name == name }) {
				return o, fmt.Errorf("tool choice: there is no tool %q", name)
			}
		}
		o.Tools = slices.DeleteFunc(slices.Clone(o.Tools), func(t karat.Tool) bool {
			return !slices.Contains(r.Choice.Names, t.Name)
		})
	}
	if r.Choice.None {
		o.Tools = nil
	}
	f := karat.ResponseFormat{Schema: r.Schema, Tools: o.Tools, RequireCall: r.Choice.Required && !r.Choice.None}
	switch {
	case f.RequireCall && len(o.Tools) == 0:
		return o, errors.New("tool choice: a call is required, and there are no tools")
	case f.RequireCall:
		f.Schema = nil
	case f.Schema == nil:
		return o, nil
	}
	if o.Grammar != nil {
		return o, errors.New("the options have a grammar, and the request asks for a form of its own")
	}
	f.SingleCall = len(r.Choice.Names) == 1
	prompt, err := m.Render(ctx, r.Messages, o)
	if err != nil {
		return o, err
	}
	template := o.Template
	if template == "" {
		template = m.Info().Template
	}
	s := syntax.Of(template)
	f.InReasoning = s.Opens(prompt)
	o.Grammar, err = m.ResponseGrammar(ctx, f)
	return o, err
}

// Sampling returns a copy of the options' sampling, or of the model's, for a client to change.
func Sampling(m *karat.Model, o *karat.GenerateOptions) *karat.Sampling {
	s := m.Sampling()
	if o.Sampling != nil {
		s = *o.Sampling
	}
	return &s
}

// Set sets a field, if there is a value.
func Set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Messages translates a conversation's messages. Errors count the messages.
func Messages[M any](all []M, of func(M) (karat.Message, error)) (said []karat.Message, err error) {
	for i, m := range all {
		s, err := of(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		said = append(said, s)
	}
	return said, nil
}

// Join returns parts with pieces of a text, or of reasoning, joined.
func Join(parts []karat.Part) (all []karat.Part) {
	for _, p := range parts {
		var before karat.Part
		if len(all) > 0 {
			before = all[len(all)-1]
		}
		switch p := p.(type) {
		case karat.Text:
			if b, is := before.(karat.Text); is {
				all[len(all)-1] = b + p
				continue
			}
		case karat.Reasoning:
			if b, is := before.(karat.Reasoning); is {
				all[len(all)-1] = b + p
				continue
			}
		}
		all = append(all, p)
	}
	return all
}

// Picture reads a picture's data: URL. Nothing is fetched.
func Picture(url string) (karat.Image, error) {
	head, data, ok := strings.Cut(url, ",")
	if !ok || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(head, ";base64") {
		return karat.Image{}, fmt.Errorf("a picture needs a data: URL in base64, and %.40q is none: nothing is fetched",
			url)
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return karat.Image{}, fmt.Errorf("a picture's data: URL: %w", err)
	}
	return karat.Image{Data: b}, nil
}

// JSON returns a value as JSON, and a text unchanged.
func JSON(v any) (string, error) {
	if s, is := v.(string); is {
		return s, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// Schema returns a schema as JSON; nil for none.
func Schema(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return v, nil
	}
	return json.Marshal(v)
}

// Wide returns vectors with elements of 64 bits.
func Wide(vectors [][]float32) [][]float64 {
	wide := make([][]float64, len(vectors))
	for i, v := range vectors {
		for _, x := range v {
			wide[i] = append(wide[i], float64(x))
		}
	}
	return wide
}
