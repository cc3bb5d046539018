package diagnose

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/sim"
)

// judgePrompts finds prompts all of whose taps are another's: they follow from each other,
// but the first not from the ids, and the logits not from the last.
func (r probing) judgePrompts() error {
	first, last := r.eqs[0], r.eqs[len(r.eqs)-1]
	if len(first.sources) > 0 || last.target != r.g.Result() || first == last {
		return nil
	}
	found := false
	for i, p := range r.prompts {
		for j, q := range r.prompts {
			if !p.tapped || !q.tapped || !first.fails(i) || !last.fails(i) || first.fails(j) || !r.sameTaps(p, q) {
				continue
			}
			w := worst(first.errors)
			r.findings = append(r.findings, Finding{Cause: "probe_stale", Op: opName(first.target), Layers: []int{}, Tap: first.tap, From: []string{}, Nodes: []string{},
				Detail: detail{"of": float64(p.Index), "prompt": float64(q.Index)}, Residual: lab.Number(w.residual), Floor: lab.Number(w.floor),
				Computed: fmt.Sprintf("does nothing wrong: all taps of prompt %d are those of prompt %d", p.Index, q.Index),
				Evidence: "they are the same to the bit where the ids are others, and follow neither from the ids nor do the logits follow from them"})
			p.tapped, found = false, true
		}
	}
	if !found {
		return nil
	}
	r.equations()
	return r.check(r.eqs)
}

// fewTaps is how many taps may be the same in two prompts by chance.
const fewTaps = 3

// sameTaps reports whether all values but the logits that p and q both have are the same at
// the first position where their ids are not.
func (r probing) sameTaps(p, q *prompt) bool {
	at := firstDifference(p.IDs, q.IDs)
	if at >= min(len(p.IDs), len(q.IDs)) {
		return false
	}
	has := func(k sim.Known) bool {
		first, n := k.Rows()
		return first <= at && at < first+n
	}
	same := 0
	for n, k := range p.known {
		if x := q.known[n]; x == nil || n == r.g.Result() || !has(k) || !has(x) {
			continue
		}
		if !slices.Equal(p.read(n, []int{at}), q.read(n, []int{at})) {
			return false
		}
		same++
	}
	return same > fewTaps
}
