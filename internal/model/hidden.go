package model

import (
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
)

// Hidden is the node of g whose rows the head makes logits of, or the result where g has no head: what embeddings are
// made from.
func Hidden(g *graph.Graph) *graph.Node {
	n := g.Result()
	for n.Op == graph.Softcap || n.Op == graph.Scale {
		n = n.In[0]
	}
	if n.Op == graph.Linear {
		return n.In[0]
	}
	return n
}

// Encoder reports whether g ends in vectors of tokens, and has no head that makes logits of them.
func Encoder(g *graph.Graph) bool { return Hidden(g) == g.Result() }

// longest returns the most tokens that a sequence of g may have, whatever context is asked for: as many as its table of
// positions has rows, and for an encoder as many as it was made for.
func longest(c *checkpoint.Checkpoint, g *graph.Graph) int {
	most := MaxContext
	if n := c.ContextLength(); n > 0 && Encoder(g) {
		most = n
	}
	for _, n := range g.Nodes {
		if n.Op == graph.EmbedPos {
			most = min(most, n.W[0].Shape[0])
		}
	}
	return most
}
