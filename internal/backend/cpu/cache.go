package cpu

import (
	"sync/atomic"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
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
// for each store of its class: keys [heads, PageSize, dim], then values.
type cache struct {
	kv     KVType
	class  map[int]int       // window -> class
	offset map[*graph.KV]int // of a store in its pages, in elements
	size   []int             // of a page of a class, in elements
	pages  [][]page          // [class][page]
	bytes  atomic.Int64
}

// page is the elements of one page; one of the slices is nil.
type page struct {
	f16 []uint16
	f32 []float32
}

// NewCache implements backend.Backend. Pages are allocated when they are first
// stored to.
func (b *Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	c := &cache{kv: b.o.KV, class: map[int]int{}, offset: map[*graph.KV]int{},
		size: make([]int, pool.Classes()), pages: make([][]page, pool.Classes())}
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
	return nil
}

// ensure makes the pages that the step's rows are stored to.
func (c *cache) ensure(s *backend.Step, class int) {
	for t, seq := range s.Seqs {
		id := int(seq.Page(class, int(s.Pos[t])))
		for id >= len(c.pages[class]) {
			c.pages[class] = append(c.pages[class], page{})
		}
		p := &c.pages[class][id]
		if p.f16 != nil || p.f32 != nil {
			continue
		}
		if c.kv == KVF32 {
			p.f32 = make([]float32, c.size[class])
		} else {
			p.f16 = make([]uint16, c.size[class])
		}
		c.bytes.Add(int64(c.size[class] * c.kv.Bytes()))
	}
}

// locate is the page of position pos, and where in it the keys of head h of
// store s start; the values start span further on.
func (c *cache) locate(s *graph.KV, seq *kv.Sequence, pos, h int) (p *page, at, span int) {
	class := c.class[s.Window]
	p = &c.pages[class][seq.Page(class, pos)]
	return p, c.offset[s] + (h*kv.PageSize+pos%kv.PageSize)*s.Dim, s.Heads * kv.PageSize * s.Dim
}
