package mistake

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// Injected is a mistake built in: an entry of the answer key.
type Injected struct {
	Cause  string   `json:"cause"`
	Fault  string   `json:"fault"`  // as Parse reads it
	Op     string   `json:"op"`     // the graph's operation: Linear, RMSNorm, RoPE ...
	Layers []int    `json:"layers"` // sorted; empty outside the layers
	Nodes  []string `json:"nodes"`  // by name, in the graph's order
	Detail string   `json:"detail"`

	// A prompt of so many tokens shows the mistake and, with Decode, a prompt whose last tokens were decoded singly.
	Positions int  `json:"positions"`
	Decode    bool `json:"decode,omitempty"`
}

// same is why a mistake would change nothing.
type same string

func (s same) Error() string { return "would change nothing: " + string(s) }

// site is a graph with mistakes built in.
type site struct {
	*Proposer
	layers []*layer // outside first
	edits  reference.Edits
	hidden map[*graph.Node]bool // nodes without a tap in the engine
}

// layer is the nodes of a layer, or the nodes outside.
type layer struct {
	index int
	nodes []*graph.Node
}

// build begins a site for g.
func build(g *graph.Graph) *site {
	none := func(*graph.Node) bool { return false }
	whole := func(*graph.Node) []int { return []int{WholePrompt} }
	s := &site{layers: []*layer{{index: outside}}}
	s.Proposer = &Proposer{Wiring: Wire(g), Dump: Dump{Longest: 1 << 20, Decodes: true, Tapped: none, Sizes: whole,
		Size:      func(*graph.Node) int { return WholePrompt },
		Wrong:     func(*graph.Node) (int, int) { return 0, WholePrompt },
		Prefilled: func(e *reference.Eval) int { return e.Len() },
		Lacks:     func(*graph.Node, func(*reference.Eval, int) bool) bool { return true }}}
	for _, n := range g.Nodes {
		for len(s.layers) < n.Layer+2 {
			s.layers = append(s.layers, &layer{index: len(s.layers) - 1})
		}
		s.layers[n.Layer+1].nodes = append(s.layers[n.Layer+1].nodes, n)
	}
	return s
}

// fresh returns s with nothing built in.
func (s *site) fresh() *site {
	f := *s
	f.edits, f.hidden = reference.Edits{}, map[*graph.Node]bool{}
	return &f
}

// first returns a layer's first node of an operation, nil for none.
func (l *layer) first(op graph.Op) *graph.Node {
	for _, n := range l.nodes {
		if n.Op == op {
			return n
		}
	}
	return nil
}

func (l *layer) attention() *graph.Node { return l.first(graph.Attention) }

// Inject builds mistakes into a copy of g, and returns the copy, the edits for reference.Backend, and the answer key.
// A mistake impossible in the model, or without effect, is an error.
func Inject(g *graph.Graph, faults []Fault) (*graph.Graph, reference.Edits, []Injected, error) {
	g = copied(g)
	s := build(g).fresh()
	all, err := s.inject(faults)
	for n := range s.hidden {
		n.HF = ""
	}
	return g, s.edits, all, err
}

// copied returns a graph of copies of g's nodes.
func copied(g *graph.Graph) *graph.Graph {
	out, copies := &graph.Graph{}, map[*graph.Node]*graph.Node{}
	for _, n := range g.Nodes {
		c := *n
		c.In = slices.Clone(n.In)
		for i, in := range c.In {
			c.In[i] = copies[in]
		}
		copies[n] = &c
		out.Nodes = append(out.Nodes, &c)
	}
	return out
}

func (s *site) inject(faults []Fault) ([]Injected, error) {
	var all []Injected
	for _, f := range faults {
		list, err := s.one(f)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", f, err)
		}
		all = append(all, list...)
	}
	if err := s.checkTurns(faults); err != nil {
		return nil, err
	}
	if n := s.model.Eval(nil, nil, nil).With(s.edits).Circle(); n != nil {
		return nil, fmt.Errorf("these cannot be combined: %s would be computed from itself", n.Name)
	}
	return all, nil
}

