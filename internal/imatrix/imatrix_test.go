package imatrix

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

var update = flag.Bool("update", false, "write testdata/fuzz again")

func example() *Matrix {
	return &Matrix{Datasets: []string{"a.txt"}, Chunks: 2, ChunkSize: 512, Entries: map[string]*Entry{
		"blk.0.attn_q.weight":        {Sums: []float64{4, 6}, Counts: []float64{2}},
		"blk.0.ffn_down_exps.weight": {Sums: []float64{1, 2, 3, 0, 0, 0}, Counts: []float64{1, 0}},
	}}
}

func encode(t testing.TB, m *Matrix) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, encode(t, example()), 0o666); err != nil {
		t.Fatal(err)
	}
	if m, err := Read(path); err != nil || !reflect.DeepEqual(m, example()) {
		t.Errorf("read %+v, %v", m, err)
	}
}

func TestMean(t *testing.T) {
	m := example()
	for _, x := range []struct {
		name              string
		matrices, columns int
		want              []float32
	}{
		{"blk.0.attn_q.weight", 1, 2, []float32{2, 3}},
		{"blk.0.ffn_down_exps.weight", 2, 3, []float32{1, 2, 3, 1, 1, 1}},
		{"blk.0.attn_k.weight", 1, 2, nil},
	} {
		if got, err := m.Mean(x.name, x.matrices, x.columns); err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %v, %v; want %v", x.name, got, err, x.want)
		}
	}
	if _, err := m.Mean("blk.0.attn_q.weight", 1, 3); err == nil {
		t.Error("a weight of another width is no error")
	}
}

func TestAdd(t *testing.T) {
	m, o := example(), example()
	o.Entries["blk.1.attn_q.weight"] = &Entry{Sums: []float64{7}, Counts: []float64{3}}
	if err := m.Add(o); err != nil {
		t.Fatal(err)
	}
	want := &Matrix{Datasets: []string{"a.txt", "a.txt"}, Chunks: 4, ChunkSize: 512, Entries: map[string]*Entry{
		"blk.0.attn_q.weight":        {Sums: []float64{8, 12}, Counts: []float64{4}},
		"blk.0.ffn_down_exps.weight": {Sums: []float64{2, 4, 6, 0, 0, 0}, Counts: []float64{2, 0}},
		"blk.1.attn_q.weight":        {Sums: []float64{7}, Counts: []float64{3}},
	}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v", m)
	}
	m.Entries["blk.1.attn_q.weight"].Sums[0] = 1
	if o.Entries["blk.1.attn_q.weight"].Sums[0] != 7 {
		t.Error("an entry is shared")
	}
	if err := m.Add(&Matrix{Entries: map[string]*Entry{"blk.0.attn_q.weight": {Sums: make([]float64, 3), Counts: []float64{1}}}}); err == nil {
		t.Error("another width is no error")
	}
}

// oldFile is of the form without GGUF.
const oldFile = "\x02\x00\x00\x00" +
	"\x01\x00\x00\x00a" + "\x02\x00\x00\x00" + "\x02\x00\x00\x00" + "\x00\x00\x80\x40\x00\x00\xc0\x40" + // of 2 windows 4 and 6
	"\x01\x00\x00\x00b" + "\x00\x00\x00\x00" + "\x01\x00\x00\x00" + "\x00\x00\x40\x40" // 3

// TestOld reads the form without GGUF: means of squares, times the windows.
func TestOld(t *testing.T) {
	want := &Matrix{Datasets: []string{}, Entries: map[string]*Entry{"a": {[]float64{4, 6}, []float64{2}}, "b": {[]float64{3}, []float64{1}}}}
	if m, err := parse([]byte(oldFile)); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("read %+v, %v", m, err)
	}
	want.Chunks, want.Datasets = 2, []string{"xy"}
	m, err := parse([]byte(oldFile + "\x02\x00\x00\x00" + "\x02\x00\x00\x00xy"))
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Fatalf("read %+v, %v", m, err)
	}
	mean, err := m.Mean("a", 2, 1) // one count for both matrices
	if err != nil || !reflect.DeepEqual(mean, []float32{2, 3}) {
		t.Errorf("%v, %v", mean, err)
	}
	m.Scale(512)
	if e := m.Entries["a"]; m.ChunkSize != 512 || e.Sums[1] != 6*512 || e.Counts[0] != 1024 {
		t.Errorf("of 512 tokens: %+v", e)
	}
}

