package kv

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// memory stands for a backend's cache: what it holds of a position is a hash of all tokens
// up to it, as keys and values are; of a slot, that of the last one in its state.
type memory struct {
	mu     sync.Mutex
	pages  map[[2]int]*[PageSize]uint64
	copies int
	fail   bool
}

var errCopy = errors.New("no copy")

func (m *memory) page(class int, id int32) *[PageSize]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := [2]int{class, int(id)}
	if m.pages[at] == nil {
		m.pages[at] = new([PageSize]uint64)
	}
	return m.pages[at]
}

func (m *memory) Copy(class int, from, to int32) error {
	if m.fail {
		return errCopy
	}
	m.copies++
	*m.page(class, to) = *m.page(class, from)
	return nil
}

// user is a sequence and what it should hold.
type user struct {
	s      *Sequence
	tokens []int32
	salt   string
}

// world is a pool, its memory and those who use it.
type world struct {
	t     testing.TB
	p     *Pool
	m     *memory
	users []*user

	adopted, reused, inside, back, full int // what has happened
}

func newWorld(t testing.TB, o Options, bytes []int64, bound int64) *world {
	w := &world{t: t, p: NewPool(o), m: &memory{pages: map[[2]int]*[PageSize]uint64{}}}
	w.p.Back(w.m)
	w.p.Bound(bound, bytes)
	return w
}

// hash is that of tokens, one more at a time.
func hash(h uint64, token int32) uint64 { return (h ^ uint64(token+1)) * 0x9e3779b97f4a7c15 }

func hashes(u *user) []uint64 {
	all, h := make([]uint64, len(u.tokens)), uint64(len(u.salt))
	for i, id := range u.tokens {
		h = hash(h, id)
		all[i] = h
	}
	return all
}

// step computes tokens as a step does: the first row of a page adds the rows before to the state. Where it fails
// everything at new positions is garbage.
func (w *world) step(u *user, tokens []int32, fails bool) error {
	from := u.s.Len()
	if err := u.s.Grow(len(tokens)); err != nil {
		if u.s.Len() != from {
			w.t.Fatalf("length %d after %v, was %d", u.s.Len(), err, from)
		}
		return err
	}
	w.check(u) // what the step reads
	u.tokens = append(u.tokens, tokens...)
	want := hashes(u)
	for c, class := range w.p.o.Classes {
		for pos := from; pos < u.s.Len(); pos++ {
			x := want[pos]
			if fails {
				x = 0xbad
			}
			switch {
			case class.Kind == Slot:
				if pos%PageSize == 0 && pos > u.s.Start() {
					if !fails {
						x = want[pos-1]
					}
					w.m.page(c, u.s.Page(c, 0))[0] = x
				}
			case class.Kind != Start || pos < PageSize:
				w.m.page(c, u.s.Page(c, pos))[pos%PageSize] = x
			}
		}
	}
	if fails {
		u.tokens = u.tokens[:u.s.Truncate(from)]
		return nil
	}
	u.s.Commit(u.tokens)
	return nil
}

// check wants all that the next row would see.
func (w *world) check(u *user) {
	w.t.Helper()
	want := hashes(u)
	for c, class := range w.p.o.Classes {
		first := 0
		switch class.Kind {
		case Ring:
			first = max(0, len(want)-class.Window+1)
		case Slot:
			if first = u.s.Start() - 1; first < 0 {
				continue
			}
			if got := w.m.page(c, u.s.Page(c, 0))[0]; got != want[first] {
				w.t.Fatalf("state of %d tokens: %x, want %x", first+1, got, want[first])
			}
			continue
		case Rows:
			for pos := u.s.Start(); pos < len(want); pos++ {
				if w.m.page(c, u.s.Page(c, 0))[pos%PageSize] != want[pos] {
					w.t.Fatalf("row %d of %d is another's", pos, len(want))
				}
			}
			continue
		}
		for pos := first; pos < len(want) && (class.Kind != Start || pos < PageSize); pos++ {
			if !u.s.Holds(c, pos) || w.m.page(c, u.s.Page(c, pos))[pos%PageSize] != want[pos] {
				w.t.Fatalf("%+v: position %d of %d is not there, or another's", class, pos, len(want))
			}
		}
	}
}

