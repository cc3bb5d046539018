package diagnose

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// judgePrompts finds prompts whose taps, or whose taps of a part of the model, are another's: they
// follow from each other, but the first not from what lies before, and what comes after not from the last.
func (r probing) judgePrompts() error {
	found := false
	for i, p := range r.prompts {
		for j, q := range r.prompts {
			if i == j || !p.tapped || !q.tapped {
				continue
			}
			same, all := r.sameTaps(p, q)
			if !r.enters(same, i, j) {
				continue
			}
			r.findings = append(r.findings, r.staleFinding(same, all, p, q))
			if found = true; all {
				p.tapped = false
			}
			for _, n := range same {
				if !all {
					delete(p.known, n)
				}
			}
		}
	}
	if !found {
		return nil
	}
	r.setClass(r.class)
	r.equations()
	return r.check(r.eqs)
}

// enters reports whether the values of nodes do not follow from those before them in the i-th prompt, nor what comes
// after from them. In the j-th, what follows from the ids alone does.
func (r probing) enters(nodes []*graph.Node, i, j int) bool {
	in, out := 0, 0
	for _, eq := range r.eqs {
		reads := slices.ContainsFunc(eq.sources, func(n *graph.Node) bool { return slices.Contains(nodes, n) })
		if inside := slices.Contains(nodes, eq.target); inside == reads {
			continue
		} else if inside {
			in++
		} else {
			out++
		}
		if !eq.fails(i) || eq.fails(j) && len(eq.sources) == 0 {
			return false
		}
	}
	return in > 0 && out > 0
}

func (r probing) staleFinding(same []*graph.Node, all bool, p, q *prompt) Finding {
	at := slices.IndexFunc(r.eqs, func(eq *equation) bool { return slices.Contains(same, eq.target) })
	eq := r.eqs[at]
	w := worst(eq.errors)
	f := Finding{Cause: "probe_stale", Op: opName(eq.target), Layers: []int{}, Tap: eq.tap, From: []string{}, Nodes: []string{},
		Detail: detail{"of": float64(p.Index), "prompt": float64(q.Index)}, Residual: lab.Number(w.residual), Floor: lab.Number(w.floor),
		Computed: fmt.Sprintf("does nothing wrong: all taps of prompt %d are those of prompt %d", p.Index, q.Index),
		Evidence: "they are the same to the bit where the ids are others, and follow neither from the ids nor do the logits follow from them"}
	if all {
		return f
	}
	for _, n := range same {
		f.Layers, f.Nodes = union(f.Layers, layersOf(n)), append(f.Nodes, n.Name)
	}
	f.Computed = fmt.Sprintf("does nothing wrong: %d taps of prompt %d are those of prompt %d", len(same), p.Index, q.Index)
	f.Evidence = "they are the same to the bit where the ids are others, do not follow from the taps before, and the taps behind do not follow from them"
	return f
}

// fewTaps is how many taps may be the same in two prompts by chance.
const fewTaps = 3

// sameTaps are the nodes whose values, the logits aside, are the same in p and q at all positions where their
// ids are not, in the graph's order, and whether these are all that both have. One position would tell little: an
// engine that repeats the row before gives the same there where the ids before are the same.
func (r probing) sameTaps(p, q *prompt) (same []*graph.Node, all bool) {
	all = true
	for _, n := range r.g.Nodes {
		k, x := p.known[n], q.known[n]
		if k == nil || x == nil || n == r.g.Result() || p.constant(n) {
			continue
		}
		var rows []int
		first, end := overlap(k, x)
		for row := first; row < end; row++ {
			if p.IDs[row] != q.IDs[row] {
				rows = append(rows, row)
			}
		}
		switch {
		case len(rows) == 0:
		case slices.Equal(p.read(n, rows), q.read(n, rows)):
			same = append(same, n)
		default:
			all = false
		}
	}
	if len(same) <= fewTaps {
		return nil, false
	}
	return same, all
}

// overlap is the first row that both values have, and the one behind the last.
func overlap(a, b reference.Known) (first, end int) {
	i, n := a.Rows()
	j, m := b.Rows()
	return max(i, j), min(i+n, j+m)
}

// constant reports whether all rows of n are the same, as zeros are: then other prompts' are, too.
func (p *prompt) constant(n *graph.Node) bool {
	first, count := p.known[n].Rows()
	row := p.read(n, []int{first})
	for i := range count {
		if !slices.Equal(p.read(n, []int{first + i}), row) {
			return false
		}
	}
	return true
}
