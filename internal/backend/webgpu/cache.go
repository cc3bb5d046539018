package webgpu

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// cache holds the keys and values of all stores, and the tables of the slots of a step's rows. A slot is page·PageSize
// + position in the page. The cache also holds states, in slots of the pool.
type cache struct {
	b      *Backend
	pool   *kv.Pool
	class  map[int]int // window -> class of the pool, of stores without pages in 8 bits
	slots  int         // their class, negative without states; rows are the next one
	stores map[*graph.KV]*store
	narrow map[int]*narrowPages // by class of the older pages
	states map[*graph.State]*[2]*states
	tables [extents][]gpu.Buffer // by class
	parts  gpu.Buffer            // attention's parts of pages, nil until divided
	ahead  bool                  // rows see later ones
	groups bool                  // rows of a group see the later ones of the group
	grown  int                   // count of replaced buffers: groups of old buffers are stale
}

// store is one layer's keys and values. Latent values are a part of the keys.
type store struct {
	kv           *graph.KV
	class        int
	words, wide  int          // of a page's keys, and of its values; of a unit's
	pages        int          // pages, or units, with room
	keys, values gpu.Buffer   // [page, words] and [page, wide]
	narrow       *narrowPages // nil without pages in 8 bits
}

// narrowPages places the pages of stores with older ones in 8 bits, which take a unit; pages in binary16 take two.
type narrowPages struct {
	window               int
	older, recent, start int           // classes; start is negative for windows
	units                map[place]int // first unit of a page
	made                 int           // units
}

// place is a page of a class.
type place struct {
	class int
	page  int32
}

// narrowWords is the number of words of a unit for an element of a position: 64 integers, and two scales.
const narrowWords = 17

// size returns the units of a page of a class; 0 if the class is not n's.
func (n *narrowPages) size(class int) int {
	switch class {
	case n.older:
		return 1
	case n.recent, n.start:
		return 2
	}
	return 0
}

// unit returns the first unit of a page.
func (n *narrowPages) unit(class int, page int32) int {
	at, ok := n.units[place{class, page}]
	if !ok {
		at = n.made
		n.units[place{class, page}] = at
		n.made += n.size(class)
	}
	return at
}

// whole returns the class of a page in binary16.
func (n *narrowPages) whole(index int) int {
	if index == 0 && n.start >= 0 {
		return n.start
	}
	return n.recent
}

// slab is a buffer of a store, and the bytes of a page in the buffer.
type slab struct {
	buffer *gpu.Buffer
	page   int
}

func (s *store) slabs() []slab {
	all := []slab{{&s.keys, 4 * s.words}, {&s.values, 4 * s.wide}}
	if s.kv.Latent {
		return all[:1]
	}
	return all
}

// bytes counts the bytes of the keys and the values of some pages.
func (s *store) bytes(pages int) (n int) {
	for _, b := range s.slabs() {
		n += b.page * pages
	}
	return n
}

// states is one state of all sequences, or its rows. In a sequence's first page the kernels take zeros for the state,
// whatever the slot holds.
type states struct {
	class, size, slots int
	values             gpu.Buffer // [slots, size]
}

// statesOf returns a state and its rows.
func (c *cache) statesOf(s *graph.State) *[2]*states {
	row := s.Row()
	if s.Name == "scan" {
		row = scanRow(s)
	}
	return &[2]*states{{class: c.slots, size: s.Size}, {class: c.slots + 1, size: row * kv.PageSize}}
}

// scanRow returns the elements of a row kept of a scan: a row's decays, and their rests, for each 64 numbers of a head.
func scanRow(s *graph.State) int {
	values, decays := s.Rows[1], s.Rows[2]
	return s.Row() + 2*decays.Count*((values.Size+63)/64-1)
}

