package mistake

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// entryOf returns the entry of an ID, nil if there is none.
func entryOf(id string) *entry {
	for _, e := range table {
		if e.id == id {
			return e
		}
	}
	return nil
}

// has reports whether h has all details of d. A value of nil stands for any.
func (h *Hypothesis) has(d detail) bool {
	for k, v := range d {
		if x, ok := h.Detail[k]; !ok || v != nil && x != v {
			return false
		}
	}
	return true
}

// choose returns the form of a mistake for a value, nil if the form would change nothing.
func (m *entry) choose(s *site, n *graph.Node, list []*Hypothesis, value string) (*Hypothesis, error) {
	word := value
	if value == untapped && m.id == "bias_missing" && n.Op != graph.Add {
		return nil, nil // without a tap of its own
	}
	if value == untapped && slices.Contains(m.values, untapped) {
		word = ""
	}
	if details, ok := m.words[word]; ok {
		for _, d := range details {
			for _, h := range list {
				if x, ok := h.at(h.guess()); ok && x.has(d) {
					return x, nil
				}
			}
		}
		return nil, nil
	}
	at := slices.IndexFunc(list, func(h *Hypothesis) bool { return h.Fit != nil })
	if word == "" && m.usual == nil {
		x, _ := list[0].at(list[0].guess())
		return x, nil
	}
	if m.usual == nil && at < 0 && m.number == "" {
		return nil, m.odd(value)
	}
	var f *Fit
	if at >= 0 {
		f = list[at].Fit
	}
	v, err := m.value(s, n, f, word)
	if err != nil {
		return nil, err
	}
	if m.number != "" {
		for _, h := range list {
			if h.has(detail{m.number: v}) {
				return h, nil
			}
		}
		return nil, nil
	}
	switch {
	case f == nil:
		return nil, nil
	case f.Right != 0 && math.Abs(v/f.Right-1) < 1e-6:
		return nil, nil
	case math.IsNaN(v) || f.Least < f.Most && !(v >= min(f.Least, 0) && v <= max(f.Most, 1e30)):
		return nil, fmt.Errorf("value %q: want a number from %g to %g", value, f.Least, f.Most)
	}
	x, _ := list[at].at(v)
	if x == nil {
		return nil, fmt.Errorf("value %q is not possible", value)
	}
	return x, nil
}

// value returns the number of a value, or the usual number.
func (m *entry) value(s *site, n *graph.Node, f *Fit, value string) (float64, error) {
	if value == "" {
		return m.usual(s, n, f), nil
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		if len(m.words) > 0 {
			return 0, m.odd(value)
		}
		return 0, fmt.Errorf("value %q: want a number", value)
	}
	if m.id == "window_size" && strings.ContainsAny(value[:1], "+-") {
		v += f.Right
	}
	if m.id == "window_size" && (v < 1 || v != math.Trunc(v)) {
		return 0, fmt.Errorf("value %q: want a window, or with a sign how much is added", value)
	}
	return v, nil
}

// odd returns the error of a value unknown to a mistake.
func (m *entry) odd(value string) error {
	var list []string
	for w := range m.words {
		if w != "" {
			list = append(list, w)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("value %q: it takes none", value)
	}
	slices.Sort(list)
	return fmt.Errorf("value %q, want %q", value, list)
}

// guess returns the likeliest number of a hypothesis, 0 for none.
func (h *Hypothesis) guess() float64 {
	if h.Fit == nil || len(h.Fit.Guesses) == 0 {
		return 0
	}
	return h.Fit.Guesses[0]
}

// why returns why a node does not have the mistake of a value.
func (s *site) why(m *entry, f Fault, n *graph.Node) error {
	for _, h := range s.of(m, n) {
		if h.Fit != nil && h.Fit.Right != 0 && m.words[f.Value] == nil {
			return same(fmt.Sprintf("the model's own number is %.6g", h.Fit.Right))
		}
	}
	return same("the model has nothing that it would change")
}

// plainly returns the wordings of a mistake without values: its form has such details.
func plainly(d ...detail) wordings { return wordings{"": d} }

func isOp(ops ...graph.Op) []graph.Op { return ops }

func inOps(ops ...graph.Op) func(*site, *graph.Node) bool {
	return func(_ *site, n *graph.Node) bool { return slices.Contains(ops, n.Op) }
}

func named(names ...string) func(*site, *graph.Node) bool {
	return func(_ *site, n *graph.Node) bool { return slices.Contains(names, Role(n)) }
}

// product reports whether n is a product, the head apart.
func product(s *site, n *graph.Node) bool {
	return n.Op == graph.Linear && (n.Layer != outside || Role(n) != "output")
}

// carries reports whether n computes with a weight of its own.
func carries(s *site, n *graph.Node) bool {
	return product(s, n) || len(n.W) > 0 && (isNorm(n) || n.Op == graph.Experts)
}

// residual reports whether n adds a half of a layer to the stream.
func residual(s *site, n *graph.Node) bool {
	nodes := s.layers[n.Layer+1].nodes
	if n.Layer == outside || n.Op != graph.Add || len(n.In) != 2 || len(nodes[0].In) == 0 {
		return false
	}
	stream := nodes[0].In[0] // input of the first norm
	for _, x := range nodes {
		if x.Op != graph.Add || len(x.In) != 2 {
			continue
		}
		if y := x.In[streamOf(x)]; y == stream || isNorm(y) && y.In[0] == stream { // BERT norms each sum
			if stream = x; x == n {
				return true
			}
		}
	}
	return false
}

// hasBias reports whether n adds a bias, or has a bias of its own.
func hasBias(_ *site, n *graph.Node) bool {
	e, _ := n.Attr.(graph.ExpertsAttr)
	return n.Op == graph.Add && len(n.W) > 0 || n.Op == graph.Experts && e.Biased ||
		(n.Op == graph.LayerNorm || n.Op == graph.Conv) && len(n.W) > 1
}

// halved returns half the right number of a fit.
func halved(_ *site, _ *graph.Node, f *Fit) float64 { return f.Right / 2 }

// fixed returns the same number for all fits.
func fixed(v float64) func(*site, *graph.Node, *Fit) float64 {
	return func(*site, *graph.Node, *Fit) float64 { return v }
}

// unscaled returns the factor of embeddings by another rule: none for a factor, the root of the width for none.
func unscaled(_ *site, n *graph.Node, f *Fit) float64 {
	if f.Right == 1 {
		return math.Sqrt(float64(n.Shape.Size()))
	}
	return 1
}

// otherScale returns a usual scale of scores, unlike the model's.
func otherScale(s *site, n *graph.Node, f *Fit) float64 {
	a := n.Attr.(graph.AttentionAttr)
	width, heads := float64(s.g.Nodes[0].Shape.Size()), float64(n.In[0].Shape[0])
	for _, v := range []float64{1 / math.Sqrt(float64(a.KV.Dim)), 1 / math.Sqrt(width/heads)} {
		if math.Abs(v/a.Scale-1) > 1e-6 {
			return v
		}
	}
	return 1
}

// activationWords returns the values of the mistake activation; without a value the form is a usual activation.
func activationWords() wordings {
	all := plainly(detail{"activation": "silu"}, detail{"activation": "gelu_tanh"})
	for _, a := range activations {
		all[a.name] = []detail{{"activation": a.name}}
	}
	return all
}
