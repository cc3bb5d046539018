package cpu

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
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
