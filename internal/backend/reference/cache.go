package reference

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// cache holds float64 keys and values, a store for each writing layer, and float64 states.
type cache struct {
	stores map[storePlace]*store
	states map[*graph.State]*states
	class  int // of the slots; their rows are the next one
}

// storePlace tells stores apart, whatever their windows.
type storePlace struct {
	layer int
	index bool
}

func placeOf(k *graph.KV) storePlace { return storePlace{k.Layer, k.Index} }

// states are the places of a state.
type states struct {
	size  int // of the state
	width int // of a row of the node's inputs
	slots map[int32][]float64
	pages map[int32]*replay
}

// replay is the inputs of a page's rows, and the state before position at.
type replay struct {
	rows  []float64 // [PageSize, width]
	state []float64
	at    int
}

// store is a layer's keys and values, [slot, heads·dim], a slot being page·PageSize + position in the page.
type store struct {
	class int // of the pool
	width int // heads·dim of keys
	wide  int // and of values
	k, v  []float64
}

// NewCache implements backend.Backend.
func (b Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	if b.Edits != nil {
		h := &histories{b, Of(g), Rounds(b.Class), map[*kv.Sequence]*Eval{}}
		pool.Back(h)
		return h, nil
	}
	c := &cache{map[storePlace]*store{}, map[*graph.State]*states{},
		slices.Index(pool.Classes(), kv.Class{Kind: kv.Slot})}
	for _, n := range g.Nodes {
		if n.State == nil {
			continue
		}
		s := &states{n.State.Size, 0, map[int32][]float64{}, map[int32]*replay{}}
		for _, x := range n.In {
			s.width += x.Shape.Size()
		}
		c.states[n.State] = s
	}
	for _, s := range g.KVs() {
		if c.stores[placeOf(s)] != nil {
			return nil, fmt.Errorf("two stores of layer %d", s.Layer)
		}
		c.stores[placeOf(s)] = &store{class: slices.Index(pool.Classes(), backend.ClassOf(s)),
			width: s.Heads * s.Dim, wide: s.Heads * s.Values()}
	}
	pool.Back(c)
	return c, nil
}

// PageBytes implements backend.Cache.
func (c *cache) PageBytes(class int) (n int64) {
	for _, s := range c.stores {
		if s.class == class {
			n += 8 * int64(s.width+s.wide) * kv.PageSize
		}
	}
	for _, s := range c.states {
		switch class {
		case c.class:
			n += 8 * int64(s.size)
		case c.class + 1:
			n += 8 * int64(s.width*kv.PageSize+s.size)
		}
	}
	return n
}

// Copy implements kv.Memory.
func (c *cache) Copy(class int, from, to int32) error {
	for _, s := range c.stores {
		if s.class != class {
			continue
		}
		for i := range kv.PageSize {
			at := int(from)*kv.PageSize + i
			s.reach(at)
			s.put(int(to)*kv.PageSize+i, s.k[at*s.width:][:s.width], s.v[at*s.wide:][:s.wide])
		}
	}
	for _, s := range c.states {
		switch class {
		case c.class:
			copy(s.slot(to), s.slot(from))
		case c.class + 1:
			dst, src := s.page(to), s.page(from)
			copy(dst.rows, src.rows)
			copy(dst.state, src.state)
			dst.at = src.at
		}
	}
	return nil
}

func (c *cache) Close() error { return nil }

func (c *cache) Bytes() int64 {
	var n int
	for _, s := range c.stores {
		n += 8 * (len(s.k) + len(s.v))
	}
	for _, s := range c.states {
		n += 8 * (s.size*len(s.slots) + (s.width*kv.PageSize+s.size)*len(s.pages))
	}
	return int64(n)
}

// slot returns the state in a slot.
func (s *states) slot(id int32) []float64 {
	if s.slots[id] == nil {
		s.slots[id] = make([]float64, s.size)
	}
	return s.slots[id]
}

// page returns a page of rows.
func (s *states) page(id int32) *replay {
	if s.pages[id] == nil {
		s.pages[id] = &replay{make([]float64, kv.PageSize*s.width), make([]float64, s.size), 0}
	}
	return s.pages[id]
}

// find returns the store of k, whatever the window.
func (c *cache) find(k *graph.KV) (*store, error) {
	s := c.stores[placeOf(k)]
	switch {
	case s == nil:
		return nil, fmt.Errorf("layer %d stores no keys and values", k.Layer)
	case s.width != k.Heads*k.Dim || s.wide != k.Heads*k.Values():
		return nil, fmt.Errorf("%d heads of %d, layer %d stores %d keys", k.Heads, k.Dim, k.Layer, s.width)
	}
	return s, nil
}

// slot returns where position pos of a sequence lies.
func (s *store) slot(q *kv.Sequence, pos int) int {
	return int(q.Page(s.class, pos))*kv.PageSize + pos%kv.PageSize
}

// reach makes s long enough for a slot.
func (s *store) reach(slot int) {
	if short := (slot+1)*s.width - len(s.k); short > 0 {
		s.k = append(s.k, make([]float64, short)...)
	}
	if short := (slot+1)*s.wide - len(s.v); short > 0 {
		s.v = append(s.v, make([]float64, short)...)
	}
}

// put stores keys and values, [heads·dim] each.
func (s *store) put(slot int, key, val []float64) {
	s.reach(slot)
	copy(s.k[slot*s.width:], key)
	copy(s.v[slot*s.wide:], val)
}
