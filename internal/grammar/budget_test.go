package grammar

import (
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/syntax"
)

// byBytes is the decoder of a vocabulary of bytes and one mark behind them.
type byBytes struct {
	mark string
	held []byte
}

func (d *byBytes) Write(id int) string {
	if id == 256 {
		return d.mark
	}
	if d.held = append(d.held, byte(id)); !utf8.FullRune(d.held) {
		return ""
	}
	text := string(d.held)
	d.held = d.held[:0]
	return text
}

func (d *byBytes) Whole() bool { return len(d.held) == 0 }

// TestBudgetWithinCharacter: where the budget is used up within a character, that ends first, since the grammar has no
// place for the mark in it.
func TestBudgetWithinCharacter(t *testing.T) {
	s := syntax.Of("<think>")
	g, err := (&Turn{Syntax: s, Opened: true, Form: Form{Pattern: "yes"}}).Compile(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const mark = 256
	v := NewVocabulary(258, func(id int) []byte {
		switch {
		case id < mark:
			return []byte{byte(id)}
		case id == mark:
			return []byte(s.Close)
		}
		return nil
	}, nil, []int{257})
	const thought = "a漢é" // of 1, 3 and 2 tokens
	for budget, want := range []int{0, 1, 4, 4, 4, 6, 6} {
		b := &Budget{Within: matched(t, g, v), Decoder: &byBytes{mark: s.Close}, Parser: s.NewParser(nil, true), Close: []int{mark}, Tokens: budget}
		for n := 0; b.Parser.Thinks(); n++ {
			mask, err := b.Mask()
			if err != nil {
				t.Fatal(err)
			}
			id := mark
			if len(mask.IDs) != 1 || mask.IDs[0] != mark {
				id = int(thought[n])
			} else if n != want {
				t.Errorf("a budget of %d: the mark comes after %d tokens, want %d", budget, n, want)
			}
			if err := b.Accept(id); err != nil {
				t.Fatalf("a budget of %d: %v", budget, err)
			}
		}
	}
}
