package diagnose

import (
	"fmt"
	"slices"
)

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
func (r probing) stuckTaps() []*equation {
	var all []*equation
	for _, eq := range r.eqs {
		n, yes, no := eq.target, 0, 0
		for _, p := range r.prompts {
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
func (r probing) judgeRows() error {
	set, last := r.stuckTaps(), r.eqs[len(r.eqs)-1]
	taps := slices.DeleteFunc(slices.Clone(r.eqs), func(eq *equation) bool { return eq.target == r.g.Result() })
	set = slices.DeleteFunc(set, func(eq *equation) bool { return eq.target == r.g.Result() })
	if len(taps) == 0 || len(set) < len(taps) || last.target != r.g.Result() || !last.flagged() {
		return nil
	}
	ok, err := r.holdsWithout(last, set)
	if err != nil || !ok {
		return err
	}
	f := r.brokenProbe(set[0], nil)
	f.Cause, f.Op, f.Layers = "probe_rows", opName(set[0].target), []int{}
	f.Detail, f.Computed, f.Fix = detail{"order": "stuck"}, stuckWords, ""
	f.Evidence = fmt.Sprintf("in all %d taps; without them the logits follow from the ids", len(set))
	r.findings = append(r.findings, f)
	for _, p := range r.prompts {
		for _, n := range targets(set) {
			delete(p.known, n)
		}
	}
	r.blackBox = true
	r.setClass(r.class)
	r.equations()
	return r.check(r.eqs)
}

const stuckWords = "does nothing wrong: all rows of the probe hold the same one"
