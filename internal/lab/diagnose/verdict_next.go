package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// errors says which taps were not looked at by mistake.
func (r *conclusion) errors() {
	d := r.m.dump
	if n := len(d.misspelt) + len(d.foreign); n > 0 {
		r.out.Errors = append(r.out.Errors, fmt.Sprintf("%d of the dump's taps were not looked at, since their names "+
			"have no place in MODEL, %s", n, d.whyUnplaced()))
	} else if n := d.amiss; n > len(d.taps) {
		r.out.Errors = append(r.out.Errors, fmt.Sprintf("most of the dump's taps were not looked at: %d have no "+
			"place in MODEL, %s", n, d.whyUnplaced()))
	} else if i := slices.IndexFunc(d.misfit, d.isLost); i >= 0 {
		r.out.Errors = append(r.out.Errors, fmt.Sprintf("not all of the dump's taps were looked at, as %s: %s",
			d.misfit[i].Name, d.misfit[i].Why))
	}
}

// isLost reports whether a tap with rows that are too long is the only one of its value.
func (d *dump) isLost(u lab.Unplaced) bool {
	return u.Width > u.Node.Shape.Size() && !d.isTapped(u.Node)
}

// next lists what to do: mend the dump's names, then the findings, then see what these taps and prompts cannot show.
func (r *conclusion) next() {
	d := &r.out
	add := func(s Step) { d.Next = append(d.Next, s) }
	taps := slices.AppendSeq(slices.Collect(maps.Keys(d.Coverage.Misspelt)), maps.Keys(r.m.dump.foreign))
	if slices.Sort(taps); len(taps) > 0 {
		add(Step{Do: DoRename, Why: "taps have names without a place, so their values were not looked at", Taps: taps,
			Rename: d.Coverage.Misspelt})
	} else if len(d.Errors) > 0 {
		add(Step{Do: DoMendProbe, Why: d.Errors[0]})
	}
	passed := slices.Index(order, d.Verdict) >= slices.Index(order, Sensitivity)
	for i, f := range d.Findings {
		s := Step{Do: DoMend, Why: f.Fix, Finding: &i}
		switch {
		case kind(f.Cause) == Numeric:
			continue
		case kindOf(f) == Instrument:
			s.Do = DoMendProbe
		case f.Cause == "unknown" && len(f.AddTaps) > 0:
			s.Do, s.Taps, s.Why = DoAddTaps, f.AddTaps, "they tell which operation is wrong"
			s.Callback = r.llamaCpp(f.AddTaps)
		case f.Cause == "unknown":
			s.Do, s.Taps, s.Why = DoExpect, []string{f.Tap}, "the operation is wrong in a way that has no name"
			s.Command = []string{"karat", "lab", "expect", d.Model, d.Dump, "--tap", f.Tap}
		}
		add(s)
	}
	if passed || d.Verdict == Unexplained {
		r.look(add)
	}
	if len(d.Next) == 0 && passed {
		add(Step{Do: Done, Why: "every equation holds, and the logits follow"})
	}
}

// look lists what would show more: taps where there are none, a prompt beyond the window, decoded tokens.
func (r *conclusion) look(add func(Step)) {
	d := r.m.dump
	if d.blackBox || r.out.Verdict == Unexplained {
		var taps []string
		for _, n := range d.graph.Nodes {
			if name := d.names.Torch[n]; name != "" && n.Layer <= 0 && d.taps[n] == "" {
				taps = append(taps, name)
			}
		}
		if len(taps) > 0 {
			add(Step{Do: DoAddTaps, Why: "without them a fault cannot be placed; in other layers likewise", Taps: taps,
				Callback: r.llamaCpp(taps)})
		}
	}
	window := 2
	for _, n := range d.graph.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok {
			window = max(window, a.KV.Window)
		}
	}
	if r.out.Coverage.Positions <= window {
		add(Step{Do: DoAddPrompt, Why: fmt.Sprintf("no prompt with taps has more than %d tokens", window),
			Tokens: window + 1})
	}
	if len(r.out.Logits) == 0 && r.out.Closure.Prompts == 0 {
		add(Step{Do: DoAddTaps, Why: "the dump has no logits, so whether they follow is open",
			Taps: []string{"logits"}})
	}
	if !slices.ContainsFunc(d.prompts, func(p *prompt) bool { return p.tapped && p.decoded() > 0 }) {
		add(Step{Do: DoDecode, Why: "the reuse of keys and values was not tested", Decode: 2})
	}
}

// llamaCpp returns llama.cpp's names of taps.
func (r *conclusion) llamaCpp(taps []string) (names []string) {
	for _, n := range r.m.dump.graph.Nodes {
		if name := r.m.dump.names.LlamaCpp[n]; name != "" && slices.Contains(taps, r.m.dump.names.Torch[n]) {
			names = append(names, name)
		}
	}
	return names
}
