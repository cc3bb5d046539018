package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// judgeIDs finds prompts whose first tap shows the embeddings of other tokens than their ids.
// Where these ids came from elsewhere than the dump, they are another prompt's. Where the
// dump has them, and its logits follow from them but not from the taps, the taps are.
func (r probing) judgeIDs() error {
	first, last := r.eqs[0], r.eqs[len(r.eqs)-1]
	if len(first.sources) > 0 || last.target != r.g.Result() || first == last || !slices.ContainsFunc(first.span, func(n *graph.Node) bool { return n.Op == graph.Embed }) ||
		slices.ContainsFunc(first.span, func(n *graph.Node) bool { return len(n.In) > 0 && n.Op != graph.Scale && n.Op != graph.View }) {
		return nil
	}
	found := false
	for i, p := range r.prompts {
		if !p.tapped || !first.fails(i) || !p.given && !last.fails(i) {
			continue
		}
		at, ids, err := r.embedded(first, i)
		if err != nil {
			return err
		}
		if ids == nil || shiftedIDs(p.IDs, at, ids) {
			continue
		}
		if !p.given {
			taps := slices.DeleteFunc(slices.Clone(r.eqs), func(eq *equation) bool { return eq.target == r.g.Result() })
			if ok, err := r.holdsWithout(last, taps); err != nil {
				return err
			} else if !ok {
				continue // an engine that reads other rows of its embedding
			}
		}
		found = true
		r.findings = append(r.findings, r.othersTaps(p, first, at, ids))
		if p.tapped = false; p.given {
			p.known = nil // its logits are of other ids, too
		}
	}
	if !found {
		return nil
	}
	r.prompts = slices.DeleteFunc(r.prompts, func(p *prompt) bool { return p.known == nil })
	if !slices.ContainsFunc(r.prompts, func(p *prompt) bool { return p.tapped }) {
		for _, p := range r.prompts {
			p.tapped, r.blackBox = true, true
			for n := range p.known {
				if n != r.g.Result() {
					delete(p.known, n)
				}
			}
		}
	}
	r.setClass(r.class)
	r.equations()
	return r.check(r.eqs)
}

// othersTaps is the finding of a prompt whose taps show other ids at some rows.
func (r probing) othersTaps(p *prompt, first *equation, at []int, ids []int32) Finding {
	w := worst(first.errors)
	f := Finding{Cause: "probe_stale", Op: opName(first.target), Layers: []int{}, Tap: first.tap, From: []string{}, Span: []string{}, Nodes: []string{},
		Detail: detail{"prompt": float64(p.Index)}, Residual: lab.Number(w.residual), Floor: lab.Number(w.floor),
		Computed: fmt.Sprintf("does nothing wrong: the taps of prompt %d are those of another prompt", p.Index),
		Evidence: fmt.Sprintf("%s shows the embeddings of the ids %v at the positions %v, where the dump has %v; the logits follow from the ids, not from the taps", first.tap, ids, at, at32(p.IDs, at)),
		Fix:      "Take ids, taps and logits from one run."}
	if p.given {
		f.Cause = "input_ids"
		f.Computed = fmt.Sprintf("read other tokens in prompt %d than the ids that it was given by the golden record or the tokenizer", p.Index)
		f.Evidence = fmt.Sprintf("%s shows the embeddings of the ids %v at the positions %v, not of %v", first.tap, ids, at, at32(p.IDs, at))
		f.Fix = "Write the ids that the engine read into the dump, or give the golden record of the same prompts."
	}
	return f
}

func at32(ids []int32, at []int) []int32 {
	var out []int32
	for _, row := range at {
		out = append(out, ids[row])
	}
	return out
}

// shiftedIDs reports whether the ids found are the prompt's by a rule, as of an engine that
// reads wrong rows of its embedding.
func shiftedIDs(want []int32, at []int, got []int32) bool {
	sum, difference := true, true
	for i, row := range at {
		sum = sum && got[i]+want[row] == got[0]+want[at[0]]
		difference = difference && got[i]-want[row] == got[0]-want[at[0]]
	}
	return sum || difference
}

// fewRows is how many rows tell ids, and how many must at least.
const fewRows, leastRows = 8, 3

// embedded finds the ids whose embeddings a prompt's first tap holds at some rows where it does
// not hold those of the prompt's ids; nil unless all of these rows hold some token's.
func (r probing) embedded(first *equation, prompt int) (at []int, ids []int32, err error) {
	p, n := r.prompts[prompt], first.target
	for _, x := range first.errors {
		if x.prompt == prompt && x.ratio() > excess && len(at) < fewRows {
			at = append(at, x.row)
		}
	}
	if len(at) < leastRows {
		return nil, nil, nil
	}
	w, limit := n.Shape.Size(), first.tolerance()
	got := p.read(n, at)
	ids = make([]int32, len(at))
	for i := range ids {
		ids[i] = -1
	}
	vocabulary := r.g.Result().Shape.Size()
	const block = 1024
	for from := 0; from < vocabulary; from += block {
		if err := r.ctx.Err(); err != nil {
			return nil, nil, err
		}
		var all []int32
		var rows []int
		for id := from; id < min(from+block, vocabulary); id++ {
			all, rows = append(all, int32(id)), append(rows, id-from)
		}
		want, err := r.model.Eval(all, nil, r.class.center()).Compute(n, rows)
		if err != nil {
			return nil, nil, err
		}
		for i := range at {
			for k := range rows {
				if a, b := want[k*w:(k+1)*w], got[i*w:(i+1)*w]; math.Abs(a[0]-b[0]) <= limit*norm(b) && lab.RelativeL2(a, b) <= limit {
					ids[i] = all[k]
				}
			}
		}
	}
	if slices.Contains(ids, -1) {
		return nil, nil, nil
	}
	return at, ids, nil
}
