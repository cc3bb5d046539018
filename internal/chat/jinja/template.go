// Package jinja runs Jinja2 templates as Python would, for the chat templates
// that Hugging Face models come with: the same text for the same values, and an
// error where Python has one. The environment is that of the transformers
// library (utils/chat_template_utils.py): sandboxed and immutable, with
// trim_blocks and lstrip_blocks, loop controls, the generation tag and a tojson
// that is json.dumps; it knows nothing of models or chats.
//
// Templates and variables may come from anyone. A template sees values of this
// package's own and nothing of Go, and what it uses is bounded by Options.
//
// Characters are those of Unicode 15, as in Python 3.12. Not supported, and an
// error when they are reached: autoescape, loading other templates, the filters
// pprint, random, urlize and wordwrap, lipsum, str's encode, maketrans and
// translate, complex numbers, arithmetic of dict views, and all but the commoner
// names in \N{...} escapes.
//
// Known differences: a surrogate in a literal ('\ud800') is U+FFFD, since text is
// UTF-8 and Python could not print it either. A power of floats is the nearest
// float, which C's pow misses now and then in the last bit. Integers have at most
// 65536 bits, macros and calls at most 1000 names, tags and expressions at most 250
// levels. What prints an address in Python prints without.
//
// Strings that are marked keep their marks through every operation, so that the
// parts of the output that came from them can be told from the template's own.
package jinja

import (
	"context"
	"fmt"
	"maps"
)

// A Template is a parsed template. It is safe for concurrent use.
type Template struct {
	program *program
	opt     Options
}

// A Segment is a part of a rendered text. Marked says that it came from marked
// strings.
type Segment struct {
	Text   string
	Marked bool
}

// Parse makes a template of its source. The error is an *Error with KindSyntax,
// which names the line, or KindLimit for a source that is too long.
func Parse(src string, o Options) (*Template, error) {
	if most := o.withDefaults(0).MaxSource; len(src) > most {
		return nil, &Error{Kind: KindLimit, Message: fmt.Sprintf("a source of %d bytes, more than %d", len(src), most)}
	}
	body, err := parse(valid(src))
	if err != nil {
		return nil, err
	}
	p, err := compile(body)
	if err != nil {
		return nil, err
	}
	o.Globals = maps.Clone(o.Globals)
	return &Template{p, o}, nil
}

// Execute renders the template with variables, which it does not change; keys
// must be strings. The error is an *Error. It returns when ctx is done.
func (t *Template) Execute(ctx context.Context, vars *Dict) (string, error) {
	s, err := t.render(ctx, vars)
	return s.s, err
}

// Segments renders as Execute does, and tells apart what came from marked
// strings. The texts put together are what Execute returns; neighbours differ in
// their mark, and none is empty.
//
// A piece of a string has that piece's marks, and a string put together keeps
// each part's. Where an operation does not say which byte came from which, as a
// change of case beyond ASCII, all of its result is marked if any of its operand
// was. Numbers, booleans and None carry no marks.
func (t *Template) Segments(ctx context.Context, vars *Dict) ([]Segment, error) {
	s, err := t.render(ctx, vars)
	if err != nil {
		return nil, err
	}
	var segments []Segment
	s.pieces(func(part string, marked bool) { segments = append(segments, Segment{part, marked}) })
	return segments, nil
}

func (t *Template) render(ctx context.Context, vars *Dict) (str, error) {
	m := newMachine(ctx, t.opt, vars)
	if err := ctx.Err(); err != nil {
		return str{}, &Error{Kind: KindCanceled, Message: err.Error(), cause: err}
	}
	given := maps.Clone(globals)
	maps.Copy(given, t.opt.Globals)
	if vars != nil {
		for i, k := range vars.keys {
			if name, ok := k.(str); ok {
				given[name.s] = vars.values[i]
			}
		}
	}
	s := &scope{vars: map[string]Value{}, parent: &scope{vars: given}, blocks: t.program.blocks}
	out := m.text()
	out.limit = m.opt.MaxOutput
	if err := m.block(t.program.main, s, out); err != nil {
		return str{}, at(err, 0)
	}
	return out.str()
}
