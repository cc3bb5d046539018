package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// place makes a dump of the record's values, and judges the record by itself: whether the ids are right, and
// whether taps of the same value agree.
func place(ctx context.Context, o Options) (*dump, error) {
	o.Graph = withActivations(o.Graph, o.Dump)
	w := mistake.Wire(o.Graph)
	d := &dump{options: o, ctx: ctx, graph: o.Graph, wiring: w, model: w.Model(), names: lab.NamesOf(o.Graph),
		taps: map[*graph.Node]string{}, inferred: notes{}}
	d.progress("placing taps", 0, 0)
	if err := d.placePrompts(); err != nil {
		return nil, err
	}
	d.dropUnwritten()
	d.chooseTapped()
	if err := d.check(); err != nil {
		return nil, err
	}
	d.progress("judging the input", 0, 0)
	d.judgeInput()
	d.progress("comparing taps of the same value", 0, 0)
	d.judgeTwice()
	d.misshapen()
	return d, nil
}

// placePrompts finds the nodes the record's taps belong to.
func (d *dump) placePrompts() error {
	record, unplaced, unknown := d.options.Dump, map[string]bool{}, map[string]bool{}
	amiss := map[string]bool{}
	d.foreign = map[string]bool{}
	for _, p := range record.Prompts {
		given := len(p.IDs) == 0
		if p = d.withIDs(p); p == nil {
			continue
		}
		if err := checkIDs(d.graph, p.IDs); err != nil {
			return d.unusable("prompt %d: ids that MODEL does not have: %v", p.Index, err)
		}
		found, err := lab.Place(d.graph, cmp.Or(d.options.Names, record.Names), p, record.Prompts...)
		if err != nil {
			return err
		}
		q := &prompt{Prompt: p, given: given, sight: d.options.sights[p],
			known: map[*graph.Node]reference.Known{}, placed: map[*graph.Node]lab.Placed{}}
		for _, t := range found.Taps {
			q.tapped = q.tapped || t.Node != d.graph.Result() && !strings.HasPrefix(t.Name, hidden)
			q.outline = q.outline || strings.HasPrefix(t.Name, hidden)
			if old, ok := q.placed[t.Node]; ok {
				q.twice = append(q.twice, [2]lab.Placed{old, t})
				if old.Name == logitsName || old.Rows >= t.Rows && t.Name != logitsName {
					continue
				}
			}
			q.known[t.Node], q.placed[t.Node] = lab.Tap{Placed: t}, t
			if name, ok := d.taps[t.Node]; !ok || strings.HasPrefix(name, hidden) {
				d.taps[t.Node] = t.Tap
			}
		}
		q.step = q.stored()
		for _, u := range found.Unplaced {
			unplaced[u.Name+": "+u.Why] = true
			if u.IsUnknown() {
				unknown[u.Name] = true
			}
			if u.IsForeign() {
				d.foreign[u.Name] = true
			}
			if !u.IsBeside() {
				amiss[u.Name+": "+u.Why] = true
			}
			isSame := func(x lab.Unplaced) bool { return x.Node == u.Node }
			if u.Node != nil && u.Width != u.Node.Shape.Size() && !slices.ContainsFunc(d.misfit, isSame) {
				d.misfit = append(d.misfit, u)
			}
		}
		for _, s := range found.Inferred {
			d.inferred.add("%s", s)
		}
		if len(q.known) > 0 {
			d.prompts = append(d.prompts, q)
		}
	}
	d.unplaced = slices.Sorted(maps.Keys(unplaced))
	d.strange, d.amiss = len(unknown), len(amiss)
	d.findMisspelt(slices.Sorted(maps.Keys(unknown)))
	return nil
}

// unusable returns the error of a dump without anything to judge.
func (d *dump) unusable(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrUnusable, d.options.Dump.Path, fmt.Sprintf(format, args...))
}

// maxMisspelt is the most names without a place that are compared with all names.
const maxMisspelt = 200

// findMisspelt finds names without a place that look like names of values that no tap shows.
func (d *dump) findMisspelt(unknown []string) {
	d.misspelt = map[string]string{}
	for _, name := range unknown[:min(len(unknown), maxMisspelt)] {
		if n, near := d.names.Near(d.graph, name); n != nil && !d.isTapped(n) {
			d.misspelt[name] = near
			delete(d.foreign, name)
		}
	}
}

// whyUnplaced says why the taps have no place, by an example: a misspelt tap if there is one, else a foreign one.
func (d *dump) whyUnplaced() string {
	for _, name := range slices.Sorted(maps.Keys(d.misspelt)) {
		return fmt.Sprintf("as %s: did you mean %s?", name, d.misspelt[name])
	}
	for _, u := range d.unplaced {
		if name, _, _ := strings.Cut(u, ": "); d.foreign[name] {
			return "as " + u
		}
	}
	return "as " + d.unplaced[0]
}

// isTapped reports whether a tap, not a hidden state, shows n.
func (d *dump) isTapped(n *graph.Node) bool {
	return slices.ContainsFunc(d.prompts, func(p *prompt) bool {
		x, ok := p.placed[n]
		return ok && !strings.HasPrefix(x.Name, hidden)
	})
}

// lacksPlaces reports whether the dump has taps, and none of them a name that anybody knows.
func (d *dump) lacksPlaces() bool {
	given := slices.ContainsFunc(d.options.Dump.Prompts, func(p *lab.Prompt) bool { return len(p.Taps) > 0 })
	return given && d.strange > 0 && d.strange == len(d.unplaced) && !slices.ContainsFunc(d.graph.Nodes,
		func(n *graph.Node) bool { return n != d.graph.Result() && d.isTapped(n) })
}

