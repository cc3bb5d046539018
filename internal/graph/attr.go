package graph

import (
	"fmt"
	"slices"
)

// Attributes of nodes, by operation. The zero value of each field is neutral: fields not set by a family leave the
// arithmetic unchanged.
type (
	EmbedAttr struct{ Scale float32 }
	NormAttr  struct{ Eps, Offset float32 } // Offset is added to the weight
	ScaleAttr struct{ By float64 }
	ViewAttr  struct{ Offset int } // first element of the row

	// RoPEAttr is how the features of a head turn.
	RoPEAttr struct {
		Freqs       []float64 // a turning speed per pair; pairs past its end stay
		Dim         int       // the leading features of a head forming pairs; 0 for all
		Interleaved bool      // pairs are (2i, 2i+1), and not (i, i+Dim/2)
		Magnitude   float64   // multiplies cosines and sines, once, in float32; 0 is 1 (yarn, longrope)

		// Sections are the numbers of pairs turning by each part of a position, time, height and width: one run after
		// another, or with Woven by turns, while a section lasts, and the rest by the first part. None: all by the one
		// position. The parts of text are equal, so sections change nothing there. (mrope_section and
		// mrope_interleaved: transformers' modeling_qwen2_vl.py and modeling_qwen3_vl.py; ggml_mrope_cache_init in
		// llama.cpp)
		Sections [3]int
		Woven    bool
	}

	// AttentionAttr is how queries attend. A weight of the node is a score by head, its sink, in the softmax's divisor
	// like the score of another position with a value of zeros. (gpt-oss; Xiao et al. 2023, arXiv:2309.17453)
	AttentionAttr struct {
		KV    *KV
		Scale float64
		Cap   float64 // of scores: cap·tanh(score/cap); 0 for none

		// Bidirectional queries also see later positions of their sequence: all of them, or as many as before. A step
		// then has all rows of a sequence.
		Bidirectional bool

		// Grouped queries of a row in a group also see later positions of the group, as of an image in a text; with
		// Bidirectional, the positions of the group alone. A step says which rows are in groups.
		Grouped bool
	}

	// ActAttr is an activation; in a GLU and in Experts also the operations on gate and up before: act(alpha·min(gate,
	// limit))/alpha · (max(-limit, min(up, limit)) + plus). (gpt-oss: SiLU, 7, 1.702 and 1.)
	ActAttr struct {
		Act   Activation
		Limit float64 // 0 for none
		Alpha float64 // 0 for 1
		Plus  float64
	}

	// RouteAttr is how scores choose experts and become weights. Equal scores go to the lower index, and a NaN counts
	// as the lowest. A bias is added to the scores of the choice, and not to weights; the bias is the node's last
	// weight, after the scale by expert, if any.
	RouteAttr struct {
		Weigh     Weigh
		Normalize bool    // weights are divided by their sum
		Eps       float64 // added to the sum (LFM2: 1e-6)
		Near      float64 // of SparseMixer: how far scores may lie below the best, as a share of the larger magnitude
		Factor    float64 // factor of the weights, applied last; 0 for 1
		Biased    bool

		// Experts are in so many equal runs. Only Kept of the runs are open to choice: the runs with the largest sums
		// of their Best largest scores (0 for 1). (DeepSeek-V3, arXiv:2412.19437.)
		Groups, Kept, Best int
	}

	// ExpertsAttr is how experts are made. Their weights are as Form says; with Biased a bias of each follows after all
	// matrices, in their order.
	ExpertsAttr struct {
		ActAttr
		Form    Form
		Biased  bool
		OnInput bool // a route's weight multiplies an expert's input, not its output (Llama 4)
	}
)

// Weigh is how scores become weights.
type Weigh uint8

const (
	SoftmaxChosen Weigh = iota // softmax of the chosen scores
	SoftmaxAll                 // softmax of all scores, before the choice
	SigmoidEach                // sigmoid of each score

	// SparseMixer makes the weight of each choice, from the best on, by a softmax of its own: of the scores not chosen
	// before it, without scores s below it, at m, by more than Near·max(|s|, m). (Liu et al. 2024, arXiv:2409.12136)
	SparseMixer
)

func (w Weigh) String() string {
	return [...]string{"softmax_chosen", "softmax_all", "sigmoid", "sparse_mixer"}[w]
}

// Form is the weights of Experts, ff being the size between them.
type Form uint8

const (
	Fused       Form = iota // gate and up as one, [experts, 2·ff, in], and down [experts, in, ff]
	Interleaved             // as Fused, but rows are of gate and up by turns
	Apart                   // gate and up [experts, ff, in] each, and down
	Ungated                 // up [experts, ff, in] alone, activated, and down
)

func (f Form) String() string { return [...]string{"fused", "interleaved", "apart", "ungated"}[f] }

