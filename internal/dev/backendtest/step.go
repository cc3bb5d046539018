package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// optionsOf is a plan for steps of at most rows rows.
func optionsOf(rows int) backend.Options { return backend.Options{Rows: rows} }

// outputs: the logits of some rows are those of all rows, and a step that
// wants none has none, pages apart, too, and with and without taps, which may make the
// plan compute all rows.
func (s *suite) outputs(t *testing.T) {
	g := Decoder(t, 14, tensor.Q8_0, 0, 7)
	tokens := make([]int32, 160)
	for i := range tokens {
		tokens[i] = text(0, i)
	}
	first, parts := part{0, tokens[:32]}, []part{{0, tokens[32:]}, {1, tokens[:32]}}
	m := start(t, s.open(), g, len(tokens), nil)
	m.forward(first)
	every := m.forward(parts...)
	for _, rows := range [][]int32{{}, {0}, {63}, {3, 4, 30, 120, 159}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 127, 128, 159}} {
		var want []float32
		for _, r := range rows {
			want = append(want, every[r*Vocab:(r+1)*Vocab]...)
		}
		bare, full := start(t, s.open(), g, len(tokens), nil), start(t, s.open(), g, len(tokens), all)
		for _, m := range []*machine{bare, full} {
			m.forward(first)
			step := m.step(parts...)
			step.Outputs = rows
			got := m.run(step)
			if d := distance(got, want); !(d <= s.tol.Layer) || s.tol.SameBits && !sameBits(got, want) {
				t.Errorf("rows %v: relative error %.3g, or other bits", rows, d)
			}
		}
		for _, n := range g.Nodes {
			if n.Op == graph.Rows && len(full.taps[n]) != len(rows)*n.Shape.Size() {
				t.Errorf("rows %v: the tap of %v has %d elements", rows, n, len(full.taps[n]))
			}
		}
	}
}

// taps: each node, wanted alone, has the value that it has when all are, and
// leaves the logits as they are without it.
func (s *suite) taps(t *testing.T) {
	types, steps := []tensor.DType{tensor.F32, tensor.Q4_0}, schedule(10, 16, 20, 5)
	if s.tol.Short {
		types, steps = types[1:], schedule(10, 16, 7, 5)
	}
	for _, d := range types {
		g := Decoder(t, 15, d, 0, 7)
		bare, full := start(t, s.open(), g, 16, nil), start(t, s.open(), g, 16, all)
		logits := bare.collect(steps)
		if !sameLists(full.collect(steps), logits) {
			t.Errorf("%v: wanting all nodes changes the logits", d)
		}
		if !sameBits(full.taps[g.Result()], full.last(steps, logits)) {
			t.Errorf("%v: the last node's tap is not the logits", d)
		}
		m := start(t, s.open(), g, 16, nil)
		for _, n := range g.Nodes {
			m.again(16, func(x *graph.Node) bool { return x == n })
			if !sameLists(m.collect(steps), logits) {
				t.Errorf("%v: wanting %v changes the logits", d, n)
			}
			if !sameBits(m.taps[n], full.taps[n]) {
				t.Errorf("%v: %v has another value when it is wanted alone", d, n)
			}
			if values := len(m.taps); (n.Op == graph.StoreKV) != (values == 0) {
				t.Errorf("%v: %d taps of %v", d, values, n)
			}
		}
	}
}

func sameLists(a, b [][]float32) bool { return slices.EqualFunc(a, b, sameBits) }

// last is the part of the sequences' logits that the last step gave.
func (m *machine) last(steps [][]part, logits [][]float32) (of []float32) {
	for _, p := range steps[len(steps)-1] {
		n := len(p.tokens) * m.g.Result().Shape.Size()
		of = append(of, logits[p.seq][len(logits[p.seq])-n:]...)
	}
	return of
}

// cancel: a cancelled step fails, and the next one is right.
func (s *suite) cancel(t *testing.T) {
	g := Decoder(t, 16, tensor.Q8_0, 0, 64)
	p := part{0, []int32{5, 6, 7, 8}}
	m := start(t, s.open(), g, 8, all)
	want := start(t, s.open(), g, 8, nil).forward(p)

	step := m.step(p)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if logits, err := m.plan.Run(ctx, step, nil); !errors.Is(err, context.Canceled) || logits != nil {
		t.Errorf("cancelled before: %d logits, %v", len(logits), err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	logits, err := m.plan.Run(ctx, step, func(*graph.Node, []float32) { cancel() })
	if err == nil && !sameBits(logits, want) || err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled at the first tap: %d logits, %v", len(logits), err)
	}
	if !sameBits(m.run(step), want) {
		t.Error("after a cancelled step the same one has other bits")
	}
}

// embeddings: rows of embeddings, beside tokens or alone, give the bits of the tokens whose rows they are.
func (s *suite) embeddings(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F32, tensor.Q8_0} {
		g := Decoder(t, 19, d, 0, 7)
		ids := []int32{3, 1, 4, 1, 5}
		tokens := start(t, s.open(), g, len(ids), all)
		want := tokens.forward(part{0, ids})
		input := backend.Input(g)
		table := tokens.taps[input] // [rows, hidden]
		width := input.Shape.Size()
		for name, as := range map[string]func(i int) bool{
			"all":  func(int) bool { return true },
			"some": func(i int) bool { return i == 1 || i == 2 },
			"none": func(int) bool { return false },
		} {
			for _, watch := range []func(*graph.Node) bool{nil, all} { // with and without taps
				m := start(t, s.open(), g, len(ids), watch)
				step := m.step(part{0, slices.Clone(ids)})
				step.Embeddings = make([][]float32, len(ids))
				for i := range ids {
					if as(i) {
						step.Tokens[i], step.Embeddings[i] = 0, table[i*width:][:width]
					}
				}
				if got := m.run(step); !sameBits(got, want) {
					t.Errorf("%v, %s: %.3g from the tokens' logits", d, name, distance(got, want))
				}
			}
		}
	}
}

