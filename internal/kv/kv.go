// Package kv keeps the page tables of sequences: which page holds which positions of which sequence. It holds no keys
// and values; a backend stores them by the page numbers given here.
//
// A page is a run of PageSize positions. Layers that keep the same positions form a class and share page tables. In the
// class of full layers a sequence's table grows with it (Pages); in those of windows it is a ring just long enough for
// the window and one step (Ring). Convolutions and scans keep no positions but a state of fixed size: a sequence has
// one slot for all of them (Slot).
//
// A pool with a bound on its memory also keeps what sequences leave behind, while there is room: a tree of pages, found
// by their tokens and all tokens before them. A sequence starts from the longest prefix there (Adopt), and puts its own
// pages there: full ones (Commit), and the last one where its prompt ends, or itself (Mark, Free). Pages are counted by
// reference. A page that somebody else holds is never written: Grow replaces it, by a copy where it is to be continued.
//
// Sharing rests on two things: the state of position p follows from tokens 0 to p alone, which holds where attention is
// causal (else see Options.Private), and the same tokens give the same bits, however they were cut into steps.
//
// Files: sequence.go (Sequence), tail.go (pages that are begun), tree.go (pages that are left), kv.go (Pool).
package kv

import (
	"errors"
	"math"
	"sort"
	"sync"
)

// PageSize is the number of positions of a page. Attention works page by page, so it is also part of the order of
// summation: a page always starts at a multiple of PageSize, whatever the chunks that filled it.
const PageSize = 64

// ErrFull is returned when a sequence would pass its context length, or when no page is free.
var ErrFull = errors.New("the context is full")

// ErrBudget is the ErrFull of a bound on bytes (Pool.Bound): the context has room.
var ErrBudget error = overBudget{}

type overBudget struct{}

func (overBudget) Error() string { return "the budget of keys and values is too small" }

func (overBudget) Is(target error) bool { return target == ErrFull }

// Kind is what a class keeps of a sequence.
type Kind uint8

const (
	Pages Kind = iota // all positions
	Ring              // the last positions, at least a window of them
	Slot              // a state of fixed size
)

// Class is what some layers have in common: what they keep of a sequence.
type Class struct {
	Kind   Kind
	Window int // of a Ring: positions that a query sees, itself included (of chunked attention, a chunk)
}

// Options of a pool.
type Options struct {
	Classes []Class // without duplicates, one Slot at most
	Context int     // positions that a sequence may have
	Chunk   int     // positions that a step may add to one sequence
	Private bool    // sequences share nothing: attention is not causal, or each row is to be computed
}

// Memory is what stands behind the pages: a backend's cache.
type Memory interface {
	// Copy makes page to of a class equal to page from; of a slot, its states.
	Copy(class int, from, to int32) error
}

// Pool hands out pages to sequences. It is safe for concurrent use; a Sequence is not. Memory is used in Grow and
// Commit alone, which belong between steps.
type Pool struct {
	o      Options
	slot   int   // the class of slots, negative if there is none
	most   []int // per class, pages of the longest table
	window []int // per class, pages that a start at a page end takes, but for full layers
	block  int   // the most of these, 1 at least
	memory Memory

	mu    sync.Mutex
	free  [][]int32 // per class, pages that nobody holds
	pages [][]page  // per class, all that were ever handed out
	need  []int     // of Grow

	bytes []int64 // per class, of a page; nil without a bound
	bound int64   // on the bytes of all pages
	solo  int     // the longest sequence that the bound holds, alone
	tree  tree
}

// page is who holds a page.
type page struct {
	refs int32 // sequences and nodes
	node *node // that holds it, or nil
}

// NewPool makes a pool of no pages.
func NewPool(o Options) *Pool {
	n := len(o.Classes)
	p := &Pool{o: o, slot: -1, block: 1, free: make([][]int32, n), pages: make([][]page, n), need: make([]int, n)}
	p.tree = tree{pool: p, nodes: map[key]*node{}, followers: map[key][]*node{}}
	for c, class := range o.Classes {
		if class.Kind == Slot {
			p.slot = c
		}
		p.most = append(p.most, longest(class, o))
		window := 1
		if class.Kind == Ring {
			window = pagesOf(min(class.Window, o.Context) - 1)
		}
		p.window, p.block = append(p.window, window), max(p.block, window)
	}
	return p
}

// Back names the memory behind the pages. Without it nothing is shared.
func (p *Pool) Back(m Memory) { p.memory = m }