// spoiled returns files that must be refused, with a part of the error.
func spoiled(t testing.TB) map[string]struct {
	data []byte
	says string
} {
	keys := func() []gguf.KeyValue {
		return []gguf.KeyValue{{Key: "general.type", Value: "imatrix"}, {Key: "imatrix.datasets", Value: []string{}},
			{Key: "imatrix.chunk_count", Value: uint32(1)}, {Key: "imatrix.chunk_size", Value: uint32(1)}}
	}
	file := func(keys []gguf.KeyValue, tensors ...tensor.Tensor) []byte {
		var b bytes.Buffer
		if err := gguf.Write(&b, keys, tensors); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	f32 := func(name string, x ...float64) tensor.Tensor {
		return tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{len(x)}, Data: floats(x)}
	}
	other, endless := keys(), keys()
	other[0].Value, endless[2].Value = "model", uint64(math.MaxUint64)
	half := tensor.Tensor{Name: "x.in_sum2", DType: tensor.F16, Shape: tensor.Shape{1}, Data: make([]byte, 2)}
	good := encode(t, example())
	numbers := func(n ...int32) (b []byte) {
		for _, x := range n {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
		return b
	}
	return map[string]struct {
		data []byte
		says string
	}{
		"empty":     {nil, "number of weights: the file ends"},
		"truncated": {good[:len(good)-40], "cut off"},
		"model":     {file(other, f32("x.in_sum2", 1), f32("x.counts", 1)), `general.type is "model"`},
		"no-type":   {file(nil, f32("x.in_sum2", 1), f32("x.counts", 1)), "general.type"},
		"no-keys":   {file(keys()[:1], f32("x.in_sum2", 1), f32("x.counts", 1)), "imatrix."},
		"endless":   {file(endless, f32("x.in_sum2", 1), f32("x.counts", 1)), "imatrix.chunk_count"},
		"nothing":   {file(keys()), "no sums"},
		"alone":     {file(keys(), f32("x.in_sum2", 1)), `no "x.counts"`},
		"counts":    {file(keys(), f32("x.counts", 1)), "neither the sums"},
		"strange":   {file(keys(), f32("x", 1)), "neither the sums"},
		"uneven":    {file(keys(), f32("x.in_sum2", 1, 2, 3), f32("x.counts", 1, 1)), "3 sums for 2 counts"},
		"nan":       {file(keys(), f32("x.in_sum2", math.NaN()), f32("x.counts", 1)), "value 0 is NaN"},
		"infinite":  {file(keys(), f32("x.in_sum2", 1), f32("x.counts", math.Inf(1))), "its counts: value 0 is +Inf"},
		"negative":  {file(keys(), f32("x.in_sum2", 1, -1), f32("x.counts", 1)), "value 1 is -1"},
		"old-none":  {numbers(0), "no sums"},
		"old-many":  {numbers(math.MaxInt32), "its name: the file ends"},
		"old-minus": {numbers(-1), "number of weights: -1"},
		"old-name":  {numbers(1, math.MaxInt32), "its name: 2147483647 × 1 bytes, 0 are left"},
		"old-empty": {numbers(1, 0, 1, 1, 0), `the name ""`},
		"old-width": {numbers(1, 4, 0x61616161, 1, math.MaxInt32, 0), "columns of aaaa: 2147483647 × 4 bytes, 4 are left"},
		"old-zero":  {numbers(1, 4, 0x61616161, 1, 0), "aaaa has no columns"},
		"old-nan":   {numbers(1, 4, 0x61616161, 1, 1, 0x7fc00000), "value 0 is NaN"},
		"old-twice": {numbers(2, 4, 0x61616161, 1, 1, 0, 4, 0x61616161, 1, 1, 0), `the name "aaaa"`},
		"old-more":  {append(numbers(1, 4, 0x61616161, 1, 1, 0, 1, 0), 0), "1 bytes too many"},
		"old-hides": {numbers(1, 4, 0x00616161, 1, 1, 0), "without control characters"},
		"old-utf-8": {numbers(1, 4, -1, 1, 1, 0), "no UTF-8"},
		"type":      {file(keys(), half, f32("x.counts", 1)), "element type F16"},
	}
}

func TestSpoiled(t *testing.T) {
	for name, x := range spoiled(t) {
		if _, err := parse(x.data); err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, want … %s …", name, err, x.says)
		}
	}
}

// TestCorpus keeps FuzzParse's committed corpus; -update writes it.
func TestCorpus(t *testing.T) {
	seeds := map[string][]byte{"good": encode(t, example()), "old-good": []byte(oldFile)}
	for name, x := range spoiled(t) {
		seeds[name] = x.data
	}
	golden.Corpus(t, "FuzzParse", seeds, *update)
}

