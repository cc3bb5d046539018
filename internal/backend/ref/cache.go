package ref

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// cache holds float64 keys and values: a store for each layer that writes one.
type cache struct {
	pool   *kv.Pool
	stores map[int]*store // by graph.KV.Layer
}

// store is one layer's keys and values, [slot, heads·dim], a slot being
// page·PageSize + position in it.
type store struct {
	class int // of the pool
	width int // heads·dim
	k, v  []float64
}

// NewCache implements backend.Backend.
func (Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	c := &cache{pool, map[int]*store{}}
	windows := backend.Windows(g)
	for _, s := range g.KVs() {
		if c.stores[s.Layer] != nil {
			return nil, fmt.Errorf("ref: two stores of layer %d", s.Layer)
		}
		c.stores[s.Layer] = &store{class: slices.Index(windows, s.Window), width: s.Heads * s.Dim}
	}
	return c, nil
}

func (c *cache) Close() error { return nil }

func (c *cache) Bytes() int64 {
	var n int
	for _, s := range c.stores {
		n += 8 * (len(s.k) + len(s.v))
	}
	return int64(n)
}

// find returns the store of k, which is that of k.Layer whatever window k says.
func (c *cache) find(k *graph.KV) (*store, error) {
	s := c.stores[k.Layer]
	switch {
	case s == nil:
		return nil, fmt.Errorf("layer %d stores no keys and values", k.Layer)
	case s.width != k.Heads*k.Dim:
		return nil, fmt.Errorf("%d heads of %d, layer %d stores %d keys", k.Heads, k.Dim, k.Layer, s.width)
	}
	return s, nil
}

// slot is where position pos of a sequence lies.
func (s *store) slot(q *kv.Sequence, pos int) int {
	return int(q.Page(s.class, pos))*kv.PageSize + pos%kv.PageSize
}

// held reports whether s still holds what was stored at pos of q: a ring keeps
// as many positions as its window and one step need.
func (c *cache) held(s *store, q *kv.Sequence, pos int) bool {
	end := (q.Len() + kv.PageSize - 1) / kv.PageSize * kv.PageSize
	return pos >= end-c.pool.Positions(s.class, q.Len()) && pos < q.Len()
}

// reach makes s long enough for a slot.
func (s *store) reach(slot int) {
	if short := (slot+1)*s.width - len(s.k); short > 0 {
		s.k = append(s.k, make([]float64, short)...)
		s.v = append(s.v, make([]float64, short)...)
	}
}

// put stores a key and a value, both [heads·dim].
func (s *store) put(slot int, key, val []float64) {
	s.reach(slot)
	copy(s.k[slot*s.width:], key)
	copy(s.v[slot*s.width:], val)
}