// firsts returns how many weights come before down.
func (f Form) firsts() int {
	if f == Apart {
		return 2
	}
	return 1
}

// Plain reports whether a is an activation and nothing else.
func (a ActAttr) Plain() bool { return a == ActAttr{Act: a.Act} }

// Activates returns the activation of a GLU, Act or Experts node; false of others.
func (n *Node) Activates() (ActAttr, bool) {
	switch a := n.Attr.(type) {
	case ActAttr:
		return a, true
	case ExpertsAttr:
		return a.ActAttr, true
	}
	return ActAttr{}, false
}

// RouteWeights returns the scale by expert of a Route, and the bias of its choice; nil where there is none.
func (n *Node) RouteWeights() (scale, bias *Weight) {
	w := n.W
	if a, _ := n.Attr.(RouteAttr); a.Biased {
		bias, w = w[len(w)-1], w[:len(w)-1]
	}
	if len(w) > 0 {
		scale = w[0]
	}
	return scale, bias
}

// ExpertWeights returns the matrices of an Experts node, down the last, and their biases in the same order; nil where
// there are none.
func (n *Node) ExpertWeights() (matrices, biases []*Weight) {
	a, _ := n.Attr.(ExpertsAttr)
	count := a.Form.firsts() + 1
	return n.W[:count], n.W[count:]
}

// Bidirectional reports whether queries of g see later positions, as an encoder's do: a step has all rows of its
// sequences.
func (g *Graph) Bidirectional() bool {
	return slices.ContainsFunc(g.Nodes, func(n *Node) bool {
		a, ok := n.Attr.(AttentionAttr)
		return ok && a.Bidirectional
	})
}

// Grouped reports whether queries of g see later positions of their group.
func (g *Graph) Grouped() bool {
	return slices.ContainsFunc(g.Nodes, func(n *Node) bool {
		a, ok := n.Attr.(AttentionAttr)
		return ok && a.Grouped
	})
}

// Newest returns the last position seen by a query at pos, without a group, in a sequence of length.
func (a AttentionAttr) Newest(pos, length int) int {
	switch {
	case !a.Bidirectional:
		return pos
	case a.KV.Window > 0:
		return min(length-1, pos+a.KV.Window-1)
	}
	return length - 1
}

// Divide returns a with sections of a list of three, or none, one run after another or woven.
func (a RoPEAttr) Divide(sections []int, woven bool) (RoPEAttr, error) {
	if len(sections) == 0 {
		return a, nil
	}
	if len(sections) != 3 {
		return a, fmt.Errorf("mrope_section %v, want three sections", sections)
	}
	a.Sections, a.Woven = [3]int(sections), woven
	return a, nil
}

// Turning returns how many features of a head of dim pairs are made of.
func (a RoPEAttr) Turning(dim int) int {
	if a.Dim > 0 {
		return a.Dim
	}
	return dim
}

// Part returns the part of a position for the i-th pair.
func (a RoPEAttr) Part(i int) int {
	switch s := a.Sections; {
	case s == [3]int{}:
		return 0
	case a.Woven:
		if part := i % 3; i < 3*s[part] {
			return part
		}
		return 0
	case i < s[0]:
		return 0
	case i < s[0]+s[1]:
		return 1
	}
	return 2
}

// Activation is the non-linearity of a GLU, Act or Experts node.
type Activation uint8

const (
	SiLU        Activation = iota // x·sigmoid(x)
	GELUTanh                      // GELU, tanh form
	GELUErf                       // GELU, exact: x/2·(1 + erf(x/√2))
	ReLUSquared                   // max(x, 0)²
	Sigmoid                       // 1/(1 + e^-x)
	Tanh
	ExpLess // 0 for positive x, else e^min(x, -1e-6) - 1 - x: a part of xIELU
	numActivations
)

// Activations returns all activations.
func Activations() []Activation {
	all := make([]Activation, numActivations)
	for i := range all {
		all[i] = Activation(i)
	}
	return all
}

func (a Activation) String() string {
	return [numActivations]string{"silu", "gelu_tanh", "gelu_erf", "relu_squared", "sigmoid", "tanh", "exp_less"}[a]
}

// UnmarshalText knows Hugging Face's names of the activations (ACT2CLS in transformers/activations.py).
func (a *Activation) UnmarshalText(name []byte) error {
	switch string(name) {
	case "silu", "swish":
		*a = SiLU
	case "gelu_pytorch_tanh", "gelu_tanh", "gelu_new":
		*a = GELUTanh
	case "gelu":
		*a = GELUErf
	case "relu2":
		*a = ReLUSquared
	case "sigmoid":
		*a = Sigmoid
	case "tanh":
		*a = Tanh
	default:
		return fmt.Errorf("activation %q is not supported (silu, gelu, gelu_pytorch_tanh, relu2, sigmoid and tanh are)",
			name)
	}
	return nil
}
