package fault

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// Injected is a fault that was built in: an entry of the answer key.
type Injected struct {
	Cause  string   `json:"cause"`
	Fault  string   `json:"fault"`  // as Parse reads it
	Op     string   `json:"op"`     // the graph's operation: Linear, RMSNorm, RoPE ...
	Layers []int    `json:"layers"` // sorted; empty outside the layers
	Nodes  []string `json:"nodes"`  // by name, in the graph's order
	Detail string   `json:"detail"`

	// A prompt shows it if it has so many tokens and, with Decode, if the last of
	// them were decoded one by one.
	Positions int  `json:"positions"`
	Decode    bool `json:"decode,omitempty"`
}

// spec is how one fault is made.
type spec struct {
	id     string
	outer  bool                                                                  // outside the layers only
	pick   func(l *layer) []*graph.Node                                          // the nodes that may have it
	apart  bool                                                                  // nodes of other operations are entries of their own in the answer key, as without a name
	one    bool                                                                  // the usual place is the first of them, not all
	apply  func(p *plan, n *graph.Node, value string) (detail string, err error) // a same where nothing would change
	values []string                                                              // besides ""

	tokens  int    // see Injected.Positions; 0 is 1
	windows bool   // it takes a prompt that is longer than the window
	whole   bool   // Applicable has it in all its layers and places at once only
	faint   string // a node where it is lost in the rounding of float32: Applicable leaves it out
}

// same is why a fault would change nothing.
type same string

func (s same) Error() string { return "would change nothing: " + string(s) }

var table = slices.Concat(weightSpecs, normSpecs, ropeSpecs, attentionSpecs, blockSpecs, routeSpecs, vectorSpecs, attributeSpecs, strangeSpecs, sameSpecs)

func find(id string) *spec {
	for _, s := range table {
		if s.id == id {
			return s
		}
	}
	return nil
}

// Inject builds faults into a copy of g, and returns it with the kernels of its
// nodes, for reference.Backend, and the faults built in. A fault that the model cannot
// have, or that would change nothing, is an error.
func Inject(g *graph.Graph, faults []Fault) (*graph.Graph, func(*graph.Node) reference.Kernel, []Injected, error) {
	p := newPlan(g)
	var all []Injected
	for _, f := range faults {
		list, err := p.inject(f)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%v: %w", f, err)
		}
		all = append(all, list...)
	}
	if err := p.checkTurns(faults); err != nil {
		return nil, nil, nil, err
	}
	h := p.finish()
	for _, n := range h.Nodes {
		for _, in := range n.In {
			if in.ID >= n.ID || h.Nodes[in.ID] != in {
				return nil, nil, nil, fmt.Errorf("these cannot be combined: %s would read %s, which comes later", n.Name, in.Name)
			}
		}
	}
	return h, p.kernel, all, nil
}

