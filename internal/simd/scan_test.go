package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSoftplus wants all of float32's range near the exact value, and no NaN but for NaN.
func TestSoftplus(t *testing.T) {
	worst := 0.0
	for x := -110.0; x < 110; x += 0.00317 {
		x := float32(x)
		want := max(float64(x), 0) + math.Log1p(math.Exp(-math.Abs(float64(x))))
		got := float64(softplus(x))
		if want < 1e-37 { // subnormal
			if math.Abs(got-want) > 1e-43 {
				t.Errorf("softplus(%v) = %v, want %v", x, got, want)
			}
			continue
		}
		worst = max(worst, math.Abs(got-want)/want)
	}
	if !(worst <= 4*0x1p-24) {
		t.Errorf("relative error %.3g", worst)
	}
	inf := float32(math.Inf(1))
	if y := softplus(float32(math.NaN())); y == y || softplus(inf) != inf || softplus(-inf) != 0 {
		t.Error("NaN or an infinity")
	}
	t.Logf("relative error at most %.3g", worst)
}

// chunkOf is a chunk of random rows, whose decays are of all sizes.
func chunkOf(r *rand.Rand, n, dim int, first bool) *Chunk {
	c := &Chunk{Keys: values(r, ChunkRows*n), Kept: values(r, ChunkRows*dim), Logs: make([]float32, ChunkRows),
		Rests: make([]float32, ChunkRows)}
	if !first {
		c.State = values(r, n*dim)
	}
	for i := range c.Logs {
		c.Follow(i, -float32(r.ExpFloat64()*r.ExpFloat64()))
	}
	return c
}

// decayByHand is the contract's decay from row i to row r, of the state for i < 0.
func (c *Chunk) decayByHand(i, r int) float32 {
	if i < 0 {
		w := weight(-c.Logs[r])
		return fma32(w, -c.Rests[r], w)
	}
	w := weight(c.Logs[i] - c.Logs[r])
	return w + fma32(w, -c.Rests[r], float32(w*c.Rests[i]))
}

// TestFollow wants sums of logarithms with their rests nearer to the exact sums than float32 numbers can be, near and
// beyond the ends.
func TestFollow(t *testing.T) {
	r := rng(37)
	for range 100 {
		c, exact := Chunk{Logs: make([]float32, ChunkRows), Rests: make([]float32, ChunkRows)}, 0.0
		for i := range ChunkRows {
			log := -float32(r.ExpFloat64() * math.Exp(3*r.NormFloat64()))
			c.Follow(i, log)
			exact -= float64(log)
			if got := float64(c.Logs[i]) + float64(c.Rests[i]); !(math.Abs(got-exact) <= 0x1p-44*exact) {
				t.Fatalf("row %d: %v and %v, want %v", i, c.Logs[i], c.Rests[i], exact)
			}
		}
	}
	inf := float32(math.Inf(1))
	for _, logs := range [][]float32{{-1, -inf, -1}, {-3e38, -3e38, -1}, {-1, -1e30, -1}} {
		c := Chunk{Logs: make([]float32, ChunkRows), Rests: make([]float32, ChunkRows)}
		for i, log := range logs {
			c.Follow(i, log)
		}
		if c.Rests[1] != 0 || c.Rests[2] != 0 || c.remaining(2) != 0 || !(c.Logs[2] >= mostRest) {
			t.Errorf("after %v: %v and %v", logs, c.Logs[:3], c.Rests[:3])
		}
	}
}

// asks is the queries of rows from one on, each with the row's key.
func (c *Chunk) asks(q []float32, n, from int) (asks []float32) {
	for i := 0; i < len(q); i += n {
		asks = append(append(asks, q[i:i+n]...), c.Keys[from*n+i:from*n+i+n]...)
	}
	return asks
}

// sumByHand is the contract's sum of a row with some products, over the first rows.
func (c *Chunk) sumByHand(r, n, dim int, by []float32, rows int) []float32 {
	s := make([]float32, dim)
	for j := 0; c.State != nil && j < n; j++ {
		for e := range s {
			s[e] = fma32(c.State[j*dim+e], by[j], s[e])
		}
	}
	for e := range s {
		s[e] = float32(s[e] * c.decayByHand(-1, r))
	}
	for i := range rows {
		p := float32(c.decayByHand(i, r) * dotByHand(c.Keys[i*n:(i+1)*n], by))
		for e := range s {
			s[e] = fma32(c.Kept[i*dim+e], p, s[e])
		}
	}
	return s
}

