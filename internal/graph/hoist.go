package graph

// Hoist returns g with its Rows node as early as can be: values not read by later rows, through keys and values or a
// state, are computed only for rows with wanted logits. A prompt then skips most of the last layer, and all layers
// after the last store of keys and values. A node with a state sees every row. Nodes are
// copies, and nodes that need only some rows follow Rows nodes of their inputs; values of rows do not change. Nodes
// computed together, with the same inputs, stay together: together returns the nodes computed with a node, and may be
// nil. Nodes wanted by keep have every row, as before; keep may also be nil.
//
// (llama.cpp's inp_out_ids drops rows behind the last layer's attention.)
func (g *Graph) Hoist(together func(*Node) []*Node, keep func(*Node) bool) *Graph {
	every, last := g.stored(together, keep), g.Result()
	if every[last] || last.Op == Rows || !g.Live().After[last] {
		return g
	}
	h := hoister{every: every, of: map[*Node]*Node{}, rows: map[*Node]*Node{}}
	for _, n := range g.Nodes {
		if n.Op == Rows {
			if h.of[n] = h.wanted(n.In[0]); keep != nil && keep(n) { // also under its own name
				h.add(&Node{Op: View, Name: n.Name, Layer: n.Layer, Shape: n.Shape, In: []*Node{h.of[n]},
					Attr: ViewAttr{}, Pos: n.Pos})
			}
			continue
		}
		c := *n
		c.In = make([]*Node, len(n.In))
		for i, in := range n.In {
			if c.In[i] = h.of[in]; !every[n] && n.Op != Pool {
				c.In[i] = h.wanted(in)
			}
		}
		h.of[n] = h.add(&c)
	}
	return &Graph{h.nodes}
}

// stored returns the nodes that every row needs: embeddings, writers of states, nodes wanted by keep, and all inputs of
// keys, values and states, with the nodes computed together.
func (g *Graph) stored(together func(*Node) []*Node, keep func(*Node) bool) map[*Node]bool {
	every, after := map[*Node]bool{}, g.Live().After
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		every[n] = every[n] || keep != nil && !after[n] && keep(n) || n.Op == StoreKV || n.Op == Embed ||
			n.Op == EmbedPos || n.Op == Patches || n.Op == Deepstack || n.Op == Interpolate || n.State != nil
		if every[n] || n.Op == Pool {
			for _, in := range n.In {
				every[in] = true
			}
			if together != nil && every[n] {
				for _, m := range together(n) {
					every[m] = true
				}
			}
		}
	}
	return every
}

// hoister records a graph again.
type hoister struct {
	every map[*Node]bool  // nodes with all rows needed
	of    map[*Node]*Node // by old node: the new node
	rows  map[*Node]*Node // by old node: Rows of the new node
	nodes []*Node
}

func (h *hoister) add(n *Node) *Node {
	n.ID = len(h.nodes)
	h.nodes = append(h.nodes, n)
	return n
}

// wanted returns the rows of x with wanted logits.
func (h *hoister) wanted(x *Node) *Node {
	if !h.every[x] {
		return h.of[x]
	}
	if h.rows[x] == nil {
		in := h.of[x]
		h.rows[x] = h.add(&Node{Op: Rows, Name: x.Name + ".rows", Layer: x.Layer, Shape: x.Shape, In: []*Node{in},
			Pos: x.Pos})
	}
	return h.rows[x]
}
