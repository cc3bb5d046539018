package grammar

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/syntax"
)

// Turn is an answer in a conversation: reasoning, as the model's template writes it, and then a text or calls of tools.
type Turn struct {
	Syntax   syntax.Syntax
	Opened   bool   // the prompt ends within reasoning
	Schema   []byte // of the text; nil is any text
	Template string // which shows how calls are written
	Tools    []Tool // that may be called
	Required bool   // one must be
	Single   bool   // and no more than one
}

// Tool is a tool that may be called.
type Tool struct {
	Name   string
	Schema []byte // of the arguments; nil is an object without properties
	Strict bool   // a schema that is not supported is an error, and not any object
}

// maxCalls bounds the calls of an answer.
const maxCalls = 64

// Grammar is what the whole answer must fit.
func (t *Turn) Grammar() (_ *Grammar, err error) {
	defer caught(&err)
	w := turnWriter{turn: t, b: newBuilder()}
	var list []*node
	if len(t.Tools) > 0 {
		calls, err := w.calls()
		if err != nil {
			return nil, err
		}
		list = append(list, calls)
	}
	if !t.Required || len(t.Tools) == 0 {
		text, err := w.text(list)
		if err != nil {
			return nil, err
		}
		list = text
	}
	return w.b.grammar(w.b.row(w.reasoning(), w.b.choice(list...)))
}

// turnWriter makes nodes of an answer.
type turnWriter struct {
	turn *Turn
	b    *builder
}

// marked is a text in which a mark may be the special token of its name.
func (w *turnWriter) marked(text string) *node {
	var list []*node
	t := &w.b.t
	for text != "" {
		at, mark := len(text), ""
		for _, m := range w.turn.Syntax.Marks() {
			if i := strings.Index(text, m); i >= 0 && (i < at || i == at && len(m) > len(mark)) {
				at, mark = i, m
			}
		}
		x := t.text(text[:at])
		if mark != "" {
			x = t.cat(x, t.oneOf([]string{mark, string(Special(mark))}))
		}
		list, text = append(list, w.b.regular(x)), text[at+len(mark):]
	}
	return w.b.row(list...)
}

// without is any text that has none of some marks.
func (w *turnWriter) without(marks ...string) *term {
	t := &w.b.t
	x, rest := t.star(t.utf8(anyRune)), t.star(t.class(span(0, 0xff)))
	for _, m := range marks {
		if m != "" {
			x = t.and(x, t.not(t.seq(rest, t.text(m), rest)))
		}
	}
	return x
}

// reasoning is what comes before the answer, if the model reasons.
func (w *turnWriter) reasoning() *node {
	s, t := &w.turn.Syntax, &w.b.t
	if s.Open == "" || s.Bare && len(w.turn.Tools) > 0 && !w.turn.Opened { // a bare call comes first, or is none
		return w.b.row()
	}
	space := w.b.regular(t.repeat(t.or(t.byte('\n'), t.byte(' ')), 0, 4))
	body := w.b.row(w.b.regular(w.without(s.Close)), w.marked(s.Close), space)
	if w.turn.Opened {
		return body
	}
	return w.b.choice(w.b.row(), w.b.row(w.marked(s.Open), body))
}

// text is an answer that is no call, or, if there are calls, a text and then one of them.
func (w *turnWriter) text(calls []*node) ([]*node, error) {
	frame := func(n *node) *node {
		if f := w.turn.Syntax.Frame; len(f) == 2 {
			opt := func(mark string) *node { return w.b.choice(w.b.row(), w.marked(mark)) }
			return w.b.row(opt(f[0]), n, opt(f[1]))
		}
		return n
	}
	if w.turn.Schema != nil {
		s, err := newSchema(w.b, w.turn.Schema, nil)
		if err != nil {
			return nil, err
		}
		return append(calls, frame(s.top())), nil
	}
	var marks []string
	for _, c := range w.turn.Syntax.Calls {
		marks = append(marks, c.Begin)
	}
	text := w.b.regular(w.without(marks...))
	if w.turn.Syntax.Bare { // a text that begins as a call does is one
		t := &w.b.t
		any := t.star(t.utf8(anyRune))
		return append(calls, w.b.regular(t.or(t.unit, t.and(any, t.cat(t.utf8(runes{'{', '{', ' ', ' ', '\n', '\n', '\t', '\t', '\r', '\r'}.merged().others()), any))))), nil
	}
	return []*node{w.b.row(frame(text), w.b.choice(append(calls, w.b.row())...))}, nil
}