// audit counts who holds each page, and each node.
func (w *world) audit() {
	w.t.Helper()
	p := w.p
	for c := range p.o.Classes {
		refs := make([]int32, len(p.pages[c]))
		for _, u := range w.users {
			for _, e := range u.s.tables[c] {
				if e.page >= 0 {
					refs[e.page]++
				}
			}
		}
		free := 0
		for _, n := range w.nodes() {
			if id := n.pages[c]; id >= 0 {
				refs[id]++
				if p.pages[c][id].node != n {
					w.t.Fatalf("class %d: page %d is not its node's", c, id)
				}
			} else if p.o.Classes[c].Kind == Pages {
				w.t.Fatal("a node without a page of the full layers")
			}
		}
		for id, n := range refs {
			if p.pages[c][id].refs != n {
				w.t.Fatalf("class %d: page %d is counted %d times, held %d times", c, id, p.pages[c][id].refs, n)
			}
			if n == 0 {
				free++
			}
		}
		if free != len(p.free[c]) {
			w.t.Fatalf("class %d: %d pages of nobody, %d free", c, free, len(p.free[c]))
		}
	}
	if n := p.Bytes(); n > p.bound {
		w.t.Fatalf("%d bytes, the bound is %d", n, p.bound)
	}
	children, users := map[*node]int{}, map[*node]int{}
	full := 0
	for _, n := range w.nodes() {
		if children[n.parent]++; n.parent != nil && p.tree.nodes[n.parent.key] != n.parent {
			w.t.Fatal("a node without its parent")
		}
		if n.size == PageSize {
			full++
		}
	}
	for _, u := range w.users {
		if n := len(u.s.path); n > 0 {
			users[u.s.path[n-1]]++
		}
	}
	for _, n := range w.nodes() {
		w.content(n)
		if n.children != children[n] || n.users != users[n] {
			w.t.Fatalf("a node of %d children and %d users says %d and %d", children[n], users[n], n.children, n.users)
		}
	}
	behind := 0
	for _, all := range p.tree.followers {
		behind += len(all)
	}
	if p.tree.used.Len() != behind || full != len(p.tree.nodes) {
		w.t.Fatalf("%d nodes in use order, %d behind others; %d full pages, %d by their keys", p.tree.used.Len(), behind, full, len(p.tree.nodes))
	}
}

// nodes are full pages and tails.
func (w *world) nodes() (all []*node) {
	for e := w.p.tree.used.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*node))
	}
	return all
}

// content wants a node's pages to hold what its tokens, and those before them, say.
func (w *world) content(n *node) {
	w.t.Helper()
	var path []*node
	for x := n; x != nil; x = x.parent {
		path = append(path, x)
	}
	k, salt := rootOf(""), ""
	if path[len(path)-1].under != k {
		salt = "other"
		k = rootOf(salt)
	}
	h := uint64(len(salt))
	var want [PageSize]uint64
	for _, x := range slices.Backward(path) {
		if x.under != k || !slices.Contains(w.p.tree.followers[k], x) {
			w.t.Fatal("a node is not found behind its parent")
		}
		for i, id := range x.tokens[:x.size] {
			h = hash(h, id)
			want[i] = h
		}
		if k = k.next(x.tokens[:]); x.size == PageSize && k != x.key {
			w.t.Fatal("a node's key is not that of its tokens")
		}
	}
	for c, class := range w.p.o.Classes {
		switch got := n.pages[c]; {
		case got < 0:
		case class.Kind == Slot && w.m.page(c, got)[0] != h, class.Kind != Slot && !slices.Equal(w.m.page(c, got)[:n.size], want[:n.size]):
			w.t.Fatalf("%+v: a node's page is of other tokens", class)
		}
	}
}

// text is a token of the i-th text at a position: texts part at different positions.
func text(i, pos int) int32 {
	for _, at := range []int{40, 64, 130, 200, 320} {
		if pos >= at {
			continue
		}
		return int32(1 + pos%7 + 100*(i%(at/10)))
	}
	return int32(1 + pos%7 + 1000*i)
}

