package kv

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// classes are those of some windows, 0 being full layers.
func classes(windows ...int) (all []Class) {
	for _, w := range windows {
		if w == 0 {
			all = append(all, Class{})
			continue
		}
		all = append(all, Class{Ring, w})
	}
	return all
}

// bounded is a pool with room for so many full sequences, a page having a byte.
func bounded(o Options, sequences int) *Pool {
	p := NewPool(o)
	p.Bound(0, slices.Repeat([]int64{1}, len(o.Classes)))
	p.Bound(int64(sequences)*p.BytesOf(o.Context), p.bytes)
	return p
}

// notebook remembers what was stored where, and checks what is to be read.
type notebook struct {
	t       *testing.T
	windows []int
	slots   map[[3]int]int // class, page, slot -> sequence and position
}

// store notes the positions of s from from on, of the i-th sequence.
func (b *notebook) store(s *Sequence, i, from int) {
	for c := range b.windows {
		for pos := from; pos < s.Len(); pos++ {
			b.slots[[3]int{c, int(s.Page(c, pos)), pos % PageSize}] = i<<20 | pos
		}
	}
}

// check wants all that the rows at positions from and later see.
func (b *notebook) check(s *Sequence, i, from int) {
	b.t.Helper()
	for c, w := range b.windows {
		first := 0
		if w > 0 {
			first = max(0, from-w+1)
		}
		for pos := first; pos < s.Len(); pos++ {
			if got := b.slots[[3]int{c, int(s.Page(c, pos)), pos % PageSize}]; got != i<<20|pos {
				b.t.Fatalf("window %d: position %d of sequence %d holds position %d of sequence %d", w, pos, i, got&(1<<20-1), got>>20)
			}
		}
	}
}

