package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// ask resets a to some queries of d elements.
func ask(a *Attention, d int, q ...[]float32) {
	a.Reset(len(q), d, d, 0)
	for i, x := range q {
		copy(a.Query(i), x)
	}
}

// block puts n rows of keys and values in the slots from `from` on of a block
// that holds NaN elsewhere.
func block(d int, k, v []float32, from, n int) (keys, vals []float32) {
	keys = slices.Repeat([]float32{nan}, BlockSlots*d)
	vals = slices.Clone(keys)
	copy(vals[from*d:], v[:n*d])
	for j := range n {
		slot := from + j
		for e, x := range k[j*d : (j+1)*d] {
			keys[(slot/KeySlots*d+e)*KeySlots+slot%KeySlots] = x
		}
	}
	return keys, vals
}

// seeRows lets all queries attend to n rows.
func seeRows(a *Attention, d int, k, v []float32, n int, scale float32) {
	keys, vals := block(d, k, v, 0, n)
	a.Add(keys, vals, slices.Repeat([]Span{{0, n}}, a.queries), scale)
}

// attend runs an attention over n positions in blocks of at most size.
func attend(q, k, v []float32, n, size int, scale float32) []float32 {
	d := len(q)
	var a Attention
	ask(&a, d, q)
	for at := 0; at < n; at += size {
		seeRows(&a, d, k[at*d:], v[at*d:], min(size, n-at), scale)
	}
	dst := make([]float32, d)
	a.Result(0, dst)
	return dst
}

