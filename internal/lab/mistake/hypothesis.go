package mistake

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
)

// Hypothesis is something that an engine may do instead of what the graph says.
type Hypothesis struct {
	Cause    string         // ID in the table
	Node     *graph.Node    // place
	Nodes    []*graph.Node  // places, where the mistake is in several layers at once
	Detail   map[string]any // facts that are the same in all layers
	Computed string         // sentence without a subject: "scales the scores by 0.125"
	Cost     float64        // how much less likely the mistake is than others that explain as much; 0 to 3
	Edits    reference.Edits
	Fix      string // remedy, if there is more to say than the table says

	Fit   *Fit        // number to be found, in place of Edits; nil for none
	Value float64     // number that was found
	Free  *Hypothesis // hypothesis before its number was found
}

// Fit is a number to be found, from Least to Most.
type Fit struct {
	Least, Most float64
	Guesses     []float64 // numbers that are tried first; a number within 3 % of a guess is the guess
	Integer     bool
	Right       float64 // the model's own number; 0 for none
	Make        func(v float64) *Hypothesis
}

// detail is the facts of a hypothesis; numbers are float64.
type detail = map[string]any

// Op returns the operation that a hypothesis is about.
func (h *Hypothesis) Op() string { return opOf(h.Cause, h.Node) }

// Layers returns the sorted layers of a hypothesis.
func (h *Hypothesis) Layers() []int {
	if h.Nodes == nil {
		return LayersOf(h.Node)
	}
	layers := []int{}
	for _, n := range h.Nodes {
		layers = Union(layers, LayersOf(n))
	}
	return layers
}

// Same reports whether two hypotheses are the same mistake in two layers.
func Same(a, b *Hypothesis) bool {
	if a.Cause != b.Cause || len(a.Detail) != len(b.Detail) {
		return false
	}
	for k, v := range a.Detail {
		x, ok := v.(float64)
		y, isFloat := b.Detail[k].(float64)
		switch {
		case ok && isFloat && math.Abs(x-y) <= 1e-3*max(math.Abs(x), math.Abs(y)):
		case ok != isFloat || ok || b.Detail[k] != v:
			return false
		}
	}
	return true
}

// With returns h with a number, nil if the number is not possible.
func (h *Hypothesis) With(v float64) *Hypothesis {
	x := h.Fit.Make(v)
	if x != nil {
		x.Value, x.Free, x.Cost = v, h, x.Cost+h.Cost
	}
	return x
}

// Guesses returns h with each number that is tried first, or h itself if it takes none.
func (h *Hypothesis) Guesses() []*Hypothesis {
	if h.Fit == nil {
		return []*Hypothesis{h}
	}
	var all []*Hypothesis
	for _, v := range h.Fit.Guesses {
		if x := h.With(v); x != nil {
			all = append(all, x)
		}
	}
	return all
}

// IsRight reports whether v is the model's own number.
func (f *Fit) IsRight(v float64) bool {
	return f.Right != 0 && math.Abs(v/f.Right-1) < 1e-3 && !slices.Contains(f.Rounded(), v)
}

// Rounded returns the model's number in 16 bits, for each form that rounds the number to another.
func (f *Fit) Rounded() []float64 {
	var all []float64
	for _, format := range []round.Format{round.BF16, round.F16} {
		v := []float64{f.Right}
		if format.Round(v); math.Abs(v[0]/f.Right-1) > 1e-6 && !math.IsInf(v[0], 0) && v[0] != 0 && !f.Integer {
			all = append(all, v[0])
		}
	}
	return all
}

// joined returns x and h as a single hypothesis, a copy of h if x is nil.
func joined(x, h *Hypothesis) *Hypothesis {
	if x == nil {
		y := *h
		y.Nodes = []*graph.Node{h.Node}
		return &y
	}
	x.Nodes = append(x.Nodes, h.Node)
	if x.Fit == nil {
		x.Edits = together(x.Edits, h.Edits)
		return x
	}
	first, second, nodes := x.Fit.Make, h.Fit.Make, x.Nodes
	f := *x.Fit
	f.Make = func(v float64) *Hypothesis {
		a, b := first(v), second(v)
		if a == nil || b == nil {
			return nil
		}
		both := *a
		both.Nodes, both.Edits = nodes, together(a.Edits, b.Edits)
		return &both
	}
	x.Fit = &f
	return x
}

// together returns the edits of two layers. A node in both, such as a rope that queries and keys name, is edited once.
func together(a, b reference.Edits) reference.Edits {
	sum := reference.Edits{}.And(a)
	for n, e := range b {
		if sum[n] == nil {
			sum[n] = e
		}
	}
	return sum
}

// Systemic makes of the same hypotheses in several layers a single one: of an equation across layers, and without
// taps between the layers, no more can be told.
func Systemic(all []*Hypothesis) []*Hypothesis {
	var out []*Hypothesis
	for _, h := range all {
		at := slices.IndexFunc(out, func(x *Hypothesis) bool {
			return x.Node.Layer >= 0 && h.Node.Layer >= 0 && !slices.Contains(x.Nodes, h.Node) && x.Cause == h.Cause &&
				Role(x.Node) == Role(h.Node) && (x.Fit == nil) == (h.Fit == nil) && (x.Fit != nil || Same(x, h))
		})
		if at < 0 {
			out = append(out, joined(nil, h))
			continue
		}
		joined(out[at], h)
	}
	return out
}

// Everywhere returns mistakes in several nodes at once of an equation that ends in a layer, all being those in a
// single node: an engine reads an epsilon in one place, and weights have their factors or not.
func Everywhere(all []*Hypothesis, layer int) []*Hypothesis {
	return append(commonEpsilon(all, layer), commonFactors(all)...)
}

// commonEpsilon returns another epsilon in all norms of a layer, and another in all norms.
func commonEpsilon(all []*Hypothesis, layer int) []*Hypothesis {
	var inside, joint *Hypothesis
	for _, h := range all {
		if h.Cause != "norm_eps" || joint != nil && h.Fit.Right != joint.Fit.Right {
			continue
		}
		joint = joined(joint, h)
		if h.Node.Layer == layer {
			inside = joined(inside, h)
		}
	}
	switch {
	case joint == nil || len(joint.Nodes) == 1:
		return nil
	case inside == nil || len(inside.Nodes) == 1 || len(inside.Nodes) == len(joint.Nodes):
		return []*Hypothesis{joint}
	}
	return []*Hypothesis{inside, joint}
}

// commonFactors returns two mistakes: the engine multiplies by each factor twice, or by none. The weights of a file
// have the factors already, or should have them.
func commonFactors(all []*Hypothesis) []*Hypothesis {
	var joint []*Hypothesis
	for i, computed := range []string{"multiplies by each of its factors twice", "multiplies by none of its factors"} {
		var x *Hypothesis
		for _, h := range all {
			if h.Cause != "scale_factor" || h.Fit == nil {
				continue
			}
			if y := h.With([]float64{h.Fit.Right * h.Fit.Right, 1}[i]); y != nil {
				y.Computed, y.Detail, y.Cost = computed, detail{"times": float64(2 - 2*i)}, h.Cost
				y.Value, y.Free = 0, nil
				x = joined(x, y)
			}
		}
		if x != nil && len(x.Nodes) > 1 {
			joint = append(joint, x)
		}
	}
	return joint
}
