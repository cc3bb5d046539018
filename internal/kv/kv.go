// Package kv keeps the page tables of sequences: the pages of each sequence's positions. It holds no keys and values; a
// backend stores keys and values by the page numbers given here.
//
// A page is a run of PageSize positions. Layers that keep the same positions form a class and share page tables. In the
// class of full layers a sequence's table grows with the sequence (Pages); in a class of windows the table is a ring
// just long enough for the window and one step (Ring). Convolutions and scans keep a state of fixed size, and the rows
// missing there: a sequence has a slot for all states (Slot) and a page of rows (Rows). A slot's state is of a page's
// start, and the rows are the next, at most a page: a step adds them to the state when its first row begins a page.
// So a sequence is cut back to any position from the state's on by dropping rows. Layers may keep a second form of some
// positions, such as more bits of the first page (Start).
//
// A pool with a bound on its memory also keeps the pages left by sequences, while there is room: a tree of pages, found
// by a page's tokens and all tokens before. A sequence starts from the longest prefix there (Adopt), and puts its own
// pages there: full ones (Commit), and the last one where its prompt ends, or itself (Mark, Free). Pages are counted by
// reference. A page with another holder is never written: Grow replaces the page, by a copy if the page is to be
// continued.
//
// Sharing rests on two things: the state of position p follows from tokens 0 to p alone, which holds where attention is
// causal (else see Options.Private), and the same tokens give the same bits, however they were cut into steps.
//
// Files: sequence.go (Sequence), tail.go (pages begun), tree.go (pages left), kv.go (Pool).
package kv

import (
	"crypto/sha256"
	"errors"
	"math"
	"sort"
	"sync"
)

// PageSize is the number of positions of a page. Attention works page by page, so PageSize is also part of the order of
// summation: a page always starts at a multiple of PageSize, whatever the chunks that filled it.
const PageSize = 64

// ErrFull is returned when a sequence would pass its context length, or when no page is free.
var ErrFull = errors.New("the context is full")

// ErrBudget is the ErrFull of a bound on bytes (Pool.Bound): the context has room.
var ErrBudget error = overBudget{}

type overBudget struct{}

func (overBudget) Error() string { return "the budget of keys and values is too small" }

func (overBudget) Is(target error) bool { return target == ErrFull }

// Kind is the part of a sequence kept by a class.
type Kind uint8

const (
	Pages Kind = iota // all positions
	Ring              // the last positions, at least a window
	Slot              // a state of fixed size, of a page's start
	Rows              // the rows after the state of a Slot, up to a page
	Start             // the first page
)

// isLasting reports whether sequences keep the pages as long as their positions.
func (k Kind) isLasting() bool { return k == Pages || k == Start }

// Group is the positions First to End-1 of a sequence, computed together; End is 0 for none.
type Group struct{ First, End int32 }

// Class is the common part of some layers: the positions kept of a sequence.
type Class struct {
	Kind   Kind
	Window int // of a Ring: positions seen by a query, its own included (of chunked attention, a chunk)
}

// isSingle reports whether a sequence has one page of the class.
func (c Class) isSingle() bool { return c.Kind == Slot || c.Kind == Rows }

// Options of a pool.
type Options struct {
	Classes []Class // without duplicates; Slot and Rows come together
	Context int     // maximum of positions in a sequence
	Chunk   int     // maximum of positions added to a sequence by a step
	Private bool    // sequences share nothing: attention is not causal, or each row is to be computed
}

// Memory is the storage of the pages: a backend's cache.
type Memory interface {
	// Copy makes page to of a class equal to page from; of a slot, its states.
	Copy(class int, from, to int32) error
}

// Pool hands out pages to sequences. It is safe for concurrent use; a Sequence is not. Memory is used in Grow and
// Commit alone, between steps.
type Pool struct {
	o      Options
	slot   int   // the class of slots, negative if there is none
	rows   int   // the class of their rows, likewise
	most   []int // per class, pages of the longest table
	window []int // per class, pages needed for a start at a page end, except for full layers
	block  int   // the maximum of these, at least 1
	memory Memory

	mu    sync.Mutex
	free  [][]int32 // per class, pages without a holder
	pages [][]page  // per class, all pages handed out so far
	need  []int     // of Grow

	bytes []int64 // per class, of a page; nil without a bound
	bound int64   // on the bytes of all pages
	solo  int     // the longest sequence, alone, within the bound
	tree  tree
	see   func(Event) // of Watch, or nil
}

// page is the holders of a page.
type page struct {
	refs int32 // sequences and nodes
	node *node // node holding the page, or nil
}

