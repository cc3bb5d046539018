// Package grammar says which tokens may come next in a text that must fit a grammar: a JSON schema,
// a regular expression, or GBNF, llama.cpp's grammars.
//
// A grammar is an automaton over bytes with two levels. Its regular parts, such as a JSON string, are
// terms (term.go); the derivative of a term by a byte is the term of what may follow (Brzozowski,
// Derivatives of Regular Expressions, 1964), so the states of a part are the terms that are met, built
// when they are. The parts above them, such as objects within objects, are nodes (node.go): a state of the
// whole is a set of pairs of a part's state and a stack of what comes after the part. Terms, stacks
// and states are hash-consed: equal ones are one.
//
// The tokens that may come next are found by walking a trie of the vocabulary together with the automaton
// (mask.go). A walk within a part does not depend on the stack, so it is done once, however deep the part
// stands. Only tokens that go beyond the part's end are looked at for each stack. XGrammar (2024) and
// llguidance (2025) divide the work in a similar way.
package grammar

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// The bounds of a grammar. What exceeds one is refused, by an error.
const (
	MaxSource = 1 << 20  // bytes of a schema, pattern or grammar
	maxNodes  = 1 << 18  // terms and nodes that a source makes
	maxAlt    = 1 << 12  // alternatives of one state
	maxStack  = 1 << 12  // parts within parts
	maxNested = 64       // levels of a schema's or a grammar's text
	maxFuel   = 1 << 21  // elementary steps for the tokens of one state
	maxBytes  = 32 << 20 // of states, stacks and terms that a text builds; beyond that they are forgotten, and built again when they are met
)

// What a term and a node take with their places in tables, about, in bytes.
const (
	termBytes = 320
	nodeBytes = 176
)

// ErrGrammar is the error of a text that cannot be held to its grammar.
var ErrGrammar = errors.New("grammar")

var (
	errComplex = fmt.Errorf("%w: it is too complex: too many alternatives hold at once", ErrGrammar)
	errStuck   = fmt.Errorf("%w: no token of the vocabulary goes on here, and the text is not complete", ErrGrammar)
)

// Grammar is an automaton. It may be used by many goroutines at a time.
type Grammar struct {
	classes [256]uint8 // bytes of one class are not told apart
	reps    []byte     // one byte of each class

	mu     sync.Mutex // guards the parts that are built when they are met
	terms  termTable
	starts []*part // the states in which parts begin
	stacks map[stackKey]*stack
	states map[string]*state
	start  *state
	end    *state       // of the empty stack
	base   int          // bytes of the nodes and terms of the source, about
	bytes  atomic.Int64 // of the states, stacks and terms that texts have built
	fuel   int
	key    []byte
}

// Special is how a grammar and a vocabulary spell a special token: text never has the byte 0xff.
func Special(name string) []byte { return append(append([]byte{0xff}, name...), 0xff) }

// tooMuch is what a build panics with.
type tooMuch struct{ error }

func giveUp(format string, args ...any) { panic(tooMuch{fmt.Errorf(format, args...)}) }

// caught turns giving up into an error.
func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case tooMuch:
		*err = p.error
	default:
		panic(p)
	}
}

var uids atomic.Uint64 // names states among those of all grammars

// burn takes steps off what the present work may cost. g.mu is held.
func (g *Grammar) burn(n int) {
	if g.fuel -= n; g.fuel < 0 {
		panic(tooMuch{errComplex})
	}
}

// Bytes is about how much memory the grammar takes now.
func (g *Grammar) Bytes() int { return g.base + int(g.bytes.Load()) }

// grow counts bytes of states, and of the terms that were made for them, and forgets all when they are too many. Who holds a state can go
// on from it.
func (g *Grammar) grow(n int) {
	n += g.terms.bytes
	g.terms.bytes = 0
	if g.bytes.Add(int64(n)) < maxBytes {
		return
	}
	g.bytes.Store(0)
	g.stacks, g.states = map[stackKey]*stack{}, map[string]*state{}
	g.terms.forget()
	for _, p := range g.starts {
		for i := range p.next {
			p.next[i].Store(nil)
		}
	}
	for _, s := range []*state{g.start, g.end} {
		if s == nil {
			continue
		}
		for i := range s.next {
			s.next[i].Store(nil)
		}
	}
}
