package simd

import "math"

const (
	// BlockSlots is how many positions a block of keys and values has.
	BlockSlots = 64
	// RangeSlots is how many positions a range has, see Attention.
	RangeSlots = 4 * BlockSlots
	// KeySlots is how many positions lie side by side in a block's keys.
	KeySlots = 16
	// Quad is the number of queries computed at a time: at best as fast as a single query.
	Quad = 4
)

// Span is the positions From ≤ j < To of a block.
type Span struct{ From, To int }

// Attention accumulates the attention of some queries to the same keys and values, block by block of positions. Call
// Reset first. (The online softmax of Milakov and Gimelshein 2018, arXiv:1805.02867.) A query's bits do not depend on
// the other queries, but on where blocks begin and how much of each is seen, so callers fix both by absolute position.
// Ranges of RangeSlots positions, the first from 0 on, are accumulated apart and merged in order (Merge), so several
// threads can attend to a range each.
type Attention struct {
	queries, dim int
	values       int       // the size of a value
	limit        float32   // of scores; 0 for none
	q, acc       []float32 // [queries, dim] and [queries, values], filled up to a multiple of Quad
	top, sum     []float32 // by query: the largest score so far, and the sum of weights relative to that score
	scores       *scores
	tail         []float32 // the columns of a block's values behind the last whole vector, in rows of lanes
	narrow       narrowing // of AddNarrow
}

// scores of Quad queries, and then the weights of values.
type scores [Quad][BlockSlots]float32

// Reset starts an attention of queries of dim elements to values of size values, over no positions. Scores are capped
// as by Softcap where limit is not 0. Fill in each Query afterwards.
func (a *Attention) Reset(queries, dim, values int, limit float32) {
	n := (queries + Quad - 1) / Quad * Quad
	a.queries, a.dim, a.values, a.limit = queries, dim, values, limit
	if n*dim > cap(a.q) {
		a.q = make([]float32, n*dim)
	}
	if n*values > cap(a.acc) {
		a.acc = make([]float32, n*values)
	}
	if n > cap(a.top) {
		a.top, a.sum = make([]float32, n), make([]float32, n)
	}
	if a.scores == nil {
		a.scores = new(scores)
	}
	a.q, a.acc, a.top, a.sum = a.q[:n*dim], a.acc[:n*values], a.top[:n], a.sum[:n]
	clear(a.q[queries*dim:])
	a.narrow.q = a.narrow.q[:0]
	a.Clear()
}

// Query returns the memory of query i.
func (a *Attention) Query(i int) []float32 { return a.q[i*a.dim : (i+1)*a.dim] }

// Add attends to a block of BlockSlots positions, each query i to the positions of spans[i] alone; the contents of
// others do not matter. Element e of key j is k[(j/KeySlots*dim+e)*KeySlots+j%KeySlots], and element e of value j is
// v[j*values+e]. For each query q with a span that is not empty, with Top, Sum and Acc[values] from -Inf and zeros on:
//
//	s[j] = DotF32(key j, q)*scale; s[j] = limit*Tanh(s[j]/limit) // if there is a limit
//	top = the larger of Top and Max(s)
//	c = weight(Top-top); Sum = Sum*c; Acc[e] = Acc[e]*c // unless top is Top
//	for j in order: p = weight(s[j]-top); Sum = Sum+p; Acc[e] = fma(v[j][e], p, Acc[e])
//
// where weight(x) is Exp(x), or 0 for x < -64.
func (a *Attention) Add(k, v []float32, spans []Span, scale float32) {
	k, v = k[:BlockSlots*a.dim], v[:BlockSlots*a.values]
	a.setTail(v)
	for i := 0; i < a.queries; i += Quad {
		a.addQuad(i, k, v, spans[i:min(i+Quad, a.queries)], scale)
	}
}

// Index adds to the sum of each of the first positions of a block, keys being in the order of Add, weights[i]·max(0,
// DotF32(key j, query i)) for each query, in order.
func (a *Attention) Index(sums, k, weights []float32) {
	for i := 0; i < a.queries; i += Quad {
		scoreKeys(a.scores, a.q[i*a.dim:(i+Quad)*a.dim], k[:BlockSlots*a.dim], Span{0, len(sums)}, 1)
		for r, w := range weights[i:min(i+Quad, a.queries)] {
			for j, x := range a.scores[r][:len(sums)] {
				if !(x <= 0) {
					sums[j] += float32(w * x)
				}
			}
		}
	}
}

