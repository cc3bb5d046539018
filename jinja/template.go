// Package jinja runs Jinja2 templates as Python does: the same text for the same
// values, and an error where Python has one. Parse makes a Template, Execute renders
// it with a Dict of variables.
//
// The environment is that of Hugging Face's transformers library for chat templates
// (utils/chat_template_utils.py): sandboxed and immutable, with trim_blocks and
// lstrip_blocks, loop controls, the generation tag and a tojson that is json.dumps.
// The package knows nothing of models or chats.
//
// Templates and variables may come from anyone. A template sees this package's values
// and nothing of Go; Options bound what it uses.
//
// Characters are those of Unicode 15, as in Python 3.12. Not supported, and an error
// when reached: autoescape, loading other templates, the filters pprint, random, urlize
// and wordwrap, lipsum, str's encode, maketrans and translate, complex numbers,
// arithmetic of dict views, and all but the commoner names in \N{...} escapes.
//
// Known differences: a surrogate in a literal ('\ud800') is U+FFFD, since text is UTF-8
// and Python cannot print it either. A power of floats is the nearest float, which C's
// pow misses now and then in the last bit. Integers have at most 65536 bits, macros and
// calls at most 1000 names, tags and expressions at most 250 levels. A value that
// Python prints with its address is printed without.
//
// Marked strings (Mark) keep their marks through every operation; Template.Segments
// tells the bytes of the output that came from them from the template's own.
package jinja

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// A Template is a parsed template. It is safe for concurrent use.
type Template struct {
	program *program
	opt     Options
}

// A Segment is a part of a rendered text. Marked says that it came from marked
// strings, and Origin from which: it is that of MarkAs, and 0 for Mark.
type Segment struct {
	Text   string
	Marked bool
	Origin int
}

// tables are set by the first Parse, not by init: a program that parses no template links
// none of what they name.
var tables sync.Once

// Parse makes a template of its source. The error is an *Error with KindSyntax,
// which names the line, or KindLimit for a source that is too long.
func Parse(src string, o Options) (*Template, error) {
	if most := o.withDefaults(0).MaxSource; len(src) > most {
		return nil, &Error{Kind: KindLimit, Message: fmt.Sprintf("a source of %d bytes, more than %d", len(src), most)}
	}
	tables.Do(func() {
		setFilters()
		setMarkupMethods()
		setGlobals()
		setDictMethods()
		setListMethods()
		setTupleMethods()
		setRangeMethods()
		setEscapingMethods()
		setPlainMethods()
		setMethods()
		setTests()
	})
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
// their mark or its origin, and none is empty.
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
	s.pieces(func(part string, marked bool, of int) { segments = append(segments, Segment{part, marked, of}) })
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
