package kv

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// key names a page's tokens, all tokens before, and so its positions: the SHA-256 of the key before and of 64 token ids
// of 4 bytes each.
type key [sha256.Size]byte

// rootOf returns the key before the first page. Sequences of different salts share nothing.
func rootOf(salt string) key { return sha256.Sum256([]byte("karat kv\x00" + salt)) }

// next returns the key of the page after k's with these tokens.
func (k key) next(tokens []int32) key {
	var b [sha256.Size + 4*PageSize]byte
	copy(b[:], k[:])
	for i, id := range tokens[:PageSize] {
		binary.LittleEndian.PutUint32(b[sha256.Size+4*i:], uint32(id))
	}
	return sha256.Sum256(b[:])
}

// node is a computed page, in all classes: the page itself in classes of full layers, the same or none in a ring's, and
// in the slots' a snapshot of the state after the page or none. A page not full is a tail, with its page in the class
// of rows, and without followers (tail.go). A node's parent exists as long as the node.
type node struct {
	key      key // of a full page
	under    key // its parent's, or the root
	salt     string
	parent   *node // nil before the first page
	children int
	users    int             // sequences with this as last full page
	size     int             // of tokens
	tokens   [PageSize]int32 // the first size tokens
	pages    []int32         // by class, negative for none
	place    *list.Element   // in Pool.used
}

// tree has the nodes of a pool. Its callers hold the pool's mu.
type tree struct {
	pool      *Pool
	nodes     map[key]*node   // of full pages
	followers map[key][]*node // by the key before, tails included
	used      list.List       // of *node, the least recently used first
}

// grow returns the node of a full page after parent with these tokens, made if there is none.
func (t *tree) grow(parent *node, under key, tokens []int32, salt string) *node {
	k := under.next(tokens)
	n := t.nodes[k]
	if n != nil {
		t.used.MoveToBack(n.place)
		return n
	}
	n = t.add(parent, under, tokens)
	n.key, n.salt = k, salt
	t.nodes[k] = n
	t.pool.tell(n, n.tokens[:])
	return n
}

// add makes a node behind parent, without pages.
func (t *tree) add(parent *node, under key, tokens []int32) *node {
	n := &node{under: under, parent: parent, size: len(tokens), pages: make([]int32, len(t.pool.o.Classes))}
	copy(n.tokens[:], tokens)
	for c := range n.pages {
		n.pages[c] = -1
	}
	if parent != nil {
		parent.children++
	}
	n.place = t.used.PushBack(n)
	t.followers[under] = append(t.followers[under], n)
	return n
}

// remove gives up n, without followers and users.
func (t *tree) remove(n *node) {
	for c := range n.pages {
		t.lose(n, c)
	}
	t.used.Remove(n.place)
	if n.size == PageSize {
		delete(t.nodes, n.key)
		t.pool.tell(n, nil)
	}
	all := t.followers[n.under]
	i, last := slices.Index(all, n), len(all)-1
	all[i], all[last] = all[last], nil
	if t.followers[n.under] = all[:last]; last == 0 {
		delete(t.followers, n.under)
	}
	if n.parent != nil {
		n.parent.children--
	}
}

// keep gives n a page of class c, and adds a hold to the page.
func (t *tree) keep(n *node, c int, id int32) {
	n.pages[c] = id
	t.pool.pages[c][id].node = n
	t.pool.pages[c][id].refs++
}

// keepRows gives the node of a full page its page of rows, unless there is a snapshot.
func (t *tree) keepRows(n *node, id int32) {
	if p := t.pool; n.pages[p.slot] < 0 && n.pages[p.rows] < 0 && p.pages[p.rows][id].node == nil {
		t.keep(n, p.rows, id)
	}
}

// lose takes n's page of class c away, if any.
func (t *tree) lose(n *node, c int) {
	if id := n.pages[c]; id >= 0 {
		n.pages[c] = -1
		t.pool.pages[c][id].node = nil
		t.pool.drop(c, id)
	}
}

