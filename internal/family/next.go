package family

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// Next is the weights, beside a decoder layer's, of a head predicting the token after the next: the layer behind the
// last. Optional weights are the model's by default.
type Next struct {
	EmbedNorm *graph.Weight `gguf:"nextn.enorm" hf:"enorm"`
	StateNorm *graph.Weight `gguf:"nextn.hnorm" hf:"hnorm"`
	Proj      *graph.Weight `gguf:"nextn.eh_proj" hf:"eh_proj"`
	Norm      *graph.Weight `gguf:"nextn.shared_head_norm" hf:"shared_head.norm" optional:"the last norm by default"`
	Embed     *graph.Weight `gguf:"nextn.embed_tokens" hf:"embed_tokens" optional:"the embedding by default"`
	Output    *graph.Weight `gguf:"nextn.shared_head_head" hf:"shared_head.head" optional:"the output by default"`
}

// Predictor is a Forwarder that may have such a head.
type Predictor interface {
	Forwarder
	Head() *Head // Head returns nil if there is none.
}

// Head is a model around its head. For the token at a position, and the trunk's state of the position before, the head
// predicts the token behind:
//
//	x = layer(proj·[norm(embedding); norm(state)])
//	state = norm(x), logits = output·state
//
// The first state is the trunk's after its last norm, further ones are the head's own. The head's keys and values lie
// at the token's position, one later than in a publisher's code: rotations by differences of positions are the same,
// and a page's contents follow from its tokens and earlier ones. No row sees position 0, without a state before.
type Head struct {
	Next
	KV     graph.KV // of the layer; Skip is set here
	Hidden int

	// Parts of the model. Weights are the model's.
	Last   *graph.Weight // last norm
	Embed  *graph.Weight
	Output *graph.Weight

	Embedded func(g graph.Builder, w *graph.Weight) *graph.Node // of the step's tokens
	Trunk    func(g graph.Builder, x *graph.Node) *graph.Node   // layers
	Normed   func(g graph.Builder, w *graph.Weight, x *graph.Node) *graph.Node
	Layer    func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node // of the head
	Logits   func(g graph.Builder, w *graph.Weight, x *graph.Node) *graph.Node
}

// StateName is the name of the node with the state for the head's next row, of every row.
const StateName = "nextn_state"

// Feed records the model's pass, and behind its result keys and values of the head for the step's rows, whose tokens
// are known.
func (h *Head) Feed(g graph.Builder) (result *graph.Node) {
	e := h.Embedded(g, h.Embed)
	x := h.Trunk(g, e)
	result = h.Logits(g, h.Output, h.Normed(g, h.Last, g.Outputs(x)))
	state := g.Name(h.Normed(g, h.Last, x), StateName, "")
	shifted := g.Conv(&graph.Weight{Tensor: previous(h.Hidden), GGUF: "nextn_previous"}, nil, state, 2)
	h.record(g, e, shifted)
	return result
}

// Draft records the head alone. Its Input is rows of states.
func (h *Head) Draft(g graph.Builder) *graph.Node {
	state := g.Name(h.Embedded(g, h.Embed), "nextn_input", "")
	x := h.record(g, h.Embedded(g, or(h.Next.Embed, h.Embed)), state)
	x = g.Name(h.Normed(g, or(h.Next.Norm, h.Last), x), StateName, "")
	return h.Logits(g, or(h.Next.Output, h.Output), g.Outputs(x))
}

// record records the head's layer behind embeddings and states.
func (h *Head) record(g graph.Builder, embedded, state *graph.Node) *graph.Node {
	g, h.KV.Skip = g.Layer(h.KV.Layer), 1
	x := g.Concat(h.Normed(g, h.EmbedNorm, embedded), h.Normed(g, h.StateNorm, state))
	return h.Layer(g, g.Linear(h.Proj, x, h.Hidden), &h.KV)
}

func or(w, usual *graph.Weight) *graph.Weight {
	if w.There() {
		return w
	}
	return usual
}

// previous returns the weights of a convolution whose output is the input of the position before.
func previous(channels int) tensor.Tensor {
	t := tensor.Tensor{Name: "nextn_previous", DType: tensor.F32, Shape: tensor.Shape{channels, 2}}
	for range channels {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(math.Float32bits(1)))
	}
	return t
}
