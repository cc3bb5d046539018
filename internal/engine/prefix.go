package engine

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// private reports whether sequences find nothing of each other: where o says so or somebody watches the
// rows, or g pools them, each is to be computed; and where queries see later positions, what
// is kept of a position does not follow from the tokens up to it alone.
func private(g *graph.Graph, o Options) bool {
	return o.Private || o.Tap != nil || o.Want != nil || o.Expert != nil || entire(g)
}

// entire reports whether all tokens of a sequence must be in one step: rows of g see later
// ones, or are pooled.
func entire(g *graph.Graph) bool {
	pools := func(n *graph.Node) bool { return n.Op == graph.Pool }
	return g.Bidirectional() || slices.ContainsFunc(g.Nodes, pools)
}

// Adapt sets the adapters of the tokens to come, nil for none. If they compute something else
// than those before, the sequence forgets its tokens.
func (s *Sequence) Adapt(b *backend.Blend) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	had := s.root()
	if s.blend = b; s.root() != had {
		s.tokens = s.tokens[:s.pages.Adopt(nil, s.root())]
	}
}

// root is what sequences have in common that share pages: the salt, the adapters, and the rows
// of embeddings and positions of three parts. No salt makes it that of others.
func (s *Sequence) root() string {
	if s.blend == nil && s.rows == "" && s.salt == "" {
		return ""
	}
	adapters := ""
	if s.blend != nil {
		adapters = s.blend.ID
	}
	return fmt.Sprintf("%d %d %s%s%s", len(adapters), len(s.rows), adapters, s.rows, s.salt)
}

// Prefix is Rewind, and sets the salt from here on. Sequences of different salts share nothing:
// those of callers who must not learn of each other. Neither do those with different adapters.
func (s *Sequence) Prefix(tokens []int32, salt string) int {
	s.salt = salt
	return s.Rewind(tokens)
}

// adopt makes the sequence, a prefix of tokens, the longest one that others have left, if that
// is longer, and returns its length. The caller holds e.mu.
func (s *Sequence) adopt(tokens []int32) int {
	if s.closed {
		return 0
	}
	n := s.pages.Adopt(tokens, s.root())
	if n > 0 {
		s.e.list(s)
	}
	s.tokens = append(s.tokens[:0], tokens[:n]...)
	return n
}

// resume takes the remaining pages of a sequence that was preempted.
func (s *Sequence) resume() {
	if s.pages.Len() < len(s.tokens) {
		s.pages.Adopt(s.tokens, s.root())
	}
}