// check reports a dump without any value.
func (d *dump) check() error {
	switch {
	case len(d.prompts) == 0 && len(d.unplaced) > 0:
		return d.unusable("none of its values has a place in MODEL, %s", d.whyUnplaced())
	case len(d.prompts) == 0:
		why := ""
		if slices.ContainsFunc(d.options.Dump.Prompts, func(p *lab.Prompt) bool {
			return len(p.IDs) == 0 && (p.Logits != nil || len(p.Taps) > 0)
		}) {
			why = ": the ids are missing; --golden gives those of a record, or write the text into the dump's JSON file"
		}
		return d.unusable("no prompt has ids and logits or taps%s", why)
	case d.lacksPlaces():
		return d.unusable("none of its %d taps has a place in MODEL, %s; without taps the logits alone are judged",
			len(d.unplaced), d.whyUnplaced())
	case !slices.ContainsFunc(d.prompts, (*prompt).isWritten):
		return d.unusable("all values are 0: the probe reads buffers that were never written, or copies none")
	}
	return nil
}

// dropUnwritten leaves out all taps if none holds a number other than 0 and logits do, or all logits if these hold
// zeros alone: nobody computes on with such values, so the probe is broken.
func (d *dump) dropUnwritten() {
	result := d.graph.Result()
	var written, empty [2]bool // logits, taps
	var first [2]*graph.Node
	faded := false
	for _, p := range d.prompts {
		for _, n := range d.graph.Nodes {
			if p.known[n] == nil {
				continue
			}
			i := 1
			if n == result {
				i = 0
			}
			if first[i] == nil {
				first[i] = n
			}
			for _, row := range p.rows(n) {
				faded = faded || i == 0 && p.fades(n, row)
				written[i] = written[i] || slices.ContainsFunc(p.read(n, []int{row}), func(v float64) bool {
					return v != 0 && (i == 0 || v-v == 0)
				})
			}
		}
	}
	for i, n := range first {
		empty[i] = n != nil && !written[i] && written[1-i] && (i == 1 || !faded && !d.options.read)
	}
	if empty[0] == empty[1] {
		return
	}
	f := Finding{Cause: "unknown", From: []string{}, Detail: detail{}, Fix: mendProbe,
		Evidence: "other values of the dump are numbers, which do not come of these"}
	for i, what := range []string{"all logits are 0", "all taps are 0, NaN or infinite"} {
		if !empty[i] {
			continue
		}
		f.Op, f.Layers, f.Tap, f.Nodes = opName(first[i]), layersOf(first[i]), d.taps[first[i]], []string{first[i].Name}
		f.Computed = innocent + what + ", as of buffers that were never written"
	}
	d.findings = append(d.findings, f)
	d.forget(slices.DeleteFunc(slices.Clone(d.graph.Nodes), func(n *graph.Node) bool {
		return empty[0] != (n == result)
	}))
	for _, p := range d.prompts {
		p.tapped, p.outline = p.tapped && empty[0], p.outline && empty[0]
	}
}

// fades reports whether logits of zeros may come of a row: of zeros before them, or of a value without a square in
// float32.
func (p *prompt) fades(result *graph.Node, row int) bool {
	var last *graph.Node
	for n, k := range p.known {
		first, count := k.Rows()
		if n == result || row < first || row >= first+count {
			continue
		}
		if slices.ContainsFunc(p.read(n, []int{row}), func(v float64) bool { return infinite(v * v) }) {
			return true
		}
		if last == nil || n.ID > last.ID {
			last = n
		}
	}
	return last != nil && !slices.ContainsFunc(p.read(last, []int{row}), func(v float64) bool { return v != 0 })
}

// chooseTapped lets hidden states, or else the logits of the shortest prompts, stand for taps where there are none.
func (d *dump) chooseTapped() {
	if slices.ContainsFunc(d.prompts, func(p *prompt) bool { return p.tapped }) {
		return
	}
	if slices.ContainsFunc(d.prompts, func(p *prompt) bool { return p.outline }) {
		for _, p := range d.prompts {
			p.tapped = p.outline
		}
		return
	}
	short := slices.Clone(d.prompts)
	slices.SortStableFunc(short, func(a, b *prompt) int { return len(a.IDs) - len(b.IDs) })
	// Attention shows little in prompts of one or two tokens.
	if i := slices.IndexFunc(short, func(p *prompt) bool { return len(p.IDs) > 2 }); i > 0 {
		short = short[i:]
	}
	tokens := 0
	for i, p := range short {
		if tokens += len(p.IDs); i > 0 && (i == maxBlackPrompts || tokens > maxBlackTokens) {
			break
		}
		p.tapped, d.blackBox = true, true
	}
}

// The prompts whose logits alone are judged: each evaluation of them runs the whole model.
const maxBlackPrompts, maxBlackTokens = 3, 40

// withIDs returns p with ids: its own, the golden record's or the tokenizer's. The result is nil if there are none.
func (d *dump) withIDs(p *lab.Prompt) *lab.Prompt {
	if len(p.IDs) > 0 {
		return p
	}
	ids, how, err := d.expected(p)
	if err != nil || len(ids) == 0 || len(ids[0]) == 0 {
		d.inferred.add("prompt %d has no ids and is left out: --golden may give them, or text in the dump's JSON file",
			p.Index)
		return nil
	}
	q := *p
	q.IDs = nil
	if err := q.Take(&lab.Prompt{IDs: ids[0], Text: p.Text, Input: p.Input}); err != nil {
		d.inferred.add("%v: its ids come from %s, and it is left out", err, how)
		return nil
	}
	d.inferred.add("the dump has no ids: they come from %s", how)
	return &q
}
