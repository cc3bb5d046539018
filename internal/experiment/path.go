package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/karat-run/karat"
)

// stream is a graph's residual stream: what begins with the embedding, and to which layers add.
type stream struct {
	nodes  []karat.Node
	in     map[string]bool // nodes of the stream
	branch map[string]bool // the nodes that add to it
}

func newStream(nodes []karat.Node) *stream {
	s := &stream{nodes, map[string]bool{}, map[string]bool{}}
	for _, n := range nodes {
		switch n.Op {
		case "embed":
			s.in[n.Name] = true
		case "scale", "view", "mul": // by a number or a weight
			s.in[n.Name] = len(n.In) == 1 && s.in[n.In[0]]
		case "add":
			s.in[n.Name] = slices.ContainsFunc(n.In, func(in string) bool { return s.in[in] })
		}
		for _, in := range n.In {
			if n.Op == "add" && s.in[n.Name] && !s.in[in] {
				s.branch[in] = true
			}
		}
	}
	return s
}

// fed are the branches by which a node's value gets into the stream: of attention that of its layer, of a node
// of the stream none. A node that gets there only through other positions, as a key, is an error.
func (s *stream) fed(name string) (map[string]bool, error) {
	reached, fed, entered := map[string]bool{name: true}, map[string]bool{}, s.in[name]
	for _, n := range s.nodes {
		for _, in := range n.In {
			switch {
			case !reached[in] || s.in[in]:
			case s.in[n.Name]:
				fed[in], entered = true, true
			default:
				reached[n.Name] = true
			}
		}
	}
	if !entered {
		return nil, fmt.Errorf("node %s: nothing adds it to the residual stream at its own position: take attention, or what follows it", name)
	}
	return fed, nil
}

// rowsAt are rows by node and position.
type rowsAt map[string]map[int][]float32

// keep clones the rows that a hook sees.
func (r rowsAt) keep(n karat.Node, at []int, x []float32) {
	size := len(x) / len(at)
	for i, pos := range at {
		if r[n.Name] == nil {
			r[n.Name] = map[int][]float32{}
		}
		r[n.Name][pos] = slices.Clone(x[i*size:][:size])
	}
}

// write sets the rows of a hook to those kept.
func (r rowsAt) write(n karat.Node, at []int, x []float32) {
	size := len(x) / len(at)
	for i, pos := range at {
		if row := r[n.Name][pos]; row != nil {
			copy(x[i*size:][:size], row)
		}
	}
}

// paths computes paths from a sender to receivers in the run of a corrupted prompt.
type paths struct {
	model     *karat.Model
	prompt    *Prompt
	stream    *stream
	receivers []site
	branches  rowsAt // of the run without edits
}

// newPaths keeps the corrupted run's values that are frozen.
func newPaths(ctx context.Context, m *karat.Model, p *Prompt, receivers []site) (*paths, error) {
	x := &paths{m, p, newStream(m.Nodes()), receivers, rowsAt{}}
	if len(x.stream.branch) == 0 {
		return nil, fmt.Errorf("the graph has no residual stream that layers add to")
	}
	_, err := run(ctx, m, p, &karat.Hooks{Nodes: func(n karat.Node) bool { return x.stream.branch[n.Name] }, See: x.branches.keep}, 0)
	return x, err
}

// receives reports whether a node is a receiver.
func (x *paths) receives(n karat.Node) bool {
	return slices.ContainsFunc(x.receivers, func(s site) bool { return s.node.Name == n.Name })
}

// run gives the outcome of e, the sender, on the receivers alone. One run has the edit, while all that attention and
// feed-forward networks add to the stream is as without it, but for the sender's own branch. What the
// receivers then are is written into a second run, in which nothing is frozen.
func (x *paths) run(ctx context.Context, e Edit) (*Outcome, error) {
	sender, err := prepare(ctx, x.model, x.prompt, []Edit{e})
	if err != nil {
		return nil, err
	}
	free := map[string]bool{}
	for _, a := range sender {
		fed, err := x.stream.fed(a.node.Name)
		if err != nil {
			return nil, err
		}
		for name := range fed {
			free[name] = true
		}
	}
	edit, received := hooks(sender, len(x.prompt.IDs)), rowsAt{}
	_, err = run(ctx, x.model, x.prompt, &karat.Hooks{
		Nodes: func(n karat.Node) bool { return edit.Nodes(n) || x.stream.branch[n.Name] || x.receives(n) },
		See: func(n karat.Node, at []int, v []float32) {
			if edit.Nodes(n) {
				edit.See(n, at, v)
			}
			if x.receives(n) {
				received.keep(n, at, v)
			}
			if x.stream.branch[n.Name] && !free[n.Name] {
				x.branches.write(n, at, v)
			}
		},
	}, 0)
	if err != nil {
		return nil, err
	}
	var all []applied
	for _, s := range x.receivers {
		a := applied{site: s, kind: Replace, at: map[int]int{}}
		for pos, row := range received[s.node.Name] {
			if row, err = s.part(row); err != nil {
				return nil, err
			}
			a.at[pos], a.rows = len(a.rows), append(a.rows, row)
		}
		all = append(all, a)
	}
	return run(ctx, x.model, x.prompt, hooks(all, len(x.prompt.IDs)), 0)
}
