package probe

import (
	"context"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/experiment"
)

// Change multiplies a node's values by a number.
type Change struct {
	Node      string  `json:"node"`
	Heads     string  `json:"heads"`     // as experiment.ParseSet has them; "" is all
	Positions string  `json:"positions"` // as experiment.ParsePositions has them; "" is all, generated ones too
	By        float64 `json:"by"`
}

// The page shows of a change so many likeliest tokens of each run, and tokens that follow.
const (
	likeliest = 6
	following = 6
)

// Effect runs ids without and with c, and tells what c does to the next token and to the text that follows.
func (c Change) Effect(ctx context.Context, m *karat.Model, ids []int) (*experiment.Effect, error) {
	e := experiment.Edit{Kind: experiment.Scale, Place: experiment.Place{Node: c.Node}, By: c.By}
	var err error
	if e.Place.Heads, err = experiment.ParseSet(c.Heads); err != nil {
		return nil, err
	}
	if e.At, err = experiment.ParsePositions(c.Positions); err != nil {
		return nil, err
	}
	x, err := experiment.Measure(ctx, m, experiment.NewPrompt(m, "", ids), []experiment.Edit{e}, likeliest, nil, following)
	if err != nil {
		return nil, err
	}
	for i, t := range x.Tokens {
		if b := m.TokenBytes(t.ID); len(b) > 0 {
			x.Tokens[i].Text = Text(b)
		}
	}
	return x, nil
}
