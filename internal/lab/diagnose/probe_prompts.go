package diagnose

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// judgeModel refuses the dump of another model, of which no product of a weight holds: it has more layers, or several
// kinds of values have another width, not one or a share that a probe which stops early would give to all.
func judgeModel(m *measurement) error {
	if slices.ContainsFunc(m.eqs, productHolds) {
		return nil
	}
	// A dump may have the last norm's, too, and one of few taps cannot tell weights from layers.
	if has, want := hiddenStates(m), len(lab.HiddenStates(m.dump.graph)); has > want+1 && len(m.eqs) > fewMisfits {
		return m.dump.unusable("MODEL is not what the engine ran: the dump has the hidden states of %d layers, "+
			"MODEL has %d layers, and no product of a weight holds", has-1, want-1)
	}
	kinds, widths, shares := map[string]bool{}, map[int]bool{}, map[float64]bool{}
	var of lab.Unplaced
	for _, u := range m.dump.misfit {
		if of.Node == nil || u.Node.ID < of.Node.ID {
			of = u
		}
		kinds[role(u.Node)], widths[u.Width], shares[float64(u.Width)/float64(u.Node.Shape.Size())] = true, true, true
	}
	if len(kinds) < fewMisfits || len(widths) < 2 || len(shares) < 2 {
		return nil
	}
	return m.dump.unusable("MODEL is not what the engine ran: %d kinds of taps have another width "+
		"(%s has %d values, not %d), and no product of a weight holds", len(kinds), of.Name, of.Width, of.Node.Shape.Size())
}

// hiddenStates is how many the dump has.
func hiddenStates(m *measurement) (n int) {
	for _, p := range m.dump.prompts {
		if p.Hidden != nil {
			n = max(n, p.Hidden.Shape[0])
		}
	}
	return n
}

// productHolds reports whether eq has a product of a weight in it, and holds.
func productHolds(eq *equation) bool {
	return !eq.flagged() && slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return n.Op == graph.Linear })
}

// judgeIDs finds prompts whose first tap shows the embeddings of other tokens than their ids.
// Where these ids came from elsewhere than the dump, they are another prompt's. Where the
// dump has them, and its logits follow from them but not from the taps, the taps are.
func judgeIDs(m *measurement) (*measurement, error) {
	first, last, d := m.eqs[0], m.eqs[len(m.eqs)-1], m.dump.clone()
	isEmbed := func(n *graph.Node) bool { return n.Op == graph.Embed }
	isMore := func(n *graph.Node) bool { return len(n.In) > 0 && n.Op != graph.Scale && n.Op != graph.View }
	if len(first.sources) > 0 || last.target != m.dump.graph.Result() || first == last ||
		!slices.ContainsFunc(first.span, isEmbed) || slices.ContainsFunc(first.span, isMore) {
		return m, nil
	}
	found := false
	for i, p := range m.dump.prompts {
		if !p.tapped || !first.fails(i) || !p.given && !last.fails(i) {
			continue
		}
		at, ids, err := embedded(m, first, i)
		if err != nil {
			return nil, err
		}
		if ids == nil || shiftedIDs(p.IDs, at, ids) {
			continue
		}
		if !p.given {
			if ok, err := holdsWithout(m, last, m.besideLogits(m.eqs)); err != nil {
				return nil, err
			} else if !ok {
				continue // an engine that reads other rows of its embedding
			}
		}
		found = true
		d.findings = append(d.findings, othersTaps(p, first, at, ids))
		if d.prompts[i].tapped = false; p.given {
			d.prompts[i].known = nil // its logits are of other ids, too
		}
	}
	if !found {
		return m, nil
	}
	d.prompts = slices.DeleteFunc(d.prompts, func(p *prompt) bool { return p.known == nil })
	if !slices.ContainsFunc(d.prompts, func(p *prompt) bool { return p.tapped }) {
		for _, p := range d.prompts {
			p.tapped, d.blackBox = true, true
			maps.DeleteFunc(p.known, func(n *graph.Node, _ reference.Known) bool { return n != d.graph.Result() })
		}
	}
	return m.of(d)
}

// besideLogits returns the equations whose targets are not the logits.
func (m *measurement) besideLogits(eqs []*equation) []*equation {
	return slices.DeleteFunc(slices.Clone(eqs), func(eq *equation) bool { return eq.target == m.dump.graph.Result() })
}