// NewCache implements backend.Backend. There is no room until something is stored.
func (b *Backend) NewCache(g *graph.Graph, pool *kv.Pool) (backend.Cache, error) {
	c := &cache{b: b, pool: pool, class: map[int]int{}, slots: -1, stores: map[*graph.KV]*store{},
		narrow: map[int]*narrowPages{},
		states: map[*graph.State]*[2]*states{}}
	for x := range c.tables {
		c.tables[x] = make([]gpu.Buffer, len(pool.Classes()))
	}
	for i, class := range pool.Classes() {
		if class.Kind == kv.Slot {
			c.slots = i
		}
	}
	for _, s := range g.States() {
		c.states[s] = c.statesOf(s)
	}
	words := func(elements int) int {
		if b.o.F32KV {
			return elements * kv.PageSize
		}
		return (elements + 1) / 2 * kv.PageSize
	}
	narrow := b.narrowOf(g)
	for _, s := range g.KVs() {
		c.stores[s] = &store{kv: s, class: slices.Index(pool.Classes(), backend.ClassOf(s)),
			words: words(s.Heads * s.Dim), wide: words(s.Heads * s.Values())}
		if narrow[s] {
			c.stores[s].words, c.stores[s].wide = narrowWords*s.Heads*s.Dim, narrowWords*s.Heads*s.Values()
			c.stores[s].narrow = c.narrowOf(s)
		} else {
			c.class[s.Window] = c.stores[s].class
		}
	}
	c.ahead, c.groups = g.Bidirectional(), g.Grouped()
	pool.Back(c)
	return c, nil
}

// narrowOf returns the places of pages of the stores with s's window.
func (c *cache) narrowOf(s *graph.KV) *narrowPages {
	all := c.pool.Classes()
	older := slices.Index(all, backend.ClassOf(s))
	if c.narrow[older] == nil {
		n := &narrowPages{window: s.Window, older: older, start: -1, units: map[place]int{},
			recent: slices.Index(all, kv.Class{Kind: kv.Ring, Window: backend.Recent})}
		if s.Window == 0 {
			n.start = slices.Index(all, kv.Class{Kind: kv.Start})
		}
		c.narrow[older] = n
	}
	return c.narrow[older]
}

// PageBytes implements backend.Cache.
func (c *cache) PageBytes(class int) (n int64) {
	for _, s := range c.stores {
		switch {
		case s.narrow != nil:
			n += int64(s.bytes(s.narrow.size(class)))
		case s.class == class:
			n += int64(s.bytes(1))
		}
	}
	for _, both := range c.states {
		for _, s := range both {
			if s.class == class {
				n += 4 * int64(s.size)
			}
		}
	}
	return n
}

// Copy implements kv.Memory.
func (c *cache) Copy(class int, from, to int32) error {
	c.b.busy.Lock()
	defer c.b.busy.Unlock()
	if c.stores == nil {
		return errors.New("the cache is closed")
	}
	for _, s := range c.stores {
		from, to, size, pages := int(from), int(to), 1, int(to)+1
		if n := s.narrow; n != nil {
			if size = n.size(class); size > 0 {
				from, to, pages = n.unit(class, int32(from)), n.unit(class, int32(to)), n.made
			}
		} else if s.class != class {
			size = 0
		}
		if size == 0 {
			continue
		}
		if pages > s.pages {
			if err := c.grow(s, pages); err != nil {
				return fmt.Errorf("keys and values of layer %d: %w", s.kv.Layer, err)
			}
		}
		for _, b := range s.slabs() {
			if err := c.move(*b.buffer, from*b.page, to*b.page, size*b.page); err != nil {
				return fmt.Errorf("keys and values of layer %d: %w", s.kv.Layer, err)
			}
		}
	}
	for state, both := range c.states {
		for _, s := range both {
			if s.class != class {
				continue
			}
			err := c.room(s, int(to)+1)
			if err == nil {
				err = c.move(s.values, int(from)*4*s.size, int(to)*4*s.size, 4*s.size)
			}
			if err != nil {
				return fmt.Errorf("state %s of layer %d: %w", state.Name, state.Layer, err)
			}
		}
	}
	return nil
}

