package grammar

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/syntax"
)

// Turn is an answer in a conversation: reasoning, in the spelling of the model's template, and then a text or calls of
// tools.
type Turn struct {
	Syntax   syntax.Syntax
	Form            // of the text; none is any text
	Opened   bool   // the prompt ends within reasoning
	Tools    []Tool // available tools
	Required bool   // at least a call
	Single   bool   // at most a call
}

// Form is the grammar of a text: exactly one of its fields is set.
type Form struct {
	Schema  []byte // JSON schema
	Pattern string // regular expression
	GBNF    string
	Lark    string
}

// Compile makes the grammar of a form. The work ends with ctx. in may be nil.
func (f *Form) Compile(ctx context.Context, in *Share) (*Grammar, error) {
	return compile(ctx, in, f.node)
}

// Tool is an available tool.
type Tool struct {
	Name   string
	Schema []byte // of the arguments; nil is an object without properties
	Strict bool   // a schema that is not supported is an error, and not any object
}

// maxCalls bounds the calls of an answer.
const maxCalls = 64

// Compile makes the grammar of the whole answer. The work ends with ctx. in may be nil.
func (t *Turn) Compile(ctx context.Context, in *Share) (*Grammar, error) {
	return compile(ctx, in, t.node)
}

func (t *Turn) node(b *builder) (*node, error) {
	w := turnWriter{turn: t, b: b}
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
	return b.row(w.reasoning(), b.choice(list...)), nil
}

// turnWriter makes nodes of an answer.
type turnWriter struct {
	turn *Turn
	b    *builder
}

// markNode returns a text in which a mark may be the special token of its name.
func (w *turnWriter) markNode(text string) *node {
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
			x = t.cat(x, w.markTerm(mark))
		}
		list, text = append(list, w.b.regular(x)), text[at+len(mark):]
	}
	return w.b.row(list...)
}

// excludeMarks returns any text that has none of some marks.
func (w *turnWriter) excludeMarks(marks ...string) *term {
	t := &w.b.t
	x, rest := t.star(t.utf8(anyRune)), t.star(t.class(span(0, 0xff)))
	for _, m := range marks {
		if m != "" {
			x = t.and(x, t.not(t.seq(rest, t.text(m), rest)))
		}
	}
	return x
}

// reasoning returns the reasoning before the answer, if the model reasons.
func (w *turnWriter) reasoning() *node {
	s, t := &w.turn.Syntax, &w.b.t
	if s.Open == "" {
		return w.b.row()
	}
	space := w.b.regular(t.repeat(t.or(t.byte('\n'), t.byte(' ')), 0, 4))
	body := w.b.row(w.b.regular(w.excludeMarks(s.Close)), w.markNode(s.Close), space, w.optional(s.Next))
	if w.turn.Opened {
		return body
	}
	return w.b.choice(w.b.row(), w.b.row(w.markNode(s.Open), body))
}

// text returns an answer without a call, or, if there are calls, a text and then a call.
func (w *turnWriter) text(calls []*node) ([]*node, error) {
	frame := func(n *node) *node {
		around := w.turn.Syntax.Answer
		return w.b.row(w.optional(around.Begin), n, w.optional(around.End))
	}
	form, err := w.turn.Form.node(w.b)
	if err != nil {
		return nil, err
	}
	if form != nil {
		return append(calls, frame(form)), nil
	}
	var marks []string
	for _, c := range w.turn.Syntax.Calls {
		marks = append(marks, c.Begin)
	}
	text := w.b.regular(w.excludeMarks(marks...))
	if w.turn.Syntax.Bare { // a text beginning as a call does is a call
		return append(calls, w.b.regular(w.bareText())), nil
	}
	if w.turn.Syntax.Style.Alone {
		return append(calls, frame(text)), nil
	}
	return []*node{w.b.row(frame(text), w.b.choice(append(calls, w.b.row())...))}, nil
}

// bareText returns any text whose beginning differs from a call's without marks.
func (w *turnWriter) bareText() *term {
	t, style := &w.b.t, &w.turn.Syntax.Style
	any := t.star(t.utf8(anyRune))
	begins := runes{'{', '{', ' ', ' ', '\n', '\n', '\t', '\t', '\r', '\r'}
	if style.Form == syntax.Python {
		begins = append(begins, '[', '[')
	}
	x := t.or(t.unit, t.and(any, t.cat(t.utf8(begins.merge().complement()), any)))
	if style.Form == syntax.Named {
		for _, tool := range w.turn.Tools {
			x = t.and(x, t.not(t.seq(t.text(tool.Name+style.Then), t.star(t.class(span(0, 0xff))))))
		}
	}
	return x
}