// TestScan states the rows of a chunk and its end by hand, and computes them in steps of all sizes.
func TestScan(t *testing.T) { eachTier(t, testScan) }

func testScan(t *testing.T) {
	r := rng(31)
	for _, x := range []struct {
		n, dim int
		first  bool
	}{{1, 1, false}, {5, 6, true}, {33, 20, false}, {16, 32, false}, {128, 64, false}, {130, 96, false}} {
		n, dim, rows, sizes := x.n, x.dim, ChunkRows, []int{1, 2, 3, 4, 5, 31, 64}
		if testing.Short() {
			if sizes = []int{1, 3, 64}; n == 128 {
				continue
			}
		}
		c := chunkOf(r, n, dim, x.first)
		q, v, beta, d := values(r, rows*n), values(r, rows*dim), values(r, rows), float32(0.7)
		kept, want := slices.Clone(c.Kept), [2][]float32{}
		for i := range rows {
			y := c.sumByHand(i, n, dim, q[i*n:(i+1)*n], i+1)
			for e := range y {
				want[0] = append(want[0], fma32(v[i*dim+e], d, y[e]))
			}
		}
		for i := range rows {
			for e, held := range c.sumByHand(i, n, dim, c.Keys[i*n:(i+1)*n], i) {
				c.Kept[i*dim+e] = float32((v[i*dim+e] - held) * beta[i])
			}
			want[1] = append(want[1], c.sumByHand(i, n, dim, q[i*n:(i+1)*n], i+1)...)
		}
		end := make([]float32, n*dim)
		for j := range n {
			for e := range dim {
				s := float32(0)
				if c.State != nil {
					s = float32(c.State[j*dim+e] * c.decayByHand(-1, rows-1))
				}
				for i := range rows {
					k := float32(c.decayByHand(i, rows-1) * c.Keys[i*n+j])
					s = fma32(c.Kept[i*dim+e], k, s)
				}
				end[j*dim+e] = s
			}
		}
		final := slices.Clone(c.Kept)
		for _, size := range sizes {
			var s Scan
			y, twice := make([]float32, rows*dim), make([]float32, 2*rows*dim)
			copy(c.Kept, kept)
			for from := 0; from < rows; from += size {
				to := min(from+size, rows)
				s.Meet(c.Keys, q[from*n:], n, 1, from, to)
				s.SSM(c, y[from*dim:], v[from*dim:], dim, q[from*n:], n, d, from, to)
			}
			equal(t, "ssm", y, want[0])
			pair := slices.Clone(twice) // rows at twice their length
			for i := range rows {
				copy(pair[2*i*dim:], v[i*dim:(i+1)*dim])
			}
			clear(c.Kept)
			for from := 0; from < rows; from += size {
				to := min(from+size, rows)
				asks := c.asks(q[from*n:to*n], n, from)
				s.Meet(c.Keys, asks, n, 2, from, to)
				s.Delta(c, twice[2*from*dim:], pair[2*from*dim:], 2*dim, asks, n, beta[from:], from, to)
			}
			for i := range rows {
				equal(t, "delta", twice[2*i*dim:][:dim], want[1][i*dim:(i+1)*dim])
			}
			equal(t, "kept", c.Kept, final)
			state := slices.Clone(c.State)
			if x.first {
				state = values(r, n*dim) // of others
			}
			s.Turn(c.Keys, n)
			s.Advance(c, state)
			equal(t, "state", state, end)
		}
	}
}

// TestScanEach states the rows of scans whose keys' elements decay by themselves by hand, and computes them in steps of
// all sizes.
func TestScanEach(t *testing.T) { eachTier(t, testScanEach) }

