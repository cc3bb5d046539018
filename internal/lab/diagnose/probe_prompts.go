package diagnose

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/matrix"
)

// judgeModel refuses the dump of another model, of which no product of a weight holds: the dump has more layers, or
// several kinds of values have another width. A probe that stops early would give all values the same width or
// share.
func judgeModel(m *measurement) error {
	if slices.ContainsFunc(m.eqs, productHolds) {
		return nil
	}
	// A dump may have the last norm's state as well, and few taps cannot tell weights from layers.
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
		"(%s has %d values, not %d), and no product of a weight holds",
		len(kinds), of.Name, of.Width, of.Node.Shape.Size())
}

// hiddenStates returns the number of hidden states in the dump.
func hiddenStates(m *measurement) (n int) {
	for _, p := range m.dump.prompts {
		if p.Hidden != nil {
			n = max(n, p.Hidden.Shape[0])
		}
	}
	return n
}

// productHolds reports whether eq holds and has a product of a weight.
func productHolds(eq *equation) bool {
	return !eq.isFlagged() && slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return n.Op == graph.Linear })
}

// judgeIDs finds prompts whose first tap shows the embeddings of other tokens than their ids. Where these ids came
// from elsewhere than the dump, they belong to another prompt. Where the dump has them, and its logits follow from
// the ids but not from the taps, the taps belong to another prompt.
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
		if ids == nil || areShifted(p.IDs, at, ids) {
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
			d.prompts[i].known = nil // the logits are of other ids as well
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
	return m.measureAgain(d)
}

// besideLogits returns the equations whose targets are not the logits.
func (m *measurement) besideLogits(eqs []*equation) []*equation {
	return slices.DeleteFunc(slices.Clone(eqs), func(eq *equation) bool { return eq.target == m.dump.graph.Result() })
}

