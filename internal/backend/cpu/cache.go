package cpu

import (
	"slices"
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
	KVQ8 // binary16, older positions in blocks of 8 bits (backend.IsNarrow)
)

// Bytes returns the size of one element, apart from blocks.
func (t KVType) Bytes() int {
	if t == KVF32 {
		return 4
	}
	return 2
}

// cache holds the pages of all classes. A page is one allocation with a part for each store of its class: keys [heads,
// PageSize/KeySlots, dim, KeySlots], in the order of simd.Attention, then values [heads, PageSize, dim]. Pages of 8
// bits have a simd.Narrow for each head. A slot is one allocation with a part for each state, in float32, and a page of
// rows likewise.
type cache struct {
	b      *Backend
	kv     KVType
	slots  int                  // the class of slots, negative without states; rows are the next one
	stores map[*graph.KV]*store //
	states map[*graph.State]int // of a state in its slots, in elements
	rows   map[*graph.State]int // of its rows in their pages, likewise
	size   []extent             // of a page of a class
	pages  [][]page             // [class][page]
	memory arena
	bytes  atomic.Int64
	desks  []desk // by worker
}

// store is where a store's keys and values lie.
type store struct {
	*graph.KV
	recent place // of all positions, or of the newest
	start  place // of the first page, if apart
	older  place // of pages in 8 bits
	narrow bool  // start, of full layers, and older are in use
}

// place is a class, and the front of a store's part in a page of the class.
type place struct {
	class int
	at    extent
}

// extent counts elements, or scales, and codes of 8 bits.
type extent struct{ elements, codes int }

// page holds the elements of a page, f16 or f32, and codes where f16 is scales.
type page struct {
	f16   []uint16
	f32   []float32
	codes []byte
}

// NewCache implements backend.Backend. Pages are allocated at the first store.
func (b *Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	n := len(pool.Classes())
	c := &cache{b: b, kv: b.o.KV, slots: slices.Index(pool.Classes(), kv.Class{Kind: kv.Slot}),
		stores: map[*graph.KV]*store{}, states: map[*graph.State]int{}, rows: map[*graph.State]int{},
		size: make([]extent, n), pages: make([][]page, n), desks: make([]desk, max(b.o.Threads, b.pool.lanes))}
	for _, s := range g.States() {
		slot, rows := &c.size[c.slots].elements, &c.size[c.slots+1].elements
		c.states[s], c.rows[s] = *slot, *rows
		*slot += s.Size
		*rows += s.Row() * kv.PageSize
	}
	for _, s := range g.KVs() {
		take := func(class kv.Class, each extent) place {
			i := slices.Index(pool.Classes(), class)
			p := place{i, c.size[i]}
			c.size[i].elements += s.Heads * each.elements
			c.size[i].codes += s.Heads * each.codes
			return p
		}
		all := extent{elements: (s.Dim + s.Values()) * kv.PageSize}
		if !b.Narrow() || !backend.IsNarrow(g, s) {
			c.stores[s] = &store{KV: s, recent: take(backend.ClassOf(s), all)}
			continue
		}
		codes, scales := simd.NarrowSize(s.Dim, s.Values())
		x := &store{KV: s, narrow: true, recent: take(kv.Class{Kind: kv.Ring, Window: backend.Recent}, all),
			older: take(backend.ClassOf(s), extent{scales, codes})}
		if s.Window == 0 {
			x.start = take(kv.Class{Kind: kv.Start}, all)
		}
		c.stores[s] = x
	}
	pool.Back(c)
	return c, nil
}

// PageBytes implements backend.Cache.
func (c *cache) PageBytes(class int) int64 {
	return int64(c.size[class].elements*c.elements(class).Bytes() + c.size[class].codes)
}

// Copy implements kv.Memory.
func (c *cache) Copy(class int, from, to int32) error {
	dst, err := c.page(class, to)
	if err != nil {
		return err
	}
	src := &c.pages[class][from]
	copy(dst.f16, src.f16)
	copy(dst.f32, src.f32)
	copy(dst.codes, src.codes)
	return nil
}

// Bytes implements backend.Cache.
func (c *cache) Bytes() int64 { return c.bytes.Load() }

// Close implements backend.Cache.
func (c *cache) Close() error {
	c.pages = nil
	return c.memory.close()
}

// isFirst reports whether a page is the first of full layers, which no row sees in 8 bits.
func (s *store) isFirst(index int) bool { return index == 0 && s.Window == 0 }

// isOlder reports whether a row at pos sees a page in 8 bits.
func (s *store) isOlder(index, pos int) bool {
	return s.narrow && index < backend.RecentPage(pos) && !s.isFirst(index)
}

// whole returns the place of a page's elements.
func (s *store) whole(index int) *place {
	if s.narrow && s.isFirst(index) {
		return &s.start
	}
	return &s.recent
}

// ensure makes the pages for the step's rows.
func (c *cache) ensure(step *backend.Step, s *graph.KV) error {
	x := c.stores[s]
	for t, seq := range step.Seqs {
		pos := int(step.Pos[t])
		classes := []int{x.whole(pos / kv.PageSize).class, x.older.class}
		if !x.narrow {
			classes = classes[:1]
		}
		for _, class := range classes {
			if _, err := c.page(class, seq.Page(class, pos)); err != nil {
				return err
			}
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
		err = reserve(&c.memory, &p.f32, c.size[class].elements)
	} else if err = reserve(&c.memory, &p.f16, c.size[class].elements); err == nil {
		err = reserve(&c.memory, &p.codes, c.size[class].codes)
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
	x := c.stores[s].whole(pos / kv.PageSize)
	p = &c.pages[x.class][seq.Page(x.class, pos)]
	at := x.at.elements
	return p, at + h*kv.PageSize*s.Dim, at + kv.PageSize*(s.Heads*s.Dim+h*s.Values())
}

// older returns head h of store s in 8 bits, of the page of position pos.
func (c *cache) older(s *graph.KV, seq *kv.Sequence, pos, h int) *simd.Narrow {
	x := &c.stores[s].older
	p := &c.pages[x.class][seq.Page(x.class, pos)]
	codes, scales := simd.NarrowSize(s.Dim, s.Values())
	return &simd.Narrow{Codes: p.codes[x.at.codes+h*codes:][:codes], Scales: p.f16[x.at.elements+h*scales:][:scales]}
}

// store writes a key and a value of head h, in the form of attention: turned where older pages have 8 bits.
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
	var turned [256]float32
	form := func(x []float32, size int) []float32 {
		if c.stores[s].narrow {
			x = turned[:copy(turned[:], x)]
			simd.Turn(x, size)
		}
		return x
	}
	for i := 0; i < len(key); i += len(some) {
		n := min(len(some), len(key)-i)
		simd.StoreF16(some[:n], form(key[i:i+n], simd.TurnSize(s.Dim)))
		spread(p.f16[k+i*simd.KeySlots:], some[:n])
	}
	for i := 0; i < len(value); i += len(turned) {
		n := min(len(turned), len(value)-i)
		simd.StoreF16(p.f16[v+i:v+i+n], form(value[i:i+n], simd.TurnSize(s.Values())))
	}
}

// pack makes the 8-bit form of head h of the full page from position pos on.
func (c *cache) pack(d *desk, s *graph.KV, seq *kv.Sequence, pos, h int) {
	d.grow(0, s)
	k, v := c.load(d, s, seq, pos, kv.PageSize, h)
	c.older(s, seq, pos, h).Pack(k, v, s.Dim, s.Values())
}

// spread writes a key between its neighbours' keys.
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
