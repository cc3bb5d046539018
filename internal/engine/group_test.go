package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// seeing is the toy, in which the rows of an image see each other.
func seeing(t *testing.T) *graph.Graph {
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	for _, n := range g.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok {
			a.Grouped = true
			n.Attr = a
		}
	}
	return g
}

// pictures is two images of 40 and 30 rows among n tokens; the second one's numbers follow from what.
func pictures(g *graph.Graph, n, what int) (m engine.Mixed) {
	m.Embeddings = make([][]float32, n)
	for _, x := range []backend.Group{{First: 10, End: 50}, {First: 75, End: 105}} {
		m.Groups = append(m.Groups, x)
		for i := x.First; i < x.End; i++ {
			m.Embeddings[i] = make([]float32, backend.Input(g).Shape.Size())
			for j := range m.Embeddings[i] {
				m.Embeddings[i][j] = float32((int(i)*7+j*5+what*(int(x.First)/75))%23)/11 - 1
			}
		}
	}
	return m
}

// TestGroups: a prompt with images has the same bits in one step, in steps cut anywhere, beside others that decode,
// from a prefix that ends within an image, and after a preemption; another image of the same size meets no page of it.
func TestGroups(t *testing.T) {
	g, n := seeing(t), 150
	text := toyText(n)
	m, other := pictures(g, n-kept, 0), pictures(g, n-kept, 1)
	run := func(e *engine.Engine, m engine.Mixed, salt string, there int) [][]float32 {
		t.Helper()
		s := e.NewSequence()
		defer s.Close()
		held, err := s.Mix(text[:n-kept+1], m, salt)
		if err != nil || there >= 0 && held != there {
			t.Errorf("%q: %d tokens are there, want %d; %v", salt, held, there, err)
		}
		return feed(t, s, text[s.Len():], kept)
	}
	whole := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: n, Chunk: n})
	want, moved := run(whole, m, "", 0), run(whole, other, "", 75)
	loose := m
	loose.Groups = nil
	if same(want, moved) || same(want, run(whole, loose, "loose", 0)) {
		t.Fatal("the images change nothing")
	}
	if !same(run(whole, other, "y", 0), moved) || !same(run(whole, m, "", n-kept), want) {
		t.Error("another image of the same size, or the same, has other bits")
	}
	e := newEngine(t, g, cpu.New(cpu.Options{Threads: 2}), engine.Options{Context: n, Chunk: 48,
		Budget: 5 * backend.CacheBytes(g, n, 48, 2, false) / 2})
	r := rand.New(rand.NewPCG(5, 6))
	e.Cut(func(most int) int { return max(40, r.IntN(most+1)) })
	for i := range 4 {
		if !same(run(e, m, fmt.Sprint(i), 0), want) {
			t.Errorf("cut, run %d: other bits", i)
		}
	}
	if !same(run(e, other, "3", 75), moved) { // from the end of a page's part, before the second image
		t.Error("after another image: other bits")
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			s := e.NewSequence()
			defer s.Close()
			if _, err := s.Mix(text[:n-kept+1], m, fmt.Sprint("beside", i)); err != nil {
				t.Error(err)
				return
			}
			got := feed(t, s, text[s.Len():n-kept+1], 1)
			for _, id := range text[n-kept+1:] {
				got = append(got, feed(t, s, []int32{id}, 1)...)
			}
			if !same(got, want) {
				t.Errorf("beside others, sequence %d: other bits", i)
			}
		})
	}
	wg.Wait()
	s := e.NewSequence()
	defer s.Close()
	for _, bad := range [][]backend.Group{{{First: 5, End: 5}}, {{First: 9, End: 20}, {First: 15, End: 25}},
		{{First: 0, End: int32(n + 1)}}, {{First: 0, End: 49}}} {
		if _, err := s.Mix(text, engine.Mixed{Groups: bad}, ""); err == nil {
			t.Errorf("groups %v are taken", bad)
		}
	}
	if _, err := s.Mix(slices.Clone(text), m, "carried"); err != nil {
		t.Fatal(err)
	}
}