// move copies a part of a buffer, of so many bytes, to another part: by way of a third
// place, since WebGPU copies between buffers only.
func (c *cache) move(b gpu.Buffer, from, to, size int) error {
	on, err := c.b.memory.empty("a copy", size)
	if err != nil {
		return err
	}
	defer c.b.memory.release(on)
	var l gpu.List
	l.Copy(on, 0, b, from, size)
	l.Copy(b, to, on, 0, size)
	return c.b.memory.gpu.Run(&l)
}

// room gives a state so many slots at least.
func (c *cache) room(s *states, slots int) error {
	if slots <= s.slots {
		return nil
	}
	slots = max(slots, min(2*s.slots, c.b.memory.limit/(4*max(s.size, 1)), c.pool.Most(s.class)))
	made, err := c.b.memory.enlarged("states", s.values, 4*s.size*s.slots, 4*max(s.size, 1)*slots)
	if err != nil {
		return err
	}
	s.slots, s.values = slots, made
	c.grown++
	return nil
}

// Bytes implements backend.Cache.
func (c *cache) Bytes() (n int64) {
	for _, s := range c.stores {
		n += int64(s.bytes(s.pages))
	}
	for _, both := range c.states {
		for _, s := range both {
			n += 4 * int64(s.size*s.slots)
		}
	}
	return n
}

// Close implements backend.Cache.
func (c *cache) Close() error {
	c.b.busy.Lock()
	defer c.b.busy.Unlock()
	for _, s := range c.stores {
		for _, b := range s.slabs() {
			c.b.memory.release(*b.buffer)
		}
	}
	for _, both := range c.states {
		c.b.memory.release(both[0].values, both[1].values)
	}
	for _, tables := range c.tables {
		c.b.memory.release(tables...)
	}
	c.b.memory.release(c.parts)
	c.stores, c.states, c.tables, c.parts = nil, nil, [extents][]gpu.Buffer{}, nil
	return nil
}

// reserve makes room for the stores of a step and of the steps after it.
func (c *cache) reserve(s [extents]*backend.Step, steps int, splits []*split) error {
	if c.stores == nil {
		return errors.New("the cache is closed")
	}
	if err := c.store(s[every], steps); err != nil {
		return err
	}
	for x := range tableExtents(s) {
		for class := range c.tables[x] {
			size := 0
			for i := range steps { // the last step's window may begin on a later page, and have fewer
				size = max(size, len(c.table(later(s[x], i), class)))
			}
			if size == 0 {
				continue
			}
			if err := c.renew(&c.tables[x][class], "page table", size, 2*size); err != nil {
				return err
			}
		}
	}
	return c.divide(s, steps, splits)
}

// store makes room for keys and values.
func (c *cache) store(s *backend.Step, steps int) error {
	for state, both := range c.states {
		for _, room := range both {
			for _, seq := range s.Seqs {
				if err := c.room(room, int(seq.Page(room.class, 0))+1); err != nil {
					return fmt.Errorf("state %s of layer %d: %w", state.Name, state.Layer, err)
				}
			}
		}
	}
	for _, store := range c.stores {
		pages := 0
		for t, seq := range s.Seqs {
			for at := int(s.Pos[t]); at < int(s.Pos[t])+steps; at++ {
				if n := store.narrow; n != nil {
					n.unit(n.older, seq.Page(n.older, at))
					whole := n.whole(at / kv.PageSize)
					n.unit(whole, seq.Page(whole, at))
					pages = n.made
				} else {
					pages = max(pages, int(seq.Page(store.class, at))+1)
				}
			}
		}
		if pages > store.pages {
			if err := c.grow(store, pages); err != nil {
				return fmt.Errorf("keys and values of layer %d: %w", store.kv.Layer, err)
			}
		}
	}
	return nil
}

