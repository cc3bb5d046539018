package backendtest

import (
	"fmt"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// Decoder is a small model of random weights of type d, whose tokens are 0 to
// Vocab-1. It has a layer for each window, and a last one that shares the keys
// and values of the first.
func Decoder(t testing.TB, seed uint64, d tensor.DType, windows ...int) *graph.Graph {
	t.Helper()
	k := newSketch(seed)
	const hidden, heads, dim, kvHeads, ff = 64, 4, 16, 2, 96
	freqs := []float64{1, 0.3, 0.1, 0.03, 0.01, 0.003}
	unit := func(n int) *graph.Weight { return k.weight(tensor.F32, n) }
	h := k.input(hidden)
	var first *graph.KV
	for i, w := range append(windows, 0) {
		x := k.RMSNorm(unit(hidden), h, 1e-6, 0)
		q := k.RoPE("q", k.RMSNorm(unit(dim), k.Heads(k.linear(d, x, heads*dim), dim), 1e-6, 0),
			graph.RoPEAttr{Freqs: freqs})
		store := first
		if i < len(windows) {
			store = &graph.KV{Layer: i, Heads: kvHeads, Dim: dim, Window: w}
			key := k.RMSNorm(unit(dim), k.Heads(k.linear(d, x, kvHeads*dim), dim), 1e-6, 0)
			k.StoreKV(store, k.RoPE("k", key, graph.RoPEAttr{Freqs: freqs}),
				k.Normalize(k.Heads(k.linear(d, x, kvHeads*dim), dim), 1e-6))
		}
		if first == nil {
			first = store
		}
		x = k.linear(d, k.Attention(q, store, 0.25), hidden)
		h = k.Add(h, k.Normalize(x, 1e-6))
		x = k.RMSNorm(unit(hidden), h, 1e-6, 1)
		x = k.linear(d, k.GLU(graph.GELUTanh, k.linear(d, x, ff), k.linear(d, x, ff)), hidden)
		h = k.Add(h, k.Normalize(x, 1e-6))
	}
	h = k.RMSNorm(unit(hidden), k.Outputs(h), 1e-6, 0)
	k.Softcap(k.linear(d, h, Vocab), 30)
	return k.graph(t)
}

// text is the token at a position of a sequence.
func text(seq, pos int) int32 { return int32((seq*31 + pos*pos*7 + pos*5) % Vocab) }

// schedule cuts sequences of the given lengths into steps of at most rows
// rows, in which several take part.
func schedule(seed uint64, rows int, lengths ...int) (steps [][]part) {
	r := newSketch(seed).r
	done, left := make([]int, len(lengths)), 0
	for _, n := range lengths {
		left += n
	}
	for left > 0 {
		var step []part
		free := rows
		for _, seq := range r.Perm(len(lengths)) {
			n := min(r.IntN(free+1), lengths[seq]-done[seq])
			if n == 0 {
				continue
			}
			p := part{seq: seq}
			for range n {
				p.tokens = append(p.tokens, text(seq, done[seq]))
				done[seq]++
			}
			step = append(step, p)
			free, left = free-n, left-n
		}
		if step != nil {
			steps = append(steps, step)
		}
	}
	return steps
}

// collect runs steps and gathers each sequence's logits.
func (m *machine) collect(steps [][]part) [][]float32 {
	width := m.g.Result().Shape.Size()
	var all [][]float32
	for _, step := range steps {
		logits := m.forward(step...)
		for _, p := range step {
			for p.seq >= len(all) {
				all = append(all, nil)
			}
			n := len(p.tokens) * width
			all[p.seq], logits = append(all[p.seq], logits[:n]...), logits[n:]
		}
	}
	return all
}

// windowLists are of full layers, and of sliding ones whose rings the test's
// sequences go around several times, fill just once, or never.
var windowLists = [][]int{{0}, {7, 0}, {64, 1, 65}, {0, 100, 7, 4096}}

// sequences runs three sequences in common steps and compares all of their
// logits with ref's, and bit for bit with other cuts into steps.
func (s *suite) sequences(t *testing.T) {
	lengths := []int{210, 60, 40}
	if s.tol.Short {
		lengths = []int{40, 20, 10}
	}
	for i, windows := range windowLists {
		if s.tol.Short && i != 1 {
			continue
		}
		d := []tensor.DType{tensor.BF16, tensor.Q4_1}[i%2]
		t.Run(fmt.Sprintf("%v/windows %v", d, windows), func(t *testing.T) {
			g := Decoder(t, uint64(i), d, windows...)
			_, got := s.together(t, g, lengths, 1, 7, 32, 310)
			if !s.tol.SameBits {
				return
			}
			alone := start(t, s.open(), g, 32, nil).collect(schedule(2, 32, lengths[0]))
			if !sameBits(alone[0], got[0]) {
				t.Error("alone, sequence 0 has other bits")
			}
		})
	}
	s.far(t)
}

// far turns heads at positions that no sequence of the other tests reaches.
func (s *suite) far(t *testing.T) {
	k := newSketch(11)
	g := k.end(t, k.RoPE("q", k.input(2, 12), graph.RoPEAttr{Freqs: []float64{1, 0.5, 0.1, 1e-3, 1e-5}}))
	got, want := start(t, s.open(), g, 64, nil), wanted(t, g, 64)
	var w worst
	for range 250 {
		a, b := got.step(part{0, make([]int32, 64)}), want.step(part{0, make([]int32, 64)})
		if at := a.Pos[0]; at%4096 == 0 || at > 15800 {
			w.compare(t, fmt.Sprintf("rope at position %d", at), got.run(a), want.run(b), s.tol.Float)
		}
	}
}

// plans: one plan fills the cache and another reads it.
func (s *suite) plans(t *testing.T) {
	g := Decoder(t, 12, tensor.Q8_0, 0, 7)
	m, want := start(t, s.open(), g, 64, nil), wanted(t, g, 64)
	prefill := m.plan
	decode, err := m.b.Compile(g, optionsOf(2))
	if err != nil {
		t.Fatal(err)
	}
	var w worst
	for _, step := range schedule(7, 64, 100, 60) {
		w.compare(t, "prefill", m.forward(step...), want.forward(step...), s.tol.Layer)
	}
	for i := range 40 {
		m.plan = decode
		if i%10 == 9 {
			m.plan = prefill
		}
		step := []part{{0, []int32{text(0, 100+i)}}, {1, []int32{text(1, 60+i)}}}
		w.compare(t, fmt.Sprintf("decode %d", i), m.forward(step...), want.forward(step...), s.tol.Layer)
	}
}

// pages: what a sequence left in its pages does not show in the next one that
// gets them, and takes no more memory.
func (s *suite) pages(t *testing.T) {
	g := Decoder(t, 13, tensor.F16, 0, 64)
	m, fresh := start(t, s.open(), g, 64, nil), start(t, s.open(), g, 64, nil)
	if n := m.cache.Bytes(); n != 0 {
		t.Errorf("an empty cache takes %d bytes", n)
	}
	m.collect(schedule(8, 64, 192, 128)) // whole pages
	before := m.cache.Bytes()
	if before <= 0 {
		t.Errorf("a cache of 320 positions takes %d bytes", before)
	}
	for _, seq := range m.seqs {
		seq.Free()
	}
	m.seqs = []*kv.Sequence{m.pool.NewSequence(), m.pool.NewSequence()}
	steps := schedule(9, 64, 120, 180)
	got, want := m.collect(steps), fresh.collect(steps)
	for seq := range got {
		if !sameBits(got[seq], want[seq]) {
			t.Errorf("sequence %d has other bits in used pages", seq)
		}
	}
	if after := m.cache.Bytes(); after != before {
		t.Errorf("%d bytes became %d, though pages were free", before, after)
	}
}

// together runs sequences of g in common steps, and compares all logits with ref's, and bit for bit with those of steps
// of other numbers of rows. It returns the machine, and its logits by sequence.
func (s *suite) together(t *testing.T, g *graph.Graph, lengths []int, rows ...int) (m *machine, got [][]float32) {
	t.Helper()
	want := wanted(t, g, 64).collect(schedule(1, 64, lengths...))
	m = start(t, s.open(), g, 64, nil)
	got = m.collect(schedule(1, 64, lengths...))
	var w worst
	for seq := range lengths {
		w.compare(t, fmt.Sprintf("sequence %d", seq), got[seq], want[seq], s.tol.Layer)
	}
	t.Logf("relative error at most %.2g", w.d)
	for _, n := range rows {
		if !s.tol.SameBits {
			break
		}
		other := start(t, s.open(), g, n, nil).collect(schedule(uint64(n), n, lengths...))
		for seq := range lengths {
			if !sameBits(other[seq], got[seq]) {
				t.Errorf("in steps of at most %d rows, sequence %d has other bits", n, seq)
			}
		}
	}
	return m, got
}
