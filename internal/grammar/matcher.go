package grammar

import (
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/sample"
)

// Matcher is a text that must fit a grammar, as it grows. It is for one goroutine at a time.
type Matcher struct {
	g     *Grammar
	v     *Vocabulary
	s     *state
	ended bool
}

// Match begins a text.
func (g *Grammar) Match(v *Vocabulary) *Matcher { return &Matcher{g: g, v: v, s: g.start} }

// Mask is the tokens that may come next. Tokens that end the text are among them where the text fits the
// grammar as it is. The mask is shared and not to be changed.
func (m *Matcher) Mask() (*sample.Mask, error) {
	if m.ended {
		return nil, errors.New("the text has ended")
	}
	mask, err := m.v.mask(m.g, m.s)
	if err != nil {
		return nil, err
	}
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
	b := m.v.text[id]
	if b == nil {
		if m.ended = m.s.accept && m.v.ends != nil && m.v.isEnd(int32(id)); m.ended {
			return nil
		}
		return fmt.Errorf("token %d does not come next", id)
	}
	s, err := m.g.read(m.s, b)
	if err == nil && s.dead() {
		err = fmt.Errorf("token %d, %q, does not come next", id, b)
	}
	if err != nil {
		return err
	}
	m.s = s
	return nil
}

// Complete reports whether the text fits the grammar as it is.
func (m *Matcher) Complete() bool { return m.s.accept }

func (v *Vocabulary) isEnd(id int32) bool {
	for _, x := range v.ends {
		if x == id {
			return true
		}
	}
	return false
}

// read is the state after bytes.
func (g *Grammar) read(s *state, b []byte) (_ *state, err error) {
	defer caught(&err)
	g.refuel()
	for _, c := range b {
		if s = g.follow(s, g.classes[c]); s.dead() {
			break
		}
	}
	return s, nil
}

// Fits reports whether a whole text fits the grammar.
func (g *Grammar) Fits(text []byte) (bool, error) {
	s := g.start
	for len(text) > 0 && !s.dead() {
		n := min(len(text), 64)
		var err error
		if s, err = g.read(s, text[:n]); err != nil {
			return false, err
		}
		text = text[n:]
	}
	return s.accept, nil
}