// tableExtents returns the number of extents of a step with tables: 1 if all rows are wanted.
func tableExtents(s [extents]*backend.Step) int {
	if s[every] == s[wanted] {
		return int(wanted)
	}
	return int(extents)
}

// recordTables records the writing of the slots of a step's rows.
func (c *cache) recordTables(l *gpu.List, s [extents]*backend.Step) {
	for x := range tableExtents(s) {
		for class, b := range c.tables[x] {
			if table := c.table(s[x], class); len(table) > 0 {
				l.Write(b, 0, table)
			}
		}
	}
}

// divide makes room for attention's parts where divided, for a number of steps from s on.
func (c *cache) divide(s [extents]*backend.Step, steps int, splits []*split) error {
	most := 0
	for i := range steps {
		at := parts(later(s[every], i))
		for _, x := range splits {
			bytes, _ := x.size(at)
			most = max(most, bytes)
		}
	}
	return c.renew(&c.parts, "parts of attention", most, min(2*most, c.b.memory.limit))
}

// renew does memory.renew and counts.
func (c *cache) renew(b *gpu.Buffer, name string, size, more int) error {
	grown, err := c.b.memory.renew(b, name, size, more)
	if grown {
		c.grown++
	}
	return err
}

// Bindings of the cache of a step.
func keysOf(kv *graph.KV) binding {
	return late(func(c *cache) (gpu.Buffer, error) {
		s, err := c.storeOf(kv)
		return s.keys, err
	})
}

func valuesOf(kv *graph.KV) binding {
	return late(func(c *cache) (gpu.Buffer, error) {
		s, err := c.storeOf(kv)
		return s.values, err
	})
}

// tableOf binds the page table of kv's class for the rows of an extent.
func tableOf(kv *graph.KV, x extent) binding {
	return late(func(c *cache) (gpu.Buffer, error) {
		s, err := c.storeOf(kv)
		if err != nil {
			return nil, err
		}
		return c.tables[x][s.class], nil
	})
}

// stateOf binds a state, or its rows.
func stateOf(s *graph.State, rows bool) binding {
	return late(func(c *cache) (gpu.Buffer, error) {
		both := c.states[s]
		switch {
		case both == nil:
			return nil, fmt.Errorf("the cache has no state %s of layer %d", s.Name, s.Layer)
		case rows:
			return both[1].values, nil
		}
		return both[0].values, nil
	})
}

// slotsOf binds the table of slots.
var slotsOf = late(func(c *cache) (gpu.Buffer, error) { return c.tables[every][c.slots], nil })

// partsOf binds attention's parts of pages.
var partsOf = late(func(c *cache) (gpu.Buffer, error) { return c.parts, nil })

func (c *cache) storeOf(kv *graph.KV) (*store, error) {
	if s := c.stores[kv]; s != nil {
		return s, nil
	}
	return &store{}, fmt.Errorf("the cache has no keys and values of layer %d", kv.Layer)
}

// grow gives a store room for n pages, and for as many pages again as now, if there is memory.
func (c *cache) grow(s *store, n int) error {
	slabs, fit := s.slabs(), c.pool.Most(s.class)
	if s.narrow != nil {
		fit = math.MaxInt
	}
	for _, b := range slabs {
		fit = min(fit, c.b.memory.limit/b.page)
	}
	n = max(n, min(2*s.pages, fit))
	for _, b := range slabs {
		made, err := c.b.memory.enlarged("keys and values", *b.buffer, b.page*s.pages, b.page*n)
		if err != nil {
			return err
		}
		*b.buffer = made
		c.grown++ // even without room for the other slab: groups have the released buffer
	}
	if s.pages = n; s.kv.Latent {
		s.values = s.keys
	}
	return nil
}

// unitOf returns the first unit of the i-th page of a sequence in a class.
func (n *narrowPages) unitOf(seq *kv.Sequence, i, class int) uint32 {
	return uint32(n.unit(class, seq.Page(class, i*kv.PageSize)))
}

