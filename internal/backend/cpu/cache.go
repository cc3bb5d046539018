package cpu

import (
	"sync/atomic"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// KVType is the stored form of keys and values.
type KVType uint8

const (
	KVF16 KVType = iota // rounded to binary16
	KVF32
)

// Bytes returns the size of one element.
func (t KVType) Bytes() int {
	if t == KVF32 {
		return 4
	}
	return 2
}

// cache holds the pages of all classes. A page is one allocation with a part for each store of its class: keys [heads,
// PageSize/KeySlots, dim, KeySlots], in the order of simd.Attention, then values [heads, PageSize, dim]. A slot is one
// allocation with a part for each state, in float32, and a page of rows likewise.
type cache struct {
	b      *Backend
	kv     KVType
	class  map[int]int          // window -> class
	slots  int                  // their class, negative without states; rows are the next one
	offset map[*graph.KV]int    // of a store in its pages, in elements
	states map[*graph.State]int // of a state in its slots, in elements
	rows   map[*graph.State]int // of its rows in their pages, likewise
	size   []int                // of a page of a class, in elements
	pages  [][]page             // [class][page]
	memory arena
	bytes  atomic.Int64
	desks  []desk // by worker
}

// page holds the elements of a page; one of the slices is nil.
type page struct {
	f16 []uint16
	f32 []float32
}

// NewCache implements backend.Backend. Pages are allocated at the first store.
func (b *Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	n := len(pool.Classes())
	c := &cache{b: b, kv: b.o.KV, class: map[int]int{}, slots: -1, offset: map[*graph.KV]int{},
		states: map[*graph.State]int{}, rows: map[*graph.State]int{},
		size: make([]int, n), pages: make([][]page, n), desks: make([]desk, b.o.Threads)}
	for i, class := range pool.Classes() {
		switch class.Kind {
		case kv.Slot:
			c.slots = i
		case kv.Pages, kv.Ring:
			c.class[class.Window] = i
		}
	}
	for _, s := range g.States() {
		c.states[s], c.rows[s] = c.size[c.slots], c.size[c.slots+1]
		c.size[c.slots] += s.Size
		c.size[c.slots+1] += s.Row() * kv.PageSize
	}
	for _, s := range g.KVs() {
		i := c.class[s.Window]
		c.offset[s] = c.size[i]
		c.size[i] += s.Heads * (s.Dim + s.Values()) * kv.PageSize
	}
	pool.Back(c)
	return c, nil
}

// PageBytes implements backend.Cache.
func (c *cache) PageBytes(class int) int64 { return int64(c.size[class] * c.elements(class).Bytes()) }

// Copy implements kv.Memory.
func (c *cache) Copy(class int, from, to int32) error {
	dst, err := c.page(class, to)
	if err != nil {
		return err
	}
	src := &c.pages[class][from]
	copy(dst.f16, src.f16)
	copy(dst.f32, src.f32)
	return nil
}

// Bytes implements backend.Cache.
func (c *cache) Bytes() int64 { return c.bytes.Load() }

// Close implements backend.Cache.
func (c *cache) Close() error {
	c.pages = nil
	return c.memory.close()
}

// ensure makes the pages for the step's rows.
func (c *cache) ensure(s *backend.Step, class int) error {
	for t, seq := range s.Seqs {
		if _, err := c.page(class, seq.Page(class, int(s.Pos[t]))); err != nil {
			return err
		}
	}
	return nil
}

// page returns a page of a class, made at the first store.
func (c *cache) page(class int, id int32) (*page, error) {
	for int(id) >= len(c.pages[class]) {
		c.pages[class] = append(c.pages[class], page{})
	}
	p := &c.pages[class][id]
	if p.f16 != nil || p.f32 != nil {
		return p, nil
	}
	var err error
	if c.elements(class) == KVF32 {
		err = reserve(&c.memory, &p.f32, c.size[class])
	} else {
		err = reserve(&c.memory, &p.f16, c.size[class])
	}
	if err == nil {
		c.bytes.Add(c.PageBytes(class))
	}
	return p, err
}

// elements returns the type of a class's elements.
func (c *cache) elements(class int) KVType {
	if c.slots >= 0 && (class == c.slots || class == c.slots+1) {
		return KVF32
	}
	return c.kv
}

// begin makes the slots and the pages of rows of some sequences.
func (c *cache) begin(seqs ...*kv.Sequence) error {
	if c.slots < 0 {
		return nil
	}
	for i, seq := range seqs {
		if i > 0 && seq == seqs[i-1] {
			continue
		}
		for class := c.slots; class <= c.slots+1; class++ {
			if _, err := c.page(class, seq.Page(class, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// state returns seq's part of s, [Size], and its rows, of each of State.Rows [Count, PageSize, Size]. A node reads and
// writes both in place. Threads may divide the elements.
func (c *cache) state(s *graph.State, seq *kv.Sequence) (state, rows []float32) {
	state = c.pages[c.slots][seq.Page(c.slots, 0)].f32[c.states[s]:][:s.Size]
	rows = c.pages[c.slots+1][seq.Page(c.slots+1, 0)].f32[c.rows[s]:][:s.Row()*kv.PageSize]
	return state, rows
}

// locate returns the page of position pos, and the places of the keys and the values of head h of store s in the page.
func (c *cache) locate(s *graph.KV, seq *kv.Sequence, pos, h int) (p *page, keys, values int) {
	class := c.class[s.Window]
	p = &c.pages[class][seq.Page(class, pos)]
	at := c.offset[s]
	return p, at + h*kv.PageSize*s.Dim, at + kv.PageSize*(s.Heads*s.Dim+h*s.Values())
}

// store writes a key and a value of head h.
func (c *cache) store(s *graph.KV, seq *kv.Sequence, pos, h int, key, value []float32) {
	p, k, v := c.locate(s, seq, pos, h)
	slot := pos % kv.PageSize
	k, v = k+slot/simd.KeySlots*simd.KeySlots*s.Dim+slot%simd.KeySlots, v+slot*s.Values()
	if c.kv == KVF32 {
		spread(p.f32[k:], key)
		copy(p.f32[v:v+s.Values()], value)
		return
	}
	var some [256]uint16
	for i := 0; i < len(key); i += len(some) {
		n := min(len(some), len(key)-i)
		simd.StoreF16(some[:n], key[i:i+n])
		spread(p.f16[k+i*simd.KeySlots:], some[:n])
	}
	simd.StoreF16(p.f16[v:v+s.Values()], value)
}

// spread writes a key between those of its neighbours.
func spread[T any](dst, key []T) {
	for i, x := range key {
		dst[i*simd.KeySlots] = x
	}
}

// load returns the keys and values of head h from position pos on, the first of a page, for n positions at least.
func (c *cache) load(d *desk, s *graph.KV, seq *kv.Sequence, pos, n, h int) (k, v []float32) {
	p, keys, values := c.locate(s, seq, pos, h)
	size, wide := kv.PageSize*s.Dim, kv.PageSize*s.Values()
	if c.kv == KVF32 {
		return p.f32[keys : keys+size], p.f32[values : values+wide]
	}
	tiles := (n + simd.KeySlots - 1) &^ (simd.KeySlots - 1) * s.Dim
	simd.LoadF16(d.k[:tiles], p.f16[keys:keys+tiles])
	simd.LoadF16(d.v[:n*s.Values()], p.f16[values:values+n*s.Values()])
	return d.k[:size], d.v[:wide]
}
