// Package graph records a forward pass as a flat list of operations.
//
// An architecture calls a [Builder] once, at load; backends compile the list. Every activation is a matrix of T rows, T
// being the number of tokens in the step. T is the only dimension unknown when the graph is recorded, so a node's shape
// holds the dimensions after T.
//
// Files, users before the used: choose.go (an indexer), stream.go (operations on several streams), state.go (operations
// with a state), row.go (operations on rows), patch.go (on pictures), pool.go, print.go, hoist.go (sums ahead of rows),
// live.go (the last reader of each value), builder.go (all other operations), attr.go (settings of operations),
// graph.go.
package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

// Op is an operation. The list is open, at a price: a new operation needs its meaning in backend/reference, a case in
// backend/backendtest, a kernel in every backend, and a fault and a cause in the lab. Where the arithmetic is the same
// loop, an attribute of an existing operation is better.
type Op uint8

const (
	Embed       Op = iota // rows of a weight by token id, scaled; EmbedAttr
	Linear                // x·Wᵀ
	RMSNorm               // x / rms(x) along the last dimension, weighted or not; NormAttr
	RoPE                  // rotary position embedding; RoPEAttr
	StoreKV               // keys and values into the step's pages; *KV
	Attention             // softmax(q·kᵀ·scale)·v over the stored pages; AttentionAttr
	Add                   // of two nodes, or of a node and a weight
	Mul                   // likewise
	Scale                 // by a constant; ScaleAttr
	GLU                   // act(gate)·up; ActAttr
	Act                   // activation alone; ActAttr
	Softcap               // c·tanh(x/c); ScaleAttr
	Rows                  // the rows with wanted logits
	View                  // part of each row under another shape, no copy; ViewAttr
	Route                 // the k best experts of each row by its scores: pairs of index and weight; RouteAttr
	Experts               // the routed MLPs, summed by weight; ExpertsAttr
	LayerNorm             // (x - mean) / deviation along the last dimension, weighted and biased or not; NormAttr
	L2Norm                // x / |x| along the last dimension; NormAttr
	Concat                // two nodes, side by side along the last dimension
	Slice                 // part of the last dimension; SliceAttr
	EmbedPos              // rows of a weight by position
	ScalePos              // by a factor of the position; ScalePosAttr
	Pool                  // one row of several rows of a sequence, for each wanted row; PoolAttr
	HeadLinear            // x·Wᵀ of each head, with a matrix of its own
	Conv                  // causal convolution of each channel over its last inputs; has a State
	SSMScan               // Mamba 2's selective scan; has a State
	DeltaScan             // the gated delta rule's scan; has a State
	Patches               // the rows of a step's embeddings
	Interpolate           // shares of rows of a weight by a row's place in its picture; PlaceAttr
	Clamp                 // between two numbers, weights
	Deepstack             // features for a later layer, behind a step's embeddings; DeepstackAttr
	Mix                   // sums of a row's vectors, weighted by the row's own numbers; MixAttr
	Match                 // vectors scaled to the root mean square of another; NormAttr
	Above                 // max(0, x - mean - by·deviation) along the last dimension; ScaleAttr
	Choose                // the positions with the best scores of an indexer; ChooseAttr
	numOps
)

var opNames = [numOps]string{"embed", "linear", "rms_norm", "rope", "store_kv", "attention", "add", "mul",
	"scale", "glu", "act", "softcap", "rows", "view", "route", "experts", "layer_norm", "l2_norm", "concat", "slice",
	"embed_pos", "scale_pos", "pool", "head_linear", "conv", "ssm_scan", "delta_scan", "patches",
	"interpolate", "clamp", "deepstack", "mix", "match", "above", "choose"}

func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// KV names one layer's store of keys and values. Layers that share a store share the pointer.
type KV struct {
	Layer  int // the writing layer
	Heads  int
	Dim    int // of a head
	Window int // positions seen by a query, its own included; 0 for all
	Skip   int // first positions, seen by no query

	Chunked  bool // a query sees the positions of its own run of Window positions, the first run from 0 on (Llama 4)
	ValueDim int  // of a head's values; 0 for Dim
	Latent   bool // values are the first ValueDim elements of keys, and not stored (DeepSeek-V2, absorbed)
	Index    bool // keys of an indexer: no element is a value, although Latent, and Choose reads them
	Sparse   bool // attention sees chosen positions alone; Over sets it
}

