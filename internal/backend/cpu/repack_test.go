package cpu

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// TestRepack: a mapped weight whose pages are let go on the way becomes what one
// in memory does, with any number of threads, and takes what Repacked says.
func TestRepack(t *testing.T) {
	shape := tensor.Shape{3, 2 * dropAfter / 576 / 3, 1024} // twice dropAfter
	data := make([]byte, tensor.Q4_0.RowBytes(shape.Size()))
	rand.NewChaCha8([32]byte{}).Read(data)
	path := filepath.Join(t.TempDir(), "weight")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var want []byte
	for threads, from := range map[int][]byte{1: data, 2: f.Data(), 3: f.Data()} {
		w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q4_0, Shape: shape, Data: from}}
		g := &graph.Graph{Nodes: []*graph.Node{{Op: graph.Experts, W: []*graph.Weight{w}}, {Op: graph.Linear, W: []*graph.Weight{w}}}}
		b := New(Options{Threads: threads})
		defer b.Close()
		var said []int64
		if err := b.repack(g, func(done, total int64) { said = append(said, done, total) }); err != nil {
			t.Fatal(err)
		}
		if n := int64(len(data)); !slices.Equal(said, []int64{0, n, n, n}) {
			t.Errorf("%d threads: progress %d", threads, said)
		}
		got := b.packed[w].memory
		if more := Repacked(g); more != int64(len(got)-len(data)) {
			t.Errorf("Repacked is %d, panels take %d for %d", more, len(got), len(data))
		}
		if want == nil {
			want = bytes.Clone(got)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d threads: other panels", threads)
		}
	}
}
