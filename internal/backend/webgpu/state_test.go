package webgpu

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// TestCopies: slots, pages and rows keep what they hold while there come more, and are copied.
func TestCopies(t *testing.T) {
	d := device(t)
	b := New(d, Options{F32KV: true})
	defer b.Close()
	store, state := &graph.KV{Heads: 1, Dim: 2}, &graph.State{Name: "conv", Size: 5, Rows: []graph.Run{{Count: 1, Size: 1}}}
	g := &graph.Graph{Nodes: []*graph.Node{{Op: graph.StoreKV, Attr: store}, {State: state}}}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 256, Chunk: 256})
	made, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	c := made.(*cache)
	const pages, slots, rows, page = 0, 1, 2, 2 * 4 * kv.PageSize
	if n := c.PageBytes(pages); n != 2*page {
		t.Errorf("a page has %d bytes, want %d", n, 2*page)
	}
	if n := c.PageBytes(slots); n != 20 {
		t.Errorf("a slot has %d bytes, want 20", n)
	}
	if n := c.PageBytes(rows); n != 4*kv.PageSize {
		t.Errorf("a page of rows has %d bytes, want %d", n, 4*kv.PageSize)
	}
	run := func(record func(l *gpu.List)) {
		t.Helper()
		var l gpu.List
		record(&l)
		if err := d.gpu.Run(&l); err != nil {
			t.Fatal(err)
		}
	}
	seqs := []*kv.Sequence{pool.NewSequence(), pool.NewSequence()}
	step := &backend.Step{Tokens: []int32{0, 0}, Pos: []int32{0, 0}, Seqs: seqs, Outputs: []int32{0, 1}}
	for _, q := range seqs {
		if err := q.Grow(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.reserve(parts(step), 1, nil); err != nil {
		t.Fatal(err)
	}
	ones := slices.Repeat([]byte{1}, page)
	x, y := c.states[state][0], c.states[state][1]
	run(func(l *gpu.List) {
		l.Write(x.values, 0, ones[:40])
		l.Write(y.values, 0, ones[:8*kv.PageSize])
	})
	k := c.stores[store]
	run(func(l *gpu.List) { l.Write(k.keys, page*int(seqs[1].Page(pages, 0)), ones) })
	for _, copied := range []struct {
		class    int
		from, to int32
	}{{slots, seqs[1].Page(slots, 0), 6}, {rows, seqs[1].Page(rows, 0), 3}, {pages, seqs[1].Page(pages, 0), 9}} {
		if err := c.Copy(copied.class, copied.from, copied.to); err != nil {
			t.Fatal(err)
		}
	}
	read := func(of gpu.Buffer, at, size int) []byte {
		got := make([]byte, size)
		run(func(l *gpu.List) { l.Read(got, of, at*size) })
		return got
	}
	for _, want := range []struct {
		name string
		got  []byte
		x    byte
	}{
		{"a slot", read(x.values, int(seqs[1].Page(slots, 0)), 20), 1},
		{"its copy", read(x.values, 6, 20), 1},
		{"a copy of rows", read(y.values, 3, 4*kv.PageSize), 1},
		{"keys", read(k.keys, int(seqs[1].Page(pages, 0)), page), 1},
		{"their copy", read(k.keys, 9, page), 1},
		{"values", read(k.values, 9, page), 0},
	} {
		if !slices.Equal(want.got, slices.Repeat([]byte{want.x}, len(want.got))) {
			t.Errorf("%s: %v", want.name, want.got)
		}
	}
}
