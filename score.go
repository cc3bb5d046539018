package karat

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/tokenizer"
)

// scoreBytes bounds the logits held by Score: a row of a vocabulary of 262,144 is a megabyte.
const scoreBytes = 16 << 20

// Score yields the tokens of a prompt with the log-probability of each after its predecessors, the o.TopLogprobs
// likeliest in its place, and with o.Logits the logits there. The first token has no predecessor and its Logprob is
// NaN. Text is empty. Score computes the prompt anew, but a GenerateIDs of the prompt goes on from there.
func (s *Session) Score(ctx context.Context, prompt []int, o GenerateOptions) iter.Seq2[Token, error] {
	return s.ScoreFrom(ctx, prompt, 0, o)
}

// ScoreFrom scores the tokens of a prompt from index from on. The tokens before are their context, without logits.
func (s *Session) ScoreFrom(ctx context.Context, prompt []int, from int, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.prompt, s.kept = 0, 0
		err := o.check()
		if err == nil {
			err = s.m.makesTokens()
		}
		if err == nil && (from < 0 || from > len(prompt)) {
			err = fmt.Errorf("score from token %d of %d", from, len(prompt))
		}
		var ids []int32
		if err == nil {
			ids, err = s.m.promptIDs(ctx, prompt)
		}
		if err == nil {
			_, err = s.begin(ctx, nil, engine.Mixed{}, &o)
		}
		if err != nil {
			yield(Token{}, err)
			return
		}
		s.score(ctx, ids, from, &o, yield)
	}
}

func (s *Session) score(ctx context.Context, ids []int32, from int, o *GenerateOptions, yield func(Token, error) bool) {
	piece := max(1, scoreBytes/(4*s.m.opened.Engine.VocabSize()))
	next := Token{Logprob: math.NaN()}
	before := max(0, from-1) // tokens without logits
	if _, err := s.s.Feed(ctx, ids[:before], 0); err != nil {
		yield(Token{}, err)
		return
	}
	for at := before; at < len(ids); at += piece {
		fed := ids[at:min(at+piece, len(ids))]
		rows, err := s.s.Feed(ctx, fed, len(fed))
		if err != nil {
			yield(Token{}, err)
			return
		}
		for i, logits := range rows {
			next.ID = int(fed[i])
			if at+i >= from && !yield(next, nil) || at+i+1 == len(ids) {
				return
			}
			of, best, err := sample.Logprobs(logits, []int{int(ids[at+i+1])}, o.TopLogprobs)
			if err != nil {
				yield(Token{}, err)
				return
			}
			if next = (Token{Logprob: of[0].Logprob, TopLogprobs: s.m.logprobs(best)}); o.Logits {
				next.Logits = logits
			}
		}
	}
}

// BOS returns the begin-of-text token, or EOS for a model without BOS. A scored text has this token before its first.
func (m *Model) BOS() (id int, ok bool) {
	if id, ok = m.opened.Tokenizer.BOS(); !ok {
		id, ok = m.opened.Tokenizer.EOS()
	}
	return id, ok
}

// decoder turns ids into text.
type decoder interface {
	engine.Decoder
	Whole() bool // no character is begun
}

// decoder returns a decoder of ids into text; the names of the given special tokens are a part of the text.
func (m *Model) decoder(special []string) (decoder, error) {
	d := m.opened.Tokenizer.Decoder(true)
	if len(special) == 0 {
		return d, nil
	}
	names := map[int]string{}
	for _, written := range special {
		t, name := m.opened.Tokenizer, strings.TrimSuffix(strings.TrimPrefix(written, "\xff"), "\xff")
		ids := t.Encode(name, tokenizer.Options{ParseSpecial: true})
		text := t.Decode(ids, true) != ""
		if len(ids) != 1 || text && len(t.Encode(name, tokenizer.Options{})) == 1 {
			return nil, fmt.Errorf("GenerateOptions.Special: %q is no special token", name)
		}
		if text && written == name { // some files call a special token text: its name is written anyway
			continue
		}
		names[ids[0]] = written
	}
	return &speller{d, names}, nil
}

// speller is a decoder with the names of some special tokens.
type speller struct {
	*tokenizer.Decoder
	names map[int]string
}

func (d *speller) Write(id int) string {
	if name, ok := d.names[id]; ok {
		return d.Flush() + name
	}
	return d.Decoder.Write(id)
}
