package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxTokens bounds the tokens that a grammar names.
const maxTokens = 1000

// token is a token named in a grammar: <think>, <[1000]>, or any token except the named, !<think>.
type token struct {
	place string // in the source
	text  string // as written
}

// spelled returns the token's text in the automaton.
func (t token) spelled() []byte { return Special(t.text) }

// token reads a token.
func (p *gbnf) token() *term {
	begin := p.text
	p.text = strings.TrimPrefix(p.text, "!")
	name, rest, ok := strings.Cut(p.text, ">")
	if !ok || strings.Contains(name, "\n") {
		p.fail("want a token as <NAME> or <[ID]>")
	}
	t := token{p.within, begin[:len(begin)-len(rest)]}
	p.text = rest
	p.b.name(t)
	return p.b.t.text(string(t.spelled()))
}

// name notes a token named in the grammar.
func (b *builder) name(t token) {
	if slices.ContainsFunc(b.tokens, func(x token) bool { return x.text == t.text }) {
		return
	}
	if b.tokens = append(b.tokens, t); len(b.tokens) > maxTokens {
		giveUp("it names more than %d tokens", maxTokens)
	}
}

// namedToken is a token of a vocabulary that a grammar names.
type namedToken struct {
	id      int32
	others  bool // all other tokens
	spelled []byte
}

// fits reports whether a token is meant.
func (n *namedToken) fits(id int) bool { return (int(n.id) == id) != n.others }

// errToken reports a token absent from a vocabulary.
type errToken struct{ place, what string }

func (e errToken) Error() string        { return e.place + ": the vocabulary has " + e.what }
func (e errToken) Is(target error) bool { return target == ErrGrammar }

// findNamed finds the tokens named in the grammar.
func (v *Vocabulary) findNamed(g *Grammar) (all []namedToken, err error) {
	for _, t := range g.tokens {
		text, others := strings.CutPrefix(t.text, "!")
		id, ok := 0, false
		if digits, is := strings.CutPrefix(text, "<["); is && strings.HasSuffix(digits, "]>") &&
			strings.Trim(digits, "0123456789") == "]>" {
			n, err := strconv.Atoi(strings.TrimSuffix(digits, "]>"))
			if id = n; err != nil || n >= v.size || v.text[n] == nil && !v.isEnd(int32(n)) {
				return nil,
					errToken{t.place, fmt.Sprintf("no token of the id in %s, its ids are 0 to %d", t.text, v.size-1)}
			}
		} else if id, ok = v.id(text); !ok || id >= v.size {
			return nil, errToken{t.place, "no special token " + text}
		}
		all = append(all, namedToken{int32(id), others, t.spelled()})
	}
	return all, nil
}

// addNamed sets the possible next tokens among those named in the grammar, and reports whether there are any.
func (w *walker) addNamed(g *Grammar, v *Vocabulary, s *state, all []namedToken) bool {
	any := false
	for i := range all {
		n := &all[i]
		if g.passed(s, n.spelled).dead() {
			continue
		}
		if any = true; !n.others {
			w.set([]int32{n.id})
			continue
		}
		for id, b := range v.text {
			if b != nil && int32(id) != n.id {
				w.bits[id>>6] |= 1 << (id & 63)
			}
		}
	}
	return any
}

// passed returns the state after bytes, within a piece of work.
func (g *Grammar) passed(s *state, b []byte) *state {
	for _, c := range b {
		if s = g.follow(s, g.classes[c]); s.dead() {
			break
		}
	}
	return s
}

// readToken returns the state after a token, by its text or by its name in the grammar; dead if no text goes on with
// the token.
func (m *Matcher) readToken(id int) (*state, error) {
	var readings [][]byte
	if b := m.v.text[id]; b != nil {
		readings = append(readings, b)
	}
	for i := range m.named {
		if n := &m.named[i]; n.fits(id) {
			readings = append(readings, n.spelled)
		}
	}
	if len(readings) == 1 {
		return m.g.read(m.ctx, m.s, readings[0])
	}
	var next *state
	err := m.g.piece(m.ctx, m.s, func(s *state) {
		var configs []config
		accept := false
		for _, b := range readings {
			t := m.g.passed(s, b)
			configs, accept = append(configs, t.configs...), accept || t.accept
		}
		next = m.g.state(configs, accept)
	})
	return next, err
}
