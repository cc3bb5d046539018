package cpu

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// TestCut: the pieces of a step have each range of each head and row once, each part has a
// place of its own, and who is the last of a job knows it.
func TestCut(t *testing.T) {
	several := 0 // pieces of several ranges that are not all of them
	for _, c := range []struct{ heads, kvs, window, rows, pos, threads int }{
		{8, 2, 0, 1, 5000, 2}, {8, 2, 0, 1, 5000, 16}, {4, 1, 0, 1, 0, 3}, {4, 1, 300, 40, 900, 16}, {32, 8, 0, 3, 8000, 5},
		{6, 3, 0, 200, 700, 4}, {4, 1, 0, 512, 1000, 16}, {256, 1, 0, 9, 600, 4}, {8, 1, 0, 2, 20000, 1}, {8, 1, 0, 2, 20000, 4},
	} {
		s, seq := &backend.Step{}, &kv.Sequence{}
		for i := range c.rows {
			if i == c.rows/2 {
				seq = &kv.Sequence{}
			}
			s.Pos, s.Seqs = append(s.Pos, int32(c.pos+i)), append(s.Seqs, seq)
		}
		store := &graph.KV{Heads: c.kvs, Dim: 2, Window: c.window}
		x := cut{heads: c.heads, store: store, attr: graph.AttentionAttr{KV: store}}
		var kept []float32
		x.make(s, c.threads, false)
		x.makeParts(&kept)
		type place struct{ row, r int }
		seen, parts := map[place]int{}, map[*float32]bool{}
		for i := range x.pieces() {
			p := x.piece(i)
			b := &x.blocks[p.block]
			n := p.last - p.first
			divided := n < b.last-b.first
			if n < 1 || p.queries() > x.largest() {
				t.Fatalf("%+v: piece %+v", c, p)
			}
			if divided && n > 1 {
				several++
			}
			if last := divided && x.left[p.job].Add(int32(-n)) == 0; last != (divided && p.last == b.last) {
				t.Fatalf("%+v: piece %+v is the last one: %v", c, p, last)
			}
			for r := p.first; r < p.last; r++ {
				for q := range p.queries() {
					seen[place{p.row(q), r}]++
					if divided {
						parts[&x.part(p, r, q)[0]] = true
					}
				}
			}
		}
		if len(parts) > 0 && len(parts)*simd.PartSize(2) > len(kept) {
			t.Errorf("%+v: %d parts lie in %d numbers", c, len(parts), len(kept))
		}
		divided := len(x.blocks) < x.each
		if divided && len(parts) != len(seen) && x.ranges == 1 {
			t.Errorf("%+v: %d parts of %d", c, len(parts), len(seen))
		}
		for i := range c.rows * c.heads {
			first, last := x.store.Oldest(int(s.Pos[i/c.heads]))/simd.RangeSlots, int(s.Pos[i/c.heads])/simd.RangeSlots
			for r := first; r <= last; r++ {
				if n := seen[place{i, r}]; n != 1 {
					t.Fatalf("%+v: row and head %d have range %d %d times", c, i, r, n)
				}
			}
		}
	}
	if several == 0 {
		t.Error("no piece has several ranges of more")
	}
}
