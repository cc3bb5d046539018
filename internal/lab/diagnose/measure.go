package diagnose

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// measurement is how far the engine's values lie from what follows from its own values
// before them, and from which distance on that is no rounding.
type measurement struct {
	*subject
	eqs      []*equation
	byNode   map[*graph.Node][]*equation // the equations whose span has the node
	covered  int                         // nodes that an equation spans
	perScan  int                         // rows of a prompt that scan may look at
	declared class                       // what the dump says; "" where it does not
	class    class
	edits    reference.Edits // of the accepted hypotheses
}

// begin finds what there is to measure.
func (r *measurement) begin() {
	said := r.Dump.Declared
	r.declared = class{string(said.Activations), string(said.KV), string(said.GELU)}
	r.setCenter(class{activations: "f64"})
	r.equations()
	r.limitScan()
}

// equations lists what the taps allow to check, in the graph's order.
func (r *measurement) equations() {
	r.eqs = nil
	for _, n := range r.g.Nodes {
		if eq := r.equation(n); eq != nil {
			r.eqs = append(r.eqs, eq)
		}
	}
	r.findSpans()
	r.covered = len(r.byNode)
}

// equation is the one of n's value, nil if no tapped prompt has it. Prompts may differ in
// their taps: those count from which it follows by the fewest nodes.
func (r *measurement) equation(n *graph.Node) *equation {
	var eq *equation
	for _, p := range r.prompts {
		if _, ok := p.known[n]; !ok || !p.tapped {
			continue
		}
		span, sources := p.center.Span(n)
		switch {
		case eq == nil || len(span) < len(eq.span):
			eq = &equation{target: n, tap: r.tapName(n), span: span, sources: sources, prompts: []*prompt{p}}
		case slices.Equal(sources, eq.sources):
			eq.prompts = append(eq.prompts, p)
		}
	}
	return eq
}

// findSpans finds which nodes the equations are made of: hypotheses that are accepted
// may read other nodes than the graph says.
func (r *measurement) findSpans() {
	r.byNode = map[*graph.Node][]*equation{}
	for _, eq := range r.eqs {
		eq.span, _ = eq.prompts[0].center.Span(eq.target)
		eq.behind = eq.prompts[0].center.Behind(eq.span)
		for _, x := range eq.span {
			r.byNode[x] = append(r.byNode[x], eq)
		}
	}
}

// sites are the rows at which eq is checked.
func (r *measurement) sites(eq *equation) []site {
	var all []site
	for i, p := range r.prompts {
		if !slices.Contains(eq.prompts, p) {
			continue
		}
		first, n := eq.checked(p)
		rows := sample(first, n, maxRows)
		for _, s := range eq.off {
			if s.prompt == i {
				rows = append(rows, s.row)
			}
		}
		slices.Sort(rows)
		for _, row := range rows {
			all = append(all, site{i, row})
		}
	}
	return all
}

// maxRows is how many rows of a prompt have floors of their own, besides the ones that scan adds.
const maxRows = 48

// sample is at most limit of n rows from first on, limit being more than 5: the first
// ones, the last ones and others between.
func sample(first, n, limit int) []int {
	var rows []int
	for i := range min(n, limit) {
		at := i
		if n > limit && i >= 4 {
			at = 4 + (i-4)*(n-5)/(limit-5)
		}
		rows = append(rows, first+at)
	}
	return slices.Compact(rows)
}

