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
// the logits are made. Its rows are the tokens since.
type summing struct {
	see  func(*backend.Step) error
	torn *bool // its cache cannot copy; nil is false
}

type sums struct {
	class int
	slots map[int32]float32
	rows  map[int32]*[kv.PageSize]int32
	torn  *bool
}

func (summing) Close() error { return nil }

func (b summing) Compile(*graph.Graph, backend.Options) (backend.Executable, error) { return b, nil }

func (b summing) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	c := &sums{len(pool.Classes()) - 2, map[int32]float32{}, map[int32]*[kv.PageSize]int32{}, b.torn}
	pool.Back(c)
	return c, nil
}

func (b summing) Run(_ context.Context, s *backend.Step, _ backend.Tap) (logits []float32, err error) {
	c := s.Cache.(*sums)
	for _, p := range s.Pieces(nil) {
		at, page := p.Seq.Page(c.class, 0), p.Seq.Page(c.class+1, 0)
		if c.rows[page] == nil {
			c.rows[page] = new([kv.PageSize]int32)
		}
		rows := c.rows[page]
		after := func(n int) float32 {
			sum := c.slots[at]
			if !p.HasState(p.Ends && n == kv.PageSize) {
				sum = 0
			}
			for _, id := range rows[:n] {
				sum = sum/2 + float32(id)
			}
			return sum
		}
		if p.Ends {
			c.slots[at] = after(kv.PageSize)
		}
		for i := range p.Rows {
			rows[p.At+i] = s.Tokens[p.Row+i]
			if len(s.Outputs) > 0 && int(s.Outputs[0]) == p.Row+i {
				logits = append(logits, after(p.At+i+1), 1)
				s.Outputs = s.Outputs[1:]
			}
		}
	}
	return logits, b.see(s) // an error comes when the states have been written
}

func (*sums) Bytes() int64        { return 0 }
func (*sums) PageBytes(int) int64 { return 4 }
func (*sums) Close() error        { return nil }

func (c *sums) Copy(class int, from, to int32) error {
	if c.torn != nil && *c.torn {
		return errors.New("torn")
	}
	if class == c.class {
		c.slots[to] = c.slots[from]
	} else if x := c.rows[from]; x != nil {
		rows := *x
		c.rows[to] = &rows
	}
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
	x.State = &graph.State{Name: "sum", Size: 1, Rows: []graph.Run{{Count: 1, Size: 1}}}
	r.Linear(weight(2, 2), r.Outputs(x), 2)
	g, err := r.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return newEngine(t, g, b, engine.Options{Context: 512, Chunk: 100, Budget: 8 * slots})
}

// TestState: a state cannot be cut back, except within its page. What goes back further, or fails in a later page, does
// so to a snapshot, and the rest is computed again: the same bits.
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
		name            string
		slots           int64
		failed, rewound int // tokens that are left
	}{
		{"without snapshots", 1, 0, 0},
		{"with snapshots", 30, 299, 150}, // of the text computed before
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
		fail := func(to int) {
			fails = true
			if _, err := s.Feed(t.Context(), text[s.Len():to], 1); err == nil || s.Len() != 150 {
				t.Errorf("%s: %d tokens are left of a step that failed: %v", x.name, s.Len(), err)
			}
			fails = false
		}
		fail(192)
		again("a step failed", 150)
		s.Rewind(text[:101])
		feed(t, s, text[s.Len():150], 1)
		fail(193)
		again("a step into another page failed", x.failed)
		s.Rewind(text[:151])
		if s.Len() != x.rewound {
			t.Errorf("%s: %d tokens are left of 150", x.name, s.Len())
		}
		again("rewound", 299)
		s.Close()
		s = e.NewSequence()
		again("another sequence", 299)
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
