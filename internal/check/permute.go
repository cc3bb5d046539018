package check

import (
	"fmt"
	"math"
	"slices"
)

// permuted asks whether rows or columns are in another order: an order of containers and formats, or any.
func permuted(s *suspect, _ []pair) (id, what string) {
	if s.rows < 2 || s.rows != s.source.Rows() {
		return "", ""
	}
	row := func(from func(r int) int) func(i int) float32 {
		return func(i int) float32 { return s.b[from(i/s.cols)*s.cols+i%s.cols] }
	}
	col := func(from func(j int) int) func(i int) float32 {
		return func(i int) float32 { return s.b[i/s.cols*s.cols+from(i%s.cols)] }
	}
	for _, dim := range []int{s.dim, 2 * s.dim, 64, 128, 256, 32, 96, 512} {
		what := []string{"in halves, where its source has pairs: what turns together was permuted once too often",
			"in pairs, where its source has halves: what turns together was permuted once too often"}
		for k, from := range halves(dim, s.rows) {
			if s.is(row(from)) {
				return "source-permuted", fmt.Sprintf("has the rows of each head of %d %s", dim, what[k])
			}
		}
	}
	if s.cols%groupSize == 0 {
		const half = groupSize / 2
		at := func(j, i int) int { return j - j%groupSize + i }
		for _, order := range []struct {
			what string
			from func(i int) int
		}{
			{"the halves of each block of 32 exchanged: nibbles in the wrong order", func(i int) int {
				return (i + half) % groupSize
			}},
			{"the values of each block of 32 in pairs instead of halves: nibbles in the wrong order", func(i int) int {
				return i%2*half + i/2
			}},
			{"the values of each block of 32 in halves instead of pairs: nibbles in the wrong order", func(i int) int {
				return i%half*2 + i/half
			}},
		} {
			if s.is(col(func(j int) int { return at(j, order.from(j%groupSize)) })) {
				return "source-permuted", "has " + order.what
			}
		}
	}
	if what := s.match(true); what != "" {
		return "source-permuted", "has the rows of its source in another order" + what
	}
	if what := s.match(false); what != "" {
		return "source-permuted", "has the columns of its source in another order" + what
	}
	return "", ""
}

// halves returns the two orders of a head's rows into which the halves and pairs of rotation are turned; none where
// rows are no heads of dim.
func halves(dim, rows int) []func(r int) int {
	if dim < 4 || rows%dim != 0 {
		return nil
	}
	half := dim / 2
	return []func(r int) int{
		func(r int) int { h, i := r/dim, r%dim; return h*dim + i%half*2 + i/half },
		func(r int) int { h, i := r/dim, r%dim; return h*dim + i%2*half + i/2 },
	}
}

// maxMatched bounds the rows among which each looks for its source.
const maxMatched = 2048

// match looks for each row, or column, of the tensor among those of the source. It says what it found, "" for nothing.
func (s *suspect) match(rows bool) string {
	n, size := s.rows, s.cols
	at := func(line, k int) int { return line*s.cols + k }
	if !rows {
		n, size = s.cols, s.rows
		at = func(line, k int) int { return k*s.cols + line }
	}
	if n > maxMatched || n < 2 || size < 4 {
		return ""
	}
	from, moved := s.nearest(n, size, at)
	if moved == 0 {
		return ""
	}
	b := func(i int) float32 { return s.b[i/s.cols*s.cols+from[i%s.cols]] }
	if rows {
		b = func(i int) float32 { return s.b[from[i/s.cols]*s.cols+i%s.cols] }
	}
	if !s.is(b) {
		return ""
	}
	return s.order(from, moved)
}

// nearest finds for each of the tensor's n lines the source's most similar one, by some of their values, and counts the
// moved ones. No line has moved if two have the same source.
func (s *suspect) nearest(n, size int, at func(line, k int) int) (from []int, moved int) {
	m := min(size, 16)
	sample := func(x []float32) []float32 {
		y := make([]float32, 0, n*m)
		for line := range n {
			for k := range m {
				y = append(y, x[at(line, k*size/m)])
			}
		}
		return y
	}
	a, b := sample(s.a), sample(s.b)
	from, used := make([]int, n), make([]bool, n)
	for i := range n {
		best, least := 0, math.Inf(1)
		for j := range n {
			var ee float64
			for k := range m {
				e := float64(a[i*m+k]) - float64(b[j*m+k])
				ee += e * e
			}
			if ee < least {
				best, least = j, ee
			}
		}
		if from[i] = best; best != i {
			moved++
		}
		used[best] = true
	}
	if slices.Contains(used, false) {
		return from, 0
	}
	return from, moved
}

// order describes a permutation.
func (s *suspect) order(from []int, moved int) string {
	n := len(from)
	shift := (from[0] + n) % n
	same, heads := true, s.dim > 0 && n%max(s.dim, 1) == 0
	for i, f := range from {
		same = same && f == (i+shift)%n
		heads = heads && f%max(s.dim, 1) == i%max(s.dim, 1)
	}
	switch {
	case same:
		return fmt.Sprintf(": shifted by %d", min(shift, n-shift))
	case heads:
		return fmt.Sprintf(": heads of %d are exchanged", s.dim)
	}
	return fmt.Sprintf(": %d of %d have moved", moved, n)
}
