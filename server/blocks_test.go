package server

import (
	"testing"

	"github.com/karat-run/karat"
)

// TestLateTokens: a token whose text does not come, as the last one of a stop text, is still one of the text's tokens.
func TestLateTokens(t *testing.T) {
	var l blocks
	one := func(id int) []karat.Token { return []karat.Token{{ID: id}} }
	l.add(event{reasoning: "Hm.", tokens: one(1)})
	l.add(event{text: "a", tokens: one(2)})
	l.add(event{tokens: one(3)})
	l.add(event{tokens: one(4), finish: finishStop})
	if b := l.all[1]; len(l.all) != 2 || len(b.tokens) != 3 || b.tokens[2].ID != 4 {
		t.Errorf("%d blocks, the last one with %v", len(l.all), b.tokens)
	}
}
