package grammar

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// addNamed sets the possible next tokens among the tokens named in the grammar, and reports whether there are any.
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

// longest has the maximal length in bytes of the tokens of each trie. A text of so many bytes does not see larger
// counts (termTable.clamp), so that nearly all tokens are walked once for all of them.
var longest = [levels]int32{16, 32, 128, 1 << 15}

const levels = 4

// maxCache is how many bytes of masks a vocabulary keeps.
const maxCache = 64 << 20

// Vocabulary holds the tokens of a model, and recently used masks of states. Many goroutines may use a Vocabulary at a
// time.
type Vocabulary struct {
	size int
	text [][]byte // by id; nil is no text
	ends []int32  // tokens ending a text, sorted
	id   func(name string) (id int, ok bool)
	trie [levels]trie // tokens by their length, short tokens first

	mu         sync.Mutex
	young, old map[key]*candidates // the old masks go when the young fill half of the bound
	bytes      int
	walker     *walker // an unused walker
}

// trie holds tokens by their bytes: nodes in depth-first order, children in the order of their bytes.
type trie struct {
	nodes []trieNode
	ids   []int32 // tokens, in the order of the nodes at which they end
	deep  int
}

// trieNode is reached by a byte from the last node before it that is less deep by 1.
type trieNode struct {
	end   int32  // index of the first node that is not below
	first int32  // first of the tokens that end here or below
	below uint32 // sorts of the bytes below, as bits
	count uint16 // number of tokens that end here
	depth uint16 // 1 for the first byte
	byte  byte
}

// sorts groups the bytes that most parts do not tell apart, and sets single bytes apart that some do.
var sorts = func() (of [256]uint8) {
	for i := range of {
		of[i] = map[bool]uint8{true: 0, false: 1}[i < 0x20]
	}
	for i, all := range []string{"ghijklmnopqrstuvwxyz", "abcdef", "GHIJKLMNOPQRSTUVWXYZ", "ABCDEF", "123456789", "0",
		" ", `"`, `\`, "{}", "[]", ":", ",", ".", "-", "_", "/", "@", "+", "'"} {
		for _, b := range []byte(all) {
			of[b] = uint8(i + 4)
		}
	}
	for b := 0x80; b < 0x100; b++ {
		of[b] = map[bool]uint8{true: 2, false: 3}[b < 0xc0]
	}
	return of
}()

// NewVocabulary makes a vocabulary of size tokens. Function text returns the bytes of each token, none for a token that
// is never chosen; Special spells a special token. Function id finds a token by its name. Tokens in ends end a text.
func NewVocabulary(size int, text func(id int) []byte, id func(name string) (id int, ok bool), ends []int) *Vocabulary {
	v := &Vocabulary{size: size, id: id, text: make([][]byte, size), young: map[key]*candidates{}}
	for _, id := range ends {
		if id >= 0 && id < size {
			v.ends = append(v.ends, int32(id))
		}
	}
	slices.Sort(v.ends)
	v.ends = slices.Compact(v.ends)
	var tokens [levels][]int32
	for id := range v.text {
		if _, is := slices.BinarySearch(v.ends, int32(id)); is {
			continue
		}
		b := text(id)
		level := 0
		for level < levels && len(b) > int(longest[level]) {
			level++
		}
		if len(b) == 0 || level == levels {
			continue
		}
		v.text[id] = b
		tokens[level] = append(tokens[level], int32(id))
	}
	for i := range v.trie {
		v.trie[i].grow(v.text, tokens[i])
	}
	return v
}

// grow makes the trie of tokens.
func (t *trie) grow(text [][]byte, tokens []int32) {
	slices.SortStableFunc(tokens, func(a, b int32) int { return bytes.Compare(text[a], text[b]) })
	t.ids = tokens
	var path []int32 // nodes from the first byte to the last
	var last []byte
	for i, id := range tokens {
		b := text[id]
		same := 0
		for same < min(len(b), len(last)) && b[same] == last[same] {
			same++
		}
		t.close(path, same)
		path = path[:same]
		for _, c := range b[same:] {
			path = append(path, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{depth: uint16(len(path)), byte: c, first: int32(i)})
		}
		n := &t.nodes[path[len(path)-1]]
		if n.count < 1<<16-1 {
			n.count++
		}
		last, t.deep = b, max(t.deep, len(b))
	}
	t.close(path, 0)
}

// close ends the nodes of a path from index from on.
func (t *trie) close(path []int32, from int) {
	for i := len(path) - 1; i >= from; i-- {
		n := &t.nodes[path[i]]
		n.end = int32(len(t.nodes))
		if i > 0 {
			t.nodes[path[i-1]].below |= n.below | 1<<sorts[n.byte]
		}
	}
}

// tokens returns the tokens that end at a node or below.
func (t *trie) tokens(n int32) []int32 {
	x := &t.nodes[n]
	if int(x.end) == len(t.nodes) {
		return t.ids[x.first:]
	}
	return t.ids[x.first:t.nodes[x.end].first]
}

// Size returns the number of tokens.
func (v *Vocabulary) Size() int { return v.size }
