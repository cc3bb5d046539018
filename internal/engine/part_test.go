package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// sectioned is the toy, whose heads turn by three parts of a position.
func sectioned(t *testing.T) *graph.Graph {
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	for _, n := range g.Nodes {
		if a, ok := n.Attr.(graph.RoPEAttr); ok {
			a.Sections, a.Woven = [3]int{2, 3, 3}, true
			n.Attr = a
		}
	}
	return g
}

// twoImages is the positions of 10 tokens of text, an image of 6 by 5 rows, 20 tokens of text, and an
// image of 4 by 9 rows.
func twoImages() (parts [][3]int32) {
	text := func(n, at int) {
		for i := range n {
			p := int32(at + i)
			parts = append(parts, [3]int32{p, p, p})
		}
	}
	image := func(h, w, at int) {
		for i := range h * w {
			parts = append(parts, [3]int32{int32(at), int32(at + i/w), int32(at + i%w)})
		}
	}
	text(10, 0)
	image(6, 5, 10)
	text(20, 16)
	image(4, 9, 36)
	return parts
}

// turnedBy is the last logits of tokens computed in one step, behind parts as text that begins at next.
func turnedBy(t *testing.T, g *graph.Graph, tokens []int32, parts [][3]int32, next int32) (logits [][]float32) {
	t.Helper()
	b, n := cpu.New(cpu.Options{}), len(tokens)
	defer b.Close()
	plan, err := b.Compile(g, backend.Options{Rows: n})
	if err != nil {
		t.Fatal(err)
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: n, Chunk: n})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	seq := pool.NewSequence()
	if err := seq.Grow(n); err != nil {
		t.Fatal(err)
	}
	s := &backend.Step{Tokens: tokens, Cache: cache, Parts: slices.Clone(parts)}
	for i := range n {
		s.Pos, s.Seqs = append(s.Pos, int32(i)), append(s.Seqs, seq)
		if i >= len(parts) {
			s.Parts = append(s.Parts, [3]int32{next, next, next})
			next++
		}
		if i >= n-kept {
			s.Outputs = append(s.Outputs, int32(i))
		}
	}
	all, err := plan.Run(context.Background(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for row := range slices.Chunk(all, g.Result().Shape.Size()) {
		logits = append(logits, slices.Clone(row))
	}
	return logits
}

// TestParts: rows of images have the bits that their positions give, and so has the text behind them,
// in steps that are cut anywhere, beside text, token by token, from a prefix and after a preemption. A prefix
// serves the same positions alone.
func TestParts(t *testing.T) {
	g, n := sectioned(t), 180
	text, images := toyText(n), twoImages()
	other := slices.Clone(images)
	other[20][2]++
	right, plain := turnedBy(t, g, text, images, 45), turnedBy(t, g, text, nil, 0)
	if same(right, plain) || same(right, turnedBy(t, g, text, other, 45)) {
		t.Fatal("the positions change nothing")
	}
	e := newEngine(t, g, cpu.New(cpu.Options{Threads: 2}), engine.Options{Context: n, Chunk: 48, Budget: 5 * backend.CacheBytes(g, n, 48, 2, false)})
	r := rand.New(rand.NewPCG(1, 2))
	e.Cut(func(most int) int { return 1 + r.IntN(most) })
	check := func(way string, parts [][3]int32, salt string, there int, want [][]float32) {
		t.Helper()
		s := e.NewSequence()
		defer s.Close()
		held, err := s.Mix(text[:n-kept], engine.Mixed{Parts: parts}, salt)
		if err != nil || held != there {
			t.Errorf("%s: %d tokens are there, want %d; %v", way, held, there, err)
		}
		feed(t, s, text[s.Len():n-kept], 0)
		var got [][]float32
		for _, id := range text[n-kept:] {
			got = append(got, feed(t, s, []int32{id}, 1)...)
		}
		if !same(got, want) {
			t.Errorf("%s: other bits", way)
		}
	}
	check("cold", images, "", 0, right)
	check("again", images, "", n-kept-1, right)
	check("with the text behind", append(slices.Clone(images), [3]int32{45, 45, 45}, [3]int32{46, 46, 46}), "", n-kept-1, right)
	check("another column", other, "", 0, turnedBy(t, g, text, other, 45))
	check("text", nil, "", 0, plain)
	check("text in three parts", images[:10], "", n-kept-1, plain)
	check("after all of these", images, "", n-kept-1, right)
	for range 4 {
		check("cut elsewhere", images, fmt.Sprint(r.Int()), 0, right)
	}
}

// TestPartsPreempted: two sequences that take each other's room, one with images, one of text, keep
// their positions; together they have no place.
func TestPartsPreempted(t *testing.T) {
	g, n := sectioned(t), 180
	text, images := toyText(n), twoImages()
	want := [2][][]float32{turnedBy(t, g, text, images, 45), turnedBy(t, g, text, nil, 0)}
	e := newEngine(t, g, cpu.New(cpu.Options{Threads: 2}), engine.Options{Context: n, Chunk: 48, Budget: backend.CacheBytes(g, n, 48, 2, false) * 3 / 2})
	var all [2]*engine.Sequence
	for i, parts := range [][][3]int32{images, nil} {
		all[i] = e.NewSequence()
		defer all[i].Close()
		if _, err := all[i].Mix(text, engine.Mixed{Parts: parts}, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		feed(t, all[i], text[:n-kept], 0)
	}
	for at := 0; at < kept; at += 4 {
		for i, s := range all {
			if got := feed(t, s, text[n-kept+at:][:4], 4); !same(got, want[i][at:at+4]) {
				t.Errorf("sequence %d, token %d: other bits", i, at)
			}
		}
	}
}

// TestPartsAhead: a backend that chooses several tokens at once goes step by step behind an image.
func TestPartsAhead(t *testing.T) {
	g := sectioned(t)
	var seen []int
	plain := newEngine(t, g, cpu.New(cpu.Options{Threads: 2}), engine.Options{Context: 180, Chunk: 48})
	far := newEngine(t, g, choosing{cpu.New(cpu.Options{Threads: 2}), &seen}, engine.Options{Context: 180, Chunk: 48})
	r := engine.Request{Prompt: toyText(100), Max: 30, Decoder: numbers{}, Mixed: engine.Mixed{Parts: twoImages()}}
	var got [2][]int
	for i, e := range []*engine.Engine{plain, far} {
		s := e.NewSequence()
		defer s.Close()
		for x, err := range s.Generate(context.Background(), r) {
			if err != nil {
				t.Fatal(err)
			}
			got[i] = append(got[i], x.ID)
		}
	}
	if len(got[0]) != 30 || !slices.Equal(got[0], got[1]) || slices.Max(seen) != 1 {
		t.Errorf("tokens %v, and chosen %v in %v steps", got[0], got[1], seen)
	}
}

// TestPartsRefused: positions that cannot be.
func TestPartsRefused(t *testing.T) {
	text := toyText(3)
	for cause, parts := range map[string][][3]int32{
		"4 positions for 3 tokens": make([][3]int32, 4),
		"[0 -1 0] at row 1":        {{}, {0, -1, 0}},
		"[0 16777216 0] at row 0":  {{0, backend.MaxPart, 0}},
	} {
		s := newEngine(t, sectioned(t), cpu.New(cpu.Options{}), engine.Options{Context: 64}).NewSequence()
		defer s.Close()
		if _, err := s.Mix(text, engine.Mixed{Parts: parts}, ""); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("%s: %v", cause, err)
		}
	}
	s := toy(t, engine.Options{Context: 64}, nil).NewSequence()
	defer s.Close()
	if _, err := s.Mix(text, engine.Mixed{Parts: [][3]int32{{0, 0, 1}}}, ""); err == nil || !strings.Contains(err.Error(), "no sections") {
		t.Errorf("a model without sections: %v", err)
	}
	if _, err := s.Mix(text, engine.Mixed{Parts: [][3]int32{{}, {1, 1, 1}}}, ""); err != nil {
		t.Errorf("text on a model without sections: %v", err)
	}
}
