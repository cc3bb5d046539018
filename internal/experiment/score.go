package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/lab"
)

// Question is a line of a file to score: a continuation of a context, several continuations (Choices), or a
// text, with all tokens scored.
type Question struct {
	ID           json.RawMessage `json:"id,omitempty"`
	Context      string          `json:"context,omitempty"`
	Continuation string          `json:"continuation,omitempty"`
	Choices      []string        `json:"choices,omitempty"`
	Text         string          `json:"text,omitempty"`
}

// ParseQuestion reads a line.
func ParseQuestion(line []byte) (*Question, error) {
	d := json.NewDecoder(strings.NewReader(string(line)))
	d.DisallowUnknownFields()
	q := &Question{}
	if err := d.Decode(q); err != nil {
		return nil, fmt.Errorf("want an object with text, or context and continuation or choices: %w",
			jsonerr.Plain(err, ""))
	}
	forms := 0
	for _, there := range []bool{q.Text != "", q.Continuation != "", len(q.Choices) > 0} {
		if there {
			forms++
		}
	}
	switch {
	case d.More():
		return nil, errors.New("more than one object in a line")
	case forms != 1:
		return nil, errors.New("want one of text, continuation and choices")
	case q.Text != "" && q.Context != "":
		return nil, errors.New("a text has no context: give continuation")
	}
	for _, c := range q.Choices {
		if c == "" {
			return nil, errors.New("an empty choice")
		}
	}
	return q, nil
}

// Score is how likely a continuation is.
type Score struct {
	Logprob   lab.Number   `json:"logprob"` // sum of the natural logarithms of its tokens' probabilities
	Tokens    int          `json:"tokens"`
	Bytes     int          `json:"bytes"`
	Greedy    bool         `json:"greedy"`              // each token is the likeliest in its place
	Top1      int          `json:"top1"`                // number of the likeliest tokens
	Entropy   lab.Number   `json:"entropy"`             // mean over its places, in nats
	Truncated bool         `json:"truncated,omitempty"` // the context's beginning was left out
	Parts     []TokenScore `json:"token_scores,omitempty"`
}

// TokenScore is the score of a token.
type TokenScore struct {
	ID      int        `json:"id"`
	Text    string     `json:"text"`
	Logprob lab.Number `json:"logprob"`
	Entropy lab.Number `json:"entropy"`
	Top1    bool       `json:"top1"`
}

// Answer is a question's scores.
type Answer struct {
	Line int             `json:"line"`
	ID   json.RawMessage `json:"id,omitempty"`
	*Score
	Choices []Score `json:"choices,omitempty"`

	// The likeliest choice, and the likeliest for its length: lm-evaluation-harness's acc, acc_norm and
	// acc_bytes. Spaces before a choice are the harness's target_delimiter, and no part of the length.
	Best       *int `json:"best,omitempty"`
	BestByRune *int `json:"best_by_characters,omitempty"`
	BestByByte *int `json:"best_by_bytes,omitempty"`
}

// Scorer scores with a model.
type Scorer struct {
	Model *karat.Model
	NoBOS bool // add no token in front, but where nothing else is before a text
	Parts bool // report also the tokens' scores
}

// Pair returns the ids of a context and of its continuation, as lm-evaluation-harness cuts them: spaces at
// the context's end belong to the continuation, both are encoded together, and the context gets as many of
// the ids as alone. Without a context, a BOS, or the end of a text, is the context.
func (s *Scorer) Pair(ctx context.Context, before, continuation string) (ids []int, from int, err error) {
	trimmed := strings.TrimRight(before, " \t\n\v\f\r")
	continuation, before = before[len(trimmed):]+continuation, trimmed
	if ids, err = s.encode(ctx, before+continuation); err != nil {
		return nil, 0, err
	}
	if before != "" {
		alone, err := s.encode(ctx, before)
		return ids, min(len(alone), len(ids)), err
	}
	first, ok := s.Model.BOS()
	switch {
	case len(ids) > 1 && ok && ids[0] == first:
		return ids, 1, nil
	case ok:
		return append([]int{first}, ids...), 1, nil
	}
	return nil, 0, errors.New("the model has neither a BOS nor an EOS that could stand before a text: give a context")
}

func (s *Scorer) encode(ctx context.Context, text string) ([]int, error) {
	ids, err := s.Model.Tokenize(ctx, text, karat.TokenizeOptions{OmitSpecial: true})
	if err != nil || s.NoBOS {
		return ids, err
	}
	around, err := s.Model.Tokenize(ctx, "", karat.TokenizeOptions{})
	if front, ok := s.Model.BOS(); err == nil && ok && len(around) > 0 && around[0] == front {
		ids = append([]int{front}, ids...)
	}
	return ids, err
}

// Answer scores a question.
func (s *Scorer) Answer(ctx context.Context, line int, q *Question) (*Answer, error) {
	a := &Answer{Line: line, ID: q.ID}
	var err error
	if len(q.Choices) == 0 {
		a.Score, err = s.score(ctx, q.Context, q.Continuation+q.Text)
		return a, err
	}
	for i, c := range q.Choices {
		x, err := s.score(ctx, q.Context, c)
		if err != nil {
			return nil, fmt.Errorf("choice %d: %w", i, err)
		}
		a.Choices = append(a.Choices, *x)
	}
	bare := func(i int) string { return strings.TrimLeft(q.Choices[i], " ") }
	a.Best = likeliest(a.Choices, func(int) int { return 1 })
	a.BestByRune = likeliest(a.Choices, func(i int) int { return utf8.RuneCountInString(bare(i)) })
	a.BestByByte = likeliest(a.Choices, func(i int) int { return len(bare(i)) })
	return a, nil
}

// likeliest returns the first index of the choices with the largest log-probability for their length.
func likeliest(choices []Score, length func(i int) int) *int {
	at := 0
	of := func(i int) float64 { return float64(choices[i].Logprob) / float64(max(1, length(i))) }
	for i := range choices {
		if of(i) > of(at) {
			at = i
		}
	}
	return &at
}

func (s *Scorer) score(ctx context.Context, before, continuation string) (*Score, error) {
	ids, from, err := s.Pair(ctx, before, continuation)
	if err != nil {
		return nil, err
	}
	x := &Score{Bytes: len(continuation), Greedy: true}
	if most := s.Model.Info().Context; len(ids) > most {
		cut := len(ids) - most
		ids, from, x.Truncated = ids[cut:], max(1, from-cut), true
	}
	session := s.Model.NewSession()
	defer session.Close()
	var entropy float64
	for t, err := range session.ScoreFrom(ctx, ids, from, karat.GenerateOptions{TopLogprobs: 1, Logits: true}) {
		if err != nil {
			return nil, err
		}
		part := TokenScore{ID: t.ID, Logprob: lab.Number(t.Logprob), Entropy: lab.Number(lab.Entropy(t.Logits)),
			Top1: len(t.TopLogprobs) > 0 && t.TopLogprobs[0].ID == t.ID}
		x.Logprob += part.Logprob
		x.Tokens++
		entropy += float64(part.Entropy)
		if x.Greedy = x.Greedy && part.Top1; part.Top1 {
			x.Top1++
		}
		if s.Parts {
			part.Text = s.Model.TokenText(t.ID)
			x.Parts = append(x.Parts, part)
		}
	}
	if x.Tokens == 0 {
		return nil, errors.New("the continuation has no token of its own")
	}
	x.Entropy = lab.Number(entropy / float64(x.Tokens))
	return x, nil
}
