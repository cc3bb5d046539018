package imatrix

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// Collector sums the squared inputs of a graph's weights: in its products, and in each expert. Want, Tap and Expert are
// for the engine computing the text.
type Collector struct {
	weights map[*graph.Node][]string // readers of a node's value
	sums    map[*graph.Node]*Entry   // of a node's value
	experts map[*graph.Node][2]*Entry
}

// NewCollector returns a collector for the weights of g. The head's weight is among them only if head is true: the head
// decides between tokens, and quantizers do better with equal weights for its columns.
func NewCollector(g *graph.Graph, head bool) *Collector {
	c := &Collector{weights: map[*graph.Node][]string{}, sums: map[*graph.Node]*Entry{},
		experts: map[*graph.Node][2]*Entry{}}
	behind := map[*graph.Node]bool{} // behind Rows or Pool
	for _, n := range g.Nodes {
		behind[n] = n.Op == graph.Rows || n.Op == graph.Pool
		for _, in := range n.In {
			behind[n] = behind[n] || behind[in]
		}
		switch {
		case n.Op == graph.Linear && (head || !behind[n]):
			in := n.In[0]
			c.weights[in] = append(c.weights[in], n.W[0].GGUF)
			c.sums[in] = &Entry{make([]float64, in.Shape.Size()), make([]float64, 1)}
		case n.Op == graph.Experts:
			var e [2]*Entry
			matrices, _ := n.ExpertWeights()
			for i, w := range []*graph.Weight{matrices[0], matrices[len(matrices)-1]} {
				count := w.Shape[0]
				e[i] = &Entry{make([]float64, count*w.Shape.Last()), make([]float64, count)}
			}
			c.experts[n] = e
		}
	}
	return c
}

// Want reports whether Tap is to see n.
func (c *Collector) Want(n *graph.Node) bool { return c.sums[n] != nil }

// Tap takes a node's value, [rows, columns].
func (c *Collector) Tap(n *graph.Node, out []float32) { c.sums[n].add(0, out) }

// Expert returns a function for the inputs of an expert: [rows, columns] of its input, and of its last product's input;
// nil for a graph without experts.
func (c *Collector) Expert() func(n *graph.Node, expert int, in, inner []float32) {
	if len(c.experts) == 0 {
		return nil
	}
	return func(n *graph.Node, expert int, in, inner []float32) {
		e := c.experts[n]
		e[0].add(expert, in)
		e[1].add(expert, inner)
	}
}

// add takes rows of inputs of matrix i.
func (e *Entry) add(i int, x []float32) {
	d := len(e.Sums) / len(e.Counts)
	sums := e.Sums[i*d : (i+1)*d]
	e.Counts[i] += float64(len(x) / d)
	for ; len(x) > 0; x = x[d:] {
		for j, v := range x[:d] {
			sums[j] += float64(v) * float64(v)
		}
	}
}

// Fits returns an error if m has a weight unknown to g, or of another shape: from another model.
func (m *Matrix) Fits(g *graph.Graph) error {
	shapes := map[string]tensor.Shape{}
	for _, n := range g.Nodes {
		for _, w := range n.W {
			shapes[w.GGUF+".weight"] = w.Shape
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Entries)) {
		s, ok := shapes[name]
		if !ok {
			return fmt.Errorf("tensor %q: the model has no such weight", name)
		}
		matrices := 1
		if len(s) > 2 {
			matrices = s[0]
		}
		if _, err := m.Mean(name, matrices, s.Last()); err != nil {
			return err
		}
	}
	return nil
}

// Drain adds the collected sums to m, and begins anew. An infinite sum or NaN is an error.
func (c *Collector) Drain(m *Matrix) error {
	got := &Matrix{Entries: map[string]*Entry{}}
	for n, names := range c.weights {
		for _, name := range names {
			got.Entries[name+".weight"] = c.sums[n]
		}
	}
	for n, e := range c.experts {
		matrices, _ := n.ExpertWeights()
		for _, w := range matrices {
			got.Entries[w.GGUF+".weight"] = e[0]
		}
		got.Entries[matrices[len(matrices)-1].GGUF+".weight"] = e[1]
	}
	if err := m.Add(got); err != nil {
		return err
	}
	for name, e := range got.Entries {
		clear(e.Sums)
		clear(e.Counts)
		for i, sum := range m.Entries[name].Sums {
			if !(sum <= math.MaxFloat32) {
				return fmt.Errorf("tensor %q: the squared activations of column %d sum to %v", name,
					i%(len(e.Sums)/len(e.Counts)), sum)
			}
		}
	}
	return nil
}
