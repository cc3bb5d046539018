// Package graph records a forward pass as a flat list of operations.
//
// An architecture calls a [Builder] once, at load; backends compile the list
// that it leaves. Every activation is a matrix of T rows, T being the number
// of tokens in the step. T is the only dimension unknown when the graph is
// recorded, so a node's shape holds just what follows it.
package graph

import (
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/tensor"
)

// Op is an operation. The list is meant to be final: a new one needs its
// meaning in backend/ref, a case in backend/backendtest and a kernel in every
// backend.
type Op uint8

const (
	Embed     Op = iota // rows of a weight by token id, scaled; EmbedAttr
	Linear              // x·Wᵀ
	RMSNorm             // x / rms(x) along the last dimension, weighted or not; NormAttr
	RoPE                // rotary position embedding, half style; RoPEAttr
	StoreKV             // keys and values into the step's pages; *KV
	Attention           // softmax(q·kᵀ·scale)·v over the stored pages; AttentionAttr
	Add                 // of two nodes, or of a node and a weight
	Mul                 // likewise
	Scale               // by a constant; ScaleAttr
	GLU                 // act(gate)·up; ActAttr
	Act                 // activation alone; ActAttr
	Softcap             // c·tanh(x/c); ScaleAttr
	Rows                // the rows that the step wants logits of
	View                // part of each row under another shape, no copy; ViewAttr
	Route               // the k largest scores of each row and their softmax: pairs of index and weight
	Experts             // the routed gated MLPs, summed by weight; ActAttr
	numOps
)

var opNames = [numOps]string{"embed", "linear", "rms_norm", "rope", "store_kv", "attention", "add", "mul",
	"scale", "glu", "act", "softcap", "rows", "view", "route", "experts"}

func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Activation is the non-linearity of a GLU, Act or Experts node.
type Activation uint8

const (
	SiLU     Activation = iota // x·sigmoid(x)
	GELUTanh                   // GELU, tanh form
)

func (a Activation) String() string { return [...]string{"silu", "gelu_tanh"}[a] }

// UnmarshalText knows Hugging Face's names of the activations.
func (a *Activation) UnmarshalText(name []byte) error {
	switch string(name) {
	case "silu", "swish":
		*a = SiLU
	case "gelu_pytorch_tanh", "gelu_tanh":
		*a = GELUTanh
	default:
		return fmt.Errorf("activation %q is not supported (silu and gelu_pytorch_tanh are)", name)
	}
	return nil
}

// Attributes of nodes, by operation.
type (
	EmbedAttr struct{ Scale float32 }
	NormAttr  struct{ Eps, Offset float32 } // Offset is added to the weight
	RoPEAttr  struct{ Freqs []float64 }     // a turning speed per pair; pairs past its end stay
	ScaleAttr struct{ By float64 }
	ActAttr   struct{ Act Activation }
	ViewAttr  struct{ Offset int } // first element of the row

	AttentionAttr struct {
		KV    *KV
		Scale float64
	}
)

// KV names one layer's store of keys and values. Layers that share a store
// share the pointer.
type KV struct {
	Layer  int // the layer that writes it
	Heads  int
	Dim    int // of a head
	Window int // positions that a query sees, itself included; 0 for all
}

// Weight is a tensor of the checkpoint, bound to a model field by its tags. A
// weight that the file lacks has no Data; it has no Name either if that has
// been reported.
type Weight struct {
	tensor.Tensor
	GGUF, HF string // names in the two formats, without ".weight"
}

// Matrix is the i-th matrix of a weight [count, rows, columns].
func (w *Weight) Matrix(i int) *Weight {
	size := len(w.Data) / w.Shape[0]
	return &Weight{GGUF: w.GGUF, HF: w.HF, Tensor: tensor.Tensor{Name: w.Name, DType: w.DType,
		Shape: w.Shape[1:], Data: w.Data[i*size : (i+1)*size]}}
}

// Fault is how a tensor of a file disagrees with the model.
type Fault uint8

const (
	Missing   Fault = iota // the model needs it
	Unclaimed              // no weight of the architecture is it
	Refused                // the configuration rules it out
	Misshapen
)

// TensorError is a tensor that disagrees with the model.
type TensorError struct {
	Tensor string // as the file names it, without ".weight"
	Fault  Fault
	What   string
}

// ErrNoStore is the error for a layer that shares the keys and values of none.
var ErrNoStore = errors.New("no earlier layer stores the keys and values that this one shares")

// NewTensorError says what is wrong in words, too.
func NewTensorError(name string, f Fault, format string, args ...any) *TensorError {
	return &TensorError{name, f, fmt.Sprintf(format, args...)}
}

// Error is "tensor NAME: WHAT".
func (e *TensorError) Error() string { return "tensor " + e.Tensor + ": " + e.What }

// Node is one recorded operation.
type Node struct {
	ID    int    // index in Graph.Nodes
	Op    Op     //
	Name  string // after GGUF's tensor names, unique in the graph: blk.3.attn_q
	HF    string // name of the same value as a PyTorch module's output, "" if no module gives it
	Layer int    // -1 outside the layers
	Shape tensor.Shape
	In    []*Node
	W     []*Weight
	Attr  any
	Pos   string // file:line in the architecture that recorded it
}

// String names the node in errors: blk.3.attn_q (qwen3.go:71).
func (n *Node) String() string { return n.Name + " (" + n.Pos + ")" }

// Graph is the recorded list, in execution order; the last node is the result.
type Graph struct {
	Nodes []*Node
}

// Result is the last node, the logits.
func (g *Graph) Result() *Node { return g.Nodes[len(g.Nodes)-1] }

// Node finds a node by its name or by its PyTorch name.
func (g *Graph) Node(name string) *Node {
	for _, n := range g.Nodes {
		if n.Name == name || n.HF == name && name != "" {
			return n
		}
	}
	return nil
}

// KVs lists the stores in the order in which they are first written.
func (g *Graph) KVs() []*KV {
	var kvs []*KV
	for _, n := range g.Nodes {
		if n.Op == StoreKV {
			kvs = append(kvs, n.Attr.(*KV))
		}
	}
	return kvs
}
