package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab"
)

// judgeInput compares the engine's ids with the ones that the model's
// tokenizer makes of the prompt, and with the golden record's.
func (r placement) judgeInput() error {
	var untold []string
	for _, p := range r.prompts {
		want, how, err := r.expected(p.Prompt)
		switch {
		case err != nil:
			r.infers("prompt %d: what was asked for could not be tokenized (%v): its ids are taken as they are", p.Index, err)
		case want == nil:
			untold = append(untold, fmt.Sprint(p.Index))
		case !slices.ContainsFunc(want, func(ids []int32) bool { return slices.Equal(ids, p.IDs) }):
			r.wrongInput(p, want, how)
		}
	}
	if len(untold) == len(r.prompts) {
		r.infers("the dump does not say what the ids were made of: they are taken as they are")
	} else if len(untold) > 0 {
		r.infers("the dump does not say what the ids of these prompts were made of, which are taken as they are: %s", strings.Join(untold, ", "))
	}
	return nil
}

// wrongInput reports ids that no right tokenization has.
func (r placement) wrongInput(p *prompt, want [][]int32, how string) {
	cause, what := "", ""
	for _, ids := range want {
		if c, w := classify(p.Prompt, ids); cause == "" || cause == "input_ids" {
			cause, what = c, w
		}
	}
	for i := range r.findings {
		if r.findings[i].Cause == cause {
			return // it is said once
		}
	}
	r.findings = append(r.findings, Finding{Cause: cause, Op: "Embed", Layers: []int{}, Tap: "ids", From: []string{}, Nodes: []string{},
		Detail: detail{"prompt": float64(p.Index), "got": float64(len(p.IDs)), "want": float64(len(want[0]))}, Computed: what,
		Evidence: fmt.Sprintf("prompt %d: %d ids, but %d by %s; the first difference is at position %d", p.Index, len(p.IDs), len(want[0]), how, firstDifference(p.IDs, want[0]))})
}

// expected is the ids that a prompt may have, nil if nothing tells.
func (r placement) expected(p *lab.Prompt) (ids [][]int32, how string, err error) {
	if r.Golden != nil {
		if g := r.Golden.Prompt(p.Index); g != nil && g.IDs != nil && (g.Text == p.Text || p.Text == "") {
			return [][]int32{g.IDs}, "the golden record", nil
		}
	}
	if r.Asked == nil {
		return nil, "", nil
	}
	return r.Asked.ids(r.ctx, p)
}

// classify names the difference of ids.
func classify(p *lab.Prompt, want []int32) (cause, what string) {
	got := p.IDs
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

// trimBOS is a without a first token that b has not in it elsewhere.
func trimBOS(a, b []int32) []int32 {
	if len(a) > 1 && len(b) > 0 && a[0] == b[0] {
		return a[1:]
	}
	return a
}

// contains reports whether part is in whole, but for a token at each end.
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