// evict gives up the least recently used node without users: all of a leaf; of a node with followers, only the pages
// for starts at the node. It returns false if there is none.
func (t *tree) evict() bool {
	for e := t.used.Front(); e != nil; e = e.Next() {
		n := e.Value.(*node)
		if n.children == 0 && n.users == 0 {
			t.remove(n)
			return true
		}
		lost := false
		for c, class := range t.pool.o.Classes {
			if id := n.pages[c]; id >= 0 && !class.Kind.isLasting() && t.pool.pages[c][id].refs == 1 {
				t.lose(n, c)
				lost = true
			}
		}
		if lost {
			return true
		}
	}
	return false
}

// find appends to path the nodes of tokens' full pages.
func (t *tree) find(path []*node, k key, tokens []int32) []*node {
	for ; len(tokens) >= PageSize; tokens = tokens[PageSize:] {
		k = k.next(tokens)
		n := t.nodes[k]
		if n == nil {
			break
		}
		path = append(path, n)
	}
	return path
}

// countUsable returns the number of path's nodes from which a sequence can start: the maximum for which rings have the
// window before, and slots a snapshot.
func (t *tree) countUsable(path []*node) int {
	for n := len(path); n > 0; n-- {
		if t.serves(path[:n], n*PageSize) {
			return n
		}
	}
	return 0
}

// serves reports whether path has the pages needed by a sequence starting at a position of its last page, or at its
// end.
func (t *tree) serves(path []*node, at int) bool {
	state := t.countState(path, at)
	for c, class := range t.pool.o.Classes {
		for j, end := t.pool.needed(c, at, state); j < end && !class.Kind.isLasting(); j++ {
			if path[j].pages[c] < 0 {
				return false
			}
		}
	}
	return true
}

// countState returns the number of path's pages in the state of a sequence starting at a position of its last page, or
// at its end: at the end of a page without a snapshot the rows may be there.
func (t *tree) countState(path []*node, at int) int {
	n, slot := at/PageSize, t.pool.slot
	if slot >= 0 && n > 0 && at%PageSize == 0 && path[n-1].pages[slot] < 0 {
		n--
	}
	return n
}

// needed returns the pages of class c, from and to, needed at position n; for slots, the last snapshot, of so many
// pages.
func (p *Pool) needed(c, n, state int) (from, to int) {
	switch class := p.o.Classes[c]; class.Kind {
	case Ring:
		if class.Window < n {
			from = (n - class.Window + 1) / PageSize
		}
	case Slot:
		return max(0, state-1), state
	case Rows:
		from = state
	case Start:
		return 0, min(1, pagesOf(n))
	}
	return from, pagesOf(n)
}

// thin gives up rings' pages and snapshots of a path that has just become longer, so that few are left: close to each
// other near its end, and ever further apart before. A sequence parting from the path computes again at most two thirds
// of the later positions, and a block. Where sequences have parted all stays.
//
// Pages go by blocks, each as large as the largest window. At n blocks, the end of the b-th is kept while n-b is at
// most four times the largest power of two that divides b.
func (t *tree) thin(path []*node) {
	if len(path)%t.pool.block != 0 {
		return
	}
	last := len(path) / t.pool.block
	for step := 1; 4*step < last; step *= 2 {
		if b := last - 4*step; b&-b == step {
			t.forget(path, b, true)
		}
	}
	if last > 2 {
		t.forget(path, last-2, false)
	}
}

// forget gives up the pages for starts within the b-th block of a path, and with end for a start at its end.
func (t *tree) forget(path []*node, b int, end bool) {
	for c, class := range t.pool.o.Classes {
		to := b * t.pool.block
		if !end {
			to -= t.pool.window[c]
		}
		for j := (b - 1) * t.pool.block; j < to && !class.Kind.isLasting(); j++ {
			parted := func(n *node) bool { return n.children > 1 }
			if !slices.ContainsFunc(path[j:min(j+t.pool.window[c], len(path))], parted) {
				t.lose(path[j], c)
			}
		}
	}
}