// addQuad adds a block for the queries from i on, a span for each. Queries missing from Quad take part as if seeing all
// positions of the others.
func (a *Attention) addQuad(i int, k, v []float32, spans []Span, scale float32) {
	all, shared := Span{BlockSlots, 0}, Span{0, BlockSlots} // positions seen by any query, and by every query
	for _, s := range spans {
		if s.From < s.To {
			all.From, all.To = min(all.From, s.From), max(all.To, s.To)
		}
		shared.From, shared.To = max(shared.From, s.From), min(shared.To, s.To)
	}
	if all.From >= all.To {
		return
	}
	_ = a.scores[0][all.From:all.To]
	d := a.values
	if tier == wasm && len(a.tail) == 0 && len(a.narrow.q) == 0 {
		var words [Quad / 2]int
		for r, s := range spans {
			if s.From < s.To {
				words[r/2] |= (s.From | s.To<<8) << (r % 2 * 16)
			}
		}
		attendVec(a.scores, &a.q[i*a.dim], &k[0], &v[0], &a.acc[i*d], &a.top[i], &a.sum[i], a.dim, d, words[0],
			words[1], all.From&^(KeySlots-1), all.To, a.limit, scale)
		return
	}
	scoreKeys(a.scores, a.q[i*a.dim:(i+Quad)*a.dim], k, all, scale)
	if a.limit != 0 {
		for r := range spans {
			whole := a.scores[r][all.From&^(lanes-1) : (all.To+lanes-1)&^(lanes-1)]
			Softcap(whole, whole, a.limit)
		}
	}
	a.weigh(i, spans)
	shared.To = max(shared.From, shared.To)
	for r, s := range spans {
		a.addValues(i+r, v, a.scores[r][:], Span{s.From, min(s.To, shared.From)})
	}
	if shared.From < shared.To {
		a.addShared(a.acc[i*d:(i+Quad)*d], v, shared, (*[Quad]float32)(a.sum[i:]))
	}
	for r, s := range spans {
		a.addValues(i+r, v, a.scores[r][:], Span{max(s.From, shared.To), s.To})
	}
}

// weigh turns the scores of the queries from i on to the weights of values, relative to the query's largest score,
// raised where due.
func (a *Attention) weigh(i int, spans []Span) {
	var seen [Quad]uint64
	var c [Quad]float32
	raised := 0
	for r, s := range spans {
		if s.From >= s.To {
			raised = -1
			break
		}
		seen[r] = 1<<s.To - 1<<s.From
	}
	if raised == 0 {
		raised = weighAll(a.scores, &seen, (*[Quad]float32)(a.top[i:]), &c)
	}
	if raised < 0 {
		raised = a.weighEach(i, spans, &c)
	}
	a.raise(i, raised, &c)
}

// raise multiplies the sums of the queries from i on with a bit in raised by their c.
func (a *Attention) raise(i, raised int, c *[Quad]float32) {
	for r := range Quad {
		if raised>>r&1 != 0 {
			a.sum[i+r] = float32(a.sum[i+r] * c[r])
			acc := a.acc[(i+r)*a.values : (i+r+1)*a.values]
			Scale(acc, acc, c[r])
			if len(a.narrow.q) > 0 {
				a.narrow.each(a, i+r, func(_, narrow []float32) { Scale(narrow, narrow, c[r]) })
			}
		}
	}
}

// weighEach does weighAll's work on all tiers and for all spans.
func (a *Attention) weighEach(i int, spans []Span, c *[Quad]float32) (raised int) {
	for r, s := range spans {
		if s.From >= s.To {
			continue
		}
		old := a.top[i+r]
		if top := Maximum(a.scores[r][s.From:s.To]); !(top <= old) {
			a.top[i+r], c[r] = top, weight(old-top)
			raised |= 1 << r
		}
		whole := a.scores[r][s.From&^(lanes-1) : (s.To+lanes-1)&^(lanes-1)]
		expSum(whole, whole, a.top[i+r])
	}
	return raised
}

