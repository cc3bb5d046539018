// Package kv keeps the books of the key and value cache: which page holds
// which positions of which sequence. It holds no keys and values; a backend
// stores them by the page numbers given here.
//
// A page is a run of PageSize positions. Layers that see the same window form
// a class and share page tables. In the class of full layers (window 0) a
// sequence's table grows with it; in the others it is a ring just long enough
// for the window and one step.
package kv

import (
	"errors"
	"fmt"
	"sync"
)

// PageSize is the number of positions of a page. Attention works page by page,
// so it is also part of the order of summation: a page always starts at a
// multiple of PageSize, whatever the chunks that filled it.
const PageSize = 64

// ErrFull is returned when a sequence would pass its context length, or when
// no page is free.
var ErrFull = errors.New("kv: the context is full")

// Pool hands out pages to sequences. It is safe for concurrent use; a Sequence
// is not.
type Pool struct {
	windows []int // of each class; 0 for full layers
	context int   // positions a sequence may have
	chunk   int   // positions a step may add to one sequence

	mu   sync.Mutex
	free [][]int32 // per class, returned pages
	made []int32   // per class, pages ever handed out
	left []int     // per class, pages that may still be made; negative for no limit
}

// NewPool makes a pool for layers of the given windows (without duplicates)
// and sequences of at most context positions, in steps of at most chunk.
// sequences bounds the pages to what that many full sequences need; 0 is no bound.
func NewPool(windows []int, context, chunk, sequences int) *Pool {
	p := &Pool{windows: windows, context: context, chunk: chunk,
		free: make([][]int32, len(windows)), made: make([]int32, len(windows)), left: make([]int, len(windows))}
	for c := range windows {
		p.left[c] = -1
		if sequences > 0 {
			p.left[c] = sequences * p.pages(c)
		}
	}
	return p
}

// Classes is the number of classes.
func (p *Pool) Classes() int { return len(p.windows) }

// Window of class c; 0 for full layers.
func (p *Pool) Window(c int) int { return p.windows[c] }

// Context is the number of positions a sequence may have.
func (p *Pool) Context() int { return p.context }

// pages is the longest table of a sequence in class c.
func (p *Pool) pages(c int) int {
	n := p.context
	if w := p.windows[c]; w > 0 && w < n {
		// A step's rows are stored before the first of them attends, so the ring
		// holds the window before the first row and the whole step; one page more
		// because neither need start at a page.
		n = min(n, w-1+p.chunk+PageSize)
	}
	return (n + PageSize - 1) / PageSize
}

// Positions is how many positions a sequence of n tokens keeps in class c,
// in whole pages.
func (p *Pool) Positions(c, n int) int {
	return min((n+PageSize-1)/PageSize, p.pages(c)) * PageSize
}

// take hands out a page of class c. The caller holds mu.
func (p *Pool) take(c int) (int32, bool) {
	if n := len(p.free[c]); n > 0 {
		page := p.free[c][n-1]
		p.free[c] = p.free[c][:n-1]
		return page, true
	}
	if p.left[c] == 0 {
		return 0, false
	}
	p.left[c]--
	p.made[c]++
	return p.made[c] - 1, true
}

// Sequence is one sequence's page tables.
type Sequence struct {
	pool   *Pool
	length int
	most   int // the greatest length since it was empty: what the rings hold ends there
	tables [][]int32
}

// NewSequence is an empty sequence. It must be freed.
func (p *Pool) NewSequence() *Sequence {
	return &Sequence{pool: p, tables: make([][]int32, len(p.windows))}
}

// Len is the number of positions stored.
func (s *Sequence) Len() int { return s.length }

// Grow makes room for n more positions, at most a chunk. On ErrFull nothing has changed.
func (s *Sequence) Grow(n int) error {
	p := s.pool
	if n < 0 || n > p.chunk {
		return fmt.Errorf("kv: a step of %d positions, at most %d are possible", n, p.chunk)
	}
	if s.length+n > p.context {
		return fmt.Errorf("%w: %d positions and %d more, of %d", ErrFull, s.length, n, p.context)
	}
	if !s.extend(s.length + n) {
		return fmt.Errorf("%w: no page is free", ErrFull)
	}
	s.length += n
	s.most = max(s.most, s.length)
	return nil
}

// extend makes the tables long enough for n positions, or reports false and
// leaves them as they were.
func (s *Sequence) extend(n int) bool {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	had := make([]int, len(s.tables))
	for c, t := range s.tables {
		had[c] = len(t)
	}
	for c := range s.tables {
		for len(s.tables[c])*PageSize < p.Positions(c, n) {
			page, ok := p.take(c)
			if !ok {
				s.shorten(had)
				return false
			}
			s.tables[c] = append(s.tables[c], page)
		}
	}
	return true
}

// shorten returns all but the first pages[c] pages of each class. The caller
// holds the pool's mu.
func (s *Sequence) shorten(pages []int) {
	for c, n := range pages {
		s.pool.free[c] = append(s.pool.free[c], s.tables[c][n:]...)
		s.tables[c] = s.tables[c][:n]
	}
}

// Truncate forgets all but the first n positions. It reports false, and does
// nothing, where a ring no longer holds the window before position n.
func (s *Sequence) Truncate(n int) bool {
	if n < 0 || n > s.length {
		return false
	}
	for c, w := range s.pool.windows {
		ring := len(s.tables[c]) * PageSize
		first := (s.most+PageSize-1)/PageSize*PageSize - ring // oldest position still held
		if w > 0 && first > max(0, n-w+1) {
			return false
		}
	}
	s.length = n
	return true
}

// Page is the page that holds position pos in class c.
func (s *Sequence) Page(c, pos int) int32 {
	return s.tables[c][pos/PageSize%len(s.tables[c])]
}

// Free returns all pages. The sequence is empty again.
func (s *Sequence) Free() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s.shorten(make([]int, len(s.tables)))
	s.length, s.most = 0, 0
}
