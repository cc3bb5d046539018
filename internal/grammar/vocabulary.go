package grammar

import (
	"bytes"
	"slices"
	"sync"
)

// shortest is the length in bytes from which on tokens are walked apart. Texts of at most so many bytes
// do not see large counts (termTable.clamp), so that nearly all tokens are walked once for all of them.
const shortest = 16

// maxCache is how many bytes of masks a vocabulary keeps.
const maxCache = 64 << 20

// Vocabulary is the tokens of a model, with the masks of states that were asked for last. It may be used
// by many goroutines at a time.
type Vocabulary struct {
	size int
	text [][]byte // by id; nil is no text
	ends []int32  // tokens that end a text, sorted
	trie [2]trie  // of short and of long tokens

	mu         sync.Mutex
	young, old map[key]*found // the old ones go when the young ones fill half of the bound
	bytes      int
	walker     *walker // that nobody uses
}

// trie is tokens by their bytes: nodes in depth-first order, children in the order of their bytes.
type trie struct {
	nodes []trieNode
	ids   []int32 // tokens, in the order of the nodes at which they end
	deep  int
}

// trieNode is reached by a byte from the node before it that is one less deep.
type trieNode struct {
	end   int32 // index of the first node that is not below
	first int32 // of the tokens that end here
	count uint16
	depth uint16 // 1 for the first byte
	byte  byte
}

// NewVocabulary makes a vocabulary of size tokens. text gives the bytes of each, none for a token that is
// never to be chosen; Special spells a special token. ends are the tokens that end a text.
func NewVocabulary(size int, text func(id int) []byte, ends []int) *Vocabulary {
	v := &Vocabulary{size: size, text: make([][]byte, size), young: map[key]*found{}}
	for _, id := range ends {
		if id >= 0 && id < size {
			v.ends = append(v.ends, int32(id))
		}
	}
	slices.Sort(v.ends)
	v.ends = slices.Compact(v.ends)
	var tokens [2][]int32
	for id := range v.text {
		if _, is := slices.BinarySearch(v.ends, int32(id)); is {
			continue
		}
		b := text(id)
		if len(b) == 0 || len(b) > 1<<15 {
			continue
		}
		v.text[id] = b
		long := 0
		if len(b) > shortest {
			long = 1
		}
		tokens[long] = append(tokens[long], int32(id))
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
		t.close(path[same:])
		path = path[:same]
		for _, c := range b[same:] {
			path = append(path, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{depth: uint16(len(path)), byte: c})
		}
		n := &t.nodes[path[len(path)-1]]
		if n.count == 0 {
			n.first = int32(i)
		}
		if n.count < 1<<16-1 {
			n.count++
		}
		last, t.deep = b, max(t.deep, len(b))
	}
	t.close(path)
}

// close ends nodes.
func (t *trie) close(path []int32) {
	for _, n := range path {
		t.nodes[n].end = int32(len(t.nodes))
	}
}

// Size is the number of tokens.
func (v *Vocabulary) Size() int { return v.size }
