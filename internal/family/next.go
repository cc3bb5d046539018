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
	Decoder() *Decoder
}

// Decoder is a model by its parts, around its head. For the token at a position, and the trunk's state of the position
// before, the head predicts the token behind:
//
//	x = layer(proj·[norm(embedding); norm(state)])
//	state = norm(x), logits = output·state
//
// The first state is the trunk's after its last norm, further ones are the head's own. The head's keys and values lie
// at the token's position, one later than in a publisher's code: rotations by differences of positions are the same,
// and a page's contents follow from its tokens and earlier ones. No row sees position 0, without a state before.
type Decoder struct {
	Embed, Norm, Output   *graph.Weight // Output is nil where the embedding makes the logits
	Vocab, Hidden, Layers int
	Eps, Offset           float32                                                        // of norms
	KV                    func(layer int) *graph.KV                                      // the store of a layer
	Layer                 func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node // the layer of a store
	Next                  *Next                                                          // nil without a head
	store                 *graph.KV                                                      // of the head, for both graphs
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (d *Decoder) Forward(g graph.Builder) *graph.Node {
	return d.logits(g, d.Output, d.norm(g, d.Norm, g.Outputs(d.trunk(g, d.embed(g, d.Embed)))))
}

// StateName is the name of the node with the state for the head's next row, of every row.
const StateName = "nextn_state"

// Feed records the model's pass, and behind its result keys and values of the head for the step's rows, whose tokens
// are known.
func (d *Decoder) Feed(g graph.Builder) (result *graph.Node) {
	e := d.embed(g, d.Embed)
	x := d.trunk(g, e)
	result = d.logits(g, d.Output, d.norm(g, d.Norm, g.Outputs(x)))
	state := g.Name(d.norm(g, d.Norm, x), StateName, "")
	d.head(g, e, d.before(g, state))
	return result
}

// Draft records the head alone. Its Input is rows of states.
func (d *Decoder) Draft(g graph.Builder) *graph.Node {
	state := g.Name(d.embed(g, d.Embed), "nextn_input", "")
	x := d.head(g, d.embed(g, or(d.Next.Embed, d.Embed)), state)
	x = g.Name(d.norm(g, or(d.Next.Norm, d.Norm), x), StateName, "")
	return d.logits(g, or(d.Next.Output, d.Output), g.Outputs(x))
}

// Whole records the head behind the model's pass, for equations: row by row the state of the row before. In a row
// decoded alone the state is the head's own, as in a draft after the first.
func (d *Decoder) Whole(g graph.Builder) *graph.Node {
	e := d.embed(g, d.Embed)
	fed := d.before(g, d.norm(g, d.Norm, d.trunk(g, e)))
	if d.Next.Embed.There() {
		e = d.embed(g, d.Next.Embed)
	}
	own := d.norm(g.Layer(d.Layers), or(d.Next.Norm, d.Norm), d.head(g, e, fed))
	fed.State.Recycles = own.Name
	return d.logits(g, or(d.Next.Output, d.Output), g.Outputs(own))
}

// before records the rows before x's.
func (d *Decoder) before(g graph.Builder, x *graph.Node) *graph.Node {
	w := &graph.Weight{Tensor: previous(d.Hidden), GGUF: "nextn_previous"}
	return g.Name(g.Conv(w, nil, x, 2), w.GGUF, "")
}

// head records the head's layer behind embeddings and states.
func (d *Decoder) head(g graph.Builder, embedded, state *graph.Node) *graph.Node {
	if d.store == nil {
		d.store = d.KV(d.Layers)
		d.store.Skip = 1
	}
	g = g.Layer(d.Layers)
	x := g.Concat(d.norm(g, d.Next.EmbedNorm, embedded), d.norm(g, d.Next.StateNorm, state))
	return d.Layer(g, g.Linear(d.Next.Proj, x, d.Hidden), d.store)
}

func (d *Decoder) embed(g graph.Builder, w *graph.Weight) *graph.Node {
	return g.Embed(w, d.Vocab, d.Hidden, 1)
}

func (d *Decoder) trunk(g graph.Builder, x *graph.Node) *graph.Node {
	for i := range d.Layers {
		x = d.Layer(g.Layer(i), x, d.KV(i))
	}
	return x
}

func (d *Decoder) norm(g graph.Builder, w *graph.Weight, x *graph.Node) *graph.Node {
	return g.RMSNorm(w, x, d.Eps, d.Offset)
}

func (d *Decoder) logits(g graph.Builder, w *graph.Weight, x *graph.Node) *graph.Node {
	return Logits(g, w, d.Embed, x, d.Vocab)
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