// optional returns a mark that may be missing.
func (w *turnWriter) optional(mark string) *node {
	if mark == "" {
		return w.b.row()
	}
	return w.b.choice(w.b.row(), w.markNode(mark))
}

// node returns the grammar of the text; nil is any text.
func (f *Form) node(b *builder) (*node, error) {
	forms := 0
	for _, is := range []bool{f.Schema != nil, f.Pattern != "", f.GBNF != "", f.Lark != ""} {
		if is {
			forms++
		}
	}
	switch {
	case forms > 1:
		giveUp("a text has one form: a schema, a regular expression or a grammar")
	case f.Schema != nil:
		s, err := newSchema(b, f.Schema, nil)
		if err != nil {
			return nil, err
		}
		return s.top(), nil
	case f.Pattern != "":
		return b.regular(patternTerm(&b.t, f.Pattern, b.t.utf8)), nil
	case f.GBNF != "":
		return gbnfNode(b, f.GBNF), nil
	case f.Lark != "":
		return larkNode(b, f.Lark, b.t.utf8, false), nil
	}
	return nil, nil
}

// calls returns a call or several calls.
func (w *turnWriter) calls() (*node, error) {
	s := &w.turn.Syntax
	if len(s.Calls) == 0 && !s.Bare {
		return nil, fmt.Errorf("the syntax of calls that this model's chat template has is not known")
	}
	style, around := &s.Style, w.callMarks()
	var each syntax.Marks
	if style.Each {
		each, around = around, syntax.Marks{}
	}
	var list []*node
	for _, tool := range w.turn.Tools {
		arguments, err := w.arguments(style, tool)
		if err != nil {
			return nil, err
		}
		list = append(list, w.b.row(w.markNode(each.Begin+style.Name+tool.Name+style.Then), arguments,
			w.markNode(style.After+each.End)))
	}
	one := w.b.choice(list...)
	all := []*node{w.markNode(around.Begin + style.First), one}
	if !w.turn.Single && !style.Single {
		all = append(all, w.b.many(w.b.row(w.markNode(style.Between), one), 0, maxCalls-1))
	}
	return w.b.row(append(all, w.markNode(style.Last+around.End))...), nil
}

// callMarks returns the marks written around calls.
func (w *turnWriter) callMarks() (m syntax.Marks) {
	s := &w.turn.Syntax
	if s.Bare {
		return m
	}
	m = s.Calls[0]
	if m.Begin == s.Lead { // the prompt has the mark
		m.Begin = ""
	}
	if m.Last { // not a part of the answer's text
		m.End = ""
	}
	return m
}

// arguments returns the arguments of a tool. A schema that is not supported allows any object, unless the tool is
// strict.
func (w *turnWriter) arguments(style *syntax.Style, tool Tool) (*node, error) {
	schema := tool.Schema
	if len(bytes.TrimSpace(schema)) == 0 {
		schema = []byte(`{"type":"object","properties":{}}`)
	}
	if !tool.Strict && !w.supported(schema) {
		schema = []byte(`{"type":"object"}`)
	}
	var avoid []string
	if end := w.callMarks().End; style.End != "" {
		avoid = []string{strings.TrimSpace(style.End)[:2]} // every mark behind begins so
	} else if end != "" {
		avoid = []string{end}
	}
	s, err := newSchema(w.b, schema, avoid)
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", tool.Name, err)
	}
	s.owner = "tool " + tool.Name + ": "
	if s.root.kind == '{' && s.root.fields["type"] == nil {
		s.root.names, s.root.fields["type"] = append(s.root.names, "type"), &value{kind: '"', text: "object"}
	}
	switch style.Form {
	case syntax.Quoted:
		s.quote = w.markTerm(syntax.Quote)
		s.avoid = append(s.avoid, syntax.Quote)
	case syntax.Tagged, syntax.Nested, syntax.Python:
		return w.pairs(style, s), nil
	}
	return s.top(), nil
}

func (w *turnWriter) markTerm(mark string) *term {
	return w.b.t.oneOf([]string{mark, string(Special(mark))})
}

