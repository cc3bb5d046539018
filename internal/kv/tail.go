package kv

import (
	"slices"
)

// Prompts seldom end where a page does. Others can also start inside a page: from the first positions of a full page
// with tokens beginning equally, or from the part of a page left by a sequence (Mark), a node of fewer tokens: a tail.
// Rows after a state are kept in tails alone. A sequence going on from there writes into a copy.

// countCommon returns the number of n's first tokens equal to the given tokens.
func (n *node) countCommon(tokens []int32) int {
	m := min(n.size, len(tokens))
	for i, id := range tokens[:m] {
		if n.tokens[i] != id {
			return i
		}
	}
	return m
}

// lastOf returns the last of path, and the key of nodes after path.
func lastOf(path []*node, root key) (*node, key) {
	if n := len(path); n > 0 {
		return path[n-1], path[n-1].key
	}
	return nil, root
}

// start returns the number of path's nodes from which a sequence of these tokens can start, and the number of positions
// of the page after the nodes, in tail; nil for none.
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

// findTail returns the node after path with the most positions of these tokens, without a whole page.
func (t *tree) findTail(path []*node, root key, tokens []int32) (best *node, m int) {
	_, k := lastOf(path, root)
	for _, n := range t.followers[k] {
		same := n.countCommon(tokens)
		if same > m && same < PageSize && t.serves(append(path, n), len(path)*PageSize+same) {
			best, m = n, same
		}
	}
	return best, m
}

// outgrown removes tails replaceable by n.
func (t *tree) outgrown(n *node) {
	if slices.ContainsFunc(t.pool.o.Classes, func(c Class) bool { return !c.Kind.isLasting() }) {
		return // n may lose the tail's positions
	}
	for _, x := range slices.Clone(t.followers[n.under]) {
		if x.size < n.size && x.countCommon(n.tokens[:n.size]) == x.size {
			t.remove(x)
		}
	}
}
