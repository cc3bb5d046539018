package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine/schedule"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// Caller is a request's sender, and its urgency.
type Caller = schedule.Caller

// Sequence is one conversation's tokens and their keys and values. A Sequence is not safe for concurrent use, and must
// be closed.
//
// Its keys and values may be given back while another sequence needs the room, and are then computed again with its
// next tokens: the caller notices only the time.
type Sequence struct {
	plan   *Plan
	tokens []int32
	salt   string // callers of different salts share no pages
	extras extras // the rows and positions of a prompt other than text
	states states // for the model's head
	blend  *backend.Blend
	hook   *Hook
	closed bool
	spare  rows          // logits no longer in use: memory for the next logits
	busy   atomic.Bool   // a request uses the sequence
	turn   chan struct{} // told when its work is done
	work   work          // its request

	// Guarded by Engine.mu.
	seat    schedule.Sequence
	started time.Time // time of the request's first step; zero before
}

// NewSequence returns an empty sequence of the first plan.
func (e *Engine) NewSequence() *Sequence { return e.plan.NewSequence() }

// NewSequence returns an empty sequence, computed with p.
func (p *Plan) NewSequence() *Sequence {
	s := &Sequence{plan: p, turn: make(chan struct{}, 1)}
	s.seat = schedule.Sequence{Pages: p.e.pool.NewSequence(), Plan: p.turn, Resume: s.resume}
	s.seat.Pages.Private = p.private
	s.Adapt(p.e.blend)
	return s
}

// locked calls f while nothing else changes the engine's schedule.
func (s *Sequence) locked(f func(e *Engine)) {
	e := s.plan.e
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e)
}

// Close returns the sequence's pages.
func (s *Sequence) Close() {
	s.locked(func(e *Engine) {
		s.tokens, s.closed = nil, true
		e.changed(e.schedule.Remove(&s.seat))
	})
}

// leave notes that the sequence has no work for now.
func (s *Sequence) leave() {
	s.spare.free()
	s.locked(func(e *Engine) { e.changed(e.schedule.Leave(&s.seat)) })
}

// Len returns the number of tokens.
func (s *Sequence) Len() int { return len(s.tokens) }

// Computed returns the number of tokens with keys and values. It may be called beside a request.
func (s *Sequence) Computed() (n int) {
	s.locked(func(*Engine) { n = s.seat.Pages.Len() })
	return n
}

// As begins a request, and sets the sender.
func (s *Sequence) As(c Caller) {
	s.locked(func(*Engine) { s.seat.Caller, s.started = c, time.Time{} })
}

// Started returns the time of the request's first step; zero before.
func (s *Sequence) Started() (at time.Time) {
	s.locked(func(*Engine) { at = s.started })
	return at
}

// Adapt sets the adapters of the tokens to come, nil for none. If the adapters differ from the earlier ones, the
// sequence forgets its tokens.
func (s *Sequence) Adapt(b *backend.Blend) {
	s.locked(func(*Engine) {
		had := rootOf(s)
		if s.blend = b; rootOf(s) != had {
			s.tokens = s.tokens[:s.seat.Pages.Adopt(nil, rootOf(s))]
		}
	})
}

// rootOf returns the common text of sequences sharing pages: the salt, the adapters, and the rows of embeddings and
// positions of three parts. No salt makes it the text of other adapters or rows.
func rootOf(s *Sequence) string {
	if s.blend == nil && s.extras.name == "" && s.salt == "" {
		return ""
	}
	adapters := ""
	if s.blend != nil {
		adapters = s.blend.ID
	}
	return fmt.Sprintf("%d %d %s%s%s", len(adapters), len(s.extras.name), adapters, s.extras.name, s.salt)
}

// Origin is the common part of sequences sharing pages, beside tokens, each "" for none.
type Origin struct {
	Adapters string // the ID of the blend
	Rows     string // names rows of embeddings and positions of three parts
	Salt     string
}

// originOf returns the origin in a text of rootOf.
func originOf(root string) (o Origin) {
	var n, m int
	if _, err := fmt.Sscanf(root, "%d %d", &n, &m); err != nil {
		return o
	}
	rest := root[len(fmt.Sprintf("%d %d ", n, m)):]
	return Origin{rest[:n], rest[n : n+m], rest[n+m:]}
}

