package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// judgeInput compares the engine's ids with the ids the model's tokenizer makes of the prompt, and with the golden
// record's.
func (d *dump) judgeInput() {
	var untold []string
	for _, p := range d.prompts {
		want, how, err := d.expected(p.Prompt)
		for i := range want {
			want[i] = asShown(want[i], p.Prompt)
		}
		switch {
		case err != nil:
			d.inferred.add("prompt %d: what was asked for could not be tokenized (%v): its ids are taken as they are",
				p.Index, err)
		case want == nil:
			untold = append(untold, fmt.Sprint(p.Index))
		case !slices.ContainsFunc(want, func(ids []int32) bool { return slices.Equal(ids, p.IDs) }):
			d.wrongInput(p, want, how)
		}
	}
	if len(untold) == len(d.prompts) {
		d.inferred.add("the dump does not say what the ids were made of: they are taken as they are")
	} else if len(untold) > 0 {
		d.inferred.add("the dump does not say what the ids of these prompts were made of, which are taken as "+
			"they are: %s", strings.Join(untold, ", "))
	}
}

// asShown returns ids with p's own in place of pictures' rows, which are no tokens.
func asShown(ids []int32, p *lab.Prompt) []int32 {
	if len(ids) != len(p.IDs) || len(p.Groups) == 0 {
		return ids
	}
	ids = slices.Clone(ids)
	for _, g := range p.Groups {
		copy(ids[g[0]:g[1]], p.IDs[g[0]:g[1]])
	}
	return ids
}

// isBeside reports whether a position is beside the rows of a picture: in its marks.
func isBeside(p *lab.Prompt, at int) bool {
	return slices.ContainsFunc(p.Groups, func(g [2]int32) bool {
		return at >= int(g[0])-markers && at <= int(g[1])+markers
	})
}

// markers is the most tokens of a mark beside rows.
const markers = 3

// wrongInput reports ids no right tokenization has.
func (d *dump) wrongInput(p *prompt, want [][]int32, how string) {
	cause, what := "", ""
	for _, ids := range want {
		if c, w := classify(p.Prompt, ids); cause == "" || cause == "input_ids" {
			cause, what = c, w
		}
	}
	if slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Cause == cause }) {
		return // said once
	}
	d.findings = append(d.findings, Finding{Cause: cause, Op: "Embed", Layers: []int{}, Tap: "ids",
		From: []string{}, Nodes: []string{}, Computed: what,
		Detail: detail{"prompt": float64(p.Index), "got": float64(len(p.IDs)), "want": float64(len(want[0]))},
		Evidence: fmt.Sprintf("prompt %d: %d ids, but %d by %s; the first difference is at position %d", p.Index,
			len(p.IDs), len(want[0]), how, firstDifference(p.IDs, want[0]))})
}

// expected returns the ids a prompt may have, nil if nothing tells.
func (d *dump) expected(p *lab.Prompt) (ids [][]int32, how string, err error) {
	if d.options.Golden != nil {
		if g := d.options.Golden.Prompt(p.Index); g != nil && g.IDs != nil && (g.Text == p.Text || p.Text == "") {
			return [][]int32{g.IDs}, "the golden record", nil
		}
	}
	if d.options.Asked == nil {
		return nil, "", nil
	}
	return d.options.Asked.ids(d.ctx, p)
}

// classify names the difference of ids.
func classify(p *lab.Prompt, want []int32) (cause, what string) {
	got := p.IDs
	if at := firstDifference(got, want); isBeside(p, at) {
		return "image_markers", fmt.Sprintf("has other tokens beside a picture's rows, from position %d on: %d in "+
			"all, not %d", at, len(got), len(want))
	}
	switch {
	case len(got) == len(want)-1 && slices.Equal(got, want[1:]):
		return "input_bos", fmt.Sprintf("reads the prompt without its first token, %d", want[0])
	case len(got) == len(want)+1 && slices.Equal(got[1:], want):
		if len(want) > 0 && got[0] == want[0] {
			return "input_bos", fmt.Sprintf("reads the first token, %d, twice", got[0])
		}
		return "input_bos", fmt.Sprintf("reads a token %d in front of the prompt", got[0])
	}
	if n := len(got); p.Input.Chat == nil && n > 0 && n < len(want) {
		switch {
		case slices.Equal(got, want[:n]):
			return "input_ids", fmt.Sprintf("reads the prompt without its last %d tokens", len(want)-n)
		case slices.Equal(got, want[len(want)-n:]):
			return "input_ids", fmt.Sprintf("reads the prompt without its first %d tokens", len(want)-n)
		}
	}
	a, b := trimBOS(got, want), trimBOS(want, got)
	if contains(a, b) {
		return "input_template", "reads the prompt with a template around it"
	}
	if contains(b, a) {
		return "input_template", "reads the prompt without its template"
	}
	if p.Input.Chat != nil {
		return "input_template", "reads the messages under another template"
	}
	return "input_ids", "reads other tokens than the tokenizer makes of the text"
}

