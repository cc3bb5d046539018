package reference

import (
	"fmt"
	"maps"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// Known is a given value of a node: n rows (positions) from first on.
type Known interface {
	Rows() (first, n int)
	Read(dst []float64, row int) // dst [width]; row is a position
}

// Edit changes how a node is computed.
type Edit func(s *Spec)

// Edits are by node.
type Edits map[*graph.Node][]Edit

// And returns both edits, o's after e's.
func (e Edits) And(o Edits) Edits {
	sum := maps.Clone(e)
	if sum == nil {
		sum = Edits{}
	}
	for n, list := range o {
		sum[n] = append(slices.Clip(sum[n]), list...)
	}
	return sum
}

// Model computes the values of a graph. A Model is not for several goroutines.
type Model struct {
	g       *graph.Graph
	stores  map[*graph.Node]*graph.Node // by attention: the last writer of its store before
	weights map[*graph.Weight]matrix    // dequantized weights in memory
	recent  []*graph.Weight             // the same, the longest kept in front
	kept    int                         // values in memory
	threads int                         // of a product; 0 is GOMAXPROCS
}

// Of returns the model of a graph.
func Of(g *graph.Graph) *Model {
	m := &Model{g: g, stores: map[*graph.Node]*graph.Node{}, weights: map[*graph.Weight]matrix{}}
	writers := map[*graph.KV]*graph.Node{}
	for _, n := range g.Nodes {
		switch a := n.Attr.(type) {
		case *graph.KV:
			writers[a] = n
		case graph.AttentionAttr:
			m.stores[n] = writers[a.KV]
		case graph.ChooseAttr:
			m.stores[n] = writers[a.Index]
		}
	}
	return m
}

// Store returns where attention or a choice n reads keys and values, unless edited; nil for other nodes.
func (m *Model) Store(n *graph.Node) *graph.Node { return m.stores[n] }

// Eval computes values for a prompt. An Eval is not for several goroutines.
type Eval struct {
	*Model
	ids      []int32
	parts    [][3]int32         // of positions; nil for text, with equal parts
	groups   []backend.Group    // of positions; nil for none
	rows     [][]float32        // in place of tokens, by position; nil for text
	later    func() [][]float32 // makes rows where a value needs them; nil if they are made
	routing  *Numerics          // rounding of Route; nil in an equation
	expert   backend.Expert     // observer of the experts' rows; nil for none
	stepwise bool               // parts are of a step's rows, not of positions
	steps    [][2]int           // first and last position of each position's step; nil if unknown
	together int                // rows before the rows decoded alone; 0 is all, as far as steps do not say it
	known    map[*graph.Node]Known
	edits    Edits
	num      *Numerics
	under    *Eval // values of nodes beyond the reach of the edits
	memo     map[*graph.Node]values
	specs    map[*graph.Node]*Spec
	stale    map[*graph.Node]bool // whether a value differs from under's
	busy     map[*graph.Node]bool // being computed: edits may make a circle
}

// values are the computed rows of a node.
type values [][]float64 // by position; nil where there is none

// Eval returns an evaluation for the token ids, with its known values.
func (m *Model) Eval(ids []int32, known map[*graph.Node]Known, num *Numerics) *Eval {
	return fresh(&Eval{Model: m, ids: ids, known: known, num: num})
}

// fresh returns e with nothing computed.
func fresh(e *Eval) *Eval {
	e.memo, e.specs, e.busy = map[*graph.Node]values{}, map[*graph.Node]*Spec{}, map[*graph.Node]bool{}
	return e
}

// At gives e the positions of three parts of all tokens, none for text, and returns e.
func (e *Eval) At(parts [][3]int32) *Eval {
	e.parts = parts
	return e
}

// See gives e the groups of all tokens and the rows in place of some, as of pictures, and returns e.
func (e *Eval) See(groups []backend.Group, rows [][]float32) *Eval {
	e.groups, e.rows = groups, rows
	return e
}

// Later gives e a function of the rows in place of tokens, called where a value needs them, and returns e.
func (e *Eval) Later(rows func() [][]float32) *Eval {
	e.later = rows
	return e
}

// Decode gives e the number of last rows decoded alone, and returns e.
func (e *Eval) Decode(rows int) *Eval {
	e.together = len(e.ids) - rows
	return e
}

// Alone reports whether a row was decoded alone.
func (e *Eval) Alone(at int) bool {
	if first, last, ok := e.Step(at); ok {
		return first > 0 && first == last
	}
	return e.together > 0 && at >= e.together
}

// Group returns the group of a position; none is zero.
func (e *Eval) Group(at int) (g backend.Group) {
	if at < len(e.groups) {
		g = e.groups[at]
	}
	return g
}

// Row returns a row in place of the token at a position; nil for a token.
func (e *Eval) Row(at int) []float32 {
	if e.later != nil {
		e.rows, e.later = e.later(), nil
	}
	if at >= len(e.rows) {
		return nil
	}
	return e.rows[at]
}

// Len returns the number of the prompt's positions.
func (e *Eval) Len() int { return len(e.ids) }

// IDs returns the prompt's tokens.
func (e *Eval) IDs() []int32 { return e.ids }

// Step returns the first and the last position of a position's step; not ok where
// nobody has said how the positions are cut into steps.
func (e *Eval) Step(at int) (first, last int, ok bool) {
	if at >= len(e.steps) {
		return 0, 0, false
	}
	return e.steps[at][0], e.steps[at][1], true
}

// With returns e with more edits. Values beyond their reach are computed once, in e.
func (e *Eval) With(edits Edits) *Eval {
	f := *e
	f.edits, f.under = e.edits.And(edits), e
	fresh(&f).stale = map[*graph.Node]bool{}
	for n := range edits {
		f.stale[n] = true
	}
	return &f
}

// Without returns e where nodes are not known, but computed.
func (e *Eval) Without(nodes ...*graph.Node) *Eval {
	f := *e
	f.known, f.under = maps.Clone(e.known), nil
	for _, n := range nodes {
		delete(f.known, n)
	}
	return fresh(&f)
}

// Spec returns how e computes n.
func (e *Eval) Spec(n *graph.Node) *Spec {
	s := e.specs[n]
	if s == nil {
		s = newSpec(n, e.stores)
		if n.State != nil && n.State.Recycles != "" {
			s.Sequence.Recycled, s.Sequence.Recycles = e.g.Node(n.State.Recycles), (*Eval).Alone
		}
		for _, edit := range e.edits[n] {
			edit(s)
		}
		e.specs[n] = s
	}
	return s
}

// deps returns the inputs of n's computation.
func (e *Eval) deps(n *graph.Node) []*graph.Node {
	s := e.Spec(n)
	if s.Attention.Store == nil {
		return s.In
	}
	return append(slices.Clip(s.In), e.Spec(s.Attention.Store).In...)
}

// differs reports whether e's value of n may be another than under's.
func differs(e *Eval, n *graph.Node) bool {
	if d, ok := e.stale[n]; ok {
		return d
	}
	e.stale[n] = false // for now, if edits make a circle
	d := slices.ContainsFunc(e.deps(n), func(x *graph.Node) bool { return !given(e, x) && differs(e, x) })
	if store := e.Spec(n).Attention.Store; store != nil {
		d = d || e.stale[store]
	}
	d = d || e.Spec(n).Sequence.Recycled != nil // whose value comes from behind n
	e.stale[n] = d
	return d
}

// given reports whether e knows all rows of n.
func given(e *Eval, n *graph.Node) bool { return e.Known(n, 0) && e.Known(n, len(e.ids)-1) }

// Known reports whether a row of n is known.
func (e *Eval) Known(n *graph.Node, row int) bool {
	k, ok := e.known[n]
	if !ok {
		return false
	}
	first, rows := k.Rows()
	return row >= first && row < first+rows
}

// Value returns rows of n, [len(rows), width]: the known rows, and else the computed rows.
func (e *Eval) Value(n *graph.Node, rows []int) ([]float64, error) {
	return e.gather(n, rows, true)
}

// Compute returns rows of n by the operation, even where the rows are known.
func (e *Eval) Compute(n *graph.Node, rows []int) ([]float64, error) {
	return e.gather(n, rows, false)
}

func (e *Eval) gather(n *graph.Node, rows []int, useKnown bool) ([]float64, error) {
	w := n.Shape.Size()
	isKnown := func(r int) bool { return useKnown && e.Known(n, r) }
	if len(rows) > 0 && e.memo[n] == nil && !slices.ContainsFunc(rows, isKnown) {
		return e.compute(n, rows)
	}
	out := make([]float64, len(rows)*w)
	var missing, at []int
	for i, r := range rows {
		dst := out[i*w : (i+1)*w]
		if isKnown(r) {
			e.known[n].Read(dst, r)
			if n.Op != graph.Choose { // positions are exact
				e.num.input(dst)
			}
		} else if m := e.memo[n]; r < len(m) && m[r] != nil {
			copy(dst, m[r])
		} else {
			missing, at = append(missing, r), append(at, i)
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	y, err := e.compute(n, missing)
	if err != nil {
		return nil, err
	}
	for i, k := range at {
		copy(out[k*w:(k+1)*w], y[i*w:])
	}
	return out, nil
}

// compute computes new rows of n, and keeps the rows.
func (e *Eval) compute(n *graph.Node, rows []int) ([]float64, error) {
	if e.under != nil && !differs(e, n) {
		return e.under.Compute(n, rows)
	}
	if e.busy[n] {
		return nil, fmt.Errorf("%v: %w", n, errCircle)
	}
	e.busy[n] = true
	y, err := e.Spec(n).eval(e, rows)
	delete(e.busy, n)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n, err)
	}
	w, m := n.Shape.Size(), e.memo[n]
	if len(m) < len(e.ids) {
		m = append(m, make(values, len(e.ids)-len(m))...)
		e.memo[n] = m
	}
	kept := slices.Clone(y) // a reader may write to y
	for i, r := range rows {
		m[r] = kept[i*w : (i+1)*w]
	}
	return y, nil
}

// Forget drops computed values of layers before a layer. Stored keys and values stay.
func (e *Eval) Forget(layer int) {
	if e.under != nil {
		e.under.Forget(layer)
	}
	stored := map[*graph.Node]bool{}
	for _, s := range e.stores {
		for _, n := range e.Spec(s).In {
			stored[n] = true
		}
	}
	maps.DeleteFunc(e.memo, func(n *graph.Node, _ values) bool { return n.Layer >= 0 && n.Layer < layer && !stored[n] })
}

// Span returns the nodes of Compute(n) at the last row, in the graph's order: n, and the unknown nodes on the way. The
// sources are the known nodes where the span begins. (Earlier rows may also need keys and values: see Behind.)
func (e *Eval) Span(n *graph.Node) (span, sources []*graph.Node) {
	seen := map[*graph.Node]bool{}
	var visit func(n *graph.Node)
	visit = func(n *graph.Node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		for _, x := range e.deps(n) {
			if x != nil && e.Known(x, len(e.ids)-1) {
				if !slices.Contains(sources, x) {
					sources = append(sources, x)
				}
			} else {
				visit(x)
			}
		}
		span = append(span, n)
	}
	visit(n)
	byID := func(a, b *graph.Node) int { return a.ID - b.ID }
	slices.SortFunc(span, byID)
	slices.SortFunc(sources, byID)
	return span, sources
}

// Behind returns the nodes outside a span to be computed at unknown rows, since attention or a scan in the span reads
// the rows.
func (e *Eval) Behind(span []*graph.Node) map[*graph.Node]bool {
	seen := map[*graph.Node]bool{}
	var visit func(n *graph.Node)
	visit = func(n *graph.Node) {
		if n == nil || seen[n] || given(e, n) {
			return
		}
		seen[n] = true
		for _, x := range e.deps(n) {
			visit(x)
		}
	}
	for _, n := range span {
		if !across(n) {
			continue
		}
		for _, x := range e.deps(n) {
			visit(x)
		}
	}
	for _, n := range span {
		delete(seen, n)
	}
	return seen
}

// Both returns rows of two nodes; nothing with an error.
func Both(e *Eval, rows []int, a, b *graph.Node) (x, y []float64, err error) {
	if x, err = e.Value(a, rows); err != nil {
		return nil, nil, err
	}
	if y, err = e.Value(b, rows); err != nil {
		return nil, nil, err
	}
	return x, y, nil
}

// Circle returns a node computed from itself under the edits, nil for none.
func (e *Eval) Circle() *graph.Node {
	state := map[*graph.Node]int{} // 1 during a visit, 2 after
	var visit func(n *graph.Node) *graph.Node
	visit = func(n *graph.Node) *graph.Node {
		switch state[n] {
		case 1:
			return n
		case 2:
			return nil
		}
		state[n] = 1
		for _, x := range e.deps(n) {
			if y := visit(x); y != nil {
				return y
			}
		}
		state[n] = 2
		return nil
	}
	for _, n := range e.g.Nodes {
		if y := visit(n); y != nil {
			return y
		}
	}
	return nil
}
