package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// equation says that a tapped value follows from the taps before it.
type equation struct {
	target        *graph.Node
	tap           string // the target's name as PyTorch has it
	span, sources []*graph.Node
	behind        map[*graph.Node]bool // computed at rows the dump lacks
	prompts       []*prompt            // whose taps make this equation
	errors        []rowError           // of all sites, under the accepted edits
	before        []rowError           // of all sites, as the measurement left them
	scanned       bool                 // off is known
	off           []site               // outside the sample, and yet wrong
}

// site is a row of a prompt.
type site struct{ prompt, row int }

// rowError holds the distance of a row from the equation's result.
type rowError struct {
	site
	residual float64 // relative to the row's norm
	floor    float64 // the residual of rounding alone
	empty    bool    // the equation gives NaN or Inf, which say nothing of the class
}

func (r rowError) ratio() float64 {
	if math.IsNaN(r.residual) {
		return math.Inf(1)
	}
	return r.residual / r.floor
}

// worst returns the row farthest above its floor.
func worst(errors []rowError) rowError {
	if len(errors) == 0 {
		return rowError{floor: 1}
	}
	return slices.MaxFunc(errors, func(a, b rowError) int {
		if a.ratio() < b.ratio() {
			return -1
		}
		return 1
	})
}

func (e *equation) isFlagged() bool { return worst(e.errors).ratio() > excess }

// checked returns the rows of a prompt at which eq can be checked.
func (e *equation) checked(p *prompt) (first, n int) {
	first, n = p.known[e.target].Rows()
	end := first + n
	for _, x := range e.sources {
		from, _ := p.known[x].Rows()
		first = max(first, from)
	}
	return first, end - first
}

// layers returns the number of layers eq crosses. A layer that only makes the keys and values of another
// layer's attention does not count.
func (e *equation) layers() int {
	var layers []int
	var visit func(n *graph.Node)
	seen := map[*graph.Node]bool{}
	visit = func(n *graph.Node) {
		if seen[n] || !slices.Contains(e.span, n) {
			return
		}
		seen[n] = true
		layers = union(layers, layersOf(n))
		for _, in := range n.In {
			visit(in)
		}
	}
	visit(e.target)
	return len(layers)
}

// fails reports whether eq does not hold in a prompt, by the prompt's place.
func (e *equation) fails(prompt int) bool {
	return slices.ContainsFunc(e.errors, func(x rowError) bool { return x.prompt == prompt && x.ratio() > excess })
}

// errorsOf returns the rows of a prompt among errors, and their floors.
func errorsOf(errors []rowError, prompt int) (rows []int, floors []float64) {
	for _, x := range errors {
		if x.prompt == prompt {
			rows, floors = append(rows, x.row), append(floors, x.floor)
		}
	}
	return rows, floors
}

// narrowest returns the shortest window or chunk of the attention in eq, 0 if there is none. A window changes no
// position below.
func narrowest(e *equation) int {
	least := 0
	for _, n := range e.span {
		if a, ok := n.Attr.(graph.AttentionAttr); ok && n.Op == graph.Attention && a.KV.Window > 0 &&
			(least == 0 || a.KV.Window < least) {
			least = a.KV.Window
		}
	}
	return least
}

// tolerance returns a relative error of single values no rounding makes.
func (e *equation) tolerance() float64 { return max(1e-5, 20*worst(e.errors).floor) }

// isVast reports whether a value has no square in float32 from which a row of eq follows. Engines in float32 norm such
// rows to zeros.
func isVast(eq *equation, p *prompt, row int) bool {
	return slices.ContainsFunc(eq.sources, func(n *graph.Node) bool {
		first, count := p.known[n].Rows()
		return row >= first && row < first+count && slices.ContainsFunc(p.read(n, []int{row}),
			func(v float64) bool { return infinite(v * v) })
	})
}

// isTold reports whether a row at which eq does not hold has a number. Of rows without any, each cause that overflows
// would make the values.
func isTold(eq *equation, prompts []*prompt) bool {
	return slices.ContainsFunc(eq.errors, func(x rowError) bool {
		return x.ratio() > excess && slices.ContainsFunc(prompts[x.prompt].read(eq.target, []int{x.row}),
			func(v float64) bool { return !infinite(v) })
	})
}

// screen returns some sites of eq: the worst sites and a spread of the rest.
func screen(eq *equation) []rowError { return pickSites(worstFirst(eq.errors)) }

// sitesBeside returns some sites of eq at which an explanation of another equation is judged. Where eq itself is
// right, the sites are the worst sites of the other equation: eq may be wrong only at late positions, and a cause
// that breaks eq breaks eq there.
func sitesBeside(eq, other *equation) []rowError {
	if eq.isFlagged() {
		return screen(eq)
	}
	ratios := map[site]float64{}
	for _, x := range other.errors {
		ratios[x.site] = x.ratio()
	}
	return pickSites(slices.SortedStableFunc(slices.Values(eq.errors),
		func(a, b rowError) int { return cmp.Compare(ratios[b.site], ratios[a.site]) }))
}

// pickSites returns the first half of its sites from the front, and spreads the second half over the rest.
func pickSites(all []rowError) []rowError {
	const most = 14
	if len(all) <= most {
		return all
	}
	out := slices.Clone(all[:most/2])
	for i := range most / 2 {
		out = append(out, all[most/2+i*(len(all)-most/2)/(most/2)])
	}
	return out
}

// worstFirst returns rows in the order of their ratios, the largest first.
func worstFirst(errors []rowError) []rowError {
	return slices.SortedStableFunc(slices.Values(errors), func(a, b rowError) int {
		return cmp.Compare(b.ratio(), a.ratio())
	})
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	y := slices.Sorted(slices.Values(x))
	return y[len(y)/2]
}

// ninthDecile returns the value that nine of ten values do not exceed.
func ninthDecile(x []float64) float64 {
	y := slices.Sorted(slices.Values(x))
	return y[9*(len(y)-1)/10]
}
