// Package chat renders conversations with models' chat templates, like Hugging Face's transformers library
// (apply_chat_template), and reports the parts of the text from the conversation.
//
// Files in reading order: turn.go (messages and tools as templates read them), lost.go (texts left out by a template),
// chat.go (Template, Segments), roles.go (roles and markers), strftime.go (dates).
package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/jinja"
)

// ErrNoTemplate is the error of Parse for an empty source. No template is made up for a model without a template.
var ErrNoTemplate = errors.New("the model has no chat template")

// A Template is a parsed chat template, safe for concurrent use.
type Template struct {
	source string
	jinja  *jinja.Template
}

// Limits bound the cost of one rendering; the zero value is safe for templates and conversations from anyone.
type Limits = jinja.Options

// An Input is a conversation with the other variables of a template.
type Input struct {
	// Messages are the turns, each at least with role and content; see Message and ParseMessages.
	Messages []*jinja.Dict

	// Named are the indices of the messages with names checked by CheckedSegments.
	Named []int

	// Tools and Documents are in the template's form, usually JSON schemas and dicts. Nil gives the template None.
	Tools, Documents []jinja.Value

	// AddGenerationPrompt asks for the beginning of the assistant's next turn.
	AddGenerationPrompt bool

	// BOSToken and EOSToken are the tokens' texts. An empty text is undefined in the template.
	BOSToken, EOSToken string

	// Args are further variables, such as enable_thinking. A reserved name is an error.
	Args *jinja.Dict

	// Now is the clock of strftime_now; nil means time.Now.
	Now func() time.Time
}

// A Segment is a part of a prompt. FromContent marks text of the conversation (messages, tools, documents or
// arguments), not of the template: a special token spelled in such a segment is text. A known role of a message, such
// as user or assistant, is not content. A special token may lie across segments; any part from content makes the whole
// of it text.
type Segment struct {
	Text        string
	FromContent bool
}

// Message makes a turn of text.
func Message(role, content string) *jinja.Dict {
	d := jinja.NewDict()
	d.Set("role", jinja.String(role))
	d.Set("content", jinja.String(content))
	return d
}

// Parse makes a template of its Jinja source. The error is ErrNoTemplate, or wraps a *jinja.Error with the line.
func Parse(source string, l Limits) (*Template, error) {
	if source == "" {
		return nil, ErrNoTemplate
	}
	t, err := jinja.Parse(source, l)
	if err != nil {
		return nil, fmt.Errorf("the chat template is broken: %w", err)
	}
	return &Template{source, t}, nil
}

// Source returns the template's source.
func (t *Template) Source() string { return t.source }

// Hash returns the SHA-256 of the source, in hexadecimal.
func (t *Template) Hash() string {
	sum := sha256.Sum256([]byte(t.source))
	return hex.EncodeToString(sum[:])
}

// Render returns the prompt for a conversation. Its errors wrap a *jinja.Error; an error raised by the template itself
// is of KindRaised and has the template's words.
func (t *Template) Render(ctx context.Context, in Input) (string, error) {
	vars, err := in.variables()
	if err != nil {
		return "", err
	}
	return t.jinja.Execute(ctx, vars)
}

// Segments returns the prompt of Render in parts of known origin. Their texts put together are the prompt.
func (t *Template) Segments(ctx context.Context, in Input) ([]Segment, error) {
	segments, _, err := t.Trace(ctx, in)
	return segments, err
}

// Shown says whether the prompt has a character, white space apart, of a message's content and of its name.
type Shown struct{ Content, Name bool }

// Trace returns the result of Segments, and the parts of each message shown by the prompt.
func (t *Template) Trace(ctx context.Context, in Input) ([]Segment, []Shown, error) {
	vars, err := in.variables()
	if err != nil {
		return nil, nil, err
	}
	parts, err := t.jinja.Segments(ctx, vars)
	if err != nil {
		return nil, nil, err
	}
	var segments []Segment
	var run []string // neighbours of several origins
	shown := make([]Shown, len(in.Messages))
	for i, p := range parts {
		if p.Origin > 0 && strings.TrimSpace(p.Text) != "" {
			of := &shown[(p.Origin-1)/2]
			of.Content, of.Name = of.Content || p.Origin%2 == 1, of.Name || p.Origin%2 == 0
		}
		if run = append(run, p.Text); i+1 == len(parts) || !p.Marked || !parts[i+1].Marked {
			segments, run = append(segments, Segment{strings.Join(run, ""), p.Marked}), nil
		}
	}
	return segments, shown, nil
}

// reserved lists the names refused by Args: the template's own variables and functions, and the parameters of
// apply_chat_template, which would have no effect.
var reserved = []string{
	"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token",
	"raise_exception", "strftime_now",
	"conversation", "chat_template", "continue_final_message", "tokenize", "padding", "truncation", "max_length",
	"return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
}

// Reserved reports whether Args may not set a name.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// variables returns the template's variables, with content of the conversation marked.
func (in *Input) variables() (*jinja.Dict, error) {
	vars := jinja.NewDict()
	for _, name := range in.Args.Keys() {
		if Reserved(name) {
			return nil, fmt.Errorf("the template argument %q is reserved", name)
		}
		v, _ := in.Args.Get(name)
		vars.Set(name, jinja.Mark(v))
	}
	messages := make([]jinja.Value, len(in.Messages))
	for i, m := range in.Messages {
		if m == nil {
			return nil, fmt.Errorf("message %d is missing", i)
		}
		messages[i] = turn(m, i)
	}
	vars.Set("messages", jinja.List(messages...))
	vars.Set("tools", markedList(in.Tools))
	vars.Set("documents", markedList(in.Documents))
	vars.Set("add_generation_prompt", jinja.Bool(in.AddGenerationPrompt))
	if in.BOSToken != "" {
		vars.Set("bos_token", jinja.String(in.BOSToken))
	}
	if in.EOSToken != "" {
		vars.Set("eos_token", jinja.String(in.EOSToken))
	}
	vars.Set("raise_exception", raiseException())
	vars.Set("strftime_now", clock(in.Now))
	return vars, nil
}

func markedList(items []jinja.Value) jinja.Value {
	if items == nil {
		return jinja.None
	}
	return jinja.Mark(jinja.List(items...))
}

func raiseException() jinja.Value {
	return jinja.Function("raise_exception", 1, 1, func(args []jinja.Value) (jinja.Value, error) {
		return nil, jinja.Raise(jinja.Format(args[0]))
	})
}

// clock returns the function strftime_now(format).
func clock(now func() time.Time) jinja.Value {
	if now == nil {
		now = time.Now
	}
	return jinja.Function("strftime_now", 1, 1, func(args []jinja.Value) (jinja.Value, error) {
		format, ok := jinja.Text(args[0])
		if !ok {
			return nil, errors.New("strftime_now() argument must be str")
		}
		s, err := strftime(now(), format)
		return jinja.String(s), err
	})
}
