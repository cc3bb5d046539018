package diagnose

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// judgeTwice compares taps that should hold the same value. The head's output and the
// logits are such where the model does nothing between them.
func (r placement) judgeTwice() error {
	seen := map[*graph.Node]bool{}
	for _, p := range r.prompts {
		for _, pair := range p.twice {
			n := pair[0].Node
			if a, b := common(pair[0], pair[1]); !seen[n] && lab.RelativeL2(a, b) > sameTwice {
				seen[n] = true
				r.disagree(n, pair, a, b)
			}
		}
	}
	return nil
}

// sameTwice is the relative distance up to which taps of one value agree: that of
// binary16, which one of them may have been stored in.
const sameTwice = 1e-3

// common is the rows that two taps of a value have in common.
func common(a, b lab.Placed) (x, y []float64) {
	first, end := max(a.First, b.First), min(a.First+a.Rows, b.First+b.Rows)
	for row := first; row < end; row++ {
		u, v := make([]float64, a.Width), make([]float64, b.Width)
		a.Read(u, row-a.First)
		b.Read(v, row-b.First)
		x, y = append(x, u...), append(y, v...)
	}
	return x, y
}

// disagree reports two taps of n that hold other numbers. Logits that differ from the
// head's output are the engine's doing, and judged as what they are, but for a constant.
func (r placement) disagree(n *graph.Node, pair [2]lab.Placed, a, b []float64) {
	if n != r.g.Result() {
		r.findings = append(r.findings, Finding{Cause: "unknown", Op: opName(n), Layers: layersOf(n), Tap: pair[1].Name, From: []string{pair[0].Name}, Nodes: []string{n.Name},
			Detail: detail{}, Residual: lab.Number(lab.RelativeL2(a, b)), Floor: sameTwice, Computed: "does nothing wrong: two taps of the same value hold other numbers",
			Evidence: fmt.Sprintf("%s and %s should be the same numbers", pair[0].Name, pair[1].Name)})
		return
	}
	if !shifted(a, b, n.Shape.Size()) {
		return
	}
	r.infers("the logits are the head's output plus a constant, which changes no probability")
	if pair[0].Name == logitsName {
		pair[0] = pair[1]
	}
	for _, p := range r.prompts {
		for _, x := range p.twice {
			if x[0].Node == n && x[0].Name == pair[0].Name {
				p.known[n], p.placed[n] = tap{x[0]}, x[0]
			} else if x[1].Node == n && x[1].Name == pair[0].Name {
				p.known[n], p.placed[n] = tap{x[1]}, x[1]
			}
		}
	}
}

// shifted reports whether rows of b, w wide, are those of a plus a number each.
func shifted(a, b []float64, w int) bool {
	for i := 0; i < len(a); i += w {
		shift := b[i] - a[i]
		moved := slices.Clone(a[i : i+w])
		for j := range moved {
			moved[j] += shift
		}
		if lab.RelativeL2(moved, b[i:i+w]) > sameTwice {
			return false
		}
	}
	return true
}