// inject applies one fault. It gives two entries where it is in layers and outside.
func (p *plan) inject(f Fault) ([]Injected, error) {
	s := find(f.ID)
	switch {
	case s == nil && known(f.ID):
		return nil, errors.New("it is no fault of the engine: it is made in the prompts or in the record")
	case s == nil:
		return nil, errors.New("no such fault")
	}
	nodes, err := p.targets(s, f)
	if err != nil {
		return nil, err
	}
	var details []string
	var why error
	p.touched, p.decode = nil, false
	for _, n := range nodes {
		p.beside = false
		detail, err := s.apply(p, n, f.Value)
		if as := same(""); errors.As(err, &as) {
			why = err
			continue
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		if !p.beside {
			p.touch(n)
		}
		if !slices.Contains(details, detail) {
			details = append(details, detail)
		}
	}
	if len(p.touched) == 0 {
		return nil, fmt.Errorf("%s: %w", nodes[0].Name, why)
	}
	return p.describe(s, f, strings.Join(details, "; ")), nil
}

// targets are the nodes that a fault is asked for.
func (p *plan) targets(s *spec, f Fault) ([]*graph.Node, error) {
	list, err := f.layers(len(p.layers) - 1)
	switch {
	case err != nil:
		return nil, err
	case s.outer && f.Layers != "" && f.Layers != "outside":
		return nil, errors.New("it lies outside the layers, and takes none")
	}
	asked := func(l *layer) bool {
		if list != nil {
			return slices.Contains(list, l.index)
		}
		return words[f.Layers](l)
	}
	if s.outer {
		asked = words["outside"]
	}
	nodes, err := s.among(p.layers, asked, f.Where, list != nil)
	if len(nodes) == 0 && err == nil && f.Layers == "" {
		nodes, err = s.among(p.layers, words["outside"], f.Where, false)
	}
	if len(nodes) == 0 && err == nil {
		err = errors.New("the model has no operation there that could have it")
	}
	return nodes, err
}

// among picks from the layers that are asked for; each must have one if each is asked for.
func (s *spec) among(layers []*layer, asked func(*layer) bool, where string, each bool) (nodes []*graph.Node, err error) {
	for _, l := range layers {
		if !asked(l) {
			continue
		}
		list := s.pick(l)
		if where != "" {
			names := strings.Split(where, "+")
			list = slices.DeleteFunc(list, func(n *graph.Node) bool { return !slices.Contains(names, local(n)) })
		} else if s.one && len(list) > 1 {
			list = list[:1]
		}
		if len(list) == 0 && each {
			return nil, fmt.Errorf("layer %d has no operation that could have it", l.index)
		}
		nodes = append(nodes, list...)
	}
	return nodes, nil
}

// describe is the answer key's entries.
func (p *plan) describe(s *spec, f Fault, detail string) []Injected {
	nodes := slices.DeleteFunc(slices.Clone(p.nodes), func(n *graph.Node) bool { return !slices.Contains(p.touched, n) })
	if !s.apart && !strings.HasPrefix(s.id, "x_") {
		return p.entries(s, f, detail, nodes)
	}
	var all []Injected
	for len(nodes) > 0 {
		op := nodes[0].Op
		other := func(n *graph.Node) bool { return n.Op != op }
		all = append(all, p.entries(s, f, detail, slices.DeleteFunc(slices.Clone(nodes), other))...)
		nodes = slices.DeleteFunc(nodes, func(n *graph.Node) bool { return n.Op == op })
	}
	return all
}

// entries are those of nodes that have one fault together: in the layers, and outside.
func (p *plan) entries(s *spec, f Fault, detail string, nodes []*graph.Node) []Injected {
	var all []Injected
	for _, inside := range []bool{true, false} {
		in := Injected{Cause: f.ID, Fault: f.String(), Layers: []int{}, Detail: detail, Positions: max(s.tokens, 1), Decode: p.decode}
		usual, _ := mistake.Find(f.ID)
		for _, n := range nodes {
			if (n.Layer != outside) != inside {
				continue
			}
			if op := opName(n.Op); in.Op == "" || op == usual.Op {
				in.Op = op
			}
			if inside && !slices.Contains(in.Layers, n.Layer) {
				in.Layers = append(in.Layers, n.Layer)
			}
			in.Nodes = append(in.Nodes, n.Name)
			if a, ok := n.Attr.(graph.ScalePosAttr); ok {
				in.Positions = max(in.Positions, a.Every+1) // before, the factor is 1
			}
			if w := p.narrowest(); (s.windows || f.Value == slot) && w > 0 {
				in.Positions = w + 2
			}
		}
		slices.Sort(in.Layers)
		if in.Nodes != nil {
			all = append(all, in)
		}
	}
	return all
}

// narrowest is the smallest window of the model's layers.
func (p *plan) narrowest() int {
	least := 0
	for _, n := range p.nodes {
		if n.Op == graph.StoreKV {
			if w := n.Attr.(*graph.KV).Window; w > 0 && (least == 0 || w < least) {
				least = w
			}
		}
	}
	return least
}

// opName is an operation as reports spell it: rms_norm is RMSNorm.
func opName(o graph.Op) string {
	return [...]string{"Embed", "Linear", "RMSNorm", "RoPE", "StoreKV", "Attention", "Add", "Mul",
		"Scale", "GLU", "Act", "Softcap", "Rows", "View", "Route", "Experts", "LayerNorm", "L2Norm", "Concat", "Slice", "EmbedPos", "ScalePos", "Pool", "HeadLinear",
		"Conv", "SSMScan", "DeltaScan"}[o]
}

// Applicable lists every fault that an engine of the model can have: with each
// value and at each place worth a test, in all its layers, in those of each kind,
// and in one of them.
func Applicable(g *graph.Graph) []Fault {
	var all []Fault
	for _, s := range table {
		for _, f := range s.variants(newPlan(g).layers) {
			p := newPlan(g)
			p.dry = true
			if _, err := p.inject(f); err == nil {
				all = append(all, f)
			}
		}
	}
	return all
}

// variants are the forms of a fault, whether the model can have them or not.
func (s *spec) variants(layers []*layer) []Fault {
	var have []*layer // that may have it
	var places []string
	for _, l := range layers {
		list := s.pick(l)
		if len(list) == 0 || s.outer != (l.index == outside) && s.outer {
			continue
		}
		have = append(have, l)
		for _, n := range list {
			if !slices.Contains(places, local(n)) {
				places = append(places, local(n))
			}
		}
	}
	if len(have) == 0 {
		return nil
	}
	var all []Fault
	single := fmt.Sprint(have[(len(have)+1)/2%len(have)].index)
	for _, v := range append([]string{""}, s.values...) {
		if s.outer {
			all = append(all, Fault{ID: s.id, Value: v})
			continue
		}
		for i, set := range sets(have) {
			if i == 0 || !s.whole {
				all = append(all, Fault{ID: s.id, Value: v, Layers: set})
			}
		}
		if single == "-1" && len(have) == 1 { // in no layer
			all = append(all, Fault{ID: s.id, Value: v})
		}
		if single != "-1" && !s.whole {
			all = append(all, Fault{ID: s.id, Value: v, Layers: single})
		}
	}
	for _, name := range places {
		if len(places) > 1 && !s.whole && name != s.faint {
			all = append(all, Fault{ID: s.id, Where: name})
		}
	}
	return all
}

// sets are the words that stand for different layers of those.
func sets(have []*layer) (list []string) {
	seen := map[string]bool{"[]": true}
	for _, w := range []string{"all", "full", "sliding", "shared", "moe"} {
		var members []int
		for _, l := range have {
			if words[w](l) {
				members = append(members, l.index)
			}
		}
		if key := fmt.Sprint(members); !seen[key] {
			seen[key] = true
			list = append(list, w)
		}
	}
	return list
}

// Draw takes up to count of the faults at random that are in different operations
// and have different IDs, so that an engine can have them all and each can be seen.
func Draw(g *graph.Graph, faults []Fault, count int, r *rand.Rand) []Fault {
	return DrawBeside(g, nil, faults, count, r)
}

// DrawBeside is drawn, faults that an engine has already, and others drawn beside them, up to count in all.
func DrawBeside(g *graph.Graph, drawn, faults []Fault, count int, r *rand.Rand) []Fault {
	drawn = slices.Clone(drawn)
	used := map[string]bool{}
	for _, f := range drawn {
		used[f.ID] = true
		for _, name := range Touches(g, f) {
			used[name] = true
		}
	}
	for _, i := range r.Perm(len(faults)) {
		if len(drawn) == count {
			break
		}
		f := faults[i]
		if used[f.ID] {
			continue
		}
		names := Touches(g, f)
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return used[name] }) {
			continue
		}
		if _, _, _, err := Inject(g, append(slices.Clip(drawn), f)); err != nil {
			continue
		}
		drawn = append(drawn, f)
		used[f.ID] = true
		for _, name := range names {
			used[name] = true
		}
	}
	return drawn
}

// Touches is the names of the nodes that a fault is in, none if the model cannot have it.
func Touches(g *graph.Graph, f Fault) (names []string) {
	p := newPlan(g)
	p.dry = true
	in, err := p.inject(f)
	if err != nil {
		return nil
	}
	for _, x := range in {
		names = append(names, x.Nodes...)
	}
	return names
}
