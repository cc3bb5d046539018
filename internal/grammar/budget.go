package grammar

import (
	"fmt"

	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/syntax"
)

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