// trimBOS returns a without a first token that begins b as well.
func trimBOS(a, b []int32) []int32 {
	if len(a) > 1 && len(b) > 0 && a[0] == b[0] {
		return a[1:]
	}
	return a
}

// contains reports whether part is in whole, except for a token at each end.
func contains(whole, part []int32) bool {
	if len(part) > 2 {
		part = part[1 : len(part)-1]
	}
	if len(part) == 0 || len(whole) <= len(part)+2 {
		return false
	}
	for i := range len(whole) - len(part) + 1 {
		if slices.Equal(whole[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

func firstDifference(a, b []int32) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}

// judgeTwice compares taps that should hold the same value. The head's output and the
// logits are such where the model does nothing between them.
func (d *dump) judgeTwice() {
	seen := map[*graph.Node]bool{}
	for _, p := range d.prompts {
		for _, pair := range p.twice {
			n := pair[0].Node
			if a, b := common(pair[0], pair[1]); !seen[n] && lab.RelativeL2(a, b) > sameTwice {
				seen[n] = true
				d.disagree(n, pair, a, b)
			}
		}
	}
}

// common returns the rows that two taps of a value have in common.
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
func (d *dump) disagree(n *graph.Node, pair [2]lab.Placed, a, b []float64) {
	if n != d.graph.Result() {
		d.findings = append(d.findings, Finding{Cause: "unknown", Op: opName(n), Layers: layersOf(n),
			Tap: pair[1].Name, From: []string{pair[0].Name}, Nodes: []string{n.Name},
			Detail: detail{}, Residual: lab.Number(lab.RelativeL2(a, b)), Floor: sameTwice,
			Computed: innocent + "two taps of the same value hold other numbers",
			Evidence: fmt.Sprintf("%s and %s should be the same numbers", pair[0].Name, pair[1].Name)})
		return
	}
	if !isShifted(a, b, n.Shape.Size()) {
		return
	}
	d.inferred.add("the logits are the head's output plus a constant, which changes no probability")
	if pair[0].Name == logitsName {
		pair[0] = pair[1]
	}
	for _, p := range d.prompts {
		for _, x := range p.twice {
			if x[0].Node == n && x[0].Name == pair[0].Name {
				p.known[n], p.placed[n] = lab.Tap{Placed: x[0]}, x[0]
			} else if x[1].Node == n && x[1].Name == pair[0].Name {
				p.known[n], p.placed[n] = lab.Tap{Placed: x[1]}, x[1]
			}
		}
	}
}

// isShifted reports whether rows of b, w wide, are the rows of a plus a number each.
func isShifted(a, b []float64, w int) bool {
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

// misshapen reports taps whose node has another width: probes of a part.
func (d *dump) misshapen() {
	for _, u := range d.misfit {
		size := u.Node.Shape.Size()
		isSaid := func(f Finding) bool { return slices.Contains(f.Nodes, u.Node.Name) }
		if u.Width > size || slices.ContainsFunc(d.findings, isSaid) {
			continue
		}
		if u.Placed.Rows == size {
			d.inferred.add("%s is left out: its rows are features and its columns positions; write it the other way",
				u.Name)
			continue
		}
		d.findings = append(d.findings, Finding{Cause: "probe_prefix", Op: opName(u.Node), Layers: layersOf(u.Node),
			Tap: u.Name, From: []string{}, Nodes: []string{u.Node.Name},
			Detail:   detail{"values": float64(u.Width), "of": "row"},
			Computed: fmt.Sprintf(innocent+"the probe reads %d of %d values", u.Width, size), Evidence: u.Why})
	}
}