// act does what a byte says.
func (w *world) act(op, arg byte) {
	n := int(arg)
	if len(w.users) == 0 || op%8 == 0 && len(w.users) < 5 {
		w.users = append(w.users, &user{s: w.p.NewSequence()})
		return
	}
	u := w.users[n%len(w.users)]
	switch op % 8 {
	case 1: // adopt a text
		i := n / 8 % 6
		var tokens []int32
		for pos := range 1 + n*3 {
			tokens = append(tokens, text(i, pos))
		}
		same := 0
		for same < len(u.tokens) && same < len(tokens)-1 && u.tokens[same] == tokens[same] {
			same++
		}
		u.tokens = u.tokens[:u.s.Truncate(same)]
		if n%16 == 0 {
			u.salt = "other"
		}
		had := len(u.tokens)
		if got := u.s.Adopt(tokens, u.salt); got > had {
			w.reused++
			if u.tokens = slices.Clone(tokens[:got]); got%PageSize > 0 {
				w.inside++
			}
		} else if u.tokens = u.tokens[:got]; got > len(tokens) {
			w.t.Fatalf("%d of %d tokens", got, len(tokens))
		}
		w.adopted++
	case 2: // truncate
		had := min(n, u.s.Len())
		if u.tokens = u.tokens[:u.s.Truncate(n)]; len(u.tokens) < had {
			w.back++
		}
	case 3: // close
		if n%3 == 0 {
			u.s.Free()
			w.users = slices.DeleteFunc(w.users, func(x *user) bool { return x == u })
		}
		return
	case 4:
		w.p.mu.Lock()
		w.p.tree.evict()
		w.p.mu.Unlock()
	case 5:
		if u.s.Reserve(u.s.Len() + n); n%2 == 0 {
			u.s.Mark()
		}
	default:
		var tokens []int32
		for len(tokens) < 1+n%w.p.o.Chunk {
			tokens = append(tokens, text(n%6, len(u.tokens)+len(tokens)))
		}
		w.m.fail = op == 255
		err := w.step(u, tokens, op > 240)
		w.m.fail = false
		switch {
		case errors.Is(err, ErrFull):
			w.full++
			if u.s.Len()+len(tokens) <= w.p.Longest() && !slices.ContainsFunc(w.users, func(x *user) bool { return x != u && x.s.Pages() > 0 }) {
				w.t.Fatalf("%v: nobody else has pages, and %d positions would fit, %d of them new", err, w.p.Longest(), len(tokens))
			}
			u.s.Free()
			u.tokens = nil
		case err != nil && !errors.Is(err, errCopy):
			w.t.Fatal(err)
		}
	}
	if u.s.Len() != len(u.tokens) {
		w.t.Fatalf("length %d, want %d", u.s.Len(), len(u.tokens))
	}
	w.check(u)
}

// end closes everything and evicts everything: nothing may be held.
func (w *world) end() {
	w.t.Helper()
	for _, u := range w.users {
		u.s.Free()
	}
	w.users = nil
	w.audit()
	for w.p.tree.evict() {
	}
	w.audit()
	for c := range w.p.o.Classes {
		if made := len(w.p.pages[c]); made != len(w.p.free[c]) {
			w.t.Errorf("class %d: %d pages, %d are free", c, made, len(w.p.free[c]))
		}
	}
	if len(w.p.tree.nodes)+len(w.p.tree.followers) != 0 {
		w.t.Errorf("%d nodes, behind %d", len(w.p.tree.nodes), len(w.p.tree.followers))
	}
}

// kinds are pools to try everything with.
var kinds = [][]Class{
	{{}},
	{{}, {Ring, 64}},
	{{}, {Ring, 130}, {Kind: Slot}, {Kind: Rows}},
	{{Ring, 65}},
	{{Kind: Slot}, {Kind: Rows}},
	{{}, {Ring, 1}, {Ring, 4000}},
	{{}, {Ring, 128}, {Kind: Start}},
}

func (w *world) run(data []byte) {
	for i := 0; i+1 < len(data); i += 2 {
		w.act(data[i], data[i+1])
		w.audit()
	}
	w.end()
}

func worldOf(t testing.TB, kind, bound byte) *world {
	classes := kinds[int(kind)%len(kinds)]
	bytes := []int64{3, 2, 5, 4}[:len(classes)]
	return newWorld(t, Options{Classes: classes, Context: 1000, Chunk: 100}, bytes, 20+int64(bound))
}

// TestSharing does everything at random, and looks at everything after each operation.
func TestSharing(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 3))
	var reused, inside, back, full, copies [7]int
	for i := range 210 {
		w := worldOf(t, byte(i%7), byte(r.IntN(256)))
		data := make([]byte, 600)
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		w.run(data)
		reused[i%7] += w.reused
		inside[i%7] += w.inside
		back[i%7] += w.back
		full[i%7] += w.full
		copies[i%7] += w.m.copies
	}
	for i, kind := range kinds {
		t.Logf("%v: %d prefixes reused, %d of them from within a page, %d times back, %d times full, %d copies", kind, reused[i], inside[i], back[i], full[i], copies[i])
		if reused[i] < 20 || inside[i] < 20 || full[i] < 5 && kind[0].Kind != Slot || copies[i] < 20 || back[i] == 0 && kind[len(kind)-1].Kind == Rows {
			t.Error("too few to be a test")
		}
	}
}

func FuzzSharing(f *testing.F) {
	f.Add(byte(2), byte(40), []byte{0, 0, 7, 99, 7, 99, 7, 99, 7, 99, 3, 0, 0, 0, 1, 90, 7, 50})
	// Pages beyond Longest, which a ring's missing pages left room for, were kept from those before it.
	f.Add(byte(5), byte(9), []byte("\x9e\xdf\xee\xc0\x71\x3e\xd1\x92\xaf\x13\xd7\x91\x31\x8d\xa4\x36\xfb\x3d\x34\x8c\x44\x92\x29\xd9\x72\xc8\x93\xd7\x9c\xae\x64\xa5\x6b\x3a\x5f\xfb\x27\xa6\x04\xbc\xec\xd3\x5b\x97\x69\x86\x1c\x99\x84\x45"))
	f.Fuzz(func(t *testing.T, kind, bound byte, data []byte) {
		worldOf(t, kind, bound).run(data[:min(len(data), 1000)])
	})
}

