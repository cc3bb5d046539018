// Package adapter reads low-rank adapters (LoRA; Hu et al. 2021, arXiv:2106.09685): GGUF files of llama.cpp's
// converter, and folders saved by PEFT.
//
// An adapter has a pair of matrices for some of a model's linear layers, A [rank, in] and B [out, rank], and adds
// scale·B(A x) to the layer's value. Any other content of a file (DoRA, additional layers, biases, pairs for embeddings
// or experts) is an error naming the content: an adapter is computed as it was trained, or not at all.
//
// Files are not trusted. A pair's shapes are compared with the layer's before anything is copied.
//
// Files in reading order: adapter.go, gguf.go, peft.go, file.go.
package adapter

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/quant"
)

// Open opens a GGUF file or a PEFT folder.
func Open(path string) (f *File, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	err = mmap.Guard(func() (err error) {
		if st.IsDir() {
			f, err = openPEFT(path)
		} else {
			f, err = openGGUF(path)
		}
		return err
	})
	if err != nil {
		rest, named := strings.CutPrefix(err.Error(), filepath.Clean(path))
		if named && strings.IndexAny(rest, `:/\`) == 0 { // of the file, or of a file within
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.path = path
	return f, nil
}

// Bytes returns the memory that Bind takes.
func (f *File) Bytes() (n int64) {
	for _, p := range f.pairs {
		n += 4 * int64(p.a.Shape.Size()+p.b.Shape.Size())
	}
	return n
}

// Bind finds the linear layers of g, the graph of c, that f has pairs for. The notes name the pairs set aside; the
// error joins all faults.
func (f *File) Bind(c *checkpoint.Checkpoint, g *graph.Graph) (a *backend.Adapter, notes []string, err error) {
	err = mmap.Guard(func() (err error) {
		a, notes, err = f.bind(c.Arch, c.Habit, g)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return a, notes, nil
}

// bind implements Bind for a model of a family with the converters' changes to its tensors.
func (f *File) bind(
	arch string, habit func(gguf string) checkpoint.Habit, g *graph.Graph,
) (*backend.Adapter, []string, error) {
	if f.arch != "" && f.arch != arch {
		return nil, nil, fmt.Errorf("it is for models of architecture %q, the model's is %q", f.arch, arch)
	}
	places, err := f.places(g)
	if err != nil {
		return nil, nil, err
	}
	a := &backend.Adapter{Pairs: map[*graph.Weight]*backend.Pair{}}
	aside := 0
	for i, p := range f.pairs {
		w := places[i]
		if w == nil {
			aside++
			continue
		}
		if a.Pairs[w] != nil {
			return nil, nil, fmt.Errorf("tensor %s: a second pair for %s", p.a.Name, w.Name)
		}
		h := checkpoint.Habit{}
		if f.format == checkpoint.GGUF {
			h = habit(w.GGUF)
		}
		if a.Pairs[w], err = f.read(p, h); err != nil {
			return nil, nil, err
		}
	}
	a.Hash = hash(a, g)
	if aside == 0 {
		return a, nil, nil
	}
	return a, []string{fmt.Sprintf("%d pairs of %s are set aside: they are for keys and values of layers that share "+
		"those of another", aside, f.path)}, nil
}

// places returns the weights to which f's pairs belong, nil for a pair set aside.
func (f *File) places(g *graph.Graph) (places []*graph.Weight, err error) {
	layers, others := layersOf(g, f.format)
	var errs []error
	for _, p := range f.pairs {
		name := p.module
		if f.format == checkpoint.HuggingFace {
			name = checkpoint.TextName(name)
		}
		w, known := layers[name]
		switch {
		case !known:
			err = fmt.Errorf("tensor %s: %s", p.a.Name, cmp.Or(others[name], "the model has no layer of this name"))
		case w != nil:
			err = f.checkFit(p, w)
		}
		if err != nil {
			errs, err = append(errs, err), nil
		}
		places = append(places, w)
	}
	if len(f.pairs) == 0 {
		errs = append(errs, errors.New("it has no pairs"))
	}
	return places, joinErrors(errs)
}

// layersOf returns the weights of g's linear layers by their names in a format, nil for a weight that the graph never
// reads, and the reasons why weights of other operations take no pair.
func layersOf(g *graph.Graph, format checkpoint.Format) (layers map[string]*graph.Weight, others map[string]string) {
	layers, others = map[string]*graph.Weight{}, map[string]string{}
	named := func(gguf, hf string) string {
		if format == checkpoint.GGUF {
			return gguf
		}
		return hf
	}
	for _, n := range g.Nodes {
		for _, w := range n.W {
			if w != nil && n.Op != graph.Linear {
				name := named(w.GGUF, w.HF)
				others[name] = fmt.Sprintf("%v is no linear layer but of operation %v: a pair for it is not supported",
					n.Name, n.Op)
			}
		}
	}
	stored := stores(g)
	for _, n := range g.Nodes {
		if n.Op != graph.Linear {
			continue
		}
		w := n.W[0]
		name := named(w.GGUF, w.HF)
		if others[name] != "" { // a head that is the table of embeddings has a separate name
			name = named(n.Name, strings.TrimSuffix(n.HF, ".out"))
		}
		layers[name] = w
		for _, layer := range stored[n] {
			name := strings.Replace(name, fmt.Sprintf(".%d.", n.Layer), fmt.Sprintf(".%d.", layer), 1)
			if _, ok := layers[name]; !ok {
				layers[name] = nil
			}
		}
	}
	return layers, others
}

// stores lists, for the linear layers making keys and values, the other layers that share the keys and values. In
// PyTorch the sharing layers have such matrices without using them.
func stores(g *graph.Graph) map[*graph.Node][]int {
	sharing := map[*graph.KV][]int{}
	for _, n := range g.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok && n.Layer != a.KV.Layer {
			sharing[a.KV] = append(sharing[a.KV], n.Layer)
		}
	}
	stored := map[*graph.Node][]int{}
	var visit func(n *graph.Node, layers []int)
	visit = func(n *graph.Node, layers []int) {
		if n.Op == graph.Linear {
			stored[n] = layers
			return
		}
		for _, in := range n.In {
			visit(in, layers)
		}
	}
	for _, n := range g.Nodes {
		if kv, ok := n.Attr.(*graph.KV); ok && n.Op == graph.StoreKV && len(sharing[kv]) > 0 {
			visit(n, sharing[kv])
		}
	}
	return stored
}

// maxRank bounds the scratch space of a step: rank numbers for each row.
const maxRank = 1 << 16

// checkFit compares a pair's shapes with the layer's.
func (f *File) checkFit(p pair, w *graph.Weight) error {
	a, b := p.a.Shape, p.b.Shape
	out, in := w.Shape[0], w.Shape[1]
	switch {
	case len(a) != 2 || a[1] != in || a[0] < 1:
		return fmt.Errorf("tensor %s: shape %v, the layer wants [rank, %d]", p.a.Name, []int(a), in)
	case a[0] > maxRank:
		return fmt.Errorf("tensor %s: a rank of %d, at most %d is supported", p.a.Name, a[0], maxRank)
	case len(b) != 2 || b[0] != out || b[1] != a[0]:
		return fmt.Errorf("tensor %s: shape %v, the layer wants [%d, %d]", p.b.Name, []int(b), out, a[0])
	}
	scale, err := f.scale(p.module, a[0])
	if err == nil && !(math.Abs(scale) <= math.MaxFloat32) {
		err = fmt.Errorf("a scale of %v, want a number of float32", scale)
	}
	if err != nil {
		return fmt.Errorf("tensor %s: %w", p.a.Name, err)
	}
	return nil
}

// read returns a pair in float32, with the rows of B in the order of the model's weights.
func (f *File) read(p pair, h checkpoint.Habit) (*backend.Pair, error) {
	rank, out := p.a.Shape[0], p.b.Shape[0]
	scale, err := f.scale(p.module, rank)
	if err != nil {
		return nil, err
	}
	x := &backend.Pair{Rank: rank, Scale: scale, A: make([]float32, p.a.Shape.Size()),
		B: make([]float32, p.b.Shape.Size())}
	if err := quant.Dequantize(p.a.DType, x.A, p.a.Data); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", p.a.Name, err)
	}
	size := len(p.b.Data) / out
	for r := range out {
		stored := h.GGUFRow(r, out)
		if err := quant.Dequantize(p.b.DType, x.B[r*rank:(r+1)*rank],
			p.b.Data[stored*size:(stored+1)*size]); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", p.b.Name, err)
		}
	}
	for _, half := range []struct {
		name   string
		values []float32
	}{{p.a.Name, x.A}, {p.b.Name, x.B}} {
		if i := slices.IndexFunc(half.values, func(v float32) bool { return v-v != 0 }); i >= 0 {
			return nil, fmt.Errorf("tensor %s: it has a value of %v", half.name, half.values[i])
		}
	}
	return x, nil
}

// joinErrors joins a few errors, and counts the others: an adapter of another model has an error for each tensor.
func joinErrors(errs []error) error {
	const most = 3
	if n := len(errs) - most; n > 1 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more like these", n))
	}
	return errors.Join(errs...)
}

// hash returns the hash of all numbers that a computes with.
func hash(a *backend.Adapter, g *graph.Graph) (sum [sha256.Size]byte) {
	h, seen := sha256.New(), map[*graph.Weight]bool{}
	number := func(v uint64) { h.Write(binary.LittleEndian.AppendUint64(nil, v)) }
	for _, n := range g.Nodes {
		if n.Op != graph.Linear || a.Pairs[n.W[0]] == nil || seen[n.W[0]] {
			continue
		}
		p := a.Pairs[n.W[0]]
		seen[n.W[0]] = true
		number(uint64(n.ID))
		number(uint64(p.Rank))
		number(math.Float64bits(p.Scale))
		for _, values := range [][]float32{p.A, p.B} {
			text := make([]byte, 0, 4*len(values))
			for _, v := range values {
				text = binary.LittleEndian.AppendUint32(text, math.Float32bits(v))
			}
			h.Write(text)
		}
	}
	h.Sum(sum[:0])
	return sum
}