// addValues adds the values of the positions of span, p of each, to query i's
// sums.
func (a *Attention) addValues(i int, v, p []float32, span Span) {
	d := a.values
	for j := span.From; j < span.To; j++ {
		a.sum[i] += p[j]
		AddScaled(a.acc[i*d:(i+1)*d], v[j*d:(j+1)*d], p[j])
	}
}

// Result sets dst[e] to Acc[e]/Sum of query i, after at most one range. Nothing may be added afterwards.
func (a *Attention) Result(i int, dst []float32) {
	a.narrow.join(a, i)
	Divide(dst, a.acc[i*a.values:(i+1)*a.values], a.sum[i])
}

// PartSize returns the length of a part: Acc, as long as a value, Top and Sum.
func PartSize(values int) int { return values + 2 }

// Part sets dst, PartSize numbers, to the state accumulated for query i. Clear comes before more is added.
func (a *Attention) Part(i int, dst []float32) {
	a.narrow.join(a, i)
	d := a.values
	copy(dst[:d], a.acc[i*d:(i+1)*d])
	dst[d], dst[d+1] = a.top[i], a.sum[i]
}

// Clear begins the next range: nothing is accumulated, queries stay.
func (a *Attention) Clear() {
	clear(a.acc)
	clear(a.sum)
	a.narrow.clear()
	for i := range a.top {
		a.top[i] = float32(math.Inf(-1))
	}
}

// Merge adds a query's part of a range to the total of the ranges before, zeros if there are none; part is lost. Where
// both have seen anything (a Sum that is not 0; of later ranges a Top above -Inf), a being the part of the larger Top,
// part for equal or NaN Tops, and b the other:
//
//	c = weight(b.Top-a.Top); Sum = a.Sum + b.Sum*c; Acc[e] = fma(b.Acc[e], c, a.Acc[e]); Top = a.Top
func Merge(total, part []float32) {
	d := len(part) - 2
	switch {
	case part[d+1] == 0:
		return
	case total[d+1] == 0:
		copy(total, part)
		return
	case math.IsInf(float64(part[d]), -1):
		return
	}
	a, b := part, total[:d+2]
	if part[d] < total[d] {
		a, b = b, a
	}
	c := weight(b[d] - a[d])
	a[d+1] += float32(b[d+1] * c)
	AddScaled(a[:d], b[:d], c)
	copy(total, a)
}

// Sink adds a position of score s and a value of zeros to a part after all other positions: with m the larger of Top
// and s,
//
//	c = weight(Top-m); Acc[e] = Acc[e]*c; Sum = Sum*c + weight(s-m) // unless m is Top
func Sink(part []float32, s float32) {
	d := len(part) - 2
	if s <= part[d] {
		part[d+1] += weight(s - part[d])
		return
	}
	c := weight(part[d] - s)
	Scale(part[:d], part[:d], c)
	part[d], part[d+1] = s, float32(part[d+1]*c)+1
}

// Quotient sets dst[e] to Acc[e]/Sum of a part.
func Quotient(dst, part []float32) {
	d := len(part) - 2
	Divide(dst, part[:d], part[d+1])
}

// narrowing is the state of an Attention to blocks in 8 bits. Its slices are empty before the first.
type narrowing struct {
	q      []int16   // queries, as Acts.Q, of columns elements
	dx     []float32 // likewise Acts.DX
	init   []int32   // and Acts.Init
	acc    []float32 // sums of these blocks, [values/PanelRows][queries][PanelRows]
	seen   []bool    // by query: whether any block has been added
	scales []float32 // of a block
	row    []float32 // a query, filled up
}

func (n *narrowing) clear() {
	clear(n.acc)
	clear(n.seen)
}

// each calls f with the sums of query i, and the elements of a value with these sums.
func (n *narrowing) each(a *Attention, i int, f func(acc, narrow []float32)) {
	acc := a.acc[i*a.values : (i+1)*a.values]
	for at := i * PanelRows; len(acc) > 0; at += len(a.top) * PanelRows {
		m := min(PanelRows, len(acc))
		f(acc[:m], n.acc[at:at+m])
		acc = acc[m:]
	}
}