func attendExact(q, k, v []float32, n int, scale float32) []float64 {
	d := len(q)
	out, sum := make([]float64, d), 0.0
	for j := range n {
		var s float64
		for i, x := range q {
			s += float64(x) * float64(k[j*d+i])
		}
		p := math.Exp(s * float64(scale))
		sum += p
		for i := range out {
			out[i] += p * float64(v[j*d+i])
		}
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func TestAttention(t *testing.T) { eachTier(t, testAttention) }

func testAttention(t *testing.T) {
	r := rng(14)
	for _, d := range []int{1, 16, 32, 80, 96, 128, 512} {
		for _, n := range []int{1, 2, 63, 64, 65, 200} {
			q, k, v := values(r, d), values(r, n*d), values(r, n*d)
			scale := float32(1 / math.Sqrt(float64(d)))
			want := attendExact(q, k, v, n, scale)
			for _, size := range []int{1, 7, BlockSlots} {
				near(t, "attention", attend(q, k, v, n, size, scale), want, 0, 3e-6)
			}
		}
	}
}

// TestAttentionContract states two blocks by hand, the second of which raises
// the largest score, and a third, which does not.
func TestAttentionContract(t *testing.T) { eachTier(t, testAttentionContract) }

func testAttentionContract(t *testing.T) {
	const d = 3
	q := []float32{1, 0.5, -0.25}
	k := []float32{0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 2, 2, -2, 1, 1, 1, -3, -3, 3}
	v := values(rng(15), 5*d)
	var a Attention
	ask(&a, d, q)
	var acc [d]float32
	sum, top := float32(0), -inf
	for _, block := range [][]int{{0, 1}, {2, 3}, {4}} {
		first, n := block[0], len(block)
		seeRows(&a, d, k[first*d:], v[first*d:], n, 0.3)
		s, m := make([]float32, n), top
		for i, j := range block {
			s[i] = float32(dotByHand(k[j*d:(j+1)*d], q) * 0.3)
			m = max(m, s[i])
		}
		c := Exp(top - m)
		sum, top = float32(sum*c), m
		for i := range acc {
			acc[i] = float32(acc[i] * c)
		}
		for i, j := range block {
			p := Exp(s[i] - m)
			sum += p
			for e := range acc {
				acc[e] = bigFMA(v[j*d+e], p, acc[e])
			}
		}
		equal(t, "sums", []float32{a.top[0], a.sum[0]}, []float32{top, sum})
		equal(t, "acc", a.acc[:d], acc[:])
	}
	got := make([]float32, d)
	a.Result(0, got)
	equal(t, "result", got, []float32{acc[0] / sum, acc[1] / sum, acc[2] / sum})
}

// rowByRow is the contract for one query, made of generic kernels that see one
// key or one value.
type rowByRow struct {
	acc      []float32
	top, sum float32
}

func (a *rowByRow) add(q, k, v []float32, n int, scale float32) {
	if n == 0 {
		return
	}
	s, d := make([]float32, n), len(q)
	for j := range s {
		s[j] = float32(dotByHand(k[j*d:(j+1)*d], q) * scale)
	}
	if top := slices.Max(s) + 0; !(top <= a.top) {
		c := byHand(a.top - top)
		a.sum *= c
		scaleGeneric(a.acc, a.acc, c)
		a.top = top
	}
	for j := range s {
		p := byHand(s[j] - a.top)
		a.sum += p
		addScaledGeneric(a.acc, v[j*d:(j+1)*d], p)
	}
}

func byHand(x float32) float32 {
	if x < -64 {
		return 0
	}
	return Exp(x)
}

// spansOf are what n queries see of a block: all, the same, or each its own,
// nothing among them.
func spansOf(r *rand.Rand, n int) []Span {
	spans := make([]Span, n)
	kind := r.IntN(4)
	same := Span{r.IntN(BlockSlots), 1 + r.IntN(BlockSlots)}
	for i := range spans {
		switch kind {
		case 0:
			spans[i] = Span{0, BlockSlots}
		case 1:
			spans[i] = same
		case 2:
			spans[i] = Span{max(0, i-3), min(BlockSlots, same.To+i/2)} // a window
		case 3:
			spans[i] = Span{r.IntN(100), min(BlockSlots, r.IntN(200)-70)} // beyond the block, too, where it is empty
		}
	}
	return spans
}

// TestAttentionTogether compares queries that attend together, at every tier,
// with each attending alone, to a row at a time: heads of many sizes, any number
// of queries, blocks of which each sees a part of its own, numbers of all kinds.
func TestAttentionTogether(t *testing.T) {
	guard, cases := guarded(t), 24
	if !golden.Slow() {
		cases = 6
	}
	r := rng(77)
	for _, d := range []int{1, 5, 16, 17, 31, 64, 80, 100, 128, 192, 250, 256, 512} {
		for i := range cases {
			n := 1 + r.IntN(11)
			number := func(n int) []float32 { return values(r, n) }
			if i%3 == 1 {
				number = func(n int) []float32 { return anything(r, n, i%2 == 0) }
			}
			q, scale := number(n*d), []float32{0.125, 3, -2}[r.IntN(3)]
			want := make([]rowByRow, n)
			for i := range want {
				want[i] = rowByRow{acc: make([]float32, d), top: -inf}
			}
			got := make([]Attention, bestLevel()+1)
			for l := range got {
				ask(&got[l], d, slices.Collect(slices.Chunk(q, d))...)
			}
			for range 3 {
				k, v, spans := number(BlockSlots*d), number(BlockSlots*d), spansOf(r, n)
				if i%3 == 2 {
					clear(k[:8*d]) // equal scores, and ±0
				}
				for i, s := range spans {
					if s.From < s.To {
						want[i].add(q[i*d:(i+1)*d], k[s.From*d:], v[s.From*d:], s.To-s.From, scale)
					}
				}
				keys, vals := block(d, k, v, 0, BlockSlots)
				if d <= 256 {
					a, b := guard(len(keys)), guard(len(vals))
					copy(a, keys)
					copy(b, vals)
					keys, vals = a, b
				}
				addAtEachTier(got, keys, vals, spans, scale)
			}
			for l := range got {
				for i, w := range want {
					equal(t, levelNames[l], got[l].acc[i*d:(i+1)*d], w.acc)
					equal(t, levelNames[l], []float32{got[l].top[i], got[l].sum[i]}, []float32{w.top, w.sum})
				}
			}
		}
	}
}

func addAtEachTier(a []Attention, k, v []float32, spans []Span, scale float32) {
	defer func(l level) { tier = l }(tier)
	for l := range a {
		tier = level(l)
		a[l].Add(k, v, spans, scale)
	}
}

func TestAttentionSpecials(t *testing.T) { eachTier(t, testAttentionSpecials) }

func testAttentionSpecials(t *testing.T) {
	ones := []float32{1, 1, 1, 1}
	for name, k := range map[string][]float32{
		"NaN key": {1, 1, nan, 1}, "infinite key": {1, 1, inf, 1}, "NaN first": {nan, 1, 1, 1},
	} {
		equal(t, name, attend([]float32{1, 2}, k, ones, 2, 1, 1), []float32{nan, nan})
	}
	got := attend([]float32{1, 2}, []float32{-inf, 1, 1, 1}, ones, 2, BlockSlots, 1)
	equal(t, "a score of -Inf weighs nothing", got, []float32{1, 1})
	got = attend([]float32{100, 0}, []float32{-1, 0, 1, 0}, []float32{5, 5, 7, 7}, 2, 1, 1)
	equal(t, "a far smaller score weighs nothing", got, []float32{7, 7})
}

// TestAttentionSpans: positions that a block has not are refused before a kernel
// sees them.
func TestAttentionSpans(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		for _, s := range []Span{{0, BlockSlots + 1}, {BlockSlots - 1, 1 << 20}, {-1, 1}} {
			var a Attention
			a.Reset(Quad, KeySlots, KeySlots, 0)
			k, v := guard(BlockSlots*KeySlots), guard(BlockSlots*KeySlots)
			panics(t, func() { a.Add(k, v, []Span{{0, 1}, s, {0, 1}, {0, 1}}, 1) })
		}
	})
}

// panics wants f to panic.
func panics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

// TestAttentionReset: room is made once, whatever follows what.
func TestAttentionReset(t *testing.T) {
	var a Attention
	if n := testing.AllocsPerRun(10, func() { // which runs once before it counts
		a.Reset(2, 512, 512, 0)
		a.Reset(64, 8, 8, 0)
		a.Reset(0, 512, 512, 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMerge: parts of ranges make what all positions make, and parts that saw nothing,
// or nothing but -Inf behind others, leave the rest as it is.
func TestMerge(t *testing.T) { eachTier(t, testMerge) }

func testMerge(t *testing.T) {
	const d, n = 80, 130
	r := rng(16)
	q, k, v := values(r, d), values(r, n*d), values(r, n*d)
	total, part := make([]float32, PartSize(d)), make([]float32, PartSize(d))
	var a Attention
	for at := 0; at < n; at += BlockSlots {
		ask(&a, d, q)
		seeRows(&a, d, k[at*d:], v[at*d:], min(BlockSlots, n-at), 0.1)
		a.Part(0, part)
		Merge(total, part)
	}
	got, before := make([]float32, d), slices.Clone(total)
	Quotient(got, total)
	near(t, "merged", got, attendExact(q, k, v, n, 0.1), 0, 3e-6)
	Merge(total, make([]float32, PartSize(d)))
	clear(part)
	part[d], part[d+1] = -inf, nan
	Merge(total, part)
	equal(t, "nothing more", total, before)
}