// Classes lists the classes. A class is known by its index.
func (p *Pool) Classes() []Class { return p.o.Classes }

// Context returns the number of positions a sequence may have.
func (p *Pool) Context() int { return p.o.Context }

// longest returns the longest table of a sequence, in pages; a slot is a table of one.
func longest(c Class, o Options) int {
	n := o.Context
	if c.Kind == Slot {
		return 1
	}
	if c.Kind == Ring && c.Window < n {
		// A step's rows are stored before the first of them attends, so the ring holds the window before the first row and
		// the whole step; one page more because neither need start at a page.
		n = min(n, c.Window-1+o.Chunk+PageSize)
	}
	return pagesOf(n)
}

// pagesOf returns the number of pages that n positions take.
func pagesOf(n int) int { return (n + PageSize - 1) / PageSize }

// Positions returns how many positions a sequence of n tokens keeps in class c, in whole pages.
func (p *Pool) Positions(c, n int) int { return min(pagesOf(n), p.most[c]) * PageSize }

// Bound limits the bytes of all pages that are ever made, a page of class c having bytes[c]. It is called before the
// first page is handed out. Pages are not unmade, so the bound keeps room in each class for the longest sequence that
// fits alone.
func (p *Pool) Bound(bound int64, bytes []int64) {
	p.bound, p.bytes = bound, bytes
	p.solo = sort.Search(p.o.Context, func(n int) bool { return p.BytesOf(n+1) > bound })
}

// Longest returns the number of positions that a sequence may have where it is alone.
func (p *Pool) Longest() int {
	if p.bytes == nil {
		return p.o.Context
	}
	return p.solo
}

// BytesOf returns the memory that a sequence of n positions takes, of a pool with a bound.
func (p *Pool) BytesOf(n int) (bytes int64) {
	for c, size := range p.bytes {
		bytes += int64(p.Positions(c, n)/PageSize) * size
	}
	return bytes
}

// Most returns the number of pages that class c may ever have, math.MaxInt without a bound.
func (p *Pool) Most(c int) int {
	if p.bytes == nil || p.bytes[c] == 0 {
		return math.MaxInt
	}
	left := p.bound - p.BytesOf(p.solo)
	return p.Positions(c, p.solo)/PageSize + int(left/p.bytes[c])
}

// Holds returns how many sequences of n positions the bound has room for, math.MaxInt without one.
func (p *Pool) Holds(n int) int {
	one := p.BytesOf(n)
	if one == 0 {
		return math.MaxInt
	}
	return int(min(p.bound/one, math.MaxInt))
}

// Bytes returns the memory of all pages that were ever handed out, of a pool with a bound.
func (p *Pool) Bytes() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, size := range p.bytes {
		n += int64(len(p.pages[c])) * size
	}
	return n
}

// Usage returns the bytes of the pages that sequences hold, of the pages only kept for others to find, and the bound,
// of a pool with one. Kept pages go where their room is needed.
func (p *Pool) Usage() (used, kept, bound int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, size := range p.bytes {
		for _, x := range p.pages[c] {
			switch {
			case x.refs == 1 && x.node != nil:
				kept += size
			case x.refs > 0:
				used += size
			}
		}
	}
	return used, kept, p.bound
}

// shares reports whether sequences find what others left.
func (p *Pool) shares() bool { return p.bytes != nil && p.memory != nil && !p.o.Private }

// fits reports whether so many pages of each class can be taken. The caller holds mu.
func (p *Pool) fits(need []int) bool {
	left := p.bound
	for c, n := range need {
		made := len(p.pages[c]) + max(0, n-len(p.free[c]))
		if p.bytes != nil {
			left -= int64(max(made, p.Positions(c, p.solo)/PageSize)) * p.bytes[c]
		}
	}
	return left >= 0
}

// take hands out a page of class c, which fits. The caller holds mu.
func (p *Pool) take(c int) int32 {
	id := int32(len(p.pages[c]))
	if n := len(p.free[c]); n > 0 {
		id = p.free[c][n-1]
		p.free[c] = p.free[c][:n-1]
	} else {
		p.pages[c] = append(p.pages[c], page{})
	}
	p.pages[c][id].refs = 1
	return id
}

// drop ends one hold of a page. The caller holds mu.
func (p *Pool) drop(c int, id int32) {
	x := &p.pages[c][id]
	if x.refs--; x.refs == 0 {
		p.free[c] = append(p.free[c], id)
	}
}
