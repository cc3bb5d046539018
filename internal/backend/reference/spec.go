package reference

import (
	"cmp"
	"errors"
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Spec is the computation of a node: inputs, weights, and the settings of the operation. A recorded Spec says what the
// graph says; an edit changes a setting, or puts a function around the node.
type Spec struct {
	Node *graph.Node
	In   []*graph.Node
	W    []*graph.Weight

	Func  func(e *Eval, s *Spec, rows []int) ([]float64, error) // computes rows in place of Plain; nil for Plain
	Times float64                                               // factor of the result

	Alter       [3]Change      // changes of a Linear's weight, or of Experts' matrices
	By          float64        // factor of Embed and Scale; cap of Softcap, 0 for none; number of Mix and Above
	Shift       int            // number added to positions
	Eps, Offset float64        // numbers of norms
	KeepMean    bool           // whether LayerNorm subtracts no mean
	Pool        graph.PoolAttr // rule of Pool
	Act         func(float64) float64
	Limits      graph.ActAttr // limits of gates, except the activation
	// Seen returns the positions seen by the row at, among the positions from and to; nil for all.
	Seen func(e *Eval, at, from, to int) (int, int)

	Experts   Experts
	Route     Route
	Rope      Rope
	Attention Attention
	Sequence  Sequence
}

// Sequence are the settings of a node that rows before matter to.
type Sequence struct {
	Scan   func(h int) int // group of a scan's head
	Shared bool            // whether all elements of a key decay as the first
	Most   float64         // of the share of a correction

	// Recycled is the node whose value of the row before stands in place of the node's own where Recycles says so.
	Recycled *graph.Node
	Recycles func(e *Eval, at int) bool
}

// Change makes another matrix of w [rows, cols].
type Change = func(w []float64, rows, cols int) []float64

// Experts are the settings of Experts.
type Experts struct {
	Form    graph.Form
	Biased  bool
	OnInput bool      // whether a weight multiplies the input, not the output
	Swapped bool      // whether gate and up are exchanged
	Gains   []float64 // factors of the products
	// Routes returns the pairs of index and weight of rows; nil for the value of the Route.
	Routes func(e *Eval, s *Spec, rows []int) ([]float64, error)
}

// Route is the settings of a Route.
type Route struct {
	Rule       graph.RouteAttr
	BiasWeighs bool // whether the bias is in the weights as well
	Zeroed     bool // whether experts of dropped groups have the score 0
	// Leans changes the scores by which the experts of a row are chosen, not weighed, given their order; nil for none.
	Leans func(row int, order []int, scores []float64)
}

// Index is the settings of a Choose.
type Index struct {
	K      int
	Linear bool // whether negative products count
	Even   bool // whether all heads weigh 1
}

// Rope is the settings of a RoPE.
type Rope struct {
	Freqs []float64 // turning speed of each pair
	// Rest returns the cosine and the sine of a pair past Freqs at a position; nil for pairs that stay.
	Rest func(pos, i int) (cos, sin float64)

	Interleaved bool    // pairs (2i, 2i+1), not (i, i+half)
	Part        int     // features that turn, in two halves; 0 for all
	Magnitude   float64 // factor of cosines and sines; 0 for 1
	Sections    [3]int  // pairs turning by each part of a position; zeros for a single part
	Woven       bool    // whether the sections have pairs by turns
	// Pos returns the turning position of a row, of three parts; nil for the row's own.
	Pos func(e *Eval, row int, own [3]int32) [3]int32
}

// Attention is the settings of an Attention.
type Attention struct {
	Store  *graph.Node // keys and values
	Scale  float64
	Skip   int // first positions, seen by no later query
	Window int // positions seen by a query; 0 for all
	Ahead  int // later positions seen by a query
	// Grouped is whether a query sees the later positions of its group, Apart whether its group's alone.
	Grouped, Apart bool
	Chunk          int                    // positions of a run, for queries that see a run; 0 for no runs
	Tail           bool                   // whether values of a latent are the last elements of keys, not the first
	Group          func(h int) int        // key and value head of a query's head
	Cap            float64                // cap of scores; 0 for none
	Sinks          *graph.Weight          // scores besides, by head; nil for none
	Soft           func(scores []float64) // makes weights of scores; nil for softmax
	Index          Index                  // of a Choose, whose store is the index keys'
	// Read changes the stored keys and values of count positions, for the query at a position; nil for no change.
	Read func(e *Eval, k, v []float64, count, at int) (keys, values []float64)
	// Hides reports whether the query at a position does not see another; nil for none.
	Hides func(e *Eval, at, pos int) bool
}

func newSpec(n *graph.Node, stores map[*graph.Node]*graph.Node) *Spec {
	s := &Spec{Node: n, In: n.In, W: n.W, By: 1, Times: 1}
	switch a := n.Attr.(type) {
	case graph.EmbedAttr:
		s.By = float64(a.Scale)
	case graph.NormAttr:
		s.Eps, s.Offset = float64(a.Eps), float64(a.Offset)
	case graph.RoPEAttr:
		s.Rope = Rope{Freqs: a.Freqs, Interleaved: a.Interleaved, Part: a.Dim, Magnitude: a.Magnitude,
			Sections: a.Sections, Woven: a.Woven}
	case graph.ScaleAttr:
		s.By = a.By
	case graph.MixAttr:
		s.By = a.Plus
	case graph.PoolAttr:
		s.Pool = a
	case graph.ActAttr:
		s.Act, s.Limits = Activation(a.Act), a
	case graph.ExpertsAttr:
		s.Act, s.Limits = Activation(a.Act), a.ActAttr
		s.Experts = Experts{Form: a.Form, Biased: a.Biased, OnInput: a.OnInput, Gains: []float64{1, 1, 1}}
	case graph.RouteAttr:
		s.Route.Rule = a
	case graph.AttentionAttr:
		heads := n.In[0].Shape[0]
		x := Attention{Store: stores[n], Scale: a.Scale, Skip: a.KV.Skip, Window: a.KV.Window, Cap: a.Cap,
			Group: func(h int) int { return h * a.KV.Heads / heads }}
		if a.KV.Chunked {
			x.Chunk, x.Window = a.KV.Window, 0
		}
		if a.Bidirectional {
			x.Ahead = a.Newest(0, 1<<30) // the window's length, or all
		}
		x.Grouped, x.Apart = a.Grouped, a.Grouped && a.Bidirectional
		if len(n.W) > 0 {
			x.Sinks = n.W[0]
		}
		s.Attention = x
	}
	if n.Op == graph.Choose {
		s.Attention.Index.K, s.Attention.Store = n.Shape[0], stores[n]
	}
	if groups := Groups(n); groups > 0 {
		s.Sequence.Scan, s.Sequence.Most = func(h int) int { return h * groups / n.Shape[0] }, n.MostShare()
	}
	return s
}

// Groups returns the number of groups shared by the heads of a scan, 0 for other operations.
func Groups(n *graph.Node) int {
	switch n.Op {
	case graph.SSMScan:
		return n.In[2].Shape[0]
	case graph.DeltaScan:
		return n.In[1].Shape[0]
	}
	return 0
}

// Activation returns a in float64.
func Activation(a graph.Activation) func(float64) float64 {
	switch a {
	case graph.SiLU:
		return SiLU
	case graph.GELUErf:
		return GELUErf
	case graph.ReLUSquared:
		return ReLUSquared
	case graph.Sigmoid:
		return Sigmoid
	case graph.Tanh:
		return math.Tanh
	case graph.ExpLess:
		return ExpLess
	}
	return GELUTanh
}

// Sigmoid returns 1/(1 + e^-x).
func Sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// ExpLess returns e^x - 1 - x of a negative x, else 0. (xIELU: Huang and Schlag 2024, arXiv:2411.13010)
func ExpLess(x float64) float64 {
	if x > 0 {
		return 0
	}
	return math.Expm1(min(x, -1e-6)) - x
}

// ReLUSquared returns the square of the positive part.
func ReLUSquared(x float64) float64 { return max(x, 0) * max(x, 0) }

// SiLU returns x·sigmoid(x).
func SiLU(x float64) float64 { return x / (1 + math.Exp(-x)) }

// GELUTanh returns GELU in the tanh form.
func GELUTanh(x float64) float64 {
	return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// GELUErf returns GELU in the exact form.
func GELUErf(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }

var (
	errNoInput = errors.New("nothing to compute it from")
	errCircle  = errors.New("it is computed from itself")
)

// Uncomputable reports whether err says that known values do not determine a value, rather than that reading failed.
func Uncomputable(err error) bool { return errors.Is(err, errNoInput) || errors.Is(err, errCircle) }

func apply(x []float64, f func(float64) float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = f(v)
	}
	return y
}

// embed returns the weight's rows of ids, scaled.
func (s *Spec) embed(e *Eval, ids []int32) ([]float64, error) {
	d, by := s.Node.Shape.Size(), []float64{s.By}
	e.num.store(by)
	y := make([]float64, 0, len(ids)*d)
	for _, id := range ids {
		if id < 0 || int(id) >= s.W[0].Rows() {
			return nil, errNoInput
		}
		row, err := Row(s.W[0], int(id))
		if err != nil {
			return nil, err
		}
		for _, v := range row {
			y = append(y, v*by[0])
		}
	}
	e.num.store(y)
	return y, nil
}

// Norm returns RMSNorm of x [rows, shape...].
func (s *Spec) Norm(e *Eval, x []float64) ([]float64, error) {
	d := s.Node.Shape.Last()
	var w []float64
	if len(s.W) > 0 {
		var err error
		if w, err = e.vector(s.W[0]); err != nil {
			return nil, err
		}
	}
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += d {
		q := 1 / math.Sqrt(e.num.dot(x[r:r+d], x[r:r+d])/float64(d)+s.Eps)
		for j := range d {
			y[r+j] = x[r+j] * q
		}
	}
	// transformers rounds norms with an offset once.
	if a, _ := s.Node.Attr.(graph.NormAttr); w == nil || a.Offset == 0 {
		e.num.store(y)
	}
	if w != nil {
		for r := 0; r < len(y); r += d {
			for j := range d {
				y[r+j] *= s.Offset + w[j%len(w)]
			}
		}
		e.num.store(y)
	}
	return y, nil
}

// Rotate turns the pairs of each head of x [rows, heads, dim], in place.
func (s *Spec) Rotate(e *Eval, x []float64, rows []int) []float64 {
	heads, d := s.Node.Shape[0], s.Node.Shape[1]
	part := cmp.Or(s.Rope.Part, d)
	pairs := len(s.Rope.Freqs)
	if s.Rope.Rest != nil {
		pairs = part / 2
	}
	buf := make([]float64, 6)
	cs, p := buf[:2], buf[2:]
	for t, r := range rows {
		for i := range pairs {
			pos := max(s.Rope.position(e, t, r, i)+s.Shift, 0)
			if i < len(s.Rope.Freqs) {
				cs[0], cs[1] = rope.TurnBy(pos, s.Rope.Freqs[i]*e.num.speed(i), s.Rope.Magnitude)
			} else {
				cs[0], cs[1] = s.Rope.Rest(pos, i)
			}
			e.num.store(cs)
			a, b := i, i+part/2
			if s.Rope.Interleaved {
				a, b = 2*i, 2*i+1
			}
			for h := range heads {
				v := x[(t*heads+h)*d:][:d]
				p[0], p[1], p[2], p[3] = v[a]*cs[0], v[b]*cs[1], v[b]*cs[0], v[a]*cs[1]
				e.num.store(p)
				v[a], v[b] = p[0]-p[1], p[2]+p[3]
			}
		}
	}
	e.num.store(x)
	return x
}

// position returns the part of a position for the i-th pair of a row, the t-th row of a step.
func (r *Rope) position(e *Eval, t, row, i int) int {
	p := [3]int32{int32(row), int32(row), int32(row)}
	if e.parts != nil && r.Sections != [3]int{} {
		if !e.stepwise {
			t = row
		}
		p = e.parts[t]
	}
	if r.Pos != nil {
		p = r.Pos(e, row, p)
	}
	if r.Sections == [3]int{} {
		return int(p[0])
	}
	return int(p[graph.RoPEAttr{Sections: r.Sections, Woven: r.Woven}.Part(i)])
}

// gated returns the activation of the first input, times the second.
func (s *Spec) gated(e *Eval, in [][]float64) []float64 {
	gate, act, l := in[0], s.Act, s.Limits
	if l.Limit > 0 {
		gate = apply(gate, func(v float64) float64 { return min(v, l.Limit) })
	}
	if l.Alpha != 0 {
		act = func(v float64) float64 { return s.Act(l.Alpha*v) / l.Alpha }
	}
	y := apply(gate, e.num.act(act))
	e.num.store(y)
	if len(in) > 1 {
		for i, up := range in[1] {
			if l.Limit > 0 {
				up = max(-l.Limit, min(up, l.Limit))
			}
			y[i] *= up + l.Plus
		}
		e.num.store(y)
	}
	return y
}

// RouteBy returns a Route's pairs of index and weight for scores.
func (s *Spec) RouteBy(e *Eval, scores []float64) ([]float64, error) {
	return s.route(e, scores, nil, nil)
}

// combine adds or multiplies two inputs, or an input and a weight repeated over the rows.
func (s *Spec) combine(e *Eval, in [][]float64) ([]float64, error) {
	z := in[len(in)-1]
	if len(in) == 1 {
		var err error
		if z, err = e.vector(s.W[0]); err != nil {
			return nil, err
		}
	}
	y := make([]float64, len(in[0]))
	for i, v := range in[0] {
		if y[i] = v + z[i%len(z)]; s.Node.Op == graph.Mul {
			y[i] = v * z[i%len(z)]
		}
	}
	return y, nil
}

// parts returns d elements of each vector of k, from an element on.
func parts(x []float64, k, from, d int) []float64 {
	if k == d {
		return x
	}
	y := make([]float64, 0, len(x)/k*d)
	for ; len(x) > 0; x = x[k:] {
		y = append(y, x[from:from+d]...)
	}
	return y
}

// concat puts vectors of x and z side by side.
func concat(n *graph.Node, x, z []float64) []float64 {
	k, m := n.In[0].Shape.Last(), n.In[1].Shape.Last()
	y := make([]float64, 0, len(x)+len(z))
	for i := range len(x) / k {
		y = append(append(y, x[i*k:(i+1)*k]...), z[i*m:(i+1)*m]...)
	}
	return y
}

// l2Norm returns x/√(Σx² + eps) of each vector.
func (s *Spec) l2Norm(e *Eval, x []float64) []float64 {
	d := s.Node.Shape.Last()
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += d {
		q := e.num.round(1 / math.Sqrt(e.num.dot(x[r:r+d], x[r:r+d])+s.Eps))
		for j := range d {
			y[r+j] = x[r+j] * q
		}
	}
	return y
}

// clamp returns x between two numbers, weights.
func clamp(e *Eval, x []float64, w []*graph.Weight) ([]float64, error) {
	low, err := e.vector(w[0])
	if err != nil {
		return nil, err
	}
	high, err := e.vector(w[1])
	if err != nil {
		return nil, err
	}
	return apply(x, func(v float64) float64 { return math.Min(math.Max(v, low[0]), high[0]) }), nil
}
