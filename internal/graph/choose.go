package graph

import "github.com/karat-run/karat/internal/tensor"

// ChooseAttr is the store of the keys that positions are chosen by.
type ChooseAttr struct{ Index *KV }

// String returns the attribute in Print's form.
func (a ChooseAttr) String() string { return a.Index.String() }

// Choose returns the positions of the row's own sequence with the k largest scores, among the positions up to its own,
// in rising order; -1 behind the last, where there are fewer. Of equal scores the later position's is the larger, and
// a NaN is the lowest. The score of a position, with its key in the store of an index, for heads q {heads, dim} and
// weights {heads}, is
//
//	Σ weights[h]·max(0, q[h]·key), for h in order
//
// With the store's Skip, no later row sees the first positions. A positive factor of all scores changes nothing.
// (DeepSeek-AI 2025, DeepSeek-V3.2's lightning indexer)
func (b Builder) Choose(q, weights *Node, index *KV, k int) *Node {
	n := b.add(&Node{Op: Choose, Name: join(b.gguf, "indexer.chosen"), HF: join(b.hf, "self_attn.indexer.out"),
		Shape: tensor.Shape{max(k, 1)}, In: []*Node{q, weights}, Attr: ChooseAttr{index}})
	if !index.Index || !index.Latent || index.Heads != 1 || index.Window != 0 || k < 1 || len(q.Shape) != 2 ||
		q.Shape.Last() != index.Dim || weights.Shape.Size() != q.Shape[0] {
		b.errorf(n, "%d positions by heads %v, %d weights and %v", k, []int(q.Shape), weights.Shape.Size(), index)
	}
	return n
}

// Over lets attention n, just recorded, see chosen positions alone: the value of Choose in the same step. A store
// read so stays in 16 bits. It returns n.
func (b Builder) Over(n, chosen *Node) *Node {
	a := n.Attr.(AttentionAttr)
	n.In, a.KV.Sparse = append(n.In, chosen), true
	if a.KV.Window != 0 || a.Bidirectional || a.Grouped || a.Cap != 0 || len(n.W) > 0 ||
		chosen.Op != Choose {
		b.errorf(n, "chosen positions of %v for attention with other attributes", chosen.Op)
	}
	return n
}

// Chosen returns the node with the positions seen by attention n; nil if n sees all, and for other nodes.
func (n *Node) Chosen() *Node {
	if n.Op == Attention && len(n.In) > 1 {
		return n.In[1]
	}
	return nil
}
