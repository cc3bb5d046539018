package diagnose

import (
	"cmp"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// scanWork is how many products of a weight and a value scan may take in all: some
// minutes. Smaller models, such as all tiny ones, are looked at row by row.
const scanWork = 2e11

// maxOff is how many rows of a prompt scan adds to an equation.
const maxOff = 16

// limitScan finds how many rows of a prompt can be scanned.
func (r *measurement) limitScan() {
	weights, prompts := 0, 0
	for _, n := range r.g.Nodes {
		if n.Op != graph.Embed && r.byNode[n] != nil {
			for _, w := range n.W {
				weights += w.Shape.Size()
			}
		}
	}
	for _, p := range r.prompts {
		if p.tapped {
			prompts++
		}
	}
	r.perScan = max(maxRows, scanWork/max(weights*prompts, 1))
}

// scan looks at the rows of eq that the sample leaves out, measured by the sample's
// floors, and makes sites of the ones that are off: a fault at a single position must not pass,
// and would else be found where later positions read it.
func (r *measurement) scan(eq *equation) error {
	eq.scanned = true
	for i, p := range r.prompts {
		if !slices.Contains(eq.prompts, p) {
			continue
		}
		seen, floors, floor := map[site]bool{}, map[site]float64{}, 0.0
		for _, x := range eq.errors {
			if seen[x.site] = true; x.prompt == i {
				floor = max(floor, x.floor)
			}
		}
		var others []site
		first, n := eq.checked(p)
		for _, row := range sample(first, n, r.perScan) {
			if s := (site{i, row}); !seen[s] {
				others, floors[s] = append(others, s), floor
			}
		}
		errors, err := r.measure(eq, nil, nil, others, floors)
		if err != nil {
			return err
		}
		errors = slices.DeleteFunc(errors, func(x rowError) bool { return x.ratio() <= excess })
		slices.SortFunc(errors, func(a, b rowError) int { return cmp.Compare(b.ratio(), a.ratio()) })
		for _, x := range errors[:min(len(errors), maxOff)] {
			eq.off = append(eq.off, x.site)
		}
	}
	if len(eq.off) == 0 {
		return nil
	}
	more, err := r.measure(eq, nil, nil, eq.off, nil)
	if err != nil {
		return err
	}
	eq.errors = append(eq.errors, more...)
	slices.SortFunc(eq.errors, func(a, b rowError) int { return cmp.Or(a.prompt-b.prompt, a.row-b.row) })
	return nil
}
