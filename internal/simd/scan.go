package simd

// softplus returns log(1 + e^x), within 4 ulp of the exact value: with u = Exp(-|x|)
// and s = u/(2 + u)
//
//	max(x, 0) + 2s·(1 + z/3 + z²/5 + ... + z⁸/17), z = s*s
//
// where the sum is Horner's, each step an fma, and 2s·sum a product of two roundings.
func softplus(x float32) float32 {
	if x != x {
		return x
	}
	u := Exp(-abs(x))
	s := u / (2 + u)
	z := float32(s * s)
	p := float32(1.0 / 17)
	for _, c := range [...]float32{1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1} {
		p = fma32(p, z, c)
	}
	return max(x, 0) + float32(2*s*p)
}

// Decay returns t = softplus(x + bias) and a*t, each step rounded: the length of a scan's step, and the logarithm of
// the share of the state remaining after the step.
func Decay(a, x, bias float32) (t, log float32) {
	t = softplus(x + bias)
	return t, float32(a * t)
}

// Conv sets y to row i of a causal convolution of len(y) channels. The input of row j is rows[j*stride:]; before has
// the inputs before row 0, as far apart, and w a row of weights for each input, the oldest first. bias may be nil.
//
//	y[c] = ((w0·x0 + w1·x1) + ...) + bias[c]
//
// each product and each sum rounded. tmp is as long as y.
func Conv(y, before, rows []float32, i int, w, bias, tmp []float32, stride int) {
	n := len(y)
	inputs := (len(before) + stride - 1) / stride
	for j := range inputs + 1 {
		in, at := rows, i+j-inputs
		if at < 0 {
			in, at = before, i+j
		}
		in = in[at*stride:][:n]
		if j == 0 {
			Mul(y, in, w[:n])
			continue
		}
		Mul(tmp, in, w[j*stride:][:n])
		Add(y, y, tmp)
	}
	if bias != nil {
		Add(y, y, bias)
	}
}

// ChunkRows is the number of rows of a scan's chunk.
const ChunkRows = BlockSlots

// Chunk is a chunk of a scan's head: the state at its start, and of each of the first rows a key, shared by a group of
// heads, a value kept for the later rows, and minus the sum of the logarithms of the decays so far, as two numbers: the
// rounded sum and the rest lost by rounding. So decays between near rows are as exact late in a chunk as early.
type Chunk struct {
	State []float32 // [n, dim]; nil in a sequence's first chunk
	Keys  []float32 // [ChunkRows, n]
	Kept  []float32 // [ChunkRows, dim]
	Logs  []float32 // [ChunkRows]
	Rests []float32 // [ChunkRows]

	// Each is whether the elements of keys have decays of their own: Keys, Logs and Rests are [n, ChunkRows].
	Each bool
}

// element returns the logs of the j-th element of keys of c, with Each.
func (c *Chunk) element(j int) Chunk {
	return Chunk{Logs: c.Logs[j*ChunkRows:][:ChunkRows], Rests: c.Rests[j*ChunkRows:][:ChunkRows]}
}

// mostRest is the end of sums with a rest: decays behind such a sum are 0 with and without it.
const mostRest = 1e30

// FollowEach does Follow's work for the j-th element of keys.
func (c *Chunk) FollowEach(j, r int, log float32) {
	e := c.element(j)
	e.Follow(r, log)
}

// Follow sets the sum of row r: to the sum of the row before minus log, a decay's logarithm. A rest grows by what
// rounding took from the sum. (Knuth's TwoSum)
func (c *Chunk) Follow(r int, log float32) {
	last, rest := float32(0), float32(0)
	if r > 0 {
		last, rest = c.Logs[r-1], c.Rests[r-1]
	}
	sum := float32(last - log)
	added := float32(sum - last)
	lost := float32(last-float32(sum-added)) - float32(log+added)
	if c.Logs[r], c.Rests[r] = sum, float32(rest+lost); !(abs(sum) < mostRest) {
		c.Rests[r] = 0
	}
}