// FuzzParse: a file that can be read can be written, and is then the same.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data)
		if err != nil {
			return
		}
		if again, err := parse(encode(t, m)); err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v, written and read: %+v, %v", m, again, err)
		}
		for name, e := range m.Entries {
			if _, err := m.Mean(name, len(e.Counts), len(e.Sums)/len(e.Counts)); err != nil {
				t.Error(err)
			}
		}
	})
}

// collect computes ids on a backend.
func collect(t *testing.T, g *graph.Graph, b backend.Backend, ids []int32, head bool) *Matrix {
	t.Helper()
	c := NewCollector(g, head)
	e, err := engine.New(g, b, engine.Options{Context: len(ids), Chunk: 5, Want: c.Want, Tap: c.Tap, Expert: c.Expert()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	defer b.Close()
	s := e.NewSequence()
	defer s.Close()
	m := &Matrix{Entries: map[string]*Entry{}}
	for _, part := range [][]int32{ids[:8], ids[8:]} {
		if _, err := s.Feed(context.Background(), part, len(part)); err != nil {
			t.Fatal(err)
		}
		if err := c.Drain(m); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestCollect has every weight of products, and counts that tell how many rows each expert saw; float64 and float32
// give the same.
func TestCollect(t *testing.T) {
	ids := []int32{2, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}
	for _, name := range []string{"tiny-llama", "tiny-gemma4", "tiny-gemma4-moe"} {
		c, err := checkpoint.Open(golden.Model(t, name))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		g, _, err := arch.Load(c)
		if err != nil {
			t.Fatal(err)
		}
		want := collect(t, g, reference.Backend{}, ids, true)
		got := collect(t, g, cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}), ids, true)
		products := map[string]bool{}
		for _, n := range g.Nodes {
			if n.Op == graph.Linear || n.Op == graph.Experts {
				for _, w := range n.W {
					products[w.GGUF+".weight"] = true
				}
			}
		}
		if len(want.Entries) != len(products) || len(got.Entries) != len(products) {
			t.Errorf("%s: %d and %d entries for %d weights", name, len(want.Entries), len(got.Entries), len(products))
		}
		for w := range products {
			a, b := want.Entries[w], got.Entries[w]
			if a == nil || b == nil || !reflect.DeepEqual(a.Counts, b.Counts) {
				t.Fatalf("%s: %s: %v and %v", name, w, a, b)
			}
			rows := 0.
			for _, n := range a.Counts {
				rows += n
			}
			if all := float64(len(ids)); rows != all && rows != 2*all { // two experts a row
				t.Errorf("%s: %s: %v rows", name, w, rows)
			}
			mean := 0.
			for _, x := range a.Sums {
				mean += x / float64(len(a.Sums))
			}
			for i, x := range a.Sums {
				if math.Abs(b.Sums[i]-x) > 1e-5*x+1e-6*mean {
					t.Fatalf("%s: %s: sum %d is %v in float32, %v in float64", name, w, i, b.Sums[i], x)
				}
			}
		}
		less := collect(t, g, cpu.New(cpu.Options{}), ids, false)
		if n := len(less.Entries); n != len(products)-1 {
			t.Errorf("%s: %d entries without the head", name, n)
		}
		if err := less.Fits(g); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for x, other := range map[string]int{"blk.0.attn_q.weight": 7, "blk.99.attn_q.weight": 1} {
			m := &Matrix{Entries: map[string]*Entry{x: {make([]float64, other), make([]float64, 1)}}}
			if err := m.Fits(g); err == nil || !strings.Contains(err.Error(), x) {
				t.Errorf("%s: another model's matrix: %v", name, err)
			}
		}
	}
}

// TestOverflow: activations whose squares no float32 holds.
func TestOverflow(t *testing.T) {
	in, out := &graph.Node{Shape: tensor.Shape{1}}, &graph.Node{Op: graph.Linear, W: []*graph.Weight{{GGUF: "x"}}}
	out.In = []*graph.Node{in}
	for _, x := range []float32{1e30, float32(math.NaN())} {
		c := NewCollector(&graph.Graph{Nodes: []*graph.Node{in, out}}, false)
		c.Tap(in, []float32{x})
		if err := c.Drain(&Matrix{Entries: map[string]*Entry{}}); err == nil || !strings.Contains(err.Error(), `tensor "x.weight"`) {
			t.Errorf("%v: %v", x, err)
		}
	}
}