// one builds in a mistake. A mistake in layers and outside has two entries.
func (s *site) one(f Fault) ([]Injected, error) {
	m := entryOf(f.ID)
	switch {
	case m == nil && known(f.ID):
		return nil, errors.New("it is no fault of the engine: it is made in the prompts or in the record")
	case m == nil:
		return nil, errors.New("no such fault")
	}
	found, err := s.targets(m, f)
	if err != nil {
		return nil, err
	}
	for _, h := range found {
		s.edits = s.edits.And(h.Edits)
		if f.Value == untapped && len(m.words[untapped]) == 0 {
			for n := range h.Edits {
				s.hidden[n] = true
			}
		}
	}
	return s.describe(m, f, found), nil
}

// untapped is the value of mistakes by which an engine lacks an operation and its tap.
const untapped = "untapped"

// targets returns a fault's forms, one for each node asked for.
func (s *site) targets(m *entry, f Fault) ([]*Hypothesis, error) {
	list, err := f.layers(len(s.layers) - 1)
	switch {
	case err != nil:
		return nil, err
	case m.outer && f.Layers != "" && f.Layers != "outside":
		return nil, errors.New("it lies outside the layers, and takes none")
	}
	asked := func(l *layer) bool {
		if list != nil {
			return slices.Contains(list, l.index)
		}
		return words[f.Layers](l)
	}
	if m.outer {
		asked = words["outside"]
	}
	found, there, err := s.among(m, f, asked, list != nil)
	if len(found) == 0 && there == nil && err == nil && f.Layers == "" {
		found, there, err = s.among(m, f, words["outside"], false)
	}
	switch {
	case len(found) > 0 || err != nil:
		return found, err
	case there != nil:
		return nil, fmt.Errorf("%s: %w", there.Name, s.why(m, f, there))
	}
	return nil, errors.New("the model has no operation there that could have it")
}

// among picks from the layers asked for; if each is asked for, each must have a form. there is a node that could have
// the mistake, but not with the value.
func (s *site) among(m *entry, f Fault, asked func(*layer) bool, each bool) (all []*Hypothesis, there *graph.Node,
	err error) {
	var names []string
	if f.Where != "" {
		names = strings.Split(f.Where, "+")
	}
	for _, l := range s.layers {
		if !asked(l) {
			continue
		}
		some := false
		for _, n := range s.order(m, l) {
			list := s.of(m, n)
			list = slices.DeleteFunc(list, func(h *Hypothesis) bool { return names != nil && !h.within(names) })
			if len(list) == 0 {
				continue
			}
			some = true
			h, err := m.choose(s, n, list, f.Value)
			if err != nil {
				return nil, n, fmt.Errorf("%s: %w", n.Name, err)
			}
			if there = n; h == nil || slices.ContainsFunc(all, h.overlaps) {
				continue
			}
			if all = append(all, h); m.one && names == nil {
				break
			}
		}
		if !some && each {
			return nil, nil, fmt.Errorf("layer %d has no operation that could have it", l.index)
		}
	}
	return all, there, nil
}