// Values returns the size of a head's values.
func (kv *KV) Values() int {
	switch {
	case kv.Index:
		return 0
	case kv.ValueDim > 0:
		return kv.ValueDim
	}
	return kv.Dim
}

// Oldest returns the first position seen by a query at pos.
func (kv *KV) Oldest(pos int) int {
	switch {
	case kv.Window == 0:
		return kv.Skip
	case kv.Chunked:
		return pos - pos%kv.Window
	}
	return max(0, pos-kv.Window+1)
}

// State names a node's memory of each sequence: a convolution its last inputs, a scan its sum, up to the start of the
// page of the last row, and the page's rows. A page is a run of positions, as of keys and values. Before the sequence's
// first row the state is 0.
type State struct {
	Layer int
	Name  string // among the states of its layer: conv, scan
	Size  int    // elements, float32 (float64 in backend/reference)
	Rows  []Run  // parts of a row, likewise (in backend/reference the node's inputs)

	// Recycles is the name of a node whose value of the row before a row decoded alone has in place of its own, by
	// backend/reference's Eval; "" for none.
	Recycles string
}

// Run is a number of vectors of a size.
type Run struct{ Count, Size int }

// Row returns the elements of a row.
func (s *State) Row() (n int) {
	for _, r := range s.Rows {
		n += r.Count * r.Size
	}
	return n
}

// Weight is a tensor of the checkpoint, bound to a model field by its tags. A weight missing in the file has no Data,
// and no Name once reported.
type Weight struct {
	tensor.Tensor
	GGUF, HF string // names in the two formats, without ".weight"
}

// Matrix returns the i-th matrix of a weight [count, rows, columns].
func (w *Weight) Matrix(i int) *Weight {
	return &Weight{GGUF: w.GGUF, HF: w.HF, Tensor: w.Tensor.Matrix(i)}
}

// Flat returns a weight of several dimensions as a matrix of rows: a convolution over patches without overlap is a
// product. A weight that is missing, or has other sizes, stays the same.
func (w *Weight) Flat(rows int) *Weight {
	if !w.There() || rows < 1 || w.Shape.Size()%rows != 0 {
		return w
	}
	flat := *w
	flat.Shape = tensor.Shape{rows, w.Shape.Size() / rows}
	return &flat
}

// Turned returns a matrix with rows and columns exchanged.
func (w *Weight) Turned() *Weight {
	if !w.There() || len(w.Shape) != 2 || w.DType.Quantized() {
		return w
	}
	return &Weight{GGUF: w.GGUF, HF: w.HF, Tensor: tensor.Turn(w.Tensor)}
}

// Fault is how a tensor of a file disagrees with the model.
type Fault uint8

const (
	Missing   Fault = iota // needed by the model
	Unclaimed              // unknown to the architecture
	Refused                // ruled out by the configuration
	Misshapen
)

// TensorError is a tensor that disagrees with the model.
type TensorError struct {
	Tensor string // name in the file, without ".weight"
	Fault  Fault
	What   string
	Want   tensor.Shape // the shape by the configuration; nil where no operation reads the tensor
}

// ErrNoStore is the error for a layer sharing keys and values without a store.
var ErrNoStore = errors.New("no earlier layer stores the keys and values that this one shares")

// NewTensorError returns a TensorError with a text.
func NewTensorError(name string, f Fault, format string, args ...any) *TensorError {
	return &TensorError{Tensor: name, Fault: f, What: fmt.Sprintf(format, args...)}
}

// Error returns "tensor NAME: WHAT".
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
	State *State // state read and written, nil for most nodes
	Pos   string // file:line of the recording call in the architecture
}

// String names the node in errors: blk.3.attn_q (NAME.go:71).
func (n *Node) String() string { return n.Name + " (" + n.Pos + ")" }

// Graph is the recorded list, in execution order; the last node is the result.
type Graph struct {
	Nodes []*Node
}

// Result returns the last node, the logits.
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

// States lists the states of g's nodes, each once.
func (g *Graph) States() []*State {
	var states []*State
	for _, n := range g.Nodes {
		if n.State != nil && !slices.Contains(states, n.State) {
			states = append(states, n.State)
		}
	}
	return states
}

// KVs lists the stores, each once, in the order of their first writes.
func (g *Graph) KVs() []*KV {
	var kvs []*KV
	for _, n := range g.Nodes {
		if n.Op == StoreKV && !slices.Contains(kvs, n.Attr.(*KV)) {
			kvs = append(kvs, n.Attr.(*KV))
		}
	}
	return kvs
}