// NewPool makes a pool of no pages.
func NewPool(o Options) *Pool {
	n := len(o.Classes)
	p := &Pool{o: o, slot: -1, rows: -1, block: 1, need: make([]int, n)}
	p.free, p.pages = make([][]int32, n), make([][]page, n)
	p.tree = tree{pool: p, nodes: map[key]*node{}, followers: map[key][]*node{}}
	for c, class := range o.Classes {
		switch class.Kind {
		case Slot:
			p.slot = c
		case Rows:
			p.rows = c
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

// Back sets the memory of the pages. Without memory nothing is shared.
func (p *Pool) Back(m Memory) { p.memory = m }

// Classes lists the classes. A class is known by its index.
func (p *Pool) Classes() []Class { return p.o.Classes }

// Context returns the number of positions a sequence may have.
func (p *Pool) Context() int { return p.o.Context }

// longest returns the longest table of a sequence, in pages; a slot, and a page of rows, is a table of length 1.
func longest(c Class, o Options) int {
	n := o.Context
	if c.isSingle() {
		return 1
	}
	if c.Kind == Start {
		n = min(n, PageSize)
	}
	if c.Kind == Ring && c.Window < n {
		// A step's rows are stored before the first of them attends, so the ring holds the window before the first row
		// and the whole step; one page more because neither need start at a page.
		n = min(n, c.Window-1+o.Chunk+PageSize)
	}
	return pagesOf(n)
}

// pagesOf returns the number of pages of n positions.
func pagesOf(n int) int { return (n + PageSize - 1) / PageSize }

// Positions returns how many positions a sequence of n tokens keeps in class c, in whole pages.
func (p *Pool) Positions(c, n int) int { return min(pagesOf(n), p.most[c]) * PageSize }

// Bound limits the bytes of all pages ever made, a page of class c having bytes[c]. Call Bound before the first page is
// handed out. Pages are not unmade, so the bound keeps room in each class for the longest sequence alone.
func (p *Pool) Bound(bound int64, bytes []int64) {
	p.bound, p.bytes = bound, bytes
	p.solo = sort.Search(p.o.Context, func(n int) bool { return p.BytesOf(n+1) > bound })
}

// Longest returns the maximum of positions in a sequence that is alone.
func (p *Pool) Longest() int {
	if p.bytes == nil {
		return p.o.Context
	}
	return p.solo
}

// BytesOf returns the memory of a sequence of n positions, in a pool with a bound.
func (p *Pool) BytesOf(n int) (bytes int64) {
	for c, size := range p.bytes {
		bytes += int64(p.Positions(c, n)/PageSize) * size
	}
	return bytes
}

// Most returns the maximum of pages in class c, math.MaxInt without a bound.
func (p *Pool) Most(c int) int {
	if p.bytes == nil || p.bytes[c] == 0 {
		return math.MaxInt
	}
	left := p.bound - p.BytesOf(p.solo)
	return p.Positions(c, p.solo)/PageSize + int(left/p.bytes[c])
}

// Holds returns the number of sequences of n positions within the bound, math.MaxInt without a bound.
func (p *Pool) Holds(n int) int {
	one := p.BytesOf(n)
	if one == 0 {
		return math.MaxInt
	}
	return int(min(p.bound/one, math.MaxInt))
}

// Bytes returns the memory of all pages handed out so far, in a pool with a bound.
func (p *Pool) Bytes() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, size := range p.bytes {
		n += int64(len(p.pages[c])) * size
	}
	return n
}

// Usage returns the bytes of the pages held by sequences, of the pages only kept for later sequences, and the bound, of
// a pool with a bound. Kept pages give way when room is needed.
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

// Event is a full page found by sequences from now on, or no longer.
type Event struct {
	// Key names the page's tokens and all tokens before; Parent is the key of the page before, zero for a first page.
	Key, Parent [sha256.Size]byte
	Tokens      []int32 // of a page found from now on, else nil; not to be kept
	Salt        string  // of the sequences
}

// Watch calls see for each full page kept for later sequences from now on, and for the page's end, in order. see must
// return at once, and must not use the pool. Watch(nil) tells the last see the end of all pages, in any order.
func (p *Pool) Watch(see func(Event)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if see == nil {
		for _, n := range p.tree.nodes {
			p.tell(n, nil)
		}
	}
	p.see = see
}

// tell tells Watch's see of a full page, with tokens, or of the page's end. The caller holds mu.
func (p *Pool) tell(n *node, tokens []int32) {
	if p.see == nil {
		return
	}
	e := Event{Key: n.key, Tokens: tokens, Salt: n.salt}
	if n.parent != nil {
		e.Parent = n.parent.key
	}
	p.see(e)
}

// shares reports whether sequences find pages left by others.
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

// take hands out a page of class c, within the bound. The caller holds mu.
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

// drop ends a hold of a page. The caller holds mu.
func (p *Pool) drop(c int, id int32) {
	x := &p.pages[c][id]
	if x.refs--; x.refs == 0 {
		p.free[c] = append(p.free[c], id)
	}
}
