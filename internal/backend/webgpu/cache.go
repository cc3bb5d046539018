package webgpu

import (
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// cache holds the keys and values of all stores, and the tables that tell a step's
// rows their slots. A slot is page·PageSize + position in the page.
type cache struct {
	b      *Backend
	class  map[int]int // window -> class of the pool
	stores map[*graph.KV]*store
	tables [extents][]gpu.Buffer // by class
	parts  gpu.Buffer            // what attention makes of pages, nil until it is divided
	grown  int                   // counts the buffers that were replaced: groups of them are stale
}

// store is one layer's keys and values, [slot, words] each.
type store struct {
	kv           *graph.KV
	class        int
	words        int // of a slot
	pages        int // that there is room for
	keys, values gpu.Buffer
}

// NewCache implements backend.Backend. There is no room until something is stored.
func (b *Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	c := &cache{b: b, class: map[int]int{}, stores: map[*graph.KV]*store{}}
	for x := range c.tables {
		c.tables[x] = make([]gpu.Buffer, pool.Classes())
	}
	for i := range pool.Classes() {
		c.class[pool.Window(i)] = i
	}
	for _, s := range g.KVs() {
		words := s.Heads * s.Dim
		if !b.o.F32KV {
			words = (words + 1) / 2
		}
		c.stores[s] = &store{kv: s, class: c.class[s.Window], words: words}
	}
	return c, nil
}

// Bytes implements backend.Cache.
func (c *cache) Bytes() (n int64) {
	for _, s := range c.stores {
		n += 2 * int64(s.bytes(s.pages))
	}
	return n
}

// bytes of the keys, or the values, of some pages.
func (s *store) bytes(pages int) int { return 4 * s.words * kv.PageSize * pages }

// Close implements backend.Cache.
func (c *cache) Close() error {
	c.b.busy.Lock()
	defer c.b.busy.Unlock()
	for _, s := range c.stores {
		c.b.release(s.keys, s.values)
	}
	for _, tables := range c.tables {
		c.b.release(tables...)
	}
	c.b.release(c.parts)
	c.stores, c.tables, c.parts = nil, [extents][]gpu.Buffer{}, nil
	return nil
}

// reserve makes room for what a step stores, and for what so many steps from it on do.
func (c *cache) reserve(s [extents]*backend.Step, steps int, splits []*split) error {
	if c.stores == nil {
		return errors.New("the cache is closed")
	}
	if err := c.store(s[every], steps); err != nil {
		return err
	}
	for x := range told(s) {
		for class, b := range c.tables[x] {
			size := 0
			for i := range steps { // the last one's window may begin on a later page, and have fewer
				size = max(size, len(c.table(further(s[x], i), class)))
			}
			if size == 0 || b != nil && b.Size() >= size {
				continue
			}
			made, err := c.b.empty("page table", 2*size)
			if err != nil {
				return err
			}
			c.b.release(b)
			c.tables[x][class] = made
			c.grown++
		}
	}
	return c.divide(s, steps, splits)
}

// store makes room for keys and values.
func (c *cache) store(s *backend.Step, steps int) error {
	for class := range c.tables[every] {
		pages := 0
		for t, seq := range s.Seqs {
			for at := int(s.Pos[t]); at < int(s.Pos[t])+steps; at++ {
				pages = max(pages, int(seq.Page(class, at))+1)
			}
		}
		for _, store := range c.stores {
			if store.class == class && pages > store.pages {
				if err := c.grow(store, pages); err != nil {
					return fmt.Errorf("keys and values of layer %d: %w", store.kv.Layer, err)
				}
			}
		}
	}
	return nil
}

// told is the extents of a step that have tables: where all rows are wanted, one.
func told(s [extents]*backend.Step) int {
	if s[every] == s[wanted] {
		return int(wanted)
	}
	return int(extents)
}

// tell records that a step's rows are told their slots.
func (c *cache) tell(l *gpu.List, s [extents]*backend.Step) {
	for x := range told(s) {
		for class, b := range c.tables[x] {
			l.Write(b, 0, c.table(s[x], class))
		}
	}
}

// divide makes room for what attention makes where it is divided, in so many steps from s on.
func (c *cache) divide(s [extents]*backend.Step, steps int, splits []*split) error {
	most := 0
	for i := range steps {
		at := parts(further(s[every], i))
		for _, x := range splits {
			bytes, _ := x.of(at)
			most = max(most, bytes)
		}
	}
	if most == 0 || c.parts != nil && c.parts.Size() >= most {
		return nil
	}
	made, err := c.b.empty("parts of attention", min(2*most, c.b.limit))
	if err != nil {
		return err
	}
	c.b.release(c.parts)
	c.parts = made
	c.grown++
	return nil
}

// grow gives a store room for n pages, and for as many again as it has, if they fit.
func (c *cache) grow(s *store, n int) error {
	n = max(n, min(2*s.pages, c.b.limit/s.bytes(1)))
	for _, p := range []*gpu.Buffer{&s.keys, &s.values} {
		made, err := c.b.empty("keys and values", s.bytes(n))
		if err != nil {
			return err
		}
		if old := *p; old != nil {
			var move gpu.List
			move.Copy(made, 0, old, 0, s.bytes(s.pages))
			if err := c.b.d.gpu.Run(&move); err != nil {
				return err
			}
			c.b.release(old)
		}
		*p = made
	}
	s.pages = n
	c.grown++
	return nil
}

// table is the table of a class: four words for each row, its slot, where its
// pages are listed here, which page of its sequence is the first of these, and its
// position; then the lists, one for each run of rows of a sequence.
func (c *cache) table(s *backend.Step, class int) []byte {
	var window int
	for w, i := range c.class {
		if i == class {
			window = w
		}
	}
	words := make([]uint32, 4*len(s.Seqs))
	var listed, first int
	for t, seq := range s.Seqs {
		pos := int(s.Pos[t])
		if t == 0 || seq != s.Seqs[t-1] {
			listed, first = len(words), 0
			if window > 0 {
				first = max(0, pos-window+1) / kv.PageSize
			}
		}
		for p := first + len(words) - listed; p <= pos/kv.PageSize; p++ {
			words = append(words, uint32(seq.Page(class, p*kv.PageSize)))
		}
		slot := int(seq.Page(class, pos))*kv.PageSize + pos%kv.PageSize
		copy(words[4*t:], []uint32{uint32(slot), uint32(listed), uint32(first), uint32(pos)})
	}
	return bytesIn(words)
}
