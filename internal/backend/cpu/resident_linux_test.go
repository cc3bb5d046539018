package cpu

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// TestEmbedResident: the pages of a file's table leave the process behind the rows that
// were looked up, unless products read them there.
func TestEmbedResident(t *testing.T) {
	const rows, d = 256, 1024
	path := filepath.Join(t.TempDir(), "table")
	if err := os.WriteFile(path, make([]byte, rows*d*4), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.F32, Shape: tensor.Shape{rows, d}, Data: f.Data()}}
	b := New(Options{Threads: 1})
	defer b.Close()
	step := &backend.Step{Tokens: make([]int32, rows)}
	for i := range step.Tokens {
		step.Tokens[i] = int32(i)
	}
	pages := rows * d * 4 / os.Getpagesize()
	for _, multiplied := range []bool{true, false} {
		n := &graph.Node{Op: graph.Embed, Shape: tensor.Shape{d}, Attr: graph.EmbedAttr{Scale: 1}, W: []*graph.Weight{w}}
		g := &graph.Graph{Nodes: []*graph.Node{n}}
		if multiplied {
			g.Nodes = append(g.Nodes, &graph.Node{Op: graph.Linear, W: []*graph.Weight{w}})
		}
		p := &planner{e: &executable{b: b, step: step}, g: g}
		if err := p.embed(n, make([]float32, rows*d))(); err != nil {
			t.Fatal(err)
		}
		if n := present(t, f.Data()); multiplied && n != pages || !multiplied && n != 0 {
			t.Errorf("multiplied %v: %d of %d pages are there", multiplied, n, pages)
		}
	}
}

// TestPlanResident: a plan for many rows takes the memory of those that steps have, outside Go's heap.
func TestPlanResident(t *testing.T) {
	const rows, d, wide = 256, 1024, 16 << 10
	weight := func(d tensor.DType, n, k int) *graph.Weight {
		return &graph.Weight{Tensor: tensor.Tensor{DType: d, Shape: tensor.Shape{n, k}, Data: make([]byte, d.RowBytes(n*k))}}
	}
	embed := &graph.Node{ID: 0, Op: graph.Embed, Shape: tensor.Shape{d}, Attr: graph.EmbedAttr{Scale: 1}, W: []*graph.Weight{weight(tensor.F32, 1, d)}}
	up := &graph.Node{ID: 1, Op: graph.Linear, Shape: tensor.Shape{wide}, In: []*graph.Node{embed}, W: []*graph.Weight{weight(tensor.Q4_0, wide, d)}}
	down := &graph.Node{ID: 2, Op: graph.Linear, Shape: tensor.Shape{d}, In: []*graph.Node{up}, W: []*graph.Weight{weight(tensor.Q4_0, d, wide)}}
	g := &graph.Graph{Nodes: []*graph.Node{embed, up, down}}
	b := New(Options{Threads: 1})
	defer b.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	plan, err := b.Compile(g, backend.Options{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("a plan takes %d bytes of the heap", after.TotalAlloc-before.TotalAlloc)
	}
	pool := kv.NewPool(nil, rows, rows, 0)
	cache, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	seq := pool.NewSequence()
	if err := seq.Grow(1); err != nil {
		t.Fatal(err)
	}
	s := &backend.Step{Tokens: []int32{0}, Pos: []int32{0}, Seqs: []*kv.Sequence{seq}, Outputs: []int32{0}, Cache: cache}
	if _, err := plan.Run(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, m := range b.buffers.parts {
		pages += present(t, m.Data())
	}
	if most := len(b.buffers.parts) + 4*(2*d+2*wide)/os.Getpagesize(); pages == 0 || pages > most {
		t.Errorf("%d pages for a row, want 1 to %d of %d", pages, most, b.buffers.bytes()/int64(os.Getpagesize()))
	}
}

// present counts the pages of data that the process holds.
func present(t *testing.T, data []byte) (n int) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	entries := make([]byte, len(data)/page*8)
	if _, err := f.ReadAt(entries, int64(uintptr(unsafe.Pointer(unsafe.SliceData(data))))/int64(page)*8); err != nil {
		t.Skip(err)
	}
	for e := range len(entries) / 8 {
		n += int(binary.LittleEndian.Uint64(entries[8*e:]) >> 63)
	}
	return n
}
