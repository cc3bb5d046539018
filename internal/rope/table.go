package rope

import (
	"sync"
	"sync/atomic"
)

// Table holds the cosines and sines of every pair at positions from 0 on, as float32. A Table grows at the first
// request for a position, and is safe for concurrent use; one table serves all layers sharing its frequencies.
type Table struct {
	freqs     Freqs
	magnitude float64
	grow      sync.Mutex
	rows      atomic.Pointer[turns]
}

// turns is row after row of len(freqs) values, one row a position.
type turns struct{ cos, sin []float32 }

// NewTable returns an empty table of the frequencies f, whose cosines and sines have a magnitude; 0 is 1. It keeps f.
func NewTable(f Freqs, magnitude float64) *Table {
	t := &Table{freqs: f, magnitude: magnitude}
	t.rows.Store(&turns{})
	return t
}

// Row returns the cosines and sines at position pos ≥ 0, one for each turning pair. The caller must not change them.
func (t *Table) Row(pos int) (cos, sin []float32) {
	n := len(t.freqs)
	r := t.rows.Load()
	if (pos+1)*n > len(r.cos) {
		r = t.extend(pos + 1)
	}
	return r.cos[pos*n : (pos+1)*n], r.sin[pos*n : (pos+1)*n]
}

// Rows returns the cosines and sines of the positions 0 to n-1, row after row. The caller must not change them.
func (t *Table) Rows(n int) (cos, sin []float32) {
	r := t.rows.Load()
	n *= len(t.freqs)
	if n > len(r.cos) {
		r = t.extend(n / len(t.freqs))
	}
	return r.cos[:n], r.sin[:n]
}

// extend makes at least n rows, twice as many as before, or 64. Rows already handed out stay as they are.
func (t *Table) extend(n int) *turns {
	t.grow.Lock()
	defer t.grow.Unlock()
	old := t.rows.Load()
	pairs := len(t.freqs)
	have := len(old.cos) / pairs
	if n <= have {
		return old
	}
	n = max(n, 2*have, 64)
	r := &turns{make([]float32, n*pairs), make([]float32, n*pairs)}
	copy(r.cos, old.cos)
	copy(r.sin, old.sin)
	for i := have * pairs; i < len(r.cos); i++ {
		cos, sin := TurnBy(i/pairs, t.freqs[i%pairs], t.magnitude)
		r.cos[i], r.sin[i] = float32(cos), float32(sin)
	}
	t.rows.Store(r)
	return r
}

// Angles sets cos and sin, a number for each of f's pairs, to the values of pairs at positions of their own: the bits
// of a Table of equal magnitude there.
func Angles(f []float64, magnitude float64, pos func(pair int) int, cos, sin []float32) {
	for i, v := range f {
		c, s := TurnBy(pos(i), v, magnitude)
		cos[i], sin[i] = float32(c), float32(s)
	}
}
