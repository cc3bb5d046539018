package karat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/grammar"
	"github.com/karat-run/karat/internal/syntax"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Grammar is the form of a text (GenerateOptions.Grammar). Many requests, of any models, may share a Grammar at a time;
// later requests profit from the first one's work.
type Grammar struct {
	g *grammar.Grammar
	// match begins a text. Programs without grammars link nothing of grammars.
	match func(ctx context.Context, m *Model) (engine.Grammar, error)
	calls bool // the text is calls of tools

	kind, source string // of receipts; "" where a source is not kept
}

// GrammarRoom bounds the memory of grammars compiled in the room, and shares out processors among callers. A server has
// one for all grammars.
type GrammarRoom struct{ room *grammar.Room }

// NewGrammarRoom returns a room of so many bytes.
func NewGrammarRoom(bytes int) *GrammarRoom { return &GrammarRoom{grammar.NewRoom(bytes)} }

// Bytes returns about how much memory the grammars of the room take now.
func (r *GrammarRoom) Bytes() int { return r.room.Used() }

// JSONSchema returns the grammar of the JSON values described by a schema. Properties come in the schema's order. An
// unsupported keyword is an error with its path. docs/grammar.md lists the supported keywords.
func JSONSchema(schema []byte) (*Grammar, error) {
	return kept("schema", string(schema))(grammar.JSONSchema(schema))
}

// JSONObject returns the grammar of all JSON objects.
func JSONObject() *Grammar {
	g, _ := kept("json", "")(grammar.JSONObject(), nil)
	return g
}

// Regexp returns the grammar of the texts matched by a regular expression as a whole. The syntax is from package
// regexp; \uXXXX is a character.
func Regexp(pattern string) (*Grammar, error) {
	return kept("regexp", pattern)(grammar.Regexp(pattern))
}

// GBNF returns the grammar of the texts of the rule root, in llama.cpp's notation.
func GBNF(source string) (*Grammar, error) { return kept("gbnf", source)(grammar.GBNF(source)) }

// Lark returns the grammar of the texts of the rule start, in the notation of the Python library Lark. docs/grammar.md
// lists the supported part.
func Lark(source string) (*Grammar, error) { return kept("lark", source)(grammar.Lark(source)) }

// kept makes a grammar that keeps its source for receipts.
func kept(kind, source string) func(*grammar.Grammar, error) (*Grammar, error) {
	return func(of *grammar.Grammar, err error) (*Grammar, error) {
		g, err := newGrammar(of, err)
		if err == nil {
			g.kind, g.source = kind, source
		}
		return g, err
	}
}

func newGrammar(g *grammar.Grammar, err error) (*Grammar, error) {
	if err != nil {
		return nil, err
	}
	return &Grammar{g: g, match: func(ctx context.Context, m *Model) (engine.Grammar, error) {
		return g.Match(ctx, m.vocabulary())
	}}, nil
}

// Bytes returns the approximate memory of the grammar now. The memory grows with texts, up to 16 MiB of their states;
// then Karat forgets the states and builds them again when met.
func (g *Grammar) Bytes() int {
	if g.g == nil {
		return 0
	}
	return g.g.Bytes()
}

// Ignored returns the paths of the source's parts without effect on the grammar, such as a format unknown to Karat:
// #/properties/phone/format.
func (g *Grammar) Ignored() []string {
	if g.g == nil {
		return nil
	}
	return g.g.Ignored()
}

// Free gives the grammar's memory back to its room. No further text may use the grammar.
func (g *Grammar) Free() {
	if g.g != nil {
		g.g.Free()
	}
}

// ResponseFormat describes the form of the answer to a conversation. At most one of Schema, Regexp, GBNF and Lark is
// set. Without them any text will do.
type ResponseFormat struct {
	Schema      []byte // JSON schema of the text
	Regexp      string // regular expression of the text
	GBNF        string // grammar of the text
	Lark        string // grammar of the text, in Lark's notation
	Tools       []Tool // functions for the answer to call
	RequireCall bool   // the answer has at least one call of Tools
	SingleCall  bool   // the answer has at most one call
	InReasoning bool   // the prompt ends within reasoning, as some templates begin an answer

	Room *GrammarRoom // room of the grammar; nil is none
	Key  string       // caller in the room. Grammars of a caller are compiled in sequence
}

func (o *ResponseFormat) share() *grammar.Share {
	if o.Room == nil {
		return nil
	}
	return o.Room.room.Share(o.Key)
}

func (o *ResponseFormat) form() grammar.Form {
	return grammar.Form{Schema: o.Schema, Pattern: o.Regexp, GBNF: o.GBNF, Lark: o.Lark}
}

// TextGrammar returns the grammar of a text outside conversations, from o's Schema, Regexp, GBNF, Lark, Room and Key.
// The work ends with ctx, and after a number of steps worth about a second.
func TextGrammar(ctx context.Context, o ResponseFormat) (*Grammar, error) {
	f := o.form()
	return newGrammar(f.Compile(ctx, o.share()))
}