// order returns a layer's nodes, the usual place of a mistake in front: products for mistakes of weights, and
// attention with values to be normed.
func (s *site) order(m *entry, l *layer) []*graph.Node {
	op, likely := graph.Linear, strings.HasPrefix(m.id, "weight_")
	if m.id == "norm_extra" {
		op, likely = graph.Attention, true
	}
	if !likely {
		return l.nodes
	}
	nodes := slices.Clone(l.nodes)
	rank := func(n *graph.Node) int {
		if n.Op == op {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(nodes, func(a, b *graph.Node) int { return rank(a) - rank(b) })
	return nodes
}

// of lists the forms of a mistake at a node.
func (s *site) of(m *entry, n *graph.Node) []*Hypothesis {
	if !m.fits(n) || m.at != nil && !m.at(s, n) {
		return nil
	}
	list := append(m.list(m.more, s.Proposer, n), m.list(m.forms, s.Proposer, n)...)
	if m.elsewhere {
		list = slices.DeleteFunc(list, func(h *Hypothesis) bool { return h.Node != n })
	}
	return list
}

// within reports whether the nodes of h have names on a list.
func (h *Hypothesis) within(names []string) bool {
	in := func(n *graph.Node) bool { return slices.Contains(names, Role(n)) }
	if h.Node.Op == graph.RoPE {
		h, ok := h.at(1)
		if !ok {
			return false
		}
		for n := range h.Edits {
			ok = ok && in(n)
		}
		return ok
	}
	if in(h.Node) {
		return true
	}
	for n := range h.Edits {
		if h.Cause == "residual_order" && n.Op == graph.Add && in(n) {
			return true
		}
	}
	return false
}

// at returns h with a number, or h itself if h takes none.
func (h *Hypothesis) at(v float64) (*Hypothesis, bool) {
	if h.Fit == nil {
		return h, true
	}
	x := h.Fit.Make(v)
	return x, x != nil
}

// overlaps reports whether two hypotheses edit a node in common.
func (h *Hypothesis) overlaps(x *Hypothesis) bool {
	for n := range h.Edits {
		if x.Edits[n] != nil {
			return true
		}
	}
	return false
}

// describe returns the answer key's entries: by operation if operations tell mistakes apart, in layers and outside.
func (s *site) describe(m *entry, f Fault, found []*Hypothesis) []Injected {
	var all []Injected
	for _, h := range found {
		op := opOf(f.ID, h.Node)
		inside := h.Node.Layer != outside
		at := slices.IndexFunc(all, func(x Injected) bool {
			return (len(x.Layers) > 0) == inside && (x.Op == op || !m.apart && !m.strange())
		})
		if at < 0 {
			in := Injected{Cause: f.ID, Fault: f.String(), Op: op, Layers: []int{}, Positions: max(m.tokens, 1),
				Decode: f.Value == "fresh" || f.ID == "state_lost"}
			if w := s.narrowest(); (m.windows || f.Value == slot) && w > 0 {
				in.Positions = w + 2
			}
			at, all = len(all), append(all, in)
		}
		in := &all[at]
		if usual, _ := Find(f.ID); op == usual.Op {
			in.Op = op
		}
		if inside {
			in.Layers = Union(in.Layers, []int{h.Node.Layer})
		}
		for n := range h.Edits {
			if !slices.Contains(in.Nodes, n.Name) {
				in.Nodes = append(in.Nodes, n.Name)
			}
			if a, ok := n.Attr.(graph.ScalePosAttr); ok {
				in.Positions = max(in.Positions, a.Every+1) // before, the factor is 1
			}
		}
		if !strings.Contains(in.Detail, h.Computed) {
			in.Detail = strings.TrimPrefix(in.Detail+"; "+h.Computed, "; ")
		}
	}
	for i := range all {
		slices.SortFunc(all[i].Nodes, func(a, b string) int { return s.g.Node(a).ID - s.g.Node(b).ID })
	}
	return all
}

// narrowest returns the smallest window of the model's layers, or number of chosen positions.
func (s *site) narrowest() int {
	least := 0
	for _, n := range s.g.Nodes {
		w := 0
		if n.Op == graph.StoreKV {
			w = n.Attr.(*graph.KV).Window
		} else if n.Op == graph.Choose {
			w = n.Shape[0]
		}
		if w > 0 && (least == 0 || w < least) {
			least = w
		}
	}
	return least
}

// checkTurns finds queries and keys that are off by as many positions, which attention does not see, where that
// was not asked for, and the reverse.
func (s *site) checkTurns(faults []Fault) error {
	e := s.model.Eval(nil, nil, nil).With(s.edits)
	var shift func(n *graph.Node) int
	shift = func(n *graph.Node) int {
		switch spec := e.Spec(n); {
		case n.Op == graph.RoPE:
			return spec.Shift
		case n.Op == graph.Concat: // unturned features lie beside
			return shift(n.In[0]) + shift(n.In[1])
		case len(n.In) == 1 && n.Op != graph.Linear: // a norm may come behind
			return shift(n.In[0])
		}
		return 0
	}
	alike, used := true, false
	for _, n := range s.g.Nodes {
		if store := s.model.Store(n); store != nil {
			by := shift(n.In[0])
			used, alike = used || by != 0, alike && by == shift(store.In[0])
		}
	}
	has := func(id string) bool { return slices.ContainsFunc(faults, func(f Fault) bool { return f.ID == id }) }
	switch {
	case has("rope_position") && used && alike:
		return fmt.Errorf("rope_position: %w", same("queries and keys are off alike"))
	case has("same_rope_offset") && !has("rope_position") && !alike:
		return errors.New("same_rope_offset: queries and keys are not off alike in all layers, which is rope_position")
	}
	return nil
}
