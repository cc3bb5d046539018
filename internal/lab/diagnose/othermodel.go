package diagnose

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// misfits keeps the taps of found that have a place, but not its width.
func (r *run) misfits(found *lab.Placement) {
	for _, u := range found.Unplaced {
		if u.Node != nil && u.Width != u.Node.Shape.Size() && !slices.ContainsFunc(r.misfit, func(x lab.Unplaced) bool { return x.Node == u.Node }) {
			r.misfit = append(r.misfit, u)
		}
	}
}

// fewMisfits is how many kinds of values have another width where a probe is broken or
// values are joined (queries with keys and values, gate with up), rather than all of another model.
const fewMisfits = 3

// judgeModel refuses the dump of another model: several kinds of values have another
// width, not one or a share that a probe which stops early would give to all, and no
// product of a weight holds.
func (r *run) judgeModel() error {
	kinds, widths, shares := map[string]bool{}, map[int]bool{}, map[float64]bool{}
	var of lab.Unplaced
	for _, u := range r.misfit {
		if of.Node == nil || u.Node.ID < of.Node.ID {
			of = u
		}
		kinds[role(u.Node)], widths[u.Width], shares[float64(u.Width)/float64(u.Node.Shape.Size())] = true, true, true
	}
	if len(kinds) < fewMisfits || len(widths) < 2 || len(shares) < 2 || slices.ContainsFunc(r.eqs, productHolds) {
		return nil
	}
	return fmt.Errorf("%w: %s: MODEL is not what the engine ran: %d kinds of taps have another width (%s has %d values, not %d), and no product of a weight holds",
		ErrUnusable, r.Dump.Path, len(kinds), of.Name, of.Width, of.Node.Shape.Size())
}

// productHolds reports whether eq has a product of a weight in it, and holds.
func productHolds(eq *equation) bool {
	return !eq.flagged() && slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return n.Op == graph.Linear })
}

// products are the equations of a single product of a weight or an embedding.
func (r *run) products() []*equation {
	var all []*equation
	for _, eq := range r.eqs {
		n := 0
		for _, x := range eq.span {
			switch x.Op {
			case graph.Linear, graph.Embed:
				n++
			case graph.View, graph.Rows, graph.Scale, graph.Add:
			default:
				n += 2
			}
		}
		if n == 1 {
			all = append(all, eq)
		}
	}
	return all
}

// manyProducts is how many products of weights tell that all weights are others.
const manyProducts = 8

// notTheFile says where no product of a weight holds, and nothing explains any, that
// MODEL may be another quantization of what the engine ran, or another checkpoint.
func (r *run) notTheFile() {
	products := r.products()
	if len(products) < manyProducts || slices.ContainsFunc(products, func(eq *equation) bool { return !eq.given }) {
		return
	}
	r.infers("none of the %d products of a weight holds and nothing explains them: either all weights are read wrongly, or MODEL is not the file that the engine ran, but another quantization of it or another checkpoint", len(products))
	for i := range r.out.Findings {
		if f := &r.out.Findings[i]; f.Cause == "unknown" && (f.Op == "Linear" || f.Op == "Embed") {
			f.Fix = "Make sure that MODEL is the very file that the engine ran, not another quantization or checkpoint: no product of a weight holds."
		}
	}
}