// Scan computes rows of chunks. A row's result follows from its chunk's state and rows alone, and each sum has one
// order: the bits do not depend on the rows computed with a row. With L the Logs, R the Rests, weight as in Attention,
// and K(i) and Q(i) the key's and the query's products with the key of row i, as by DotsF32:
//
//	w = weight(L[i]-L[r]), D(i) = w + fma(w, -R[r], w*R[i]) for i ≤ r
//	w = weight(-L[r]), D(state) = fma(w, -R[r], w)
//	s = Σ State[j]*query[j], fused, for j in order, s = s*D(state); 0 without State
//	p[i] = D(i)*Q(i) for i ≤ r
//	y = s + Σ Kept[i]*p[i], fused, for i in order
//
// and at the chunk's end, from 0 without State,
//
//	State[j] = State[j]*D(state) + Σ Kept[i]*(D(i)*key i[j]), fused, for i in order, D being of the last row
//
// (Dao and Gu 2024, arXiv:2405.21060, and Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464)
type Scan struct {
	products [2 * ChunkRows * ChunkRows]float32 // [rows, 1 or 2, ChunkRows] of keys with each row's query, and key
	turned   []float32                          // [n, ChunkRows] keys of a whole chunk
	weights  scores
	rests    [ChunkRows]float32
	sums     []float32 // [Quad, dim]
	total    [Quad]float32
}

// SSMEach sets y to a row of Mamba 1's scan of len(y) channels, and goes a row on with the channels' states, [n,
// channels] at multiples of stride. a, likewise, has the rates of decays, and for each channel t is the length of the
// step, in is t*x, rounded, and d the share of x; key and query have n numbers. From y = 0, for j in order,
//
//	state[j] = fma(in, key[j], state[j]*weight(a[j]*t)), y = fma(state[j], query[j], y)
//
// and then y = y + d*x, each step rounded. tmp is as long as y.
func SSMEach(y, state, a []float32, stride int, x, t, in, d, key, query, tmp []float32) {
	n := len(y)
	clear(y)
	for j, k := range key {
		s := state[j*stride:][:n]
		Mul(tmp, a[j*stride:][:n], t)
		expSum(tmp, tmp, 0)
		Mul(s, s, tmp)
		AddScaled(s, in, k)
		AddScaled(y, s, query[j])
	}
	Mul(tmp, d, x)
	Add(y, y, tmp)
}

// MeetEach does Meet's work for a head of c with Each: with D(i, j) as in D(i), by the logs of element j,
//
//	p[i] = Σ (D(i, j)*key i[j])*query[j], fused, for j in order
//
// A state's decay is a decay of the query: s = Σ State[j]*(query[j]*D(state, j)), so asks are changed. At the chunk's
// end each element of keys and each row of the state has its own decay.
func (s *Scan) MeetEach(c *Chunk, asks []float32, n, per, from, to int) {
	var by [ChunkRows]float32
	for r := from; r < to; r++ {
		m := (r + lanes) &^ (lanes - 1)
		clear(s.products[r*per*ChunkRows : (r+1)*per*ChunkRows])
		for j := range n {
			e := c.element(j)
			s.decays(by[:m], &e, r)
			Mul(by[:m], by[:m], c.Keys[j*ChunkRows:][:m])
			for i := range per {
				ask := &asks[((r-from)*per+i)*n+j]
				AddScaled(s.products[(r*per+i)*ChunkRows:][:m], by[:m], *ask)
				*ask *= e.remaining(r)
			}
		}
	}
}

// Meet prepares the rows from to to of a group's heads. asks has each row's query, for Delta followed by the row's key,
// [rows, per, n].
func (s *Scan) Meet(keys, asks []float32, n, per, from, to int) {
	const block = 2 * dotCols
	for r := from; r < to; r += block {
		end := min(r+block, to)
		some := asks[(r-from)*per*n : (end-from)*per*n]
		DotsF32(s.products[r*per*ChunkRows:], ChunkRows, keys[:end*n], some, n)
	}
}