// check measures all equations under the accepted edits.
func (r *measurement) check(eqs []*equation) error {
	for i, eq := range eqs {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		r.progress("checking equations", i, len(eqs))
		r.forget(eq.target.Layer - 1)
		var err error
		if eq.errors, err = r.measure(eq, nil, nil, r.sites(eq), nil); err != nil {
			return err
		}
		if !eq.scanned {
			if err := r.scan(eq); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget drops the values computed for the layers before one, so that memory does not
// grow with the model.
func (r *measurement) forget(layer int) {
	for _, p := range r.prompts {
		p.center.Forget(layer)
		for _, arm := range p.arms {
			arm.Forget(layer)
		}
	}
}

// remeasure measures equations again, under the edits accepted by now.
func (r *measurement) remeasure(eqs []*equation) error {
	for _, eq := range eqs {
		was := eq.before
		if was == nil {
			was = eq.errors
		}
		if err := r.check([]*equation{eq}); err != nil {
			return err
		}
		eq.before = was
	}
	return nil
}

// measure is how far the engine's values lie from eq at the sites, under the edits
// accepted, those of base, which may be nil, and more. Floors are those given, by site,
// or measured if there are none.
func (r *measurement) measure(eq *equation, base *attempt, more reference.Edits, sites []site, floors map[site]float64) ([]rowError, error) {
	var all []rowError
	for i, p := range r.prompts {
		var rows []int
		for _, s := range sites {
			if s.prompt == i {
				rows = append(rows, s.row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		e := base.on(p)
		if len(more) > 0 {
			e = e.With(more)
		}
		want, err := e.Compute(eq.target, rows)
		if err != nil {
			return nil, err
		}
		var noise []float64
		if floors == nil {
			if noise, err = r.floors(p, eq.target, base.with(more), rows, want, p.arms); err != nil {
				return nil, err
			}
		}
		got := p.read(eq.target, rows)
		if floors == nil {
			if err := r.raise(p, eq.target, base.with(more), rows, want, got, noise); err != nil {
				return nil, err
			}
		}
		w := eq.target.Shape.Size()
		for k, row := range rows {
			x := rowError{site: site{i, row}, residual: r.distance(eq.target, got[k*w:(k+1)*w], want[k*w:(k+1)*w]),
				empty: slices.ContainsFunc(want[k*w:(k+1)*w], infinite)}
			if floors == nil {
				x.floor = noise[k]
			} else {
				x.floor = floors[x.site]
			}
			all = append(all, x)
		}
	}
	return all, nil
}

// at measures eq again at sites, with the floors that they have.
func (r *measurement) at(eq *equation, base *attempt, more reference.Edits, sites []rowError) ([]rowError, error) {
	floors, at := map[site]float64{}, make([]site, len(sites))
	for i, s := range sites {
		at[i], floors[s.site] = s.site, s.floor
	}
	return r.measure(eq, base, more, at, floors)
}

func noFloors(sites []site) map[site]float64 {
	floors := map[site]float64{}
	for _, s := range sites {
		floors[s] = 1
	}
	return floors
}

// holds measures eq at all sites, and reports whether it holds. The errors are not of all
// sites if it does not.
func (r *measurement) holds(eq *equation, base *attempt, more reference.Edits) (errors []rowError, ok bool, err error) {
	sites := r.sites(eq)
	for i := range r.prompts { // prompt by prompt, since one may tell enough
		some := slices.DeleteFunc(slices.Clone(sites), func(s site) bool { return s.prompt != i })
		if len(some) == 0 {
			continue
		}
		if err := r.ctx.Err(); err != nil {
			return nil, false, err
		}
		x, err := r.measure(eq, base, more, some, nil)
		if errors = append(errors, x...); err != nil || worst(errors).ratio() > excess {
			return errors, false, err
		}
	}
	return errors, true, nil
}

// borderline is how many times the floor a residual may lie at most for the floor to be measured again.
const borderline = 4 * excess

// raise measures the floors of rows again, by more arms, where got lies above them, but not far: a few
// arms may all miss the rounding of a row in which large terms cancel, as they do in scans and in norms of them.
func (r *measurement) raise(p *prompt, n *graph.Node, edits reference.Edits, rows []int, want, got, noise []float64) error {
	w := n.Shape.Size()
	var places, close []int
	var values []float64
	for k, row := range rows {
		if x := (rowError{residual: r.distance(n, got[k*w:(k+1)*w], want[k*w:(k+1)*w]), floor: noise[k]}).ratio(); x > excess && x < borderline {
			places, close, values = append(places, k), append(close, row), append(values, want[k*w:(k+1)*w]...)
		}
	}
	if len(close) == 0 {
		return nil
	}
	var arms []*reference.Eval
	for _, num := range r.class.more() {
		arms = append(arms, p.eval(r.model, p.known, num).With(r.edits))
	}
	more, err := r.floors(p, n, edits, close, values, arms)
	for i, k := range places {
		if err == nil {
			noise[k] = max(noise[k], more[i])
		}
	}
	return err
}

// floors is what rounding alone may put between rows of want, n's values by its
// equation, and an engine's: the worst of the arms, and no less than what most rows
// have: a row whose rounding happens to be small in all arms may have more.
func (r *measurement) floors(p *prompt, n *graph.Node, edits reference.Edits, rows []int, want []float64, arms []*reference.Eval) ([]float64, error) {
	noise := make([]float64, len(rows))
	w := n.Shape.Size()
	for _, arm := range arms {
		if len(edits) > 0 {
			arm = arm.With(edits)
		}
		got, err := arm.Compute(n, rows)
		if err != nil {
			return nil, err
		}
		for k := range rows {
			if d := r.distance(n, got[k*w:(k+1)*w], want[k*w:(k+1)*w]); !infinite(d) { // an arm that overflows tells nothing
				noise[k] = max(noise[k], d)
			}
		}
	}
	least := max(most(noise), 0x1p-24)
	for k := range noise {
		noise[k] = max(noise[k], least)
	}
	return noise, nil
}

// distance is how far a row of n's values lies from another. Logits are the same if they
// differ by a constant, unless a cap comes between. Where neither row has a number nothing
// is compared: a NaN makes more NaNs, which is no fault of the nodes that read it.
func (r *measurement) distance(n *graph.Node, got, want []float64) float64 {
	if slices.ContainsFunc(want, infinite) {
		got, want = slices.Clone(got), slices.Clone(want)
		for i, v := range want {
			if infinite(v) && infinite(got[i]) {
				got[i], want[i] = 0, 0
			}
		}
	}
	if r.logits(n) {
		got, want = centered(got), centered(want)
	}
	return lab.RelativeL2(want, got)
}

// logits reports whether n is the logits, or them before a factor: a constant that is added
// to all of them changes no probability, but before a cap it does.
func (r *measurement) logits(n *graph.Node) bool {
	x := r.g.Result()
	for x != n && x.Op == graph.Scale {
		x = x.In[0]
	}
	return x == n && n.Op != graph.Softcap
}

// infinite reports whether x is an infinity, or no number at all.
func infinite(x float64) bool { return math.IsNaN(x - x) }

// centered is x less its mean.
func centered(x []float64) []float64 {
	var mean float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	y := slices.Clone(x)
	for i := range y {
		y[i] -= mean
	}
	return y
}

// shadowed reports whether eq rests on earlier positions that the dump lacks, and whose
// values cannot be had, since an equation on the way to them does not hold.
func (r *measurement) shadowed(eq *equation) bool {
	return slices.ContainsFunc(r.eqs, func(x *equation) bool { return x != eq && eq.behind[x.target] && x.flagged() })
}

// touched are the equations whose value the edits may change.
func (r *measurement) touched(edits reference.Edits) []*equation {
	var eqs []*equation
	for _, eq := range r.eqs {
		if slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return edits[n] != nil }) || r.reads(eq, edits) {
			eqs = append(eqs, eq)
		}
	}
	return eqs
}

// reads reports whether an equation's attention reads a store that is edited.
func (r *measurement) reads(eq *equation, edits reference.Edits) bool {
	for _, n := range eq.span {
		if n.Op == graph.Attention && edits[r.model.Store(n)] != nil {
			return true
		}
	}
	return false
}
