package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/karat-run/karat/internal/tensor"
)

// ids is n tokens of a vocabulary, which differ from those of another seed.
func ids(vocab, n, seed int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32((i*i*7 + i*5 + 1 + seed) % vocab)
	}
	return all
}

// TestPrefixBits serves a prompt cold, from what prefixes of it have left, of a sequence that
// is closed or goes on, and when other sequences have taken the room of these: always the same
// bits.
func TestPrefixBits(t *testing.T) {
	for _, name := range append(golden.Sample(slices.Concat(golden.Models(t), golden.Families(t))), "demo.Q4_K_M") {
		if testing.Short() && name != sliding {
			continue
		}
		t.Run(name, func(t *testing.T) {
			path := demo(t)
			if name != "demo.Q4_K_M" {
				path = golden.Model(t, name)
			}
			_, g := openModel(t, path)
			prefixBits(t, g)
		})
	}
}

// TestPrefixStates: the same for models with states, chunks, latents and small windows.
func TestPrefixStates(t *testing.T) {
	prefixBits(t, backendtest.Hybrid(t, 4))
	prefixBits(t, backendtest.Attributes(t, 4))
}

func prefixBits(t *testing.T, g *graph.Graph) {
	const n, left = 230, 230 - kept // of which logits are wanted
	engineOf := func(sequences int) *engine.Engine {
		return newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: n, Chunk: 96, Budget: int64(sequences) * backend.CacheBytes(g, n, 96, 2, false)})
	}
	e := engineOf(12)
	text := ids(e.VocabSize(), n, 0)
	want := scratch(t, engineOf(1), text, kept)
	from := func(way string, e *engine.Engine, salt string, held int) {
		s := e.NewSequence()
		defer s.Close()
		if got := s.Prefix(text[:left+1], salt); got != held || s.Len() != got {
			t.Errorf("%s: %d tokens are there, want %d", way, got, held)
		}
		if !same(feed(t, s, text[s.Len():], kept), want) {
			t.Errorf("%s: other bits", way)
		}
	}
	from("cold", e, "", 0)
	for _, length := range []int{1, 63, 64, 65, 200} {
		salt := fmt.Sprint(length)
		s := e.NewSequence()
		s.Prefix(text[:length], salt)
		feed(t, s, text[:length], 0)
		from("beside one that goes on", e, salt, length)
		feed(t, s, ids(e.VocabSize(), n-length, 3), 0)
		s.Close()
		from("the whole prompt again", e, salt, left)

		s = e.NewSequence()
		s.Prefix(text[:length], salt+" closed")
		feed(t, s, text[:length], 0)
		s.Close()
		from("from one that is closed", e, salt+" closed", length)
	}
	one := engineOf(1)
	from("cold in little room", one, "", 0)
	from("warm in little room", one, "", left)
	scratch(t, one, ids(e.VocabSize(), n, 3), 1)
	from("evicted", one, "", 0)
}

// TestPrefixRows counts what the first token of a prompt of 1,000 tokens takes, cold and
// when a sequence with the same prompt, or the same first 700 tokens, was there before: of these
// a ring keeps what is seen behind 640.
func TestPrefixRows(t *testing.T) {
	rows, steps := 0, 0
	e := toy(t, engine.Options{Context: 1024, Chunk: 256, Budget: 4 * toyBytes(t, 1024, 256)}, func(s *backend.Step) error {
		rows += len(s.Tokens)
		steps++
		return nil
	})
	text := toyText(1000)
	for _, x := range []struct {
		name        string
		tokens      []int32
		rows, steps int
	}{
		{"cold", text, 1000, 4},
		{"again", text, 1, 1},
		{"another end", append(append([]int32{}, text[:700]...), text[:300]...), 360, 2},
	} {
		rows, steps = 0, 0
		s := e.NewSequence()
		feed(t, s, x.tokens[s.Rewind(x.tokens):], 1)
		s.Close()
		if rows != x.rows || steps != x.steps {
			t.Errorf("%s: %d rows in %d steps, want %d in %d", x.name, rows, steps, x.rows, x.steps)
		}
	}
}

// TestPrefixWatched: who watches the rows gets all of them, and nobody's salt is another's.
func TestPrefixWatched(t *testing.T) {
	text := toyText(200)
	for _, x := range []struct {
		name string
		o    engine.Options
		salt string
		want int
	}{
		{"same salt", engine.Options{}, "", 199},
		{"another salt", engine.Options{}, "other", 0},
		{"a tap", engine.Options{Want: everything, Tap: func(*graph.Node, []float32) {}}, "", 0},
	} {
		x.o.Context = 256
		e := toy(t, x.o, nil)
		scratch(t, e, text, 0)
		s := e.NewSequence()
		if got := s.Prefix(text, x.salt); got != x.want {
			t.Errorf("%s: %d tokens are there, want %d", x.name, got, x.want)
		}
		s.Close()
	}
}

// TestPrefixBudget: the memory of all sequences, and of what they leave, has a bound.
func TestPrefixBudget(t *testing.T) {
	const budget = 1 << 20
	e := toy(t, engine.Options{Context: 512, Budget: budget}, nil)
	for i := range 40 {
		scratch(t, e, ids(60, 300, i), 1)
		if n := e.CacheBytes(); n > budget {
			t.Fatalf("%d bytes after %d sequences, the budget is %d", n, i+1, budget)
		}
	}
	if n := e.CacheBytes(); n < budget/2 {
		t.Errorf("%d bytes are kept, there is room for %d", n, budget)
	}
}

// TestPrefixWaits: sequences that found pages and do not run yet give way to whose turn it is.
func TestPrefixWaits(t *testing.T) {
	e := toy(t, engine.Options{Context: 256, Chunk: 64, Budget: toyBytes(t, 256, 64)}, nil)
	text := [2][]int32{ids(60, 230, 0), ids(60, 230, 1)}
	var want [2][][]float32
	var all [2]*engine.Sequence
	for i := range text {
		want[i] = scratch(t, toy(t, engine.Options{Context: 256}, nil), text[i], 1)
		scratch(t, e, text[i][:128], 1)
	}
	for i := range text {
		all[i] = e.NewSequence()
		defer all[i].Close()
		if n := all[i].Rewind(text[i]); n != 128 {
			t.Fatalf("%d tokens are there, want 128: nothing is held", n)
		}
	}
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			if got, err := s.Feed(t.Context(), text[i][128:], 1); err != nil || !same(got, want[i]) {
				t.Errorf("request %d: other bits, or %v", i, err)
			}
		})
	}
	wg.Wait()
}

// afar is a backend whose memory is not the machine's.
type afar struct{ backend.Backend }

func (afar) Meter() backend.Meter        { return backend.Meter{} }
func (afar) Bandwidth() (float64, error) { return 0, nil }

// TestPrefixAfar: where nobody tells how much memory there is, what sequences leave takes no more
// than four of the full context.
func TestPrefixAfar(t *testing.T) {
	if sysinfo.Memory() == 0 {
		golden.Lacking(t, "nobody tells this machine's memory either")
	}
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	e := newEngine(t, g, afar{cpu.New(cpu.Options{})}, engine.Options{Context: 256, Chunk: 64})
	for i := range 20 {
		scratch(t, e, ids(60, 250, i), 1)
	}
	if n, most := e.CacheBytes(), 4*toyBytes(t, 256, 64); n > most || n < most/2 {
		t.Errorf("%d bytes are kept, at most %d should be", n, most)
	}
}
