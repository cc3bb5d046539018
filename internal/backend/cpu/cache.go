package cpu

import (
	"sync/atomic"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// KVType is how keys and values are kept.
type KVType uint8

const (
	KVF16 KVType = iota // rounded to binary16
	KVF32
)

// Bytes is the size of one element.
func (t KVType) Bytes() int {
	if t == KVF32 {
		return 4
	}
	return 2
}

// cache holds the pages of all classes. A page is one allocation with a part
// for each store of its class: keys [heads, PageSize/KeySlots, dim, KeySlots],
// as simd.Attention reads them, then values [heads, PageSize, dim].
type cache struct {
	b      *Backend
	kv     KVType
	class  map[int]int       // window -> class
	offset map[*graph.KV]int // of a store in its pages, in elements
	size   []int             // of a page of a class, in elements
	pages  [][]page          // [class][page]
	memory arena
	bytes  atomic.Int64
	desks  []desk // by worker
}

// page is the elements of one page; one of the slices is nil.
type page struct {
	f16 []uint16
	f32 []float32
}

// NewCache implements backend.Backend. Pages are allocated when they are first
// stored to.
func (b *Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	c := &cache{b: b, kv: b.o.KV, class: map[int]int{}, offset: map[*graph.KV]int{},
		size: make([]int, pool.Classes()), pages: make([][]page, pool.Classes()), desks: make([]desk, b.o.Threads)}
	for i := range pool.Classes() {
		c.class[pool.Window(i)] = i
	}
	for _, s := range g.KVs() {
		i := c.class[s.Window]
		c.offset[s] = c.size[i]
		c.size[i] += 2 * s.Heads * s.Dim * kv.PageSize
	}
	return c, nil
}

// Bytes implements backend.Cache.
func (c *cache) Bytes() int64 { return c.bytes.Load() }

// Close implements backend.Cache.
func (c *cache) Close() error {
	c.pages = nil
	return c.memory.close()
}

// ensure makes the pages that the step's rows are stored to.
func (c *cache) ensure(s *backend.Step, class int) error {
	for t, seq := range s.Seqs {
		id := int(seq.Page(class, int(s.Pos[t])))
		for id >= len(c.pages[class]) {
			c.pages[class] = append(c.pages[class], page{})
		}
		p := &c.pages[class][id]
		if p.f16 != nil || p.f32 != nil {
			continue
		}
		var err error
		if c.kv == KVF32 {
			err = reserve(&c.memory, &p.f32, c.size[class])
		} else {
			err = reserve(&c.memory, &p.f16, c.size[class])
		}
		if err != nil {
			return err
		}
		c.bytes.Add(int64(c.size[class] * c.kv.Bytes()))
	}
	return nil
}

// locate is the page of position pos, and where in it the keys of head h of
// store s start; the values start span further on.
func (c *cache) locate(s *graph.KV, seq *kv.Sequence, pos, h int) (p *page, at, span int) {
	class := c.class[s.Window]
	p = &c.pages[class][seq.Page(class, pos)]
	return p, c.offset[s] + h*kv.PageSize*s.Dim, s.Heads * kv.PageSize * s.Dim
}

// store writes a key and a value of head h.
func (c *cache) store(s *graph.KV, seq *kv.Sequence, pos, h int, key, value []float32) {
	p, at, span := c.locate(s, seq, pos, h)
	slot := pos % kv.PageSize
	k, v := at+slot/simd.KeySlots*simd.KeySlots*s.Dim+slot%simd.KeySlots, at+span+slot*s.Dim
	if c.kv == KVF32 {
		spread(p.f32[k:], key)
		copy(p.f32[v:v+s.Dim], value)
		return
	}
	simd.StoreF16(p.f16[v:v+s.Dim], key) // on the way
	spread(p.f16[k:], p.f16[v:v+s.Dim])
	simd.StoreF16(p.f16[v:v+s.Dim], value)
}

// spread writes a key between those of its neighbours.
func spread[T any](dst, key []T) {
	for i, x := range key {
		dst[i*simd.KeySlots] = x
	}
}

// load is the keys and values of head h from position pos on, the first of a
// page, for n positions at least.
func (c *cache) load(d *desk, s *graph.KV, seq *kv.Sequence, pos, n, h int) (k, v []float32) {
	p, at, span := c.locate(s, seq, pos, h)
	size := kv.PageSize * s.Dim
	if c.kv == KVF32 {
		return p.f32[at : at+size], p.f32[at+span : at+span+size]
	}
	tiles := (n + simd.KeySlots - 1) &^ (simd.KeySlots - 1) * s.Dim
	simd.LoadF16(d.k[:tiles], p.f16[at:at+tiles])
	simd.LoadF16(d.v[:n*s.Dim], p.f16[at+span:at+span+n*s.Dim])
	return d.k[:size], d.v[:size]
}
