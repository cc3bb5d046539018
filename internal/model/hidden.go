package model

import "github.com/karat-run/karat/internal/graph"

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
