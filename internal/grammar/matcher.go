package grammar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/karat-run/karat/internal/sample"
)

// Matcher is a growing text that must fit a grammar. A Matcher serves a single goroutine at a time.
type Matcher struct {
	g     *Grammar
	v     *Vocabulary
	named []namedToken    // tokens named in the grammar
	ctx   context.Context // context of the work
	s     *state
	gen   atomic.Pointer[generation] // of s
	ended bool
}

// Match begins a text. Work for the text ends with ctx. A grammar naming a token absent from the vocabulary is an
// error.
func (g *Grammar) Match(ctx context.Context, v *Vocabulary) (*Matcher, error) {
	named, err := v.findNamed(g)
	if err != nil {
		return nil, err
	}
	m := &Matcher{g: g, v: v, named: named, ctx: ctx}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.at(g.start.Load())
	g.matchers = append(g.matchers, weak.Make(m))
	if len(g.matchers) > 64 {
		g.prune()
	}
	return m, nil
}

// at goes on to a state.
func (m *Matcher) at(s *state) {
	if m.s = s; m.gen.Load() != s.gen {
		m.gen.Store(s.gen)
	}
}

// Mask returns the possible next tokens, including tokens that end the text if the text fits the grammar. The mask is
// shared and must not be changed.
func (m *Matcher) Mask() (*sample.Mask, error) {
	if m.ended {
		return nil, errors.New("the text has ended")
	}
	s, mask, err := m.v.mask(m.ctx, m.g, m.s, m.named)
	if err != nil {
		return nil, err
	}
	m.at(s)
	if mask.Bits == nil && len(mask.IDs) == 0 {
		return nil, errStuck
	}
	return mask, nil
}

// Accept goes on with a token.
func (m *Matcher) Accept(id int) error {
	if m.ended || id < 0 || id >= m.v.size {
		return fmt.Errorf("token %d does not come next", id)
	}
	if m.ended = m.s.accept && m.v.isEnd(int32(id)); m.ended {
		return nil
	}
	s, err := m.readToken(id)
	if err == nil && s.dead() {
		err = fmt.Errorf("token %d, %q, does not come next", id, m.v.text[id])
	}
	if err != nil {
		return err
	}
	m.at(s)
	return nil
}

// Forced returns the bytes with which every fitting text goes on, at most most.
func (m *Matcher) Forced(most int) (text []byte, err error) {
	if m.ended {
		return nil, nil
	}
	err = m.g.piece(m.ctx, m.s, func(s *state) {
		text = text[:0] // of a first try
		for len(text) < most && !s.accept {
			c, next := m.g.only(s)
			if next == nil {
				break
			}
			text, s = append(text, c), next
		}
	})
	return text, err
}

// only returns the only byte that may come next, and the state behind the byte; nil if there are several.
func (g *Grammar) only(s *state) (c byte, next *state) {
	for i, rep := range g.reps {
		t := g.follow(s, uint8(i))
		switch {
		case t.dead():
		case next != nil:
			return 0, nil
		default:
			c, next = rep, t
		}
	}
	for b := int(c) + 1; next != nil && b < len(g.classes); b++ { // c is the first of its class
		if g.classes[b] == g.classes[c] {
			return 0, nil
		}
	}
	return c, next
}

// Steps returns the steps taken by texts of the grammar since the last call.
func (m *Matcher) Steps() int { return int(m.g.terms.share.steps.Swap(0)) }

// Complete reports whether the text fits the grammar.
func (m *Matcher) Complete() bool { return m.s.accept }

func (v *Vocabulary) isEnd(id int32) bool { return slices.Contains(v.ends, id) }

// read returns the state after bytes.
func (g *Grammar) read(ctx context.Context, s *state, b []byte) (*state, error) {
	next := s
	for i := 0; i < len(b) && next != nil && next.gen == g.gen.Load(); i++ {
		next = next.next[g.classes[b[i]]].Load()
	}
	if next != nil && next.gen == g.gen.Load() { // all was met before
		return next, nil
	}
	err := g.piece(ctx, s, func(now *state) {
		s = g.passed(now, b)
	})
	return s, err
}

// piece does a piece of work from a state, which is built anew if it was forgotten.
func (g *Grammar) piece(ctx context.Context, s *state, do func(s *state)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.terms.ctx = ctx
	defer func() {
		g.terms.share.rest()
		g.terms.ctx = context.Background()
	}()
	err := g.try(g.terms.bytes > maxBytes/2 || g.terms.share.crowded(2), s, do)
	if errors.Is(err, ErrRoom) {
		err = g.try(true, s, do)
	}
	return err
}

func (g *Grammar) try(forget bool, s *state, do func(s *state)) (err error) {
	defer caught(&err)
	defer func() { g.terms.share.steps.Add(int64(maxFuel - g.terms.fuel)) }()
	g.terms.fuel = maxFuel
	if forget {
		g.forget()
	}
	if s.gen != g.gen.Load() {
		s = g.rebuild(s)
	}
	do(s)
	return nil
}

// rebuild returns a forgotten state, built anew.
func (g *Grammar) rebuild(s *state) *state {
	terms, stacks := map[*term]*term{}, map[*stack]*stack{nil: nil}
	var push func(k *stack) *stack
	push = func(k *stack) *stack {
		if _, ok := stacks[k]; !ok {
			stacks[k] = g.push(k.n, k.i, k.j, push(k.next))
		}
		return stacks[k]
	}
	var configs []config
	for _, c := range s.configs {
		p := g.part(copyTerm(&g.terms, c.p.t, terms))
		p.life = c.p.life
		configs = append(configs, config{p, push(c.k)})
	}
	return g.state(configs, s.accept)
}

// Fits reports whether a whole text fits the grammar.
func (g *Grammar) Fits(text []byte) (bool, error) {
	s := g.start.Load()
	for len(text) > 0 && !s.dead() {
		n := min(len(text), 64)
		var err error
		if s, err = g.read(context.Background(), s, text[:n]); err != nil {
			return false, err
		}
		text = text[n:]
	}
	return s.accept, nil
}