// othersTaps is the finding of a prompt whose taps show other ids at some rows.
func othersTaps(p *prompt, first *equation, at []int, ids []int32) Finding {
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

// embedded finds the ids whose embeddings a prompt's first tap holds at some rows where it does
// not hold those of the prompt's ids; nil unless all of these rows hold some token's.
func embedded(m *measurement, first *equation, prompt int) (at []int, ids []int32, err error) {
	p, n := m.dump.prompts[prompt], first.target
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
	vocabulary := m.dump.graph.Result().Shape.Size()
	const block = 1024
	for from := 0; from < vocabulary; from += block {
		if err := m.dump.ctx.Err(); err != nil {
			return nil, nil, err
		}
		var all []int32
		var rows []int
		for id := from; id < min(from+block, vocabulary); id++ {
			all, rows = append(all, int32(id)), append(rows, id-from)
		}
		want, err := m.dump.model.Eval(all, nil, m.engine.class.center()).Compute(n, rows)
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

// judgePrompts finds prompts whose taps, or whose taps of a part of the model, are another's: they
// follow from each other, but the first not from what lies before, and what comes after not from the last.
func judgePrompts(m *measurement) (*measurement, error) {
	d, found := m.dump.clone(), false
	for i, p := range d.prompts {
		for j, q := range d.prompts {
			if i == j || !p.tapped || !q.tapped {
				continue
			}
			same, all := sameTaps(d, p, q)
			if !enters(m, same, i, j) {
				continue
			}
			d.findings = append(d.findings, staleFinding(m, same, all, p, q))
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
		return m, nil
	}
	return m.of(d)
}

// enters reports whether the values of nodes do not follow from those before them in the i-th prompt, nor what comes
// after from them. In the j-th, what follows from the ids alone does.
func enters(m *measurement, nodes []*graph.Node, i, j int) bool {
	in, out := 0, 0
	for _, eq := range m.eqs {
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

func staleFinding(m *measurement, same []*graph.Node, all bool, p, q *prompt) Finding {
	at := slices.IndexFunc(m.eqs, func(eq *equation) bool { return slices.Contains(same, eq.target) })
	eq := m.eqs[at]
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

// sameTaps are the nodes whose values, the logits aside, are the same in p and q at all positions where their
// ids are not, in the graph's order, and whether these are all that both have. One position would tell little: an
// engine that repeats the row before gives the same there where the ids before are the same.
func sameTaps(d *dump, p, q *prompt) (same []*graph.Node, all bool) {
	all = true
	for _, n := range d.graph.Nodes {
		k, x := p.known[n], q.known[n]
		if k == nil || x == nil || n == d.graph.Result() || p.constant(n) {
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

// stuck reports whether all of three or more rows are the same, and not zero.
func stuck(got []float64, w int) bool {
	n := len(got) / w
	if n < 3 || !slices.ContainsFunc(got, func(v float64) bool { return v != 0 }) {
		return false
	}
	for i := range n - 1 {
		if !slices.Equal(got[i*w:(i+1)*w], got[(n-1)*w:]) {
			return false
		}
	}
	return true
}

// stuckTaps are the targets of equations that are stuck in each tapped prompt of three rows or
// more, where ids differ: there no right engine has equal rows.
func stuckTaps(m *measurement) []*equation {
	var all []*equation
	for _, eq := range m.eqs {
		n, yes, no := eq.target, 0, 0
		for _, p := range m.dump.prompts {
			if p.known[n] == nil || !p.tapped {
				continue
			}
			first, count := p.known[n].Rows()
			if count < 3 || !slices.ContainsFunc(p.IDs[first:], func(id int32) bool { return id != p.IDs[first] }) {
				continue
			}
			rows := sample(first, count, maxRows)
			if stuck(p.read(n, rows), n.Shape.Size()) {
				yes++
			} else {
				no++
			}
		}
		if yes > 0 && no == 0 {
			all = append(all, eq)
		}
	}
	return all
}

// judgeRows finds that all taps hold one row everywhere, though the logits do not follow from
// it: with all taps broken, none tells of another that it is.
func judgeRows(m *measurement) (*measurement, error) {
	set, last := m.besideLogits(stuckTaps(m)), m.eqs[len(m.eqs)-1]
	taps := m.besideLogits(m.eqs)
	if len(taps) == 0 || len(set) < len(taps) || last.target != m.dump.graph.Result() || !last.flagged() {
		return m, nil
	}
	ok, err := holdsWithout(m, last, set)
	if err != nil || !ok {
		return m, err
	}
	f := brokenProbe(m, set[0], nil)
	f.Cause, f.Op, f.Layers = "probe_rows", opName(set[0].target), []int{}
	f.Detail, f.Computed, f.Fix = detail{"order": "stuck"}, stuckWords, ""
	f.Evidence = fmt.Sprintf("in all %d taps; without them the logits follow from the ids", len(set))
	d := m.dump.clone()
	d.findings = append(d.findings, f)
	d.forget(targets(set))
	d.blackBox = true
	return m.of(d)
}

const stuckWords = "does nothing wrong: all rows of the probe hold the same one"
