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

// Grammar is what a text must fit (GenerateOptions.Grammar). It may be used by many requests at a time,
// of any models; what it costs at first, the next requests find done.
type Grammar struct {
	g     *grammar.Grammar
	match func(ctx context.Context, m *Model) (engine.Grammar, error) // begins a text; a program that makes no grammars links nothing of them
	calls bool                                                        // the text is calls of tools
}

// GrammarRoom bounds the memory of grammars that are compiled in it, and shares out the processors that they need by
// callers. A server has one for all grammars.
type GrammarRoom struct{ room *grammar.Room }

// NewGrammarRoom returns a room of so many bytes.
func NewGrammarRoom(bytes int) *GrammarRoom { return &GrammarRoom{grammar.NewRoom(bytes)} }

// Bytes returns about how much memory the grammars of the room take now.
func (r *GrammarRoom) Bytes() int { return r.room.Used() }

// JSONSchema returns the grammar of the JSON values that a schema describes. Properties come in the schema's order. A
// keyword that is not supported is an error that has its path. docs/grammar.md lists the supported ones.
func JSONSchema(schema []byte) (*Grammar, error) { return newGrammar(grammar.JSONSchema(schema)) }

// JSONObject returns the grammar of all JSON objects.
func JSONObject() *Grammar {
	g, _ := newGrammar(grammar.JSONObject(), nil)
	return g
}

// Regexp returns the grammar of the texts that a regular expression matches as a whole. The syntax is that of package
// regexp; \uXXXX is a character.
func Regexp(pattern string) (*Grammar, error) { return newGrammar(grammar.Regexp(pattern)) }

// GBNF returns the grammar of the texts of the rule root, in llama.cpp's notation.
func GBNF(source string) (*Grammar, error) { return newGrammar(grammar.GBNF(source)) }

// Lark returns the grammar of the texts of the rule start, in the notation of the Python library Lark.
// docs/grammar.md lists what of it.
func Lark(source string) (*Grammar, error) { return newGrammar(grammar.Lark(source)) }

func newGrammar(g *grammar.Grammar, err error) (*Grammar, error) {
	if err != nil {
		return nil, err
	}
	return &Grammar{g: g, match: func(ctx context.Context, m *Model) (engine.Grammar, error) { return g.Match(ctx, m.vocabulary()) }}, nil
}

// Bytes is about how much memory the grammar takes now. It grows as texts are held to it. What they have built is
// forgotten where it has 16 MiB, and built again when it is met.
func (g *Grammar) Bytes() int {
	if g.g == nil {
		return 0
	}
	return g.g.Bytes()
}

// Ignored returns the paths of what the source says and the grammar does not heed, such as a format that Karat does
// not know: #/properties/phone/format.
func (g *Grammar) Ignored() []string {
	if g.g == nil {
		return nil
	}
	return g.g.Ignored()
}

// Free gives the grammar's memory back to the room that it was compiled in. No text is held to the grammar any more.
func (g *Grammar) Free() {
	if g.g != nil {
		g.g.Free()
	}
}

// ResponseFormat says which form the answer to a conversation must have. At most one of Schema, Regexp, GBNF
// and Lark is set. Without them the text is any.
type ResponseFormat struct {
	Schema      []byte // JSON schema of the text
	Regexp      string // regular expression of the text
	GBNF        string // grammar of the text
	Lark        string // grammar of the text, in Lark's notation
	Tools       []Tool // functions that the answer may call
	RequireCall bool   // the answer calls one of Tools at least
	SingleCall  bool   // the answer has at most one call
	InReasoning bool   // the prompt ends within reasoning, as some templates begin an answer

	Room *GrammarRoom // room that the grammar is compiled in; nil is none
	Key  string       // caller in that room. Grammars of one caller are compiled one after the other
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

// TextGrammar returns the grammar of a text that is no answer to a conversation. Of o, Schema, Regexp, GBNF, Lark,
// Room and Key count. The work ends with ctx, and after a number of steps that takes about a second.
func TextGrammar(ctx context.Context, o ResponseFormat) (*Grammar, error) {
	f := o.form()
	return newGrammar(f.Compile(ctx, o.share()))
}

// ResponseGrammar returns the grammar that a whole answer must fit: reasoning, if the model reasons, and then a text,
// or calls of tools as the model's chat template shows them. The names of the marks are to be in
// GenerateOptions.Special where they are special tokens. The arguments of a call fit the tool's Parameters. Unless
// the tool is Strict, Parameters that are not supported stand for any object.
func (m *Model) ResponseGrammar(ctx context.Context, o ResponseFormat) (*Grammar, error) {
	t := grammar.Turn{Syntax: syntax.Of(m.opened.Checkpoint.Template()), Form: o.form(), Opened: o.InReasoning, Required: o.RequireCall, Single: o.SingleCall}
	for _, tool := range o.Tools {
		t.Tools = append(t.Tools, grammar.Tool{Name: tool.Name, Schema: tool.Parameters, Strict: tool.Strict})
	}
	g, err := newGrammar(t.Compile(ctx, o.share()))
	if err == nil {
		g.calls = o.RequireCall
	}
	return g, err
}

// ReasoningBudget returns g, where nil is any text, with at most so many tokens of reasoning in an answer. Then
// the model's end mark comes, for example </think>. All tokens of a longer mark count, except the last one. With a g, a
// character that was begun ends first. Of o, Tools and InReasoning count. Marks are to be in GenerateOptions.Special.
// A model whose chat template shows no reasoning is an error.
func (m *Model) ReasoningBudget(ctx context.Context, g *Grammar, tokens int, o ResponseFormat) (*Grammar, error) {
	s := syntax.Of(m.opened.Checkpoint.Template())
	if s.Open == "" || tokens < 0 {
		return nil, fmt.Errorf("a budget of %d tokens of reasoning: the model does not reason, or the budget is negative", tokens)
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
		d, _ := m.decoder(controls(marks)) // which are special tokens
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

// SpecialTokens returns the special tokens that the model writes around reasoning and calls of tools, as its chat
// template shows them: for GenerateOptions.Special, by which they are a part of the text.
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

// ErrGrammar is the error of an answer that cannot be held to its grammar: too many alternatives hold at once, or no
// token of the model goes on.
var ErrGrammar = grammar.ErrGrammar

// ErrGrammarRoom is an ErrGrammar: the grammar's room has no more memory now.
var ErrGrammarRoom = grammar.ErrRoom

// Fits reports whether a whole text fits the grammar. An error is of a grammar that needs too much work.
func (g *Grammar) Fits(text []byte) (bool, error) {
	if g.g == nil {
		return false, errors.New("a budget of tokens is nothing that a text fits")
	}
	return g.g.Fits(text)
}

// vocabulary is the model's tokens as grammars see them, made at the first request that has one.
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
			if b := t.Bytes(id); bytes.IndexByte(b, 0xff) < 0 { // which no text has, and which spells special tokens
				return b
			}
			return nil
		}, t.ID, m.opened.Checkpoint.EndOfTurn(t))
	})
	return m.vocab.tokens
}
