package kv

import (
	"fmt"
	"math"
)

// Sequence is one sequence's page tables.
type Sequence struct {
	pool    *Pool
	root    key
	salt    string // of root
	length  int
	done    int             // positions computed, up to the last Commit
	start   int             // positions in the slot's state, a multiple of PageSize
	tables  [][]entry       // by class
	path    []*node         // the full pages computed, if shared
	tail    [PageSize]int32 // tokens after path, as far as computed
	Private bool            // the sequence finds nothing of others, and leaves nothing
}

// entry is a place of a table.
type entry struct {
	page  int32 // negative for none
	index int32 // of the page in the sequence: position/PageSize
}

// Len returns the number of positions stored.
func (s *Sequence) Len() int { return s.length }

// Pages returns the number of the sequence's pages.
func (s *Sequence) Pages() (n int) {
	for _, t := range s.tables {
		for _, e := range t {
			if e.page >= 0 {
				n++
			}
		}
	}
	return n
}

// Page returns the page of position pos in class c, or the sequence's slot or page of rows.
func (s *Sequence) Page(c, pos int) int32 { return s.at(c, pos/PageSize).page }

// Start returns the number of positions in the slot's state before the running step, a multiple of PageSize. A slot
// with the state of no position has any contents.
func (s *Sequence) Start() int { return s.start }

// Droppable returns the number of positions that the sequence can get and lose again.
func (s *Sequence) Droppable() int {
	if s.pool.slot < 0 {
		return math.MaxInt
	}
	return pagesOf(s.length)*PageSize - s.length
}

// Holds reports whether class c still has position pos.
func (s *Sequence) Holds(c, pos int) bool {
	if pos < 0 || pos >= s.length {
		return false
	}
	e := s.at(c, pos/PageSize)
	return e != nil && e.page >= 0 && int(e.index) == pos/PageSize
}

// at returns the place of the i-th page in class c, nil if the table is too short.
func (s *Sequence) at(c, i int) *entry {
	switch s.pool.o.Classes[c].Kind {
	case Ring:
		i %= s.pool.most[c]
	case Slot, Rows:
		i = 0
	}
	if i >= len(s.tables[c]) {
		return nil
	}
	return &s.tables[c][i]
}

// Adopt makes the sequence the longest prefix of tokens left by others, without the last token, and returns its length.
// The sequence must be a prefix of tokens, and stays unchanged if longer. Only sequences of equal salt share.
func (s *Sequence) Adopt(tokens []int32, salt string) int {
	p, root := s.pool, rootOf(salt)
	p.mu.Lock()
	defer p.mu.Unlock()
	if root != s.root {
		s.clear()
		s.root, s.salt = root, salt
	}
	if !s.shares() || len(tokens) == 0 {
		return s.length
	}
	tokens = tokens[:min(len(tokens)-1, p.Longest())]
	path := p.tree.find(nil, root, tokens)
	if n, tail, m := p.tree.start(path, root, tokens); n*PageSize+m > s.length {
		s.attach(path[:n:n], tail, m)
	}
	return s.length
}

// attach gives the sequence the pages of some nodes, and the first m positions of tail. The caller holds the pool's mu.
func (s *Sequence) attach(path []*node, tail *node, m int) {
	if n := len(path); n > 0 {
		path[n-1].users++ // so that the node stays
	}
	p, full, length := s.pool, path, len(path)*PageSize+m
	state := p.tree.countState(path, length)
	if tail != nil {
		path = append(path, tail)
		copy(s.tail[:], tail.tokens[:m])
	}
	n := len(path)
	had := s.tables
	s.tables = make([][]entry, len(had))
	for c, class := range p.o.Classes {
		s.tables[c] = make([]entry, min(n, p.most[c]))
		for i := range s.tables[c] {
			s.tables[c][i].page = -1
		}
		for i, end := p.needed(c, length, state); i < end; i++ {
			e := entry{path[i].pages[c], int32(i)}
			if class.isSingle() {
				e.index = 0
			}
			*s.at(c, i) = e
			p.pages[c][e.page].refs++
		}
	}
	s.leave(had)
	s.path, s.length, s.done, s.start = full, length, length, state*PageSize
	for _, n := range path {
		p.tree.used.MoveToBack(n.place)
	}
}

// leave ends all holds. The caller holds the pool's mu.
func (s *Sequence) leave(tables [][]entry) {
	for c, t := range tables {
		for _, e := range t {
			if e.page >= 0 {
				s.pool.drop(c, e.page)
			}
		}
	}
	if n := len(s.path); n > 0 {
		s.path[n-1].users--
	}
	s.path = nil
}

// clear empties the sequence. The caller holds the pool's mu.
func (s *Sequence) clear() {
	s.leave(s.tables)
	for c := range s.tables {
		s.tables[c] = s.tables[c][:0]
	}
	s.length, s.done, s.start = 0, 0, 0
}

// Free returns all pages. The sequence is empty again; its computed pages stay with the pool while there is room.
func (s *Sequence) Free() {
	s.Mark()
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.clear()
}

