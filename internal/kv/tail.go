package kv

import (
	"slices"
)

// Prompts seldom end where a page does. Others can start inside a page, too: from the first positions of a full one
// whose tokens begin as theirs do, or from what a sequence has left of a page that it had begun (Mark), which is a node
// of fewer tokens: a tail. A state is that of one position, so of states there are tails alone. Who goes on from there
// writes into a copy.

// countCommon returns how many of n's first tokens are those given.
func (n *node) countCommon(tokens []int32) int {
	m := min(n.size, len(tokens))
	for i, id := range tokens[:m] {
		if n.tokens[i] != id {
			return i
		}
	}
	return m
}

// lastOf returns the last of path, and the key of what stands on it.
func lastOf(path []*node, root key) (*node, key) {
	if n := len(path); n > 0 {
		return path[n-1], path[n-1].key
	}
	return nil, root
}

// start returns how many of path's nodes a sequence of these tokens can start from, and how many positions of the page
// behind them, which tail has; nil for none.
func (t *tree) start(path []*node, root key, tokens []int32) (n int, tail *node, m int) {
	for n := len(path); ; n-- {
		if tail, m := t.findTail(path[:n:n], root, tokens[n*PageSize:]); m > 0 {
			return n, tail, m
		}
		if n == 0 || t.serves(path[:n], n*PageSize) {
			return n, nil, 0
		}
	}
}

// findTail returns the node behind path with the most positions of these tokens, but for a whole page.
func (t *tree) findTail(path []*node, root key, tokens []int32) (best *node, m int) {
	_, k := lastOf(path, root)
	for _, n := range t.followers[k] {
		same := n.countCommon(tokens)
		if same > m && same < PageSize && (t.pool.slot < 0 || same == n.size) && t.serves(append(path, n),
			len(path)*PageSize+same) {
			best, m = n, same
		}
	}
	return best, m
}

// outgrown removes tails that n serves for as well.
func (t *tree) outgrown(n *node) {
	if slices.ContainsFunc(t.pool.o.Classes, func(c Class) bool { return c.Kind != Pages }) {
		return // n may lose what they have
	}
	for _, x := range slices.Clone(t.followers[n.under]) {
		if x.size < n.size && x.countCommon(n.tokens[:n.size]) == x.size {
			t.remove(x)
		}
	}
}