// othersTaps returns the finding of a prompt whose taps show other ids at some rows.
func othersTaps(p *prompt, first *equation, at []int, ids []int32) Finding {
	w := worst(first.errors)
	f := Finding{Cause: "probe_stale", Op: opName(first.target), Layers: []int{}, Tap: first.tap, From: []string{},
		Span: []string{}, Nodes: []string{}, Detail: detail{"prompt": float64(p.Index)},
		Residual: lab.Number(w.residual), Floor: lab.Number(w.floor),
		Computed: fmt.Sprintf(innocent+"the taps of prompt %d are those of another prompt", p.Index),
		Fix:      "Take ids, taps and logits from one run."}
	shown := fmt.Sprintf("%s shows the embeddings of the ids %v at the positions %v", first.tap, ids, at)
	f.Evidence = fmt.Sprintf("%s, where the dump has %v; the logits follow from the ids, not from the taps", shown,
		at32(p.IDs, at))
	if p.given {
		f.Cause = "input_ids"
		f.Computed = fmt.Sprintf("read other tokens in prompt %d than the ids that it was given by the golden "+
			"record or the tokenizer", p.Index)
		f.Evidence = fmt.Sprintf("%s, not of %v", shown, at32(p.IDs, at))
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

// areShifted reports whether the ids found follow from the prompt's ids by a rule, as with an engine that reads
// wrong rows of its embedding.
func areShifted(want []int32, at []int, got []int32) bool {
	sum, difference := true, true
	for i, row := range at {
		sum = sum && got[i]+want[row] == got[0]+want[at[0]]
		difference = difference && got[i]-want[row] == got[0]-want[at[0]]
	}
	return sum || difference
}

// embedded finds the ids whose embeddings a prompt's first tap holds at some rows that do not hold the embeddings
// of the prompt's ids. The result is nil unless all of these rows hold the embedding of a token.
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
		rows := upTo(0, min(block, vocabulary-from))
		all := make([]int32, len(rows))
		for k := range rows {
			all[k] = int32(from + k)
		}
		want, err := m.dump.model.Eval(all, nil, m.engine.class.center()).Compute(n, rows)
		if err != nil {
			return nil, nil, err
		}
		for i := range at {
			for k := range rows {
				if a, b := want[k*w:(k+1)*w], got[i*w:(i+1)*w]; math.Abs(a[0]-b[0]) <= limit*matrix.Norm(b) &&
					lab.RelativeL2(a, b) <= limit {
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

// judgePrompts finds prompts whose taps, or whose taps of a part of the model, belong to another prompt. Such taps
// follow from each other. The first tap does not follow from the values before, and the next values do not follow
// from the last tap.
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
	return m.measureAgain(d)
}

// enters reports whether the values of nodes do not follow from the values before them in the i-th prompt, nor the
// next values from the nodes. In the j-th prompt, values that follow from the ids alone have to hold.
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
	f := Finding{Cause: "probe_stale", Op: opName(eq.target), Layers: []int{}, Tap: eq.tap, From: []string{},
		Nodes: []string{}, Detail: detail{"of": float64(p.Index), "prompt": float64(q.Index)},
		Residual: lab.Number(w.residual), Floor: lab.Number(w.floor),
		Computed: fmt.Sprintf(innocent+"all taps of prompt %d are those of prompt %d", p.Index, q.Index),
		Evidence: "they are the same to the bit where the ids are others, and follow neither from the ids nor do the " +
			"logits follow from them"}
	if all {
		return f
	}
	for _, n := range same {
		f.Layers, f.Nodes = union(f.Layers, layersOf(n)), append(f.Nodes, n.Name)
	}
	f.Computed = fmt.Sprintf(innocent+"%d taps of prompt %d are those of prompt %d", len(same), p.Index, q.Index)
	f.Evidence = "they are the same to the bit where the ids are others, do not follow from the taps before, and the " +
		"taps behind do not follow from them"
	return f
}

// sameTaps returns, in the graph's order, the nodes except the logits whose values are equal in p and q at all
// positions where the ids differ, and reports whether these are all common nodes. A single position would prove
// little: an engine that repeats the row before gives equal rows where the ids before are equal.
func sameTaps(d *dump, p, q *prompt) (same []*graph.Node, all bool) {
	all = true
	for _, n := range d.graph.Nodes {
		k, x := p.known[n], q.known[n]
		if k == nil || x == nil || n == d.graph.Result() || isConstant(p.read(n, p.rows(n)), n.Shape.Size()) {
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

// overlap returns the first row that both values have, and the row behind the last.
func overlap(a, b reference.Known) (first, end int) {
	i, n := a.Rows()
	j, m := b.Rows()
	return max(i, j), min(i+n, j+m)
}

// isConstant reports whether all rows of w values are equal.
func isConstant(x []float64, w int) bool {
	for row := range slices.Chunk(x, w) {
		if !slices.Equal(row, x[:w]) {
			return false
		}
	}
	return true
}

// isStuck reports whether three or more rows are all equal, and not zero.
func isStuck(x []float64, w int) bool {
	return len(x) >= 3*w && isConstant(x, w) && slices.ContainsFunc(x, func(v float64) bool { return v != 0 })
}

// stuckTaps returns the equations whose targets are stuck in each tapped prompt of three rows or more whose ids
// differ: no right engine has equal rows there.
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
			if isStuck(p.read(n, rows), n.Shape.Size()) {
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

// judgeRows finds that all taps hold a single row everywhere, though the logits do not follow from that row. With
// all taps broken, no tap can accuse another.
func judgeRows(m *measurement) (*measurement, error) {
	set, last := m.besideLogits(stuckTaps(m)), m.eqs[len(m.eqs)-1]
	taps := m.besideLogits(m.eqs)
	if len(taps) == 0 || len(set) < len(taps) || last.target != m.dump.graph.Result() || !last.isFlagged() {
		return m, nil
	}
	ok, err := holdsWithout(m, last, set)
	if err != nil || !ok {
		return m, err
	}
	f := brokenProbe(m, set[0], nil)
	f.Cause, f.Op, f.Layers = "probe_rows", opName(set[0].target), []int{}
	f.Detail, f.Computed, f.Fix = stuckRows.detail, stuckRows.computed, ""
	f.Evidence = fmt.Sprintf("in all %d taps; without them the logits follow from the ids", len(set))
	d := m.dump.clone()
	d.findings = append(d.findings, f)
	d.forget(targets(set))
	d.blackBox = true
	return m.measureAgain(d)
}

var stuckRows = newPrint("probe_rows", detail{"order": "stuck"}, "all rows of the probe hold the same one")