// Watch calls see for each full page of keys and values kept for later sequences from now on, and for the page's end,
// as kv.Pool.Watch does.
func Watch(e *Engine, see func(kv.Event, Origin)) {
	if see == nil {
		e.pool.Watch(nil)
		return
	}
	e.pool.Watch(func(page kv.Event) { see(page, originOf(page.Salt)) })
}

// Rewind forgets enough of the sequence to make a prefix of tokens, and returns its length: a longer prompt is computed
// from there. The sequence may become longer by the pages of others (Prefix). At least the last token is always left to
// compute.
func (s *Sequence) Rewind(tokens []int32) (n int) {
	s.locked(func(e *Engine) { n = s.rewind(tokens, extras{}) })
	return n
}

// Prefix does Rewind's work, and sets the salt from here on. Sequences of different salts share nothing: callers must
// not learn of each other. Sequences with different adapters share nothing either.
func (s *Sequence) Prefix(tokens []int32, salt string) int {
	s.salt = salt
	return s.Rewind(tokens)
}

// rewind does Rewind's work for a prompt with rows of its own. The caller holds Engine.mu.
func (s *Sequence) rewind(tokens []int32, b extras) int {
	n, pages, same := 0, s.seat.Pages, b.name == s.extras.name
	s.extras = b
	tokens = b.keyed(tokens)
	most := min(len(s.tokens), pages.Len(), len(tokens)-1)
	for same && !s.plan.e.entire && n < most && s.tokens[n] == tokens[n] {
		n++
	}
	s.tokens = s.tokens[:pages.Truncate(n)]
	if s.closed {
		return 0
	}
	if n = pages.Adopt(tokens, rootOf(s)); n > 0 {
		s.plan.e.schedule.List(&s.seat)
	}
	s.tokens = append(s.tokens[:0], tokens[:n]...)
	return n
}

// resume takes the remaining pages of a preempted sequence.
func (s *Sequence) resume() {
	if s.seat.Pages.Len() < len(s.tokens) {
		s.seat.Pages.Adopt(s.tokens, rootOf(s))
	}
}

// cut forgets all tokens except the first n, no further back than the last step's and steps computed ahead. The tokens
// of a draft left are then the sequence's, and others may find them.
func (s *Sequence) cut(n int) {
	s.locked(func(e *Engine) {
		pages := s.seat.Pages
		if n < len(s.tokens) {
			s.tokens = s.tokens[:n]
			pages.Truncate(min(n, pages.Len()))
		}
		pages.Commit(s.tokens[:min(n, len(s.tokens))])
		e.schedule.Charge(s.seat.Key, max(0, pages.Len()-s.work.sure()))
	})
}

// Feed appends tokens and returns the logits after each of the last wanted tokens, in order. Nothing is computed if an
// id is no token, or if the tokens do not fit the context and the budget. After another error the sequence holds the
// tokens of the earlier steps: Len returns their number, and Rewind goes on from there.
func (s *Sequence) Feed(ctx context.Context, tokens []int32, wanted int) (logits [][]float32, err error) {
	w, err := s.feed(ctx, tokens, wanted, choice{})
	if err != nil {
		return nil, err
	}
	return w.logits, nil
}

// Show feeds s tokens as Sequence.Feed does, and shows see the rows of the last wanted tokens' logits, joined, in
// order, some at a time. The engine waits for see, so no row is copied. see keeps none of the memory.
func Show(ctx context.Context, s *Sequence, tokens []int32, wanted int, see func(logits []float32)) error {
	_, err := s.feed(ctx, tokens, wanted, choice{see: see})
	return err
}

// Reuse takes a row of logits returned by Feed, perhaps nil, for the next logits. The row must be no longer in use.
// Without Reuse each token leaves half a megabyte to Go's collector.
func (s *Sequence) Reuse(row []float32) { s.spare.put(row) }

