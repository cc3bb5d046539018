package parity

import (
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// within are random sets of faults of which two or three lie between the same taps of PyTorch's
// modules: as in a port that scales, turns and masks wrongly, of which no module shows the steps.
// Those two or three have a name; half of the sets have one or two of any kind elsewhere besides.
func (m *Model) within(wrong []mistake.Fault, o *Options) (sets [][]mistake.Fault) {
	shown := m.shown()
	ends := map[string][]mistake.Fault{} // by the tap that shows them
	at := map[mistake.Fault][]string{}
	for _, f := range wrong {
		for _, name := range mistake.Touches(m.Graph, f) {
			at[f] = append(at[f], shown[name]...)
		}
		slices.Sort(at[f])
		at[f] = slices.Compact(at[f])
		for _, end := range at[f] {
			if listed(f.ID) {
				ends[end] = append(ends[end], f)
			}
		}
	}
	var keys []string
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		for range len(ends[end]) { // where more can be wrong, more is
			keys = append(keys, end)
		}
	}
	r := random(o.Seed, m.Name+"within")
	for tries := 0; len(keys) > 0 && len(sets) < o.Sets && tries < 20*o.Sets; tries++ {
		end := keys[r.IntN(len(keys))]
		set := mistake.Draw(m.Graph, ends[end], 2+r.IntN(2), r)
		if len(set) < 2 {
			continue
		}
		elsewhere := slices.DeleteFunc(slices.Clone(wrong), func(f mistake.Fault) bool {
			return slices.Contains(at[f], end)
		})
		sets = append(sets, mistake.DrawBeside(m.Graph, set, elsewhere, len(set)+r.IntN(2)*(1+r.IntN(2)), r))
	}
	return sets
}

// shown is for each node, by name, the nodes at and behind it that are the first to have a tap of
// PyTorch's modules.
func (m *Model) shown() map[string][]string {
	tapped := func(n *graph.Node) bool {
		if n.HF != "" {
			return !strings.HasSuffix(n.HF, "_rope.out")
		}
		return slices.ContainsFunc(m.Graph.Nodes, func(x *graph.Node) bool { // the input of a module
			return (x.Op == graph.Linear || x.Op == graph.Experts) && len(x.In) > 0 && x.In[0] == n &&
				len(x.In[0].Shape) == 1
		})
	}
	readers := func(n *graph.Node) (all []*graph.Node) {
		for _, x := range m.Graph.Nodes {
			a, attends := x.Attr.(graph.AttentionAttr)
			if slices.Contains(x.In, n) || attends && n.Op == graph.StoreKV && a.KV == n.Attr.(*graph.KV) {
				all = append(all, x)
			}
		}
		return all
	}
	ends := map[string][]string{}
	for _, n := range slices.Backward(m.Graph.Nodes) {
		if tapped(n) {
			ends[n.Name] = []string{n.Name}
			continue
		}
		for _, x := range readers(n) {
			ends[n.Name] = append(ends[n.Name], ends[x.Name]...)
		}
		slices.Sort(ends[n.Name])
		ends[n.Name] = slices.Compact(ends[n.Name])
	}
	return ends
}