// Grow makes room for n more positions, at most a chunk. On ErrFull, ErrBudget among them, nothing has changed.
func (s *Sequence) Grow(n int) error {
	o := &s.pool.o
	if n < 0 || n > o.Chunk {
		return fmt.Errorf("a step of %d positions, at most %d are possible", n, o.Chunk)
	}
	if room := s.pool.Context(); s.length+n > room {
		return fmt.Errorf("%w: %d positions and %d more, of %d", ErrFull, s.length, n, room)
	}
	if room := s.pool.Longest(); s.length+n > room { // even where parts of a prefix are not kept, and more would fit
		return fmt.Errorf("%w: %d positions and %d more, of %d", ErrBudget, s.length, n, room)
	}
	if n == 0 {
		return nil
	}
	if err := s.extend(s.length+n, true); err != nil {
		return err
	}
	s.length += n
	return nil
}

// Reserve takes the pages for n positions in all, and reports whether there are so many. If not, nothing has changed.
func (s *Sequence) Reserve(n int) bool { return n <= s.pool.Longest() && s.extend(n, false) == nil }

// extend takes the pages needed for n positions. With write, the pages of positions from length on become the
// sequence's own.
func (s *Sequence) extend(n int, write bool) error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		clear(p.need)
		for c := range p.need {
			for i, end := p.span(c, s.length, n); i < end; i++ {
				if s.at(c, i).isMissing(p.pages[c], write && s.writes(c, n)) {
					p.need[c]++
				}
			}
		}
		if p.fits(p.need) {
			break
		}
		if !p.tree.evict() && !(write && s.steal(n)) {
			return fmt.Errorf("%w: no page is free", ErrBudget)
		}
	}
	for c := range s.tables {
		for i, end := p.span(c, s.length, n); i < end; i++ {
			if err := s.place(c, i, write && s.writes(c, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writes reports whether a step up to n positions writes to pages of class c: to a slot where the state begins, and
// where a page of rows is added.
func (s *Sequence) writes(c, n int) bool {
	return s.pool.o.Classes[c].Kind != Slot || s.length == 0 || n > s.start+PageSize
}

// span returns the pages of class c, from and to, needed for n positions after length.
func (p *Pool) span(c, length, n int) (int, int) {
	from := length / PageSize
	switch class := p.o.Classes[c]; {
	case class.isSingle():
		return 0, min(n, 1)
	case class.Kind == Start:
		return from, min(pagesOf(n), 1)
	}
	return from, min(pagesOf(n), from+p.most[c])
}

// isMissing reports whether a page must be taken for e, perhaps nil: e has no page, or its page has another holder and
// is about to be written.
func (e *entry) isMissing(pages []page, write bool) bool {
	return e == nil || e.page < 0 || write && pages[e.page].refs > 1
}

// place takes the i-th page of class c if missing.
func (s *Sequence) place(c, i int, write bool) error {
	p, e := s.pool, s.at(c, i)
	if !e.isMissing(p.pages[c], write) {
		if write {
			e.index = int32(i)
		}
		return nil
	}
	if e == nil {
		s.tables[c] = append(s.tables[c], entry{-1, -1})
		e = s.at(c, i)
	}
	id := p.take(c)
	if e.page >= 0 {
		if int(e.index) == i && i*PageSize < s.length {
			if err := p.memory.Copy(c, e.page, id); err != nil {
				p.drop(c, id)
				return err
			}
		}
		p.drop(c, e.page)
	}
	*e = entry{id, int32(i)}
	return nil
}

// steal takes pages held only by the pool's nodes and this sequence, and about to be overwritten. It returns false if
// there is none.
func (s *Sequence) steal(n int) (stole bool) {
	p := s.pool
	for c, class := range p.o.Classes {
		for i, end := p.span(c, s.length, n); i < end && !class.Kind.isLasting() && s.writes(c, n); i++ {
			e := s.at(c, i)
			if e == nil || e.page < 0 {
				continue
			}
			if x := p.pages[c][e.page]; x.refs == 2 && x.node != nil {
				p.tree.lose(x.node, c)
				stole = true
			}
		}
	}
	return stole
}

// Commit reports that steps have computed the positions of all these tokens, the sequence's first. Other sequences then
// find full pages.
func (s *Sequence) Commit(tokens []int32) {
	p := s.pool
	tokens = tokens[:min(len(tokens), s.length)]
	tokens = tokens[min(len(tokens), s.done):]
	p.mu.Lock()
	defer p.mu.Unlock()
	if done := s.done + len(tokens); p.slot >= 0 && done > 0 {
		s.start = max(s.start, (done-1)/PageSize*PageSize)
	}
	if !s.shares() {
		s.done += len(tokens)
		return
	}
	for len(tokens) > 0 {
		n := copy(s.tail[s.done%PageSize:], tokens)
		tokens = tokens[n:]
		if s.done += n; s.done%PageSize == 0 {
			s.publish()
		}
	}
	if i := s.start/PageSize - 1; p.slot >= 0 && i >= 0 && s.path[i].pages[p.slot] < 0 {
		p.tree.keep(s.path[i], p.slot, s.Page(p.slot, 0))
		p.tree.lose(s.path[i], p.rows)
	}
}

// publish puts the last full page into the tree. If there is a page of equal tokens, the sequence takes the older page:
// both have the same bits. The caller holds the pool's mu.
func (s *Sequence) publish() {
	p, i := s.pool, len(s.path)
	parent, k := lastOf(s.path, s.root)
	if parent != nil {
		parent.users--
	}
	n := p.tree.grow(parent, k, s.tail[:], s.salt)
	n.users++
	s.path = append(s.path, n)
	for c, class := range p.o.Classes {
		e := s.at(c, i)
		switch {
		case class.isSingle() || e == nil || e.page < 0 || int(e.index) != i:
		case n.pages[c] < 0:
			p.tree.keep(n, c, e.page)
		case n.pages[c] != e.page:
			p.pages[c][n.pages[c]].refs++
			p.drop(c, e.page)
			e.page = n.pages[c]
		}
	}
	p.tree.outgrown(n)
	p.tree.thin(s.path)
}

// Truncate forgets all positions after the first n, and returns the number left: fewer than n where a ring no longer
// holds the window before position n, or a slot's state has later positions. The sequence then goes back to the last
// page end complete in the pool, or to none. After a failed step, n being the length before, the same holds; a step
// failing behind the state's rows may have changed the state.
func (s *Sequence) Truncate(n int) int {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	n = max(0, n)
	switch {
	case n >= s.length:
		return s.length
	case n == 0 || s.intact(n):
		s.shorten(n)
	default:
		m := p.tree.countUsable(s.path[:min(len(s.path), n/PageSize)])
		s.attach(s.path[:m:m], nil, 0)
	}
	return s.length
}

// intact reports whether each class has the pages needed at position n.
func (s *Sequence) intact(n int) bool {
	p := s.pool
	if p.slot >= 0 && (n < s.start || s.length > s.start+PageSize) {
		return false
	}
	for c, class := range p.o.Classes {
		for i, end := p.needed(c, n, 0); i < end && class.Kind == Ring; i++ {
			if e := s.at(c, i); e.page < 0 || int(e.index) != i {
				return false
			}
		}
	}
	return true
}

// shorten truncates an intact sequence. The sequence's own pages stay its own. The caller holds the pool's mu.
func (s *Sequence) shorten(n int) {
	p := s.pool
	for c, class := range p.o.Classes {
		for i := pagesOf(n); i < pagesOf(s.length) && !class.isSingle(); i++ {
			if e := s.at(c, i); e != nil && int(e.index) == i && e.page >= 0 && p.pages[c][e.page].refs > 1 {
				p.drop(c, e.page)
				e.page = -1
			}
		}
	}
	if full := n / PageSize; full < len(s.path) {
		s.path[len(s.path)-1].users--
		copy(s.tail[:], s.path[full].tokens[:])
		if s.path = s.path[:full]; full > 0 {
			s.path[full-1].users++
		}
	}
	s.length, s.done, s.start = n, min(s.done, n), min(s.start, n)
}

func (s *Sequence) shares() bool { return !s.Private && s.pool.shares() }

// NewSequence returns an empty sequence. The caller must free the sequence.
func (p *Pool) NewSequence() *Sequence {
	return &Sequence{pool: p, root: rootOf(""), tables: make([][]entry, len(p.o.Classes))}
}

// Mark lets others find the computed part of the last page. Call Mark at the end of a prompt: longer prompts start
// there.
func (s *Sequence) Mark() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	p, i, tokens := s.pool, s.done/PageSize, s.tail[:s.done%PageSize]
	if state := s.start / PageSize; !s.shares() || s.done < s.length ||
		p.slot >= 0 && state > 0 && s.path[state-1].pages[p.slot] < 0 {
		return
	}
	if len(tokens) == 0 {
		if p.slot >= 0 && i > 0 && s.start < s.done {
			p.tree.keepRows(s.path[i-1], s.Page(p.rows, 0))
		}
		return
	}
	for c, class := range p.o.Classes {
		e := s.at(c, i)
		if class.Kind == Slot || e == nil {
			continue
		}
		if e.page < 0 || class.Kind != Rows && int(e.index) != i || p.pages[c][e.page].node != nil {
			return // the node is another's, and found by its own tokens
		}
	}
	parent, k := lastOf(s.path, s.root)
	if n, m := p.tree.findTail(s.path[:i:i], s.root, tokens); m == len(tokens) {
		p.tree.used.MoveToBack(n.place)
		return
	}
	n := p.tree.add(parent, k, tokens)
	for c, class := range p.o.Classes {
		if e := s.at(c, i); class.Kind != Slot && e != nil { // the state is the parent's
			p.tree.keep(n, c, e.page)
		}
	}
	p.tree.outgrown(n)
}
