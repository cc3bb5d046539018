package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/karat-run/karat"
)

// stream is a graph's residual stream: the sum beginning with the embedding, and growing in each layer.
type stream struct {
	nodes  []karat.Node
	in     map[string]bool // nodes of the stream
	branch map[string]bool // the nodes added to the stream
}

// newStream finds the stream. A norm of the stream with additions behind is an error: behind the norm the sum
// is no longer a sum of the layers' outputs, so freezing outputs would not isolate a path.
func newStream(nodes []karat.Node) (*stream, error) {
	s, normed := &stream{nodes, map[string]bool{}, map[string]bool{}}, map[string]string{}
	for _, n := range nodes {
		switch n.Op {
		case "embed":
			s.in[n.Name] = len(s.in) == 0 // others are inputs of layers
		case "scale", "view", "mul": // by a number or a weight
			if len(n.In) == 1 {
				s.in[n.Name], normed[n.Name] = s.in[n.In[0]], normed[n.In[0]]
			}
		case "rms_norm", "layer_norm", "l2_norm":
			if s.in[n.In[0]] || normed[n.In[0]] != "" {
				normed[n.Name] = n.Name
			}
		case "add":
			s.in[n.Name] = slices.ContainsFunc(n.In, func(in string) bool { return s.in[in] })
		}
		for _, in := range n.In {
			switch {
			case n.Op == "add" && normed[in] != "" && len(n.In) > 1:
				return nil, fmt.Errorf("node %s is a norm on the residual stream, to which %s adds: this family "+
					"has no paths", normed[in], n.Name)
			case n.Op == "add" && s.in[n.Name] && !s.in[in]:
				s.branch[in] = true
			}
		}
	}
	if len(s.branch) == 0 {
		return nil, fmt.Errorf("the graph has no residual stream that layers add to")
	}
	return s, nil
}

// branches returns the branches from a node's value into the stream: for a node of attention, the branch of
// its layer. A node of the stream is an error, and so is a node reaching the stream only through other
// positions, as a key, or reaching none of the receivers.
func (s *stream) branches(name string, receivers []site) (map[string]bool, error) {
	if s.in[name] {
		return nil, fmt.Errorf(
			"node %s: it is the residual stream itself: take what is added to it, such as attention or the "+
				"feed-forward network",
			name)
	}
	reached, fed := map[string]bool{name: true}, map[string]bool{}
	for _, n := range s.nodes {
		for _, in := range n.In {
			switch {
			case !reached[in] || s.in[in]:
			case s.in[n.Name]:
				fed[in] = true
			default:
				reached[n.Name] = true
			}
		}
	}
	switch {
	case len(fed) == 0:
		return nil, fmt.Errorf(
			"node %s: nothing adds it to the residual stream at its own position: take attention, or what follows it",
			name)
	case !s.reaches(name, fed, receivers):
		return nil, fmt.Errorf(
			"node %s: no receiver reads it, neither from the residual stream nor before it gets there: take "+
				"receivers behind it",
			name)
	}
	return fed, nil
}

// reaches reports whether a node's change comes to a receiver, where all branches except fed are frozen.
func (s *stream) reaches(name string, fed map[string]bool, receivers []site) bool {
	changed := map[string]bool{name: true}
	for _, n := range s.nodes {
		if !slices.ContainsFunc(n.In, func(in string) bool { return changed[in] }) {
			continue
		}
		if receives(receivers, n) {
			return true
		}
		changed[n.Name] = !s.branch[n.Name] || fed[n.Name]
	}
	return false
}

// paths computes paths from a sender to receivers in the run of a corrupted prompt.
type paths struct {
	model     *karat.Model
	prompt    *Prompt
	stream    *stream
	receivers []site
	branches  rowsAt // of the run without edits
}

// newPaths keeps the corrupted run's values to freeze.
func newPaths(ctx context.Context, m *karat.Model, p *Prompt, receivers []site) (*paths, error) {
	stream, err := newStream(m.Nodes())
	if err != nil {
		return nil, err
	}
	branches, err := takeRows(ctx, m, p, func(n karat.Node) bool { return stream.branch[n.Name] })
	return &paths{m, p, stream, receivers, branches}, err
}

// receives reports whether a node is a receiver.
func receives(receivers []site, n karat.Node) bool {
	return slices.ContainsFunc(receivers, func(s site) bool { return s.node.Name == n.Name })
}

// run computes the outcome of e, the sender, on the receivers alone. A first run has the edit, while all
// outputs of attention and feed-forward networks into the stream are as without the edit, except the sender's
// branch. The values of the receivers are written into a second run, with nothing frozen.
func (x *paths) run(ctx context.Context, e Edit) (*Outcome, error) {
	sender, err := prepare(ctx, x.model, x.prompt, []Edit{e})
	if err != nil {
		return nil, err
	}
	free := map[string]bool{}
	for _, a := range sender {
		fed, err := x.stream.branches(a.node.Name, x.receivers)
		if err != nil {
			return nil, err
		}
		for name := range fed {
			free[name] = true
		}
	}
	edit, received := hooks(sender, len(x.prompt.IDs)), rowsAt{}
	_, err = run(ctx, x.model, x.prompt, &karat.Hooks{
		Nodes: func(n karat.Node) bool { return edit.Nodes(n) || x.stream.branch[n.Name] || receives(x.receivers, n) },
		See: func(n karat.Node, at []int, v []float32) {
			if edit.Nodes(n) {
				edit.See(n, at, v)
			}
			if receives(x.receivers, n) {
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