// feed does Feed's work, or chooses the next tokens. Its result is valid until the next call.
func (s *Sequence) feed(ctx context.Context, tokens []int32, wanted int, c choice) (*work, error) {
	if !s.busy.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	defer s.busy.Store(false)
	e, w := s.plan.e, &s.work
	*w = work{seq: s, ctx: ctx, tokens: tokens, choice: c, found: w.found[:0], ahead: w.ahead[:0]}
	drafted := len(c.odds)
	w.seat = schedule.Work{Seq: &s.seat, From: len(s.tokens), Tokens: len(tokens) - drafted, Wanted: wanted, Of: w}
	switch {
	case s.closed:
		return nil, ErrClosed
	case ctx == nil:
		return nil, errors.New("the context is nil")
	case e.InTap():
		return nil, ErrInTap
	}
	if err := e.checkIDs(tokens); err != nil {
		return nil, err
	}
	have, all := len(s.tokens), len(s.tokens)+len(tokens)-drafted
	if room := e.pool.Context(); all > room {
		return nil, fmt.Errorf("%w: %d tokens and %d more, the context holds %d", ErrFull, have, all-have, room)
	}
	if room := e.pool.Longest(); all > room {
		return nil, fmt.Errorf("%w: %d tokens and %d more, its %d bytes hold %d",
			ErrBudget, have, all-have, e.budget, room)
	}
	if len(tokens) == 0 {
		return w, nil
	}
	if most := e.schedule.Outputs; e.entire && (have > 0 || len(tokens) > e.chunk || wanted > most) {
		return nil, fmt.Errorf("%d tokens behind %d, and logits of %d: the model sees later tokens or pools rows, "+
			"so a prompt is one step of at most %d tokens and %d logits", len(tokens), have, wanted, e.chunk, most)
	}
	for _, g := range s.extras.Groups {
		first := max(int(g.First), all-wanted)
		if most := e.schedule.Outputs; int(g.End) > have && int(g.End)-first > most {
			return nil, fmt.Errorf("logits of more than %d rows of an image", most)
		}
	}
	w.seat.Whole = s.extras.Groups
	w.choice.steps = min(c.steps, e.pool.Longest()-all+1)
	if w.seat.Odds = c.odds[:min(drafted, e.pool.Longest()-all)]; c.guessed {
		if w.seat.Guessed = true; !s.states.has(have - 1) {
			w.seat.Odds = nil
		}
	}
	return w, e.do(w)
}

// checkIDs returns an error for an id that the graph cannot embed.
func (f *facts) checkIDs(tokens []int32) error {
	for _, id := range tokens {
		if id < 0 || int(id) >= f.ids {
			return fmt.Errorf("token id %d, the vocabulary has %d", id, f.ids)
		}
	}
	return nil
}

// Mix does Prefix's work for a prompt with m, which takes effect as the tokens are fed. The keys and values serve only
// sequences of equal rows and positions, not known from tokens alone.
func (s *Sequence) Mix(tokens []int32, m Mixed, salt string) (n int, err error) {
	e := s.plan.e
	if !e.grouped {
		m.Groups = nil
	}
	if err := e.checkMixed(tokens, m, e.Context()); err != nil {
		return 0, err
	}
	m.Parts = m.parts()
	if m.Parts != nil && !e.turning {
		return 0, errors.New("positions of three parts, the model has no sections that turn by them")
	}
	b := newExtras(m, e.ring)
	switch b.digest {
	case "":
	case s.extras.digest:
		b = s.extras
	default:
		b.Mixed = m.clone()
	}
	b.tokens = slices.Clone(tokens[:len(b.keys)])
	s.locked(func(*Engine) {
		s.salt = salt
		n = s.rewind(tokens, b)
	})
	return n, nil
}

// Values appends tokens, as Feed does, and returns the values of n after each of the last wanted tokens,
// [wanted][shape...]. Options.Keep must have the node. Steps without wanted logits leave out the nodes needed for
// logits alone.
func (s *Sequence) Values(ctx context.Context, tokens []int32, n *graph.Node, wanted int) ([][]float32, error) {
	if _, ok := s.plan.kept[n]; !ok {
		return nil, fmt.Errorf("the value of node %v, which Options.Keep does not have", n)
	}
	w, err := s.feed(ctx, tokens, wanted, choice{node: n})
	if err != nil {
		return nil, err
	}
	return w.logits, nil
}

// Hook sets the hook for the tokens to come; nil is none. The plan must have Options.Hooks, and the sequence be empty.
func (s *Sequence) Hook(h *Hook) error {
	switch {
	case !s.plan.hooks:
		return errors.New("the plan has no hooks")
	case len(s.tokens) > 0:
		return errors.New("a hook for a sequence that has tokens already")
	}
	s.hook = h
	return nil
}