// ResponseGrammar returns the grammar of a whole answer: reasoning, if the model reasons, and then a text, or calls of
// tools in the syntax of the model's chat template. GenerateOptions.Special must have the names of marks made of
// special tokens. The arguments of a call fit the tool's Parameters. For a tool without Strict, unsupported Parameters
// stand for any object.
func (m *Model) ResponseGrammar(ctx context.Context, o ResponseFormat) (*Grammar, error) {
	t := grammar.Turn{Syntax: syntax.Of(m.opened.Checkpoint.Template()), Form: o.form(), Opened: o.InReasoning,
		Required: o.RequireCall, Single: o.SingleCall}
	for _, tool := range o.Tools {
		t.Tools = append(t.Tools, grammar.Tool{Name: tool.Name, Schema: tool.Parameters, Strict: tool.Strict})
	}
	g, err := newGrammar(t.Compile(ctx, o.share()))
	if err == nil {
		g.calls = o.RequireCall
	}
	return g, err
}

// ReasoningBudget returns g, with nil for any text, limited to tokens tokens of reasoning in an answer. Then the
// model's end mark comes, for example </think>. All tokens of a longer mark count, except the last. With a g, an
// unfinished character ends first. Tools and InReasoning of o count. GenerateOptions.Special must have the marks. A
// model without reasoning in its chat template is an error.
func (m *Model) ReasoningBudget(ctx context.Context, g *Grammar, tokens int, o ResponseFormat) (*Grammar, error) {
	s := syntax.Of(m.opened.Checkpoint.Template())
	if s.Open == "" || tokens < 0 {
		return nil, fmt.Errorf("a budget of %d tokens of reasoning: the model does not reason, or the budget is "+
			"negative", tokens)
	}
	marks, err := m.SpecialTokens(ctx)
	if err != nil {
		return nil, err
	}
	end, err := m.tokenize(ctx, s.Close, tokenizer.Options{ParseSpecial: slices.Contains(marks, s.Close)})
	if err != nil {
		return nil, err
	}
	var tools syntax.Tools
	for _, t := range o.Tools {
		if tools == nil {
			tools = syntax.Tools{}
		}
		tools[t.Name] = nil
	}
	return &Grammar{match: func(ctx context.Context, m *Model) (_ engine.Grammar, err error) {
		d, _ := m.decoder(controls(marks)) // special tokens
		b := &grammar.Budget{Decoder: d, Parser: s.NewParser(tools, o.InReasoning), Close: end, Tokens: tokens}
		b.Parser.Control = marks
		if g != nil {
			b.Within, err = g.match(ctx, m)
		}
		return b, err
	}}, nil
}

// controls returns marks as a parser of answers knows special tokens.
func controls(marks []string) (all []string) {
	for _, mark := range marks {
		all = append(all, syntax.Control(mark))
	}
	return all
}

// SpecialTokens returns the special tokens around reasoning and calls of tools in the model's chat template: for
// GenerateOptions.Special, to spell them in the text.
func (m *Model) SpecialTokens(ctx context.Context) (all []string, err error) {
	s := syntax.Of(m.opened.Checkpoint.Template())
	return m.specialTokens(ctx, &s)
}

// specialTokens returns the special tokens among a syntax's marks.
func (m *Model) specialTokens(ctx context.Context, s *syntax.Syntax) (all []string, err error) {
	for _, mark := range s.Marks() {
		ids, err := m.Tokenize(ctx, mark, TokenizeOptions{ParseSpecial: true, OmitSpecial: true})
		if err != nil {
			return nil, err
		}
		plain, err := m.Tokenize(ctx, mark, TokenizeOptions{OmitSpecial: true})
		if err != nil {
			return nil, err
		}
		if len(ids) == 1 && len(plain) != 1 {
			all = append(all, mark)
		}
	}
	return all, nil
}

// ErrGrammar is the error of an answer out of its grammar's hold: too many alternatives at once, or no token of the
// model to go on with.
var ErrGrammar = grammar.ErrGrammar

// ErrGrammarRoom is an ErrGrammar: the grammar's room has no more memory now.
var ErrGrammarRoom = grammar.ErrRoom

// Fits reports whether a whole text fits the grammar. The error is for a grammar of too much work.
func (g *Grammar) Fits(text []byte) (bool, error) {
	if g.g == nil {
		return false, errors.New("a budget of tokens is nothing that a text fits")
	}
	return g.g.Fits(text)
}

// vocabulary returns the model's tokens in the form of grammars, made for the first request with a grammar.
func (m *Model) vocabulary() *grammar.Vocabulary {
	m.vocab.once.Do(func() {
		t := m.opened.Tokenizer
		m.vocab.tokens = grammar.NewVocabulary(m.opened.Engine.VocabSize(), func(id int) []byte {
			text, kind := t.Token(id)
			switch kind {
			case tokenizer.Control:
				return grammar.Special(text)
			case tokenizer.Unknown:
				return nil
			}
			if b := t.Bytes(id); bytes.IndexByte(b, 0xff) < 0 { // 0xff occurs in no text, and spells special tokens
				return b
			}
			return nil
		}, t.ID, m.opened.Checkpoint.EndOfTurn(t))
	})
	return m.vocab.tokens
}
