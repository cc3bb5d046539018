package mistake

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// Applicable lists every possible mistake of an engine of the model: with each value and at each place worth a test,
// in all layers, in all layers of a kind, and in a single layer.
func Applicable(g *graph.Graph) []Fault {
	return possible(g, func(m *entry) []string {
		if slices.Contains(m.pictured, "") {
			return nil
		}
		return append([]string{""}, m.values...)
	})
}

// Pictured lists every possible mistake in a model's text shown by prompts with pictures alone.
func Pictured(g *graph.Graph) []Fault {
	return possible(g, func(m *entry) []string { return m.pictured })
}

// possible lists the possible mistakes with some values of each.
func possible(g *graph.Graph, values func(m *entry) []string) []Fault {
	var all []Fault
	s := build(g)
	for _, m := range table {
		for _, f := range s.variants(m, values(m)) {
			if _, err := s.fresh().inject([]Fault{f}); err == nil {
				all = append(all, f)
			}
		}
	}
	return all
}

// variants returns the forms of a mistake with some values, possible in the model or not.
func (s *site) variants(m *entry, values []string) []Fault {
	var have []*layer // possible layers
	var places []string
	for _, l := range s.layers {
		some := false
		for _, n := range s.order(m, l) {
			for _, h := range s.of(m, n) {
				some = true
				if name := Role(h.Node); !slices.Contains(places, name) {
					places = append(places, name)
				}
			}
		}
		if some && (!m.outer || l.index == outside) {
			have = append(have, l)
		}
	}
	if len(have) == 0 || len(values) == 0 {
		return nil
	}
	var all []Fault
	single := fmt.Sprint(have[(len(have)+1)/2%len(have)].index)
	for _, v := range values {
		if m.outer {
			all = append(all, Fault{ID: m.id, Value: v})
			continue
		}
		for i, set := range sets(have) {
			if i == 0 || !m.whole {
				all = append(all, Fault{ID: m.id, Value: v, Layers: set})
			}
		}
		if single == "-1" && len(have) == 1 { // in no layer
			all = append(all, Fault{ID: m.id, Value: v})
		}
		if single != "-1" && !m.whole {
			all = append(all, Fault{ID: m.id, Value: v, Layers: single})
		}
	}
	for _, name := range places {
		if len(places) > 1 && !m.whole && name != m.faint && values[0] == "" {
			all = append(all, Fault{ID: m.id, Where: name})
		}
	}
	return all
}

// sets returns the words for different layers of some.
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

// Draw takes up to count faults at random, in different operations and with different IDs, so that an engine can have
// all of the faults and each can be seen.
func Draw(g *graph.Graph, faults []Fault, count int, r *rand.Rand) []Fault {
	return DrawBeside(g, nil, faults, count, r)
}

// DrawBeside adds faults to drawn, the faults of an engine, up to count in all.
func DrawBeside(g *graph.Graph, drawn, faults []Fault, count int, r *rand.Rand) []Fault {
	s := build(g)
	drawn = slices.Clone(drawn)
	used := map[string]bool{}
	for _, f := range drawn {
		used[f.ID] = true
		for _, name := range s.touches(f) {
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
		names := s.touches(f)
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return used[name] }) {
			continue
		}
		if _, err := s.fresh().inject(append(slices.Clip(drawn), f)); err != nil {
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

// Touches returns the names of a fault's nodes, none if the fault is impossible in the model.
func Touches(g *graph.Graph, f Fault) []string { return build(g).touches(f) }

func (s *site) touches(f Fault) (names []string) {
	in, err := s.fresh().inject([]Fault{f})
	if err != nil {
		return nil
	}
	for _, x := range in {
		names = append(names, x.Nodes...)
	}
	return names
}