// calls are one call or several.
func (w *turnWriter) calls() (*node, error) {
	style, ok := w.turn.Syntax.Style(w.turn.Template)
	if !ok {
		return nil, fmt.Errorf("grammar: the syntax of calls that this model's chat template has is not known")
	}
	var list []*node
	for _, tool := range w.turn.Tools {
		arguments, err := w.arguments(&style, tool)
		if err != nil {
			return nil, err
		}
		list = append(list, w.b.row(w.marked(style.Name+tool.Name+style.Then), arguments, w.marked(style.After)))
	}
	one := w.b.choice(list...)
	all := []*node{w.marked(style.First), one}
	if !w.turn.Single && !style.Single {
		all = append(all, w.b.many(w.b.row(w.marked(style.Between), one), 0, maxCalls-1))
	}
	return w.b.row(append(all, w.marked(style.Last))...), nil
}

// arguments are those of a tool. A schema that is not supported is any object, unless the tool is strict.
func (w *turnWriter) arguments(style *syntax.Style, tool Tool) (*node, error) {
	schema := tool.Schema
	if len(bytes.TrimSpace(schema)) == 0 {
		schema = []byte(`{"type":"object","properties":{}}`)
	}
	if !tool.Strict && !supported(schema) {
		schema = []byte(`{"type":"object"}`)
	}
	var avoid []string
	if style.Avoid != "" {
		avoid = append(avoid, style.Avoid)
	}
	s, err := newSchema(w.b, schema, avoid)
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", tool.Name, err)
	}
	s.owner = "tool " + tool.Name + ": "
	if s.root.kind == '{' && s.root.fields["type"] == nil {
		s.root.names, s.root.fields["type"] = append(s.root.names, "type"), &value{kind: '"', text: "object"}
	}
	switch style.Arguments {
	case syntax.QuotedArguments:
		s.quote = w.markTerm(style.Quote)
		s.avoid = append(s.avoid, style.Quote)
	case syntax.PairArguments:
		return w.pairs(style, s), nil
	}
	return s.top(), nil
}

func (w *turnWriter) markTerm(mark string) *term {
	return w.b.t.oneOf([]string{mark, string(Special(mark))})
}

// supported reports whether a schema is one that grammars know.
func supported(schema []byte) bool {
	_, err := JSONSchema(schema)
	return err == nil
}

// pairs are the arguments of the pairs style: the properties of a schema in order.
func (w *turnWriter) pairs(style *syntax.Style, s *schema) *node {
	s.known(s.root, "#")
	v := s.plainRef(s.root, "#")
	fields, required := s.fields(v, "properties", "#"), s.required(v, "#")
	var list []*node
	for _, name := range fields.names {
		x, at := fields.fields[name], "#/properties/"+name
		pair := w.b.row(w.marked(style.Key+name+style.Value), w.pairValue(s, x, at), w.marked(style.End))
		if !slices.Contains(required, name) {
			pair = w.b.choice(w.b.row(), pair)
		}
		list = append(list, pair)
	}
	return w.b.row(list...)
}

// pairValue is a value: a string as it is, another as JSON.
func (w *turnWriter) pairValue(s *schema, v *value, path string) *node {
	if v.kind == '{' {
		if t := v.fields["type"]; t != nil && t.kind == '"' && t.text == "string" {
			s.known(v, path)
			raw := *s
			raw.quote = w.b.t.unit
			return raw.node(v, path)
		}
	}
	return s.node(v, path)
}