// TestAllocs: a token takes nothing of the heap, but for the node of a full page.
func TestAllocs(t *testing.T) {
	w := newWorld(t, Options{Classes: kinds[2], Context: 4096, Chunk: 64}, []int64{1, 1, 1, 1}, 1<<20)
	s, tokens := w.p.NewSequence(), make([]int32, 4096)
	n := testing.AllocsPerRun(1000, func() {
		if err := s.Grow(1); err != nil {
			t.Fatal(err)
		}
		s.Commit(tokens[:s.Len()])
	})
	if n != 0 {
		t.Errorf("%v allocations for a token", n)
	}
	if s.Len() < 1000 || len(w.p.tree.nodes) != s.Len()/PageSize {
		t.Errorf("%d positions, %d nodes", s.Len(), len(w.p.tree.nodes))
	}
}

// TestThin: of a long sequence few snapshots are left, and few pages of rings, most of them
// near its end: who parts from it anywhere has at most two thirds to compute again of
// what is behind, and a window.
func TestThin(t *testing.T) {
	w := newWorld(t, Options{Classes: kinds[2], Context: 1 << 16, Chunk: 64}, []int64{1, 1, 1, 1}, 1<<20)
	const pages = 300
	u := &user{s: w.p.NewSequence()}
	text := make([]int32, pages*PageSize)
	for i := range pages {
		if err := w.step(u, text[i*PageSize:][:PageSize], false); err != nil {
			t.Fatal(err)
		}
	}
	path, left := u.s.path, [4]int{}
	for _, n := range path {
		for c, id := range n.pages {
			if id >= 0 {
				left[c]++
			}
		}
	}
	if left[0] != pages || left[1] > 50 || left[2] > 20 {
		t.Errorf("of %d pages there are %v, by class", pages, left)
	}
	for n := range pages {
		got := w.p.tree.countUsable(path[:n])
		if lost, behind := n-got, pages-n; lost > 2*behind/3+3 {
			t.Errorf("who parts at page %d starts from page %d", n, got)
		}
	}
	w.users = append(w.users, u)
	w.end()
}

// TestBranch: where two sequences have parted the ring's window and the snapshot stay, however
// long the sequences become.
func TestBranch(t *testing.T) {
	w := newWorld(t, Options{Classes: kinds[2], Context: 1 << 16, Chunk: 64}, []int64{1, 1, 1, 1}, 1<<20)
	long := func(tokens []int32) {
		u := &user{s: w.p.NewSequence()}
		u.tokens = slices.Clone(tokens[:u.s.Adopt(tokens, "")])
		for len(u.tokens) < len(tokens) {
			if err := w.step(u, tokens[len(u.tokens):][:PageSize], false); err != nil {
				t.Fatal(err)
			}
		}
		u.s.Free()
	}
	text := make([]int32, 300*PageSize)
	long(text[:5*PageSize])
	for i := range 3 {
		for j := range text[5*PageSize:] {
			text[5*PageSize+j] = int32(1 + i)
		}
		long(text)
	}
	text[5*PageSize] = 99
	if n := w.p.NewSequence().Adopt(text, ""); n != 5*PageSize {
		t.Errorf("a fourth sequence starts from %d, want %d", n, 5*PageSize)
	}
}

// TestSharingTogether: sequences may find, leave and lose pages at the same time.
func TestSharingTogether(t *testing.T) {
	all := newWorld(t, Options{Classes: kinds[2], Context: 1000, Chunk: 100}, []int64{3, 2, 5, 4}, 600)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			w := &world{t: t, p: all.p, m: all.m}
			for j := range 30 {
				var tokens []int32
				for pos := range 450 {
					tokens = append(tokens, text(i%3+j%2, pos))
				}
				u := &user{s: w.p.NewSequence()}
				u.tokens = slices.Clone(tokens[:u.s.Adopt(tokens, "")])
				w.check(u)
				for len(u.tokens) < len(tokens) {
					if err := w.step(u, tokens[len(u.tokens):][:min(50+i, len(tokens)-len(u.tokens))], false); errors.Is(err, ErrFull) {
						break // others have all pages
					} else if err != nil {
						t.Error(err)
						break
					}
				}
				u.tokens = u.tokens[:u.s.Truncate(200)]
				w.check(u)
				u.s.Free()
			}
		})
	}
	wg.Wait()
	all.end()
}