// supported reports whether a schema is supported. The work counts as work for the whole.
func (w *turnWriter) supported(schema []byte) bool {
	all := &w.b.t.work
	b := newBuilder(*all)
	defer func() { all.fuel = b.t.fuel }()
	err := func() (err error) {
		defer caught(&err)
		s, err := newSchema(b, schema, nil)
		if err == nil {
			_, err = b.grammar(s.top())
		}
		return err
	}()
	if _, is := errors.AsType[errTooMuch](err); is || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		panic(tooMuch{err})
	}
	return err == nil
}

// pairs returns arguments without JSON around: the properties of a schema in order.
func (w *turnWriter) pairs(style *syntax.Style, s *schema) *node {
	s.checkKnown(s.root, "#")
	v := simplifyRef(s, s.root, "#")
	fields := objectFields(s, v, "properties", "#")
	_, required := requiredNames(s, v, "#")
	first, next := w.b.row(), w.b.row() // the rest, before the first property and behind others
	for _, name := range slices.Backward(fields.names) {
		one := w.pair(style, s, name, fields.fields[name])
		between := one
		if style.Form == syntax.Python {
			between = w.b.row(w.b.text(", "), one)
		}
		all, more := w.b.row(one, next), w.b.row(between, next)
		if !required[name] {
			all, more = w.b.choice(first, all), w.b.choice(next, more)
		}
		first, next = all, more
	}
	return first
}

// pair returns an argument: a plain string, or another value as JSON.
func (w *turnWriter) pair(style *syntax.Style, s *schema, name string, v *value) *node {
	path := "#/properties/" + name
	text := v.kind == '{' && v.fields["type"] != nil && v.fields["type"].kind == '"' &&
		v.fields["type"].text == "string"
	if style.Form == syntax.Python {
		return w.b.row(w.b.text(name+"="), s.node(v, path))
	}
	end := style.End
	if style.Form == syntax.Nested {
		end += name + ">"
	}
	if !text {
		return w.b.row(w.markNode(style.Key+name+cmp.Or(style.Other, style.Value)), s.node(v, path), w.markNode(end))
	}
	s.checkKnown(v, path)
	raw := *s
	raw.quote = w.b.t.unit
	return w.b.row(w.markNode(style.Key+name+style.Value), raw.node(v, path), w.markNode(end))
}

// Budget holds an answer's reasoning to so many tokens. Afterwards the mark ending the reasoning is forced, and then
// the model is free. A Budget serves a single goroutine at a time.
type Budget struct {
	Within interface { // grammar of the answer; nil allows anything
		Mask() (*sample.Mask, error)
		Accept(id int) error
		Steps() int
		Forced(most int) ([]byte, error)
	}
	Decoder interface { // with the names of marks that are special tokens
		Write(id int) string
		Whole() bool // no character is begun
	}
	Parser *syntax.Parser
	Close  []int // tokens of the mark ending the reasoning
	Tokens int   // maximum of the reasoning's tokens. A mark of several tokens counts, except its last

	at   int // number of forced tokens of Close so far
	mask sample.Mask
}

// due reports whether a token of the mark comes next. A grammar has no place for the mark within a character, so the
// character ends first.
func (b *Budget) due() bool {
	return b.at > 0 || b.Parser.Thinks() && b.Tokens < len(b.Close) && (b.Within == nil || b.Decoder.Whole())
}

// Mask returns the possible next tokens; nil allows any.
func (b *Budget) Mask() (*sample.Mask, error) {
	switch {
	case b.due():
		b.mask.IDs = append(b.mask.IDs[:0], int32(b.Close[b.at]))
		return &b.mask, nil
	case b.Within != nil:
		return b.Within.Mask()
	}
	return nil, nil
}

// Steps returns the steps of Within.
func (b *Budget) Steps() int {
	if b.Within == nil {
		return 0
	}
	return b.Within.Steps()
}

// Forced returns the bytes with which every answer goes on, at most most.
func (b *Budget) Forced(most int) ([]byte, error) {
	if b.due() || b.Within == nil {
		return nil, nil
	}
	return b.Within.Forced(most)
}

// Accept goes on with a token.
func (b *Budget) Accept(id int) error {
	due, thought := b.due(), b.Parser.Thinks()
	if b.Within != nil {
		if err := b.Within.Accept(id); err != nil {
			if due {
				err = fmt.Errorf("%w: it has no place for the end of the reasoning where its budget is used up: %v",
					ErrGrammar,
					err)
			}
			return err
		}
	}
	b.Parser.Write(b.Decoder.Write(id))
	switch {
	case due:
		b.at = (b.at + 1) % len(b.Close)
	case thought && b.Parser.Thinks():
		b.Tokens--
	}
	return nil
}
