package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// summing is a backend of a graph with one state, a sum over all tokens so far, of which
// the logits are made.
type summing struct {
	see  func(*backend.Step) error
	torn *bool // its cache cannot copy; nil is false
}

type sums struct {
	class int
	slots map[int32]float32
	torn  *bool
}

func (summing) Close() error { return nil }

func (b summing) Compile(*graph.Graph, backend.Options) (backend.Executable, error) { return b, nil }

func (b summing) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	c := &sums{len(pool.Classes()) - 1, map[int32]float32{}, b.torn}
	pool.Back(c)
	return c, nil
}

func (b summing) Run(_ context.Context, s *backend.Step, _ backend.Tap) (logits []float32, err error) {
	c := s.Cache.(*sums)
	for t, seq := range s.Seqs {
		at := seq.Slot(c.class)
		if s.Pos[t] == 0 {
			c.slots[at] = 0
		}
		c.slots[at] = c.slots[at]/2 + float32(s.Tokens[t])
		if len(s.Outputs) > 0 && int(s.Outputs[0]) == t {
			logits = append(logits, c.slots[at], 1)
			s.Outputs = s.Outputs[1:]
		}
	}
	return logits, b.see(s) // an error comes when the states have been written
}

func (*sums) Bytes() int64        { return 0 }
func (*sums) PageBytes(int) int64 { return 4 }
func (*sums) Close() error        { return nil }

func (c *sums) Copy(_ int, from, to int32) error {
	if c.torn != nil && *c.torn {
		return errors.New("torn")
	}
	c.slots[to] = c.slots[from]
	return nil
}

// summed is an engine for a graph that keeps keys and values and a state, in steps of 100
// rows, with room for so many slots.
func summed(t *testing.T, slots int64, b summing) *engine.Engine {
	t.Helper()
	r := graph.New()
	weight := func(shape ...int) *graph.Weight {
		return &graph.Weight{Tensor: tensor.Tensor{Name: "w", Shape: shape, Data: []byte{0}}}
	}
	x := r.Embed(weight(500, 2), 500, 2, 1)
	x.State = &graph.State{Name: "sum", Size: 1}
	r.Linear(weight(2, 2), r.Outputs(x), 2)
	g, err := r.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return newEngine(t, g, b, engine.Options{Context: 512, Chunk: 100, Budget: 4 * slots})
}

// TestState: a state cannot be cut back. What goes back, or fails, does so to a snapshot,
// and the rest is computed again: the same bits.
func TestState(t *testing.T) {
	fails, rows := false, 0
	see := func(s *backend.Step) error {
		rows += len(s.Tokens)
		if fails {
			return errors.New("fails")
		}
		return nil
	}
	text := ids(500, 300, 0)
	for _, x := range []struct {
		name                         string
		slots                        int64
		failed, rewound, grown, cold int // tokens that are left
	}{
		{"without snapshots", 1, 0, 0, 0, 0},
		{"with snapshots", 30, 150, 150, 256, 256},
	} {
		e := summed(t, x.slots, summing{see: see})
		want := scratch(t, summed(t, 1, summing{see: see}), text, 1)
		s := e.NewSequence()
		again := func(what string, left int) {
			t.Helper()
			got := s.Rewind(text)
			if got != left {
				t.Errorf("%s, %s: %d tokens are left, want %d", x.name, what, got, left)
			}
			rows = 0
			if !same(feed(t, s, text[got:], 1), want) || rows != len(text)-got {
				t.Errorf("%s, %s: other logits, or %d rows", x.name, what, rows)
			}
		}
		feed(t, s, text[:150], 1)
		fails = true
		if _, err := s.Feed(t.Context(), text[150:170], 1); err == nil || s.Len() != 150 {
			t.Errorf("%s: %d tokens are left of a step that failed: %v", x.name, s.Len(), err)
		}
		fails = false
		again("a step failed", x.failed)
		s.Rewind(text[:151])
		if s.Len() != x.rewound {
			t.Errorf("%s: %d tokens are left of 150", x.name, s.Len())
		}
		again("rewound", max(x.rewound, x.grown))
		s.Close()
		s = e.NewSequence()
		again("another sequence", x.cold)
		s.Close()
	}
}

// TestTorn: memory that cannot be copied is an error of who needs it, and not a wait.
func TestTorn(t *testing.T) {
	torn := false
	e := summed(t, 30, summing{func(*backend.Step) error { return nil }, &torn})
	text := ids(500, 200, 0)
	want := scratch(t, e, text, 1)
	s := e.NewSequence()
	defer s.Close()
	at := s.Rewind(text)
	torn = true
	if _, err := s.Feed(t.Context(), text[at:], 1); at == 0 || err == nil || err.Error() != "torn" {
		t.Errorf("behind %d tokens: %v", at, err)
	}
	torn = false
	if !same(feed(t, s, text[s.Rewind(text):], 1), want) {
		t.Error("other bits behind the error")
	}
}
