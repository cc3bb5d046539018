// Package jinja runs Jinja2 templates as Python does: the same text for the same values, and an error where Python has
// an error. Parse makes a Template, Execute renders the template with a Dict of variables.
//
// The environment is that of Hugging Face's transformers library for chat templates (utils/chat_template_utils.py):
// sandboxed and immutable, with trim_blocks and lstrip_blocks, loop controls, the generation tag and a tojson that is
// json.dumps. The package knows nothing of models or chats.
//
// Of the language the package has what chat templates use: all expressions; the tags if, for, set, macro, call, filter,
// with, generation, break and continue; the filters, tests and methods in the tables of the package; %s and %d;
// str.format with plain fields; integers of 64 bits. The rest of Jinja2 is an error of KindUnsupported, which names the
// missing thing and its line, and never another text.
//
// Templates and variables may come from anyone. A template sees this package's values and nothing of Go. Options bound
// the steps, the bytes of values and of output, and the depth of calls.
//
// Known differences: a surrogate in a literal ('\ud800') is U+FFFD, since text is UTF-8 and Python cannot print a
// surrogate either. Macros and calls have at most 1000 names, tags and expressions at most 250 levels. A value that
// Python prints with its address is printed without. Characters are Unicode 15's, as in Python 3.12.
//
// Marked strings (Mark) keep their marks through every operation; Template.Segments tells the bytes of the output that
// came from marked strings from the template's own.
//
// Files in reading order: template.go, parse.go, parse_expr.go, lexer.go, expression.go, builtin.go, scope.go,
// filters.go, statement.go, methods.go, compare.go, print.go, iterate.go, number.go, text.go, value.go, budget.go,
// error.go.
package jinja

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// A Template is a parsed template. It is safe for concurrent use.
type Template struct {
	body  []stmt
	frame *frame
	names map[string]int // numbers of the variables
	opt   Options
}

// A Segment is a part of a rendered text. Marked parts came from marked strings, and Origin is the origin given to
// MarkAs, or 0 for Mark.
type Segment struct {
	Text   string
	Marked bool
	Origin int
}

// tables are made by the first Parse.
var tables sync.Once

// Parse makes a template of its source. The error is an *Error with a line: of KindSyntax, of KindUnsupported, or of
// KindLimit for a source that is too long.
func Parse(src string, o Options) (*Template, error) {
	if most := o.withDefaults(0).MaxSource; len(src) > most {
		return nil, &Error{Kind: KindLimit, Message: fmt.Sprintf("a source of %d bytes, more than %d", len(src), most)}
	}
	tables.Do(makeTables)
	body, top, names, err := parseTemplate(toUTF8(src))
	if err != nil {
		return nil, err
	}
	o.Globals = maps.Clone(o.Globals)
	return &Template{body, top, names, o}, nil
}

// Execute renders the template with variables, which it does not change; keys must be strings. The error is an *Error.
// Execute returns soon after ctx is done.
func (t *Template) Execute(ctx context.Context, vars *Dict) (string, error) {
	s, err := t.render(ctx, vars)
	return s.s, err
}

// Segments renders as Execute does, and tells apart what came from marked strings. The texts put together are what
// Execute returns; neighbours differ in their mark or its origin, and none is empty.
//
// A piece of a string has that piece's marks, and a string put together keeps each part's. Where an operation does not
// say which byte came from which, as a change of case beyond ASCII, all of its result is marked if any of its operand
// was. Numbers, booleans and None carry no marks.
func (t *Template) Segments(ctx context.Context, vars *Dict) ([]Segment, error) {
	s, err := t.render(ctx, vars)
	if err != nil {
		return nil, err
	}
	var segments []Segment
	s.pieces(func(part string, marked bool, of int) { segments = append(segments, Segment{part, marked, of}) })
	return segments, nil
}

func (t *Template) render(ctx context.Context, vars *Dict) (s str, err error) {
	r := newRendering(ctx, t.opt, vars)
	defer catch(&err, &r.line)
	r.look()
	top := &scope{all: make([]Value, len(t.names))}
	for name, id := range t.names {
		if v, ok := vars.Get(name); ok {
			top.all[id] = v
		} else if v, ok := t.opt.Globals[name]; ok {
			top.all[id] = v
		} else if v, ok := globals[name]; ok {
			top.all[id] = v
		}
	}
	for _, id := range t.frame.hidden {
		top.all[id] = nil
	}
	r.enter()
	out := r.text()
	out.limit = r.opt.MaxOutput
	execute(r, top, t.body, out)
	return out.str(), nil
}