func testScanEach(t *testing.T) {
	r := rng(43)
	for _, x := range []struct {
		n, dim int
		first  bool
	}{{1, 1, false}, {5, 6, true}, {33, 20, false}, {16, 32, false}} {
		n, dim := x.n, x.dim
		c := &Chunk{Keys: values(r, n*ChunkRows), Kept: make([]float32, ChunkRows*dim), Logs: make([]float32, n*ChunkRows),
			Rests: make([]float32, n*ChunkRows), Each: true}
		if !x.first {
			c.State = values(r, n*dim)
		}
		for j := range n {
			for i := range ChunkRows {
				c.FollowEach(j, i, -float32(r.ExpFloat64()*r.ExpFloat64()))
			}
		}
		q, v, beta := values(r, ChunkRows*n), values(r, ChunkRows*dim), values(r, ChunkRows)
		var asks, want []float32
		sum := func(i int, by []float32, rows int) []float32 {
			y := make([]float32, dim)
			for j := 0; c.State != nil && j < n; j++ {
				e := c.element(j)
				for d := range y {
					y[d] = fma32(c.State[j*dim+d], float32(by[j]*e.decayByHand(-1, i)), y[d])
				}
			}
			for k := range rows {
				p := float32(0)
				for j := range n {
					e := c.element(j)
					p = fma32(float32(e.decayByHand(k, i)*c.Keys[j*ChunkRows+k]), by[j], p)
				}
				for d := range y {
					y[d] = fma32(c.Kept[k*dim+d], p, y[d])
				}
			}
			return y
		}
		for i := range ChunkRows {
			key := make([]float32, n)
			for j := range key {
				key[j] = c.Keys[j*ChunkRows+i]
			}
			asks = append(append(asks, q[i*n:(i+1)*n]...), key...)
			for d, held := range sum(i, key, i) {
				c.Kept[i*dim+d] = float32((v[i*dim+d] - held) * beta[i])
			}
			want = append(want, sum(i, q[i*n:(i+1)*n], i+1)...)
		}
		end, kept := make([]float32, n*dim), slices.Clone(c.Kept)
		for j := range n {
			e := c.element(j)
			for d := range dim {
				s := float32(0)
				if c.State != nil {
					s = float32(c.State[j*dim+d] * e.decayByHand(-1, ChunkRows-1))
				}
				for i := range ChunkRows {
					s = fma32(c.Kept[i*dim+d], float32(e.decayByHand(i, ChunkRows-1)*c.Keys[j*ChunkRows+i]), s)
				}
				end[j*dim+d] = s
			}
		}
		for _, size := range []int{1, 3, 64} {
			var s Scan
			y := make([]float32, ChunkRows*dim)
			clear(c.Kept)
			for from := 0; from < ChunkRows; from += size {
				to := min(from+size, ChunkRows)
				some := slices.Clone(asks[2*from*n : 2*to*n])
				s.MeetEach(c, some, n, 2, from, to)
				s.Delta(c, y[from*dim:], v[from*dim:], dim, some, n, beta[from:], from, to)
			}
			equal(t, "delta", y, want)
			equal(t, "kept", c.Kept, kept)
			state := slices.Clone(c.State)
			if x.first {
				state = values(r, n*dim) // of others
			}
			s.Advance(c, state)
			equal(t, "state", state, end)
		}
	}
	for _, channels := range []int{1, 7, 64, 100} {
		const n, stride = 5, 110
		state, a := values(r, n*stride), values(r, n*stride)
		var in [5][]float32
		for i := range in {
			in[i] = values(r, channels)
		}
		for i := range a {
			a[i] = -abs(a[i])
		}
		for i := range in[1] {
			in[1][i] = abs(in[1][i])
		}
		key, query, want := values(r, n), values(r, n), make([]float32, channels)
		end := slices.Clone(state)
		for i := range want {
			for j := range n {
				s := &end[j*stride+i]
				*s = fma32(in[2][i], key[j], float32(*s*weight(float32(a[j*stride+i]*in[1][i]))))
				want[i] = fma32(*s, query[j], want[i])
			}
			want[i] += float32(in[3][i] * in[0][i])
		}
		y := values(r, channels)
		SSMEach(y, state, a, stride, in[0], in[1], in[2], in[3], key, query, in[4])
		equal(t, "ssm", y, want)
		equal(t, "states", state, end)
	}
}
