package grammar

import (
	"bytes"
	"slices"
	"sync"
)

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