// SSM computes the rows from to to of a head of Mamba 2's scan, at multiples of stride in x and y, after Meet with
// asks. The rows' Kept are t*x, rounded.
//
//	y = fma(x, d, y)
func (s *Scan) SSM(c *Chunk, y, x []float32, stride int, asks []float32, n int, d float32, from, to int) {
	dim := len(c.Kept) / ChunkRows
	for r := from; r < to; r += Quad {
		m := min(Quad, to-r)
		s.begin(c, asks[(r-from)*n:], n, m)
		for i := range m {
			s.decay(c, i, r+i)
			s.weigh(c, i, r+i)
			s.product(i, i, r+i, r+i)
		}
		s.add(c.Kept, r+1, m)
		for i := range m {
			sum, at := s.sum(i, dim), (r+i-from)*stride
			for j := r + 1; j <= r+i; j++ {
				AddScaled(sum, c.Kept[j*dim:(j+1)*dim], s.weights[i][j])
			}
			AddScaled(sum, x[at:at+dim], d)
			copy(y[at:at+dim], sum)
		}
	}
}

// Delta computes the rows from to to of a head of the gated delta rule, at multiples of stride in v and y, after Meet
// with asks. Row r keeps, each step rounded,
//
//	Kept[r] = (v - sum)*beta[r-from]
//
// where sum is y for the key in place of the query, with the rows i < r alone.
func (s *Scan) Delta(c *Chunk, y, v []float32, stride int, asks []float32, n int, beta []float32, from, to int) {
	const per = 2 // sums of a row: of its query, and of its key
	dim := len(c.Kept) / ChunkRows
	for r := from; r < to; r += Quad / per {
		m := min(Quad/per, to-r)
		s.begin(c, asks[(r-from)*per*n:], n, m*per)
		for i := range m {
			q, k := i*per, i*per+1
			if c.Each {
				copy(s.weights[q][:], s.products[(r+i)*per*ChunkRows:][:ChunkRows])
				copy(s.weights[k][:], s.products[((r+i)*per+1)*ChunkRows:][:ChunkRows])
				continue
			}
			s.decay(c, q, r+i)
			s.decay(c, k, r+i)
			s.weigh(c, q, r+i)
			s.product(k, q, (r+i)*per+1, r+i)
			s.product(q, q, (r+i)*per, r+i)
		}
		s.add(c.Kept, r, m*per)
		for i := range m {
			kept, at := c.Kept[(r+i)*dim:(r+i+1)*dim], (r+i-from)*stride
			copy(kept, v[at:at+dim])
			AddScaled(kept, s.sum(i*per+1, dim), -1)
			Scale(kept, kept, beta[r+i-from])
			AddScaled(s.sum(i*per, dim), kept, s.weights[i*per][r+i])
			copy(y[at:at+dim], s.sum(i*per, dim))
			for j := (i + 1) * per; j < m*per; j++ {
				AddScaled(s.sum(j, dim), kept, s.weights[j][r+i])
			}
		}
	}
}

// Turn prepares the end of a chunk with these keys, of a group's heads.
func (s *Scan) Turn(keys []float32, n int) {
	s.turned = resize(s.turned, n*ChunkRows)
	for i := range ChunkRows {
		for j, k := range keys[i*n : (i+1)*n] {
			s.turned[j*ChunkRows+i] = k
		}
	}
}

