package experiment

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/lab"
)

// Effect is the change by edits in the token after a prompt.
type Effect struct {
	Program     string      `json:"program"`
	Model       string      `json:"model"`
	Fingerprint string      `json:"fingerprint"` // of weights, graph, vocabulary, template and numerics
	Template    string      `json:"template"`
	IDs         []int       `json:"ids"`
	Edits       []string    `json:"edits"` // in words
	Nodes       []string    `json:"nodes"` // edited
	KL          lab.Number  `json:"kl"`    // of the distribution with edits from the distribution without, in nats
	MaxAbsDiff  lab.Number  `json:"max_abs_diff"`
	Same        bool        `json:"same_bits"` // of all logits
	Difference  *Difference `json:"logit_difference,omitempty"`
	Tokens      []Change    `json:"tokens"`
	Before      string      `json:"text_before,omitempty"`
	After       string      `json:"text_after,omitempty"`
}

// Difference is the logit of the first token asked for less the logit of the second.
type Difference struct {
	First  int        `json:"first"`
	Second int        `json:"second"`
	Before lab.Number `json:"before"`
	After  lab.Number `json:"after"`
}

// Change is a token before and after.
type Change struct {
	ID     int           `json:"id"`
	Text   string        `json:"text"`
	Before lab.NextOther `json:"before"`
	After  lab.NextOther `json:"after"`
}

// Measure runs a prompt without and with edits. tokens are shown at any rank, for two tokens with the
// difference of their logits. most tokens are generated behind the prompt.
func Measure(ctx context.Context, m *karat.Model, p *Prompt, edits []Edit, top int, tokens []int, most int) (*Effect,
	error) {
	all, err := prepare(ctx, m, p, edits)
	if err != nil {
		return nil, err
	}
	before, err := run(ctx, m, p, nil, most)
	if err != nil {
		return nil, err
	}
	after, err := run(ctx, m, p, hooks(all, len(p.IDs)), most)
	if err != nil {
		return nil, fmt.Errorf("with that change: %w", err)
	}
	e := &Effect{Program: "karat " + karat.Version(), IDs: p.IDs, Before: before.Text, After: after.Text}
	for _, a := range all {
		e.Nodes = append(e.Nodes, a.node.Name)
	}
	a, b := lab.Widen(before.Logits), lab.Widen(after.Logits)
	largest, _ := lab.AbsDiff(a, b)
	e.KL, e.MaxAbsDiff, e.Same = lab.Number(lab.KL(a, b)), lab.Number(largest), largest == 0
	next, err := lab.NewNext(a, b, top, tokens)
	if err != nil {
		return nil, err
	}
	if len(tokens) == 2 {
		x, y := tokens[0], tokens[1]
		e.Difference = &Difference{x, y, lab.Number(a[x] - a[y]), lab.Number(b[x] - b[y])}
	}
	seen := map[int]bool{}
	for _, list := range [][]lab.NextToken{next.Tokens, next.Top, next.OtherTop} {
		for _, t := range list {
			if !seen[t.ID] {
				seen[t.ID] = true
				e.Tokens = append(e.Tokens, Change{t.ID, m.TokenText(t.ID),
					lab.NextOther{Rank: t.Rank, Logit: t.Logit, Logprob: t.Logprob}, *t.Other})
			}
		}
	}
	return e, nil
}

// NewPrompt returns ids with the texts of their tokens.
func NewPrompt(m *karat.Model, text string, ids []int) *Prompt {
	p := &Prompt{Text: text, IDs: ids}
	for _, id := range ids {
		p.Tokens = append(p.Tokens, m.TokenText(id))
	}
	return p
}

// WriteText writes e for a person.
func (e *Effect) WriteText(w io.Writer) error {
	for _, s := range e.Edits {
		fmt.Fprintln(w, lab.Printable(s))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "id\tlogit\tafter\tchange\tprob\tafter\trank\tafter\ttext")
	for _, c := range e.Tokens {
		fmt.Fprintf(t, "%d\t%.4f\t%.4f\t%+.4f\t%s\t%s\t%d\t%d\t%s\n", c.ID, float64(c.Before.Logit),
			float64(c.After.Logit), float64(c.After.Logit-c.Before.Logit),
			lab.Percent(c.Before.Logprob), lab.Percent(c.After.Logprob), c.Before.Rank, c.After.Rank,
			strconv.Quote(c.Text))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if d := e.Difference; d != nil {
		fmt.Fprintf(w, "logit of %d less that of %d: %.4f, after %.4f\n", d.First, d.Second, float64(d.Before),
			float64(d.After))
	}
	if e.Same {
		if _, err := fmt.Fprintln(w, "the logits are the same, bit for bit"); err != nil || e.Before == e.After {
			return err
		} // edits of generated tokens change the text alone
	} else {
		fmt.Fprintf(w, "KL divergence %s nats, largest difference of a logit %s\n", lab.Digits(float64(e.KL)),
			lab.Digits(float64(e.MaxAbsDiff)))
	}
	if e.Before != "" || e.After != "" {
		fmt.Fprintf(w, "before: %s\nafter:  %s\n", strconv.Quote(e.Before), strconv.Quote(e.After))
	}
	return nil
}