// TestPages writes each position's number where the tables say and wants all
// positions of every window to be readable, for random windows, contexts,
// chunks, sequences and truncations: windows of one position, above the
// context and below the chunk among them.
func TestPages(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	truncated, refused := 0, 0
	for range 200 {
		windows := []int{0, 1 + r.IntN(300), 301 + r.IntN(1000)}[r.IntN(2):]
		context, chunk := 1+r.IntN(1000), 1+r.IntN(200)
		p := bounded(Options{Classes: classes(windows...), Context: context, Chunk: chunk}, 3)
		b := &notebook{t, windows, map[[3]int]int{}}
		seqs := []*Sequence{p.NewSequence(), p.NewSequence(), p.NewSequence()}
		for range 100 {
			i := r.IntN(3)
			s, n := seqs[i], 1+r.IntN(chunk)
			from := s.Len()
			if r.IntN(3) == 0 {
				n := max(0, from-r.IntN(1+[]int{chunk, 300}[r.IntN(2)]))
				if left := s.Truncate(n); left != n {
					if left != 0 {
						t.Fatalf("%d positions left of %d, and no snapshot", left, n)
					}
					refused++
					continue
				}
				truncated++
				b.check(s, i, n)
				continue
			}
			if err := s.Grow(n); errors.Is(err, ErrFull) {
				if from+n <= context {
					t.Fatalf("full at %d of %d: %v", from, context, err)
				}
				s.Free()
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			b.store(s, i, from)
			b.check(s, i, from)
			if r.IntN(8) == 0 { // a step that fails leaves the sequence as it was
				if s.Truncate(from) != from {
					t.Fatalf("windows %v, chunk %d: cannot take back %d of %d positions", windows, chunk, n, from+n)
				}
				b.check(s, i, from)
			}
		}
	}
	if truncated < 1000 || refused < 100 {
		t.Errorf("only %d truncations and %d refusals", truncated, refused)
	}
}

// TestRing is about the length of rings: the least that a step needs, no more
// than the context, and no two positions that a step sees in one slot.
func TestRing(t *testing.T) {
	for _, x := range []struct{ window, context, chunk, pages int }{
		{64, 4096, 1, 2},
		{64, 4096, 64, 3},
		{65, 4096, 64, 3},
		{66, 4096, 64, 4},
		{1, 4096, 64, 2},          // the chunk is larger than the window
		{1, 4096, 1, 2},           // never less than the window and a page
		{512, 4096, 1, 9},         //
		{500, 200, 64, 4},         // the window is larger than the context
		{200, 200, 64, 4},         //
		{64, 100, 64, 2},          // the context is shorter than the ring
		{math.MaxInt, 100, 64, 2}, // no overflow
		{0, 1000, 64, 16},
	} {
		p := bounded(Options{Classes: classes(x.window), Context: x.context, Chunk: x.chunk}, 1)
		if got := p.Positions(0, x.context); got != x.pages*PageSize {
			t.Errorf("%+v: %d positions", x, got)
		}
		s := p.NewSequence()
		for s.Len()+x.chunk <= x.context {
			from := s.Len()
			if err := s.Grow(x.chunk); err != nil {
				t.Fatal(err)
			}
			seen := map[[2]int]int{}
			for pos := max(0, from-x.window+1); pos < s.Len() && x.window > 0; pos++ {
				slot := [2]int{int(s.Page(0, pos)), pos % PageSize}
				if other, ok := seen[slot]; ok {
					t.Fatalf("%+v: positions %d and %d share a slot", x, other, pos)
				}
				seen[slot] = pos
			}
		}
		if len(s.tables[0]) > x.pages {
			t.Errorf("%+v: a table of %d pages", x, len(s.tables[0]))
		}
	}
}

func TestTruncate(t *testing.T) {
	p := bounded(Options{Classes: classes(0, 64), Context: 4096, Chunk: 32}, 1)
	s := p.NewSequence()
	for range 20 {
		if err := s.Grow(32); err != nil {
			t.Fatal(err)
		}
	}
	if s.Truncate(630) != 630 || s.Len() != 630 {
		t.Error("truncating by ten failed")
	}
	if s.Truncate(631) != 630 {
		t.Error("truncated to more than there was")
	}
	if s.Truncate(100) != 0 || s.Len() != 0 {
		t.Error("a ring of 64 gave back position 36 of 640")
	}
	if s.Truncate(-1) != 0 {
		t.Error("truncated to less than nothing")
	}
}

// TestTruncateTwice: a ring that has passed a position does not hold it again
// because the sequence became shorter since.
func TestTruncateTwice(t *testing.T) {
	p := bounded(Options{Classes: classes(64), Context: 4096, Chunk: 32}, 1) // a ring of 192
	s := p.NewSequence()
	for range 20 {
		if err := s.Grow(32); err != nil {
			t.Fatal(err)
		}
	}
	if s.Truncate(520) != 520 {
		t.Fatal("the ring holds 448 to 639, enough for position 520")
	}
	if s.Truncate(500) != 0 {
		t.Error("position 437, which 629 has overwritten, was given back")
	}
	s.Free()
	if err := s.Grow(10); err != nil || s.Truncate(0) != 0 {
		t.Errorf("after Free: %v", err)
	}
}

func TestBounds(t *testing.T) {
	p := bounded(Options{Classes: classes(0), Context: 128, Chunk: 64}, 1)
	a, b := p.NewSequence(), p.NewSequence()
	if err := a.Grow(65); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("a step over the chunk: %v", err)
	}
	for range 2 {
		if err := a.Grow(64); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Grow(1); !errors.Is(err, ErrFull) {
		t.Errorf("past the context: %v", err)
	}
	if err := b.Grow(1); !errors.Is(err, ErrFull) {
		t.Errorf("no page left: %v", err)
	}
	a.Free()
	if err := b.Grow(1); err != nil {
		t.Errorf("after Free: %v", err)
	}
}

// TestFullLeavesNothing: a sequence that finds no page in one class gives back
// what it took in another.
func TestFullLeavesNothing(t *testing.T) {
	p := bounded(Options{Classes: classes(0, 64), Context: 256, Chunk: 64}, 1) // 4 pages and a ring of 3
	a, b, c := p.NewSequence(), p.NewSequence(), p.NewSequence()
	for _, s := range []*Sequence{a, b, b} {
		if err := s.Grow(64); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.Grow(1); !errors.Is(err, ErrFull) || c.Len() != 0 {
			t.Fatalf("a fourth page for a ring: %v, length %d", err, c.Len())
		}
	}
	if err := a.Grow(0); err != nil {
		t.Error(err)
	}
	b.Free()
	for range 2 {
		if err := a.Grow(64); err != nil {
			t.Errorf("with the pages of a freed sequence: %v", err)
		}
	}
	if err := a.Grow(64); err != nil {
		t.Errorf("the last page of four: %v", err)
	}
}

// TestConcurrent: sequences of one pool may grow at the same time.
func TestConcurrent(t *testing.T) {
	p := NewPool(Options{Classes: classes(0, 64), Context: 1024, Chunk: 16})
	owner := make([]map[[2]int32]bool, 8)
	var wg sync.WaitGroup
	for i := range owner {
		owner[i] = map[[2]int32]bool{}
		wg.Go(func() {
			s := p.NewSequence()
			for range 64 {
				if err := s.Grow(16); err != nil {
					t.Error(err)
				}
			}
			for c, table := range s.tables {
				for _, e := range table {
					owner[i][[2]int32{int32(c), e.page}] = true
				}
			}
		})
	}
	wg.Wait()
	all := map[[2]int32]int{}
	for _, pages := range owner {
		for page := range pages {
			all[page]++
		}
	}
	for page, n := range all {
		if n > 1 {
			t.Errorf("page %v has %d owners", page, n)
		}
	}
	if len(all) != 8*(16+3) {
		t.Errorf("%d pages", len(all))
	}
}

// TestSlot: a sequence has one slot and one page of rows whatever its length, and another has another. Positions behind
// the state are dropped.
func TestSlot(t *testing.T) {
	p := bounded(Options{Classes: []Class{{}, {Kind: Slot}, {Kind: Rows}}, Context: 1024, Chunk: 128}, 2)
	a, b, c := p.NewSequence(), p.NewSequence(), p.NewSequence()
	for _, s := range []*Sequence{a, b, a} {
		if err := s.Grow(100); err != nil {
			t.Fatal(err)
		}
		s.Commit(make([]int32, s.Len()))
	}
	if err := c.Grow(1); err != nil {
		t.Fatal(err)
	}
	for class := 1; class < 3; class++ {
		x, y, z := a.Page(class, 0), b.Page(class, 0), c.Page(class, 0)
		if x == y || x == z || y == z || len(a.tables[class]) != 1 || a.Page(class, 150) != x {
			t.Errorf("class %d: pages %d, %d and %d", class, x, y, z)
		}
	}
	if a.Start() != 192 || a.Droppable() != 56 || a.Truncate(192) != 192 || a.Droppable() != 0 || a.Truncate(191) != 0 {
		t.Errorf("%d positions of %d are the state's", a.Start(), a.Len())
	}
	if b.Truncate(70) != 70 || b.Start() != 64 || b.Grow(58) != nil || b.Truncate(70) != 70 {
		t.Errorf("%d positions are left of 70", b.Len())
	}
	if b.Grow(59) != nil || b.Truncate(70) != 0 {
		t.Error("a step into the next page, not computed, may have changed the state")
	}
}