// list appends the units of the i-th page, in 8 bits and in binary16, for rows of a run from position pos on: of a
// page seen in 8 bits alone, the first twice.
func (n *narrowPages) list(words []uint32, seq *kv.Sequence, i, pos int) []uint32 {
	older := n.unitOf(seq, i, n.older)
	if whole := n.whole(i); whole == n.start || i >= backend.RecentPage(pos) {
		return append(words, older, n.unitOf(seq, i, whole))
	}
	return append(words, older, older)
}

// table returns the table of a class: four words for each row, namely its slot, the place of its list of pages, the
// index in the sequence of the list's first page, and its position; then with groups two words for each row, the first
// position of the row's group and the end; then the lists, one for each run of rows of a sequence, each after the
// run's last position. Of pages in 8 bits and in binary16 there are units, and two for each
// page.
func (c *cache) table(s *backend.Step, class int) []byte {
	if c.slots >= 0 && (class == c.slots || class == c.slots+1) {
		return c.slotTable(s)
	}
	window, narrow := -1, c.narrow[class]
	for w, i := range c.class {
		if i == class {
			window = w
		}
	}
	if narrow != nil {
		window = narrow.window
	}
	if window < 0 {
		return nil
	}
	words := make([]uint32, 4*len(s.Seqs))
	if c.groups {
		words = append(words, make([]uint32, 2*len(s.Seqs))...)
	}
	var listed, first int
	for t, seq := range s.Seqs {
		pos := int(s.Pos[t])
		if t == 0 || seq != s.Seqs[t-1] {
			words = append(words, uint32(seq.Len()-1))
			listed, first = len(words), 0
			if window > 0 {
				first = max(0, pos-window+1) / kv.PageSize
			}
		}
		last := pos
		if c.ahead { // a step has all rows of its sequences
			last = seq.Len() - 1
		}
		if s.Groups != nil && c.groups {
			g := s.Groups[t]
			words[4*len(s.Seqs)+2*t], words[4*len(s.Seqs)+2*t+1] = uint32(g.First), uint32(g.End)
			last = max(last, int(g.End)-1)
		}
		if narrow != nil {
			for p := first + (len(words)-listed)/2; p <= last/kv.PageSize; p++ {
				words = narrow.list(words, seq, p, int(s.Pos[t]))
			}
			unit := narrow.unitOf(seq, pos/kv.PageSize, narrow.whole(pos/kv.PageSize))
			slot := unit*kv.PageSize + uint32(pos%kv.PageSize)
			copy(words[4*t:], []uint32{slot, uint32(listed), uint32(first), uint32(pos)})
			continue
		}
		for p := first + len(words) - listed; p <= last/kv.PageSize; p++ {
			words = append(words, uint32(seq.Page(class, p*kv.PageSize)))
		}
		slot := int(seq.Page(class, pos))*kv.PageSize + pos%kv.PageSize
		copy(words[4*t:], []uint32{uint32(slot), uint32(listed), uint32(first), uint32(pos)})
	}
	return bytesIn(words)
}

// slotTable returns four words for each row: its slot, its page of rows, the flags of pieces.wgsl, and its position.
func (c *cache) slotTable(s *backend.Step) []byte {
	const ends, last = 1, 2
	words := make([]uint32, 4*len(s.Seqs))
	for _, p := range s.Pieces(nil) {
		for t := p.Row; t < p.Row+p.Rows; t++ {
			flags := uint32(0)
			if p.Ends && t == p.Row {
				flags |= ends
			}
			if end := p.Row + p.Rows; end == len(s.Seqs) || s.Seqs[end] != p.Seq {
				flags |= last
			}
			copy(words[4*t:], []uint32{uint32(p.Seq.Page(c.slots, 0)), uint32(p.Seq.Page(c.slots+1, 0)), flags,
				uint32(s.Pos[t])})
		}
	}
	return bytesIn(words)
}
