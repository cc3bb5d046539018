package grammar

import (
	"math/rand/v2"
	"testing"
)

// follows draws a text of a grammar, byte by byte, and checks that there is always a byte that goes on.
func follows(t *testing.T, g *Grammar, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	s := g.start.Load()
	for range 40 {
		var all []byte
		for b := range 256 {
			n, err := g.read(t.Context(), s, []byte{byte(b)})
			if err != nil {
				return // too much work, which is an error and no hang
			}
			if !n.dead() {
				all = append(all, byte(b))
			}
		}
		if len(all) == 0 {
			if !s.accept {
				t.Fatal("nothing goes on, and the text is not complete")
			}
			return
		}
		s, _ = g.read(t.Context(), s, []byte{all[r.IntN(len(all))]})
	}
}

// FuzzSchema: a schema is refused, or there is always a way on.
func FuzzSchema(f *testing.F) {
	for _, x := range features {
		f.Add(x.schema, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if g, err := JSONSchema([]byte(text)); err == nil {
			follows(t, g, seed)
		}
	})
}

// FuzzRegexp is FuzzSchema for regular expressions.
func FuzzRegexp(f *testing.F) {
	for _, x := range patterns {
		f.Add(x.pattern, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if g, err := Regexp(text); err == nil {
			follows(t, g, seed)
		}
	})
}

// FuzzGBNF is FuzzSchema for GBNF.
func FuzzGBNF(f *testing.F) {
	for _, x := range grammarsGBNF {
		f.Add(x.source, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if g, err := GBNF(text); err == nil {
			follows(t, g, seed)
		}
	})
}
