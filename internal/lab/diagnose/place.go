package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// misfits keeps the taps of found that have a place, but not its width.
func (r placement) misfits(found *lab.Placement) {
	for _, u := range found.Unplaced {
		if u.Node != nil && u.Width != u.Node.Shape.Size() && !slices.ContainsFunc(r.misfit, func(x lab.Unplaced) bool { return x.Node == u.Node }) {
			r.misfit = append(r.misfit, u)
		}
	}
}

// placement is the stage that fills a subject from its dump, and judges the dump by itself.
type placement struct{ *subject }

// place finds the nodes that the dump's taps belong to.
func (r placement) place() error {
	unplaced := map[string]bool{}
	names := r.schema()
	for _, p := range r.Dump.Prompts {
		given := len(p.IDs) == 0
		if p = r.withIDs(p); p == nil {
			continue
		}
		if err := checkIDs(r.g, p.IDs); err != nil {
			return fmt.Errorf("%w: %s: prompt %d: ids that MODEL does not have: %v", ErrUnusable, r.Dump.Path, p.Index, err)
		}
		found, err := lab.Place(r.g, names, p, r.Dump.Prompts...)
		if err != nil {
			return err
		}
		r.misfits(found)
		q := &prompt{Prompt: p, given: given, known: map[*graph.Node]reference.Known{}, placed: map[*graph.Node]lab.Placed{}}
		for _, t := range found.Taps {
			q.tapped = q.tapped || t.Node != r.g.Result() && !strings.HasPrefix(t.Name, hidden)
			q.outline = q.outline || strings.HasPrefix(t.Name, hidden)
			if old, ok := q.placed[t.Node]; ok {
				q.twice = append(q.twice, [2]lab.Placed{old, t})
				if old.Name == logitsName || old.Rows >= t.Rows && t.Name != logitsName {
					continue
				}
			}
			q.known[t.Node], q.placed[t.Node] = tap{t}, t
			if _, ok := r.taps[t.Node]; !ok || strings.HasPrefix(r.taps[t.Node], hidden) {
				r.taps[t.Node] = t.Tap
			}
		}
		q.step = q.stored()
		for _, u := range found.Unplaced {
			unplaced[u.Name+": "+u.Why] = true
		}
		for _, s := range found.Inferred {
			r.infers("%s", s)
		}
		if len(q.known) > 0 {
			r.prompts = append(r.prompts, q)
		}
	}
	r.without()
	for s := range unplaced {
		r.unplaced = append(r.unplaced, s)
	}
	slices.Sort(r.unplaced)
	if len(r.prompts) == 0 && len(r.unplaced) > 0 {
		return fmt.Errorf("%w: %s: none of its values has a place in MODEL, as %s", ErrUnusable, r.Dump.Path, r.unplaced[0])
	}
	if len(r.prompts) == 0 {
		return fmt.Errorf("%w: %s: no prompt has ids and logits or taps%s", ErrUnusable, r.Dump.Path, r.lackingIDs())
	}
	if !slices.ContainsFunc(r.prompts, (*prompt).written) {
		return fmt.Errorf("%w: %s: all values are 0: the probe reads buffers that were never written, or copies none", ErrUnusable, r.Dump.Path)
	}
	return nil
}

// without takes hidden states, or else the logits of the shortest prompts, for taps
// where there are no others.
func (r placement) without() {
	if slices.ContainsFunc(r.prompts, func(p *prompt) bool { return p.tapped }) {
		return
	}
	if slices.ContainsFunc(r.prompts, func(p *prompt) bool { return p.outline }) {
		for _, p := range r.prompts {
			p.tapped = p.outline
		}
		return
	}
	short := slices.Clone(r.prompts)
	slices.SortStableFunc(short, func(a, b *prompt) int { return len(a.IDs) - len(b.IDs) })
	// Attention says little of prompts of one or two tokens.
	if i := slices.IndexFunc(short, func(p *prompt) bool { return len(p.IDs) > 2 }); i > 0 {
		short = short[i:]
	}
	tokens := 0
	for i, p := range short {
		if tokens += len(p.IDs); i > 0 && (i == 3 || tokens > 40) {
			break
		}
		p.tapped, r.blackBox = true, true
	}
}

// withIDs is p with ids: its own, or the golden record's, or the tokenizer's; nil if
// there are none.
func (r placement) withIDs(p *lab.Prompt) *lab.Prompt {
	if len(p.IDs) > 0 {
		return p
	}
	ids, how, err := r.expected(p)
	if err != nil || len(ids) == 0 || len(ids[0]) == 0 {
		r.infers("prompt %d has no ids and is left out: --golden may give them, or text in the dump's JSON file", p.Index)
		return nil
	}
	q := *p
	q.IDs = nil
	if err := q.Take(&lab.Prompt{IDs: ids[0], Text: p.Text, Input: p.Input}); err != nil {
		r.infers("%v: its ids come from %s, and it is left out", err, how)
		return nil
	}
	r.infers("the dump has no ids: they come from %s", how)
	return &q
}

// lackingIDs says how to give ids, if a prompt has values and none.
func (r placement) lackingIDs() string {
	if slices.ContainsFunc(r.Dump.Prompts, func(p *lab.Prompt) bool { return len(p.IDs) == 0 && (p.Logits != nil || len(p.Taps) > 0) }) {
		return ": the ids are missing; --golden gives those of a record, or write the text into the dump's JSON file"
	}
	return ""
}

// schema is whose names the taps have.
func (r placement) schema() string { return cmp.Or(r.Names, r.Dump.Names) }
