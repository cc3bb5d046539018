package simd

import (
	"math"
	"testing"

	"github.com/karat-run/karat/internal/float16"
)

// attend runs an attention over n positions in blocks of at most size.
func attend(q, k, v []float32, n, size int, scale float32) (dst []float32, a Attention) {
	d := len(q)
	dst = make([]float32, d)
	a.Reset(dst)
	for at := 0; at < n; at += size {
		m := min(size, n-at)
		a.AddF32(q, k[at*d:], v[at*d:], m, scale)
	}
	a.Result(dst)
	return dst, a
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
				got, _ := attend(q, k, v, n, size, scale)
				near(t, "attention", got, want, 0, 3e-6)
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
	a.Reset([]float32{9, 9, 9})
	var acc [d]float32
	sum, top := float32(0), -inf
	for _, block := range [][]int{{0, 1}, {2, 3}, {4}} {
		first, n := block[0], len(block)
		a.AddF32(q, k[first*d:], v[first*d:], n, 0.3)
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
		equal(t, "sums", append([]float32{a.Top, a.Sum}, a.Acc...), append([]float32{top, sum}, acc[:]...))
	}
	got := make([]float32, d)
	a.Result(got)
	equal(t, "result", got, []float32{acc[0] / sum, acc[1] / sum, acc[2] / sum})
}

// TestAttentionF16 compares with conversion to float32 first.
func TestAttentionF16(t *testing.T) { eachTier(t, testAttentionF16) }

func testAttentionF16(t *testing.T) {
	const d, n = 80, 150
	kh, vh := halves(n*d, 16, false), halves(n*d, 17, false)
	k, v := make([]float32, n*d), make([]float32, n*d)
	for i := range k {
		k[i], v[i] = float16.F16(kh[i]), float16.F16(vh[i])
	}
	q := values(rng(18), d)
	want, w := attend(q, k, v, n, BlockSlots, 0.1)
	var a Attention
	got := make([]float32, d)
	a.Reset(got)
	for at := 0; at < n; at += BlockSlots {
		a.AddF16(q, kh[at*d:], vh[at*d:], min(BlockSlots, n-at), 0.1)
	}
	a.Result(got)
	equal(t, "result", got, want)
	equal(t, "sums", []float32{a.Top, a.Sum}, []float32{w.Top, w.Sum})
}

func TestAttentionSpecials(t *testing.T) { eachTier(t, testAttentionSpecials) }

func testAttentionSpecials(t *testing.T) {
	ones := []float32{1, 1, 1, 1}
	for name, k := range map[string][]float32{
		"NaN key": {1, 1, nan, 1}, "infinite key": {1, 1, inf, 1}, "NaN first": {nan, 1, 1, 1},
	} {
		got, _ := attend([]float32{1, 2}, k, ones, 2, 1, 1)
		equal(t, name, got, []float32{nan, nan})
	}
	got, _ := attend([]float32{1, 2}, []float32{-inf, 1, 1, 1}, ones, 2, BlockSlots, 1)
	equal(t, "a score of -Inf weighs nothing", got, []float32{1, 1})
	got, _ = attend([]float32{100, 0}, []float32{-1, 0, 1, 0}, []float32{5, 5, 7, 7}, 2, 1, 1)
	equal(t, "a far smaller score weighs nothing", got, []float32{7, 7})
}