// foreign is a cache of no backend.
type foreign struct{ backend.Cache }

// badSteps are refused with an error, and leave the plan usable.
func (s *suite) badSteps(t *testing.T) {
	g := Decoder(t, 17, tensor.F32, 0, 7)
	p := part{0, []int32{1, 2, 3, 4}}
	want := start(t, s.open(), g, 4, nil).forward(p)
	for name, spoil := range map[string]func(s *backend.Step){
		"no rows":               func(s *backend.Step) { *s = backend.Step{Cache: s.Cache} },
		"token below zero":      func(s *backend.Step) { s.Tokens[1] = -1 },
		"token past the end":    func(s *backend.Step) { s.Tokens[3] = Vocab },
		"fewer positions":       func(s *backend.Step) { s.Pos = s.Pos[:3] },
		"fewer sequences":       func(s *backend.Step) { s.Seqs = s.Seqs[:3] },
		"position below zero":   func(s *backend.Step) { s.Pos = []int32{-1, 0, 1, 2} },
		"position past the end": func(s *backend.Step) { s.Pos = []int32{1, 2, 3, 4} },
		"positions out of turn": func(s *backend.Step) { s.Pos = []int32{0, 2, 1, 3} },
		"a position twice":      func(s *backend.Step) { s.Pos = []int32{0, 1, 1, 2} },
		"output below zero":     func(s *backend.Step) { s.Outputs[0] = -1 },
		"output past the end":   func(s *backend.Step) { s.Outputs[3] = 4 },
		"outputs out of turn":   func(s *backend.Step) { s.Outputs = []int32{2, 1} },
		"an output twice":       func(s *backend.Step) { s.Outputs = []int32{1, 1} },
		"no cache":              func(s *backend.Step) { s.Cache = nil },
		"another's cache":       func(s *backend.Step) { s.Cache = foreign{} },
		"fewer embeddings":      func(s *backend.Step) { s.Embeddings = make([][]float32, 3) },
		"fewer adapters":        func(s *backend.Step) { s.Adapters = make([]*backend.Blend, 3) },
		"fewer parts":           func(s *backend.Step) { s.Parts = make([][3]int32, 3) },
		"a part below zero":     func(s *backend.Step) { s.Parts = [][3]int32{{}, {0, -1, 0}, {}, {}} },
		"a value not kept": func(s *backend.Step) {
			s.Values = []backend.Value{{Node: g.Result(), Out: make([]float32, Vocab)}}
		},
		"a value of no node": func(s *backend.Step) { s.Values = []backend.Value{{}} },
		"a short embedding":  func(s *backend.Step) { s.Embeddings = [][]float32{nil, nil, {1}, nil} },
		"an empty sequence": func(s *backend.Step) {
			s.Seqs[3] = kv.NewPool(kv.Options{Classes: []kv.Class{{}, {Kind: kv.Ring, Window: 7}}, Context: 64,
				Chunk: 4}).NewSequence()
		},
		"too many rows": func(s *backend.Step) {
			s.Tokens, s.Pos, s.Seqs = append(s.Tokens, 1), append(s.Pos, 4), append(s.Seqs, s.Seqs[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(t, s.open(), g, 4, nil)
			good := m.step(p)
			bad := &backend.Step{Tokens: slices.Clone(good.Tokens), Pos: slices.Clone(good.Pos),
				Seqs: slices.Clone(good.Seqs), Outputs: slices.Clone(good.Outputs), Cache: good.Cache}
			spoil(bad)
			if logits, err := m.plan.Run(context.Background(), bad, nil); err == nil || logits != nil {
				t.Errorf("%d logits and no error", len(logits))
			}
			if !sameBits(m.run(good), want) {
				t.Error("the good step after it has other bits")
			}
		})
	}
}

// badGraphs are refused when they are compiled or, at the latest, run.
func (s *suite) badGraphs(t *testing.T) {
	for name, build := range map[string]func(k *sketch) *graph.Node{
		"unknown operation": func(k *sketch) *graph.Node { return k.node(200, tensor.Shape{3}, nil, k.input(3)) },
		"integer weight":    func(k *sketch) *graph.Node { return k.linear(tensor.I32, k.input(4), 3) },
		"integer embedding": func(k *sketch) *graph.Node { return k.Embed(k.weight(tensor.U8, Vocab, 4), Vocab, 4, 1) },
		"integer norm":      func(k *sketch) *graph.Node { return k.RMSNorm(k.weight(tensor.I8, 4), k.input(4), 1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newSketch(18)
			g := k.end(t, build(k))
			b := s.open()
			defer b.Close()
			if err := runOnce(b, g); err == nil {
				t.Error("no error")
			}
		})
	}
}

// runOnce compiles g and runs a step of one row.
func runOnce(b backend.Backend, g *graph.Graph) error {
	plan, err := b.Compile(g, backend.Options{}) // for one row
	if err != nil {
		return err
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 64, Chunk: 1})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	defer cache.Close()
	seq := pool.NewSequence()
	if err := seq.Grow(1); err != nil {
		return err
	}
	_, err = plan.Run(context.Background(),
		&backend.Step{Tokens: []int32{0}, Pos: []int32{0}, Seqs: []*kv.Sequence{seq}, Outputs: []int32{0},
			Cache: cache}, nil)
	return err
}
