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
	behind        map[*graph.Node]bool // computed at rows that the dump lacks
	prompts       []*prompt            // whose taps make this equation
	errors        []rowError           // of all sites, under the accepted edits
	before        []rowError           // of all sites, as the measurement left them
	scanned       bool                 // off is known
	off           []site               // outside the sample, and yet wrong
}

// site is a row of a prompt.
type site struct{ prompt, row int }

// rowError is how far a row lies from what the equation gives.
type rowError struct {
	site
	residual float64 // relative to the row's norm
	floor    float64 // what rounding alone may make of it
	empty    bool    // the equation gives NaN or Inf: it tells nothing of how the engine rounds
}

func (r rowError) ratio() float64 {
	if math.IsNaN(r.residual) {
		return math.Inf(1)
	}
	return r.residual / r.floor
}

// worst is the row that lies farthest above its floor.
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

func (e *equation) flagged() bool { return worst(e.errors).ratio() > excess }

// checked are the rows of a prompt at which eq can be checked.
func (e *equation) checked(p *prompt) (first, n int) {
	first, n = p.known[e.target].Rows()
	end := first + n
	for _, x := range e.sources {
		from, _ := p.known[x].Rows()
		first = max(first, from)
	}
	return first, end - first
}

// layers is the number of layers that eq crosses. One that only makes the keys and values of another's attention does not count.
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

// fails reports whether eq does not hold in the prompt of that place.
func (e *equation) fails(prompt int) bool {
	return slices.ContainsFunc(e.errors, func(x rowError) bool { return x.prompt == prompt && x.ratio() > excess })
}

// rows are those of a prompt at which eq is measured.
func (e *equation) rows(prompt int) []int {
	var rows []int
	for _, x := range e.errors {
		if x.prompt == prompt {
			rows = append(rows, x.row)
		}
	}
	return rows
}

// narrowest is the shortest window or chunk of the attention in eq, 0 for none: no position below it is one that
// a window changes.
func narrowest(e *equation) int {
	least := 0
	for _, n := range e.span {
		if a, ok := n.Attr.(graph.AttentionAttr); ok && n.Op == graph.Attention && a.KV.Window > 0 && (least == 0 || a.KV.Window < least) {
			least = a.KV.Window
		}
	}
	return least
}

// tolerance is a relative error of single values that is no rounding.
func (e *equation) tolerance() float64 { return max(1e-5, 20*worst(e.errors).floor) }

// screen is some sites of eq: the worst ones and others.
func screen(eq *equation) []rowError { return some(worstFirst(eq.errors)) }

// beside is some sites of eq at which what may explain another equation is judged. Where eq itself is right
// they are those where the other is worst: it may be wrong only far behind, and what breaks eq breaks it there.
func beside(eq, other *equation) []rowError {
	if eq.flagged() {
		return screen(eq)
	}
	ratios := map[site]float64{}
	for _, x := range other.errors {
		ratios[x.site] = x.ratio()
	}
	return some(slices.SortedStableFunc(slices.Values(eq.errors), func(a, b rowError) int { return cmp.Compare(ratios[b.site], ratios[a.site]) }))
}

// some is the first of all rows, and others.
func some(all []rowError) []rowError {
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

// worstFirst is rows in the order of their ratios.
func worstFirst(errors []rowError) []rowError {
	return slices.SortedStableFunc(slices.Values(errors), func(a, b rowError) int { return cmp.Compare(b.ratio(), a.ratio()) })
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	y := slices.Sorted(slices.Values(x))
	return y[len(y)/2]
}

// most is the value that nine of ten lie below or at, of at least one.
func most(x []float64) float64 {
	y := slices.Sorted(slices.Values(x))
	return y[9*(len(y)-1)/10]
}
