package engine_test

import (
	"testing"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
)

// laborious is a grammar of any text that takes many steps for each token.
type laborious struct{ steps int }

func (g laborious) Mask() (*sample.Mask, error) { return nil, nil }
func (g laborious) Accept(int) error            { return nil }
func (g laborious) Steps() int                  { return g.steps }
func (g laborious) Forced(int) ([]byte, error)  { return nil, nil }

// TestGrammarIsCharged: the work of a grammar counts in its caller's share, as tokens do.
func TestGrammarIsCharged(t *testing.T) {
	served := func(g engine.Grammar, tokens int) int64 {
		e := toy(t, engine.Options{Context: 64}, nil)
		s := e.NewSequence()
		defer s.Close()
		generate(t, s, engine.Request{Prompt: []int32{2, 5}, Max: tokens, Decoder: numbers{}, Grammar: g, Caller: engine.Caller{Key: "a"}})
		return e.Served("a")
	}
	light, heavy := served(laborious{}, 3), served(laborious{10 << 13}, 3)
	if heavy-light != 3*10 {
		t.Errorf("%d are charged, with a grammar that takes the time of 10 tokens for each of 3 %d", light, heavy)
	}
	light, heavy = served(laborious{}, 8), served(laborious{3 << 11}, 8)
	if heavy-light != 6 {
		t.Errorf("%d are charged, with a grammar that takes 3/4 of a token's time for each of 8 %d", light, heavy)
	}
}