// Advance sets state, perhaps c.State, to the state at the chunk's end, after Turn unless c has Each.
func (s *Scan) Advance(c *Chunk, state []float32) {
	const last = ChunkRows - 1
	dim := len(c.Kept) / ChunkRows
	var decays [ChunkRows]float32
	keys := c.Keys
	if !c.Each {
		keys = s.turned
		s.decays(decays[:], c, last)
	}
	switch {
	case c.State == nil:
		clear(state)
	case c.Each:
		for at := 0; at < len(state); at += dim {
			e := c.element(at / dim)
			Scale(state[at:at+dim], c.State[at:at+dim], e.remaining(last))
		}
	default:
		Scale(state, c.State, c.remaining(last))
	}
	for at := 0; at < len(state); at += Quad * dim {
		rows := state[at:min(at+Quad*dim, len(state))]
		m := len(rows) / dim
		for i := range m {
			if c.Each {
				e := c.element(at/dim + i)
				s.decays(decays[:], &e, last)
			}
			Mul(s.weights[i][:], decays[:], keys[(at/dim+i)*ChunkRows:][:ChunkRows])
		}
		if m == Quad {
			addSharedValues(rows, c.Kept, &s.weights, Span{0, ChunkRows}, &s.total)
			continue
		}
		for i := range m {
			for j := range ChunkRows {
				AddScaled(rows[i*dim:(i+1)*dim], c.Kept[j*dim:(j+1)*dim], s.weights[i][j])
			}
		}
	}
}

// begin sets some sums to the products of as many lines with the state.
func (s *Scan) begin(c *Chunk, lines []float32, n, count int) {
	dim := len(c.Kept) / ChunkRows
	s.sums = resize(s.sums, Quad*dim)
	clear(s.sums)
	for at := 0; c.State != nil && at < n; at += BlockSlots {
		for i := range count {
			copy(s.weights[i][:], lines[i*n+at:(i+1)*n])
		}
		s.add(c.State[at*dim:], min(BlockSlots, n-at), count)
	}
}

// sum returns the i-th sum.
func (s *Scan) sum(i, dim int) []float32 { return s.sums[i*dim : (i+1)*dim] }

// add adds to some sums n rows, times the sum's weights.
func (s *Scan) add(rows []float32, n, count int) {
	if n == 0 {
		return
	}
	if tier < avx2 && tier != wasm || count > Quad/2 {
		addSharedValues(s.sums, rows, &s.weights, Span{0, n}, &s.total)
		return
	}
	d := len(s.sums) / Quad
	from, part := wideLength(d), n
	if tier == avx2 {
		part = 8 // rows in nearby memory, since some columns come after others
	}
	for at := 0; at < n && from > 0; at += part {
		addPairVec(s.sums[:d+from], rows[at*d:], &s.weights[0][at], min(part, n-at), d)
	}
	for i := 0; i < count && from < d; i++ {
		for j := range n {
			addScaledGeneric(s.sum(i, d)[from:], rows[j*d+from:(j+1)*d], s.weights[i][j])
		}
	}
}

// decay scales the i-th sum, of the state, by the decay up to row r.
func (s *Scan) decay(c *Chunk, i, r int) {
	if c.State != nil {
		sum := s.sum(i, len(c.Kept)/ChunkRows)
		Scale(sum, sum, c.remaining(r))
	}
}

// remaining returns the share of the state remaining at row r.
func (c *Chunk) remaining(r int) float32 {
	w := weight(-c.Logs[r])
	return fma32(w, -c.Rests[r], w)
}

// decays sets the first elements of dst to the decays from rows to row r.
func (s *Scan) decays(dst []float32, c *Chunk, r int) {
	n := len(dst)
	expSum(dst, c.Logs[:n], c.Logs[r])
	Mul(s.rests[:n], dst, c.Rests[:n])
	AddScaled(s.rests[:n], dst, -c.Rests[r])
	Add(dst, dst, s.rests[:n])
}

// weigh sets the i-th weights to the decays from rows to row r.
func (s *Scan) weigh(c *Chunk, i, r int) {
	n := (r + lanes) &^ (lanes - 1) // more than needed: whole vectors
	s.decays(s.weights[i][:n], c, r)
}

// product sets the i-th weights to the j-th times the products of an ask, up to row r.
func (s *Scan) product(i, j, ask, r int) {
	n := (r + lanes) &^ (lanes - 1)
	Mul(s.weights[i][:n], s.weights[j][:n], s.products[ask*ChunkRows:][:n])
}

// resize returns x with n elements, of any values.
func resize(x []float32, n int) []float32 {
	if n > cap(x) {
		return make([]float32, n)
	}
	return x[:n]
}