// join moves the sums of query i to Acc, where a block has been added.
func (n *narrowing) join(a *Attention, i int) {
	if len(n.q) > 0 && n.seen[i] {
		n.each(a, i, func(acc, narrow []float32) { Add(acc, acc, narrow) })
	}
}

// scoreKeys sets the scores of the positions of span at least.
func scoreKeys(s *scores, q, k []float32, span Span, scale float32) {
	if tier > generic {
		scoreKeysVec(s, q, k, span.From&^(KeySlots-1), span.To, scale)
		return
	}
	scoreKeysGeneric(s, q, k, span, scale)
}

// scoreKeysGeneric multiplies sixteen keys at a time, side by side: partial[l] is their sums l.
func scoreKeysGeneric(s *scores, q, k []float32, span Span, scale float32) {
	d := len(q) / Quad
	for at := span.From &^ (KeySlots - 1); at < span.To; at += KeySlots {
		keys := k[at*d : (at+KeySlots)*d]
		for r := range s {
			var partial [lanes][KeySlots]float32
			for i, x := range q[r*d : (r+1)*d] {
				addScaledGeneric(partial[i%lanes][:], keys[i*KeySlots:(i+1)*KeySlots], x)
			}
			for n := lanes / 2; n >= 1; n /= 2 {
				for l := range n {
					addGeneric(partial[l][:], partial[l][:], partial[l+n][:])
				}
			}
			scaleGeneric(s[r][at:], partial[0][:], scale)
		}
	}
}

// weighAll turns the scores of Quad queries to weights, relative to top, raised where due. It returns a bit for each
// raised top, and sets its c to weight(old top - new top). If a score is NaN, and on tiers without a kernel, it returns
// -1 and does nothing.
func weighAll(s *scores, seen *[Quad]uint64, top, c *[Quad]float32) (raised int) {
	if tier < avx512 {
		return -1
	}
	return weighAllAVX512(s, seen, top, c)
}

// setTail copies the columns of a block's values behind the last whole vector, if any: a head of 72 elements has 8.
func (a *Attention) setTail(v []float32) {
	from := wideLength(a.values)
	if a.tail = a.tail[:0]; tier == generic || from == a.values {
		return
	}
	a.tail = resize(a.tail, BlockSlots*lanes)
	for j := range BlockSlots {
		row := a.tail[j*lanes : (j+1)*lanes]
		clear(row[copy(row, v[j*a.values+from:(j+1)*a.values]):])
	}
}

// addShared is addSharedValues with the columns of tail.
func (a *Attention) addShared(acc, v []float32, span Span, sum *[Quad]float32) {
	d, from := a.values, wideLength(a.values)
	if len(a.tail) == 0 {
		addSharedValues(acc, v, a.scores, span, sum)
		return
	}
	var again [Quad]float32
	if from > 0 {
		addValuesVec(acc[:len(acc)-d+from], v[span.From*d:], &a.scores[0][span.From], span.To-span.From, d, sum)
		sum = &again
	}
	var part [Quad * lanes]float32
	for r := range Quad {
		copy(part[r*lanes:(r+1)*lanes], acc[r*d+from:(r+1)*d])
	}
	addValuesVec(part[:], a.tail[span.From*lanes:], &a.scores[0][span.From], span.To-span.From, lanes, sum)
	for r := range Quad {
		copy(acc[r*d+from:(r+1)*d], part[r*lanes:])
	}
}

// addSharedValues adds the values of the positions of span, p of each, to
// Quad queries' acc, and p to their sum.
func addSharedValues(acc, v []float32, p *scores, span Span, sum *[Quad]float32) {
	d := len(acc) / Quad
	from := wideLength(d) // the first column left to do
	if from > 0 {
		addValuesVec(acc[:len(acc)-d+from], v[span.From*d:], &p[0][span.From], span.To-span.From, d, sum)
	}
	if from == d {
		return
	}
	for r := range p {
		for j := span.From; j < span.To; j++ {
			addScaledGeneric(acc[r*d+from:(r+1)*d], v[j*d+from:(j+1)*d], p[r][j])
			if from == 0 {
				sum[r] += p[r][j]
			}
		}
	}
}
