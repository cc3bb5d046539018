package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
)

// tapsOf is the values of some nodes for ids, by node and row.
func tapsOf(t *testing.T, g *graph.Graph, ids []int32, nodes ...*graph.Node) map[*graph.Node][][]float32 {
	t.Helper()
	all := map[*graph.Node][][]float32{}
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: len(ids), Want: func(n *graph.Node) bool { return slices.Contains(nodes, n) },
		Tap: func(n *graph.Node, out []float32) {
			for _, row := range slices.Collect(slices.Chunk(out, n.Shape.Size())) {
				all[n] = append(all[n], slices.Clone(row))
			}
		}})
	scratch(t, e, ids, len(ids))
	return all
}

// TestValues: what a request asks for of a node has the bits of the node's taps, alone and in
// steps with others that want logits or another node's values, wherever these are cut; and the others
// have the bits that they have alone.
func TestValues(t *testing.T) {
	_, g := openModel(t, golden.Model(t, sliding))
	text := prompt(t, sliding, 8, 90)
	layer, norm := g.Node("blk.1.out"), g.Node("output_norm")
	taps := tapsOf(t, g, text, layer, norm)
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: 128, Chunk: 40, Keep: func(n *graph.Node) bool { return n == layer || n == norm }})
	logits := scratch(t, e, text, kept)
	r := rand.New(rand.NewPCG(3, 4))
	e.Cut(func(most int) int { return 1 + r.IntN(most) })
	for _, mix := range [][]*graph.Node{{layer}, {norm}, {norm, norm, layer}, {nil, norm, layer, nil}} {
		var wg sync.WaitGroup
		for i, n := range mix {
			wg.Go(func() {
				s := e.NewSequence()
				defer s.Close()
				s.Prefix(text[:len(text)-kept+1], fmt.Sprint(i))
				want := taps[n]
				got, err := [][]float32(nil), error(nil)
				if n == nil {
					want = logits
					got, err = s.Feed(context.Background(), text[s.Len():], kept)
				} else {
					got, err = s.Values(context.Background(), text[s.Len():], n, kept)
				}
				if err != nil || !same(got, want[len(want)-kept:]) {
					t.Errorf("%v among %d: other bits, %v", n, len(mix), err)
				}
			})
		}
		wg.Wait()
	}
	s := e.NewSequence()
	defer s.Close()
	if _, err := s.Values(context.Background(), text, g.Result(), 1); err == nil || !strings.Contains(err.Error(), "Options.Keep") {
		t.Errorf("a node that is not kept: %v", err)
	}
}

// TestMix: rows of embeddings have the bits of the tokens whose rows they are; prefixes of
// them are found by the same rows alone, also after all the others.
func TestMix(t *testing.T) {
	_, g := openModel(t, golden.Model(t, sliding))
	const n, left = 150, 150 - kept // of which logits are wanted
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: n, Chunk: 32, Budget: 6 * backend.CacheBytes(g, n, 32, 2, false)})
	text := ids(e.VocabSize(), n, 0)
	want := scratch(t, e, text, kept)
	table := tapsOf(t, g, text, backend.Input(g))[backend.Input(g)]
	rows, blank := make([][]float32, 90), slices.Clone(text) // an image of 70 rows behind 20 tokens
	for i := 20; i < 90; i++ {
		rows[i] = table[i]
		if g.Node("per_layer_token_embd") == nil {
			blank[i] = 0
		}
	}
	other := slices.Clone(rows)
	other[40] = slices.Clone(other[40])
	other[40][3]++
	held := func(way string, rows [][]float32, salt string, there int, right bool) {
		t.Helper()
		s := e.NewSequence()
		defer s.Close()
		got, err := s.Mix(blank[:left+1], engine.Mixed{Embeddings: rows}, salt)
		if err != nil || got != there {
			t.Errorf("%s: %d tokens are there, want %d; %v", way, got, there, err)
		}
		if right != same(feed(t, s, blank[s.Len():], kept), want) {
			t.Errorf("%s: the tokens' bits: %v", way, !right)
		}
	}
	held("first", rows, "", 20, true) // of the text
	held("again", rows, "", left, true)
	held("another salt", rows, "x", 0, true)
	held("another row", other, "", 20, false) // as in text
	held("tokens alone", nil, "", 20, false)  // as in text
	held("tokens alone again", make([][]float32, left), "", left, false)
	held("after all of these", rows, "", left, true)

	s := e.NewSequence()
	defer s.Close()
	for _, rows := range [][][]float32{rows, other, nil, rows} { // of one sequence
		if _, err := s.Mix(blank[:left+1], engine.Mixed{Embeddings: rows}, "y"); err != nil {
			t.Fatal(err)
		}
		if right := len(rows) > 0 && &rows[40][0] == &table[40][0]; right != same(feed(t, s, blank[s.Len():], kept), want) {
			t.Errorf("one sequence: the tokens' bits: %v", !right)
		}
	}
	for cause, bad := range map[string][][]float32{"151 rows": make([][]float32, n+1), "has 1 elements": {nil, {1}}, "has 0 elements": {{}}} {
		if _, err := s.Mix(blank, engine.Mixed{Embeddings: bad}, ""); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("%s: %v", cause, err)
		}
	}
}

// TestMixPreempted: sequences whose room others take in turn are computed again from their rows.
func TestMixPreempted(t *testing.T) {
	_, g := openModel(t, golden.Model(t, sliding))
	const n = 100
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: n, Chunk: 32, Budget: backend.CacheBytes(g, n, 32, 2, false) * 3 / 2})
	text := ids(e.VocabSize(), n, 0)
	want := scratch(t, e, text, n)
	table := tapsOf(t, g, text, backend.Input(g))[backend.Input(g)]
	blank := slices.Clone(text)
	rows := make([][]float32, 80)
	for i := range rows {
		rows[i], blank[i] = table[i], 1
	}
	var all []*engine.Sequence
	for i := range 3 {
		s := e.NewSequence()
		defer s.Close()
		if _, err := s.Mix(blank, engine.Mixed{Embeddings: rows}, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		feed(t, s, blank[:s.Len()+70], 0)
		all = append(all, s)
	}
	for at := 70; at < n; at += 10 {
		for i, s := range all {
			if !same(feed(t, s, blank[at:at+10], 10), want[at:at+10]) {
				t.Errorf("sequence %d at %d: other bits", i, at)
			}
		}
	}
}
