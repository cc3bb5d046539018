package backendtest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// Vocab is the number of token ids of the suite's graphs: a step's rows are
// chosen among that many random ones.
const Vocab = 97

// sketch records a small graph over random weights.
type sketch struct {
	graph.Builder
	r     *rand.Rand
	named int
}

func newSketch(seed uint64) *sketch {
	return &sketch{Builder: graph.New(), r: rand.New(rand.NewPCG(seed, 1))}
}

// name is a new name.
func (k *sketch) name(kind string) string {
	k.named++
	return fmt.Sprintf("%s%d", kind, k.named)
}

func (k *sketch) weight(d tensor.DType, shape ...int) *graph.Weight {
	return newWeight(k.r, k.name("w"), d, shape...)
}

// input is an activation of the given shape: a random row for each token id.
func (k *sketch) input(shape ...int) *graph.Node {
	n := tensor.Shape(shape).Size()
	x := k.Embed(k.weight(tensor.F32, Vocab, n), Vocab, n, 1)
	if len(shape) == 2 {
		x = k.Heads(x, shape[1])
	}
	return x
}

// rows is an activation whose row for token id i is rows[i].
func (k *sketch) rows(rows [][]float32) *graph.Node {
	return k.Embed(ofValues(k.name("rows"), rows), len(rows), len(rows[0]), 1)
}

// linear is a projection of x to out features.
func (k *sketch) linear(d tensor.DType, x *graph.Node, out int) *graph.Node {
	return k.Linear(k.weight(d, out, x.Shape.Size()), x, out)
}

// node appends an operation that no architecture uses so far.
func (k *sketch) node(op graph.Op, shape tensor.Shape, attr any, in ...*graph.Node) *graph.Node {
	g, _ := k.Graph()
	n := &graph.Node{ID: len(g.Nodes), Op: op, Name: k.name(op.String()), Layer: -1, Shape: shape, In: in, Attr: attr,
		Pos: "backendtest"}
	g.Nodes = append(g.Nodes, n)
	return n
}

// end records the last node, the wanted rows of x, and ends the sketch.
func (k *sketch) end(t testing.TB, x *graph.Node) *graph.Graph {
	t.Helper()
	k.Outputs(x)
	return k.graph(t)
}

func (k *sketch) graph(t testing.TB) *graph.Graph {
	t.Helper()
	g, err := k.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}
