// Package grammar says which tokens may come next in a text that must fit a grammar: a JSON schema, a regular
// expression, or GBNF, llama.cpp's grammars.
//
// A grammar is an automaton over bytes with two levels. Its regular parts, such as a JSON string, are terms (term.go);
// the derivative of a term by a byte is the term of what may follow (Brzozowski, Derivatives of Regular Expressions,
// 1964), so the states of a part are the terms that are met, built when they are. The parts above them, such as objects
// within objects, are nodes (node.go): a state of the whole is a set of pairs of a part's state and a stack of what
// comes after the part. Terms, stacks and states are hash-consed: equal ones are one.
//
// The tokens that may come next are found by walking a trie of the vocabulary together with the automaton (mask.go). A
// walk within a part does not depend on the stack, so it is done once, however deep the part stands. Only tokens that
// go beyond the part's end are looked at for each stack. XGrammar (2024) and llguidance (2025) divide the work in a
// similar way.
package grammar

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"weak"
)

// The bounds of a grammar. What exceeds one is refused, by an error.
const (
	MaxSource = 1 << 20 // bytes of a schema, pattern or grammar
	maxAlt    = 1 << 12 // alternatives of one state
	maxStack  = 1 << 12 // parts within parts
	maxNested = 64      // levels of a schema's or a grammar's text
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
	root    *node
	ignored []string
	tokens  []token                    // that the source names
	starts  []*part                    // the states in which parts begin
	base    int                        // bytes of the nodes, terms and parts of the source, about
	start   atomic.Pointer[state]      // in which a text begins
	gen     atomic.Pointer[generation] // of the states that are built now

	mu       sync.Mutex // held for a piece of work: the tokens of a state, say
	terms    termTable
	stacks   map[stackKey]*stack
	states   map[string]*state
	end      *state // of the empty stack
	matchers []weak.Pointer[Matcher]
	key      []byte
}

// generation is the states, stacks and terms that are built until all are forgotten.
type generation struct {
	bytes int // once it is forgotten
}

// Special returns how a grammar and a vocabulary spell a special token: text never has the byte 0xff.
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

// Bytes returns about how much memory the grammar takes now.
func (g *Grammar) Bytes() int { return int(g.terms.share.held.Load()) }

// Ignored returns the paths of what the source says and the grammar does not heed: formats of texts that it does not
// know.
func (g *Grammar) Ignored() []string { return g.ignored }

// Free gives the grammar's share back to the room that it is in.
func (g *Grammar) Free() { g.terms.share.Free() }
