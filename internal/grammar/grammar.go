// Package grammar finds the possible next tokens of a text that must fit a grammar: a JSON schema, a regular
// expression, or GBNF, llama.cpp's grammars.
//
// A grammar is an automaton over bytes with two levels. Its regular parts, such as a JSON string, are terms; the
// derivative of a term by a byte is the term of the possible continuations (Brzozowski, Derivatives of Regular
// Expressions, 1964), so the states of a part are terms, built on first use. The parts above, such as objects within
// objects, are nodes: a state of the whole is a set of pairs of a part's state and a stack of the nodes after the part.
// Terms, stacks and states are hash-consed: equal values are the same value.
//
// The possible next tokens are found by walking a trie of the vocabulary together with the automaton. A walk within a
// part does not depend on the stack, so it is done once, at whatever depth. Only tokens that go beyond the part's end
// are examined for each stack. XGrammar (2024) and llguidance (2025) divide the work in a similar way.
//
// Files in reading order: turn.go, schema.go, schema_object.go, schema_merge.go, lark.go, gbnf.go, regexp.go, json.go,
// mask.go, token.go, node.go, number.go, rune.go, term.go, work.go, grammar.go.
package grammar

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"weak"
)

// Bounds of a grammar. A grammar beyond these bounds is refused, by an error.
const (
	MaxSource = 1 << 20 // bytes of a schema, pattern or grammar
	maxAlt    = 1 << 12 // alternatives of a state
	maxStack  = 1 << 12 // parts within parts
	maxNested = 64      // levels of a schema's or a grammar's text
)

// Approximate bytes of a term and a node, with their places in tables.
const (
	termBytes = 320
	nodeBytes = 176
)

// ErrGrammar reports a text that cannot be held to its grammar.
var ErrGrammar = errors.New("grammar")

var (
	errComplex = fmt.Errorf("%w: it is too complex: too many alternatives hold at once", ErrGrammar)
	errStuck   = fmt.Errorf("%w: no token of the vocabulary goes on here, and the text is not complete", ErrGrammar)
)

// Grammar is an automaton. Many goroutines may use a Grammar at a time.
type Grammar struct {
	classes [256]uint8 // classes of bytes without a difference
	reps    []byte     // a byte of each class
	root    *node
	ignored []string
	tokens  []token                    // tokens named in the source
	starts  []*part                    // first states of parts
	base    int                        // bytes of the nodes, terms and parts of the source, about
	start   atomic.Pointer[state]      // first state of a text
	gen     atomic.Pointer[generation] // current generation of states

	mu       sync.Mutex // held for a piece of work: the tokens of a state, say
	terms    termTable
	stacks   map[stackKey]*stack
	states   map[string]*state
	end      *state // of the empty stack
	matchers []weak.Pointer[Matcher]
	key      []byte
}

// generation holds the states, stacks and terms built until the next time all are forgotten.
type generation struct {
	bytes int // size when the generation is forgotten
}

// Special returns how a grammar and a vocabulary spell a special token: text never has the byte 0xff.
func Special(name string) []byte { return append(append([]byte{0xff}, name...), 0xff) }

// tooMuch is the value of a build's panic.
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

var uids atomic.Uint64 // names for states, unique among all grammars

// Bytes returns about how much memory the grammar takes now.
func (g *Grammar) Bytes() int { return int(g.terms.share.held.Load()) }

// Ignored returns the paths of the source's parts that the grammar ignores: unknown formats of texts.
func (g *Grammar) Ignored() []string { return g.ignored }

// Free gives the grammar's share back to its room.
func (g *Grammar) Free() { g.terms.share.Free() }
