package diagnose

import (
	"context"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/mmap"
)

// Expectation holds the values that a tap should have by the engine's own values before it, beside the tap's.
type Expectation struct {
	Tap    string   `json:"tap"`    // PyTorch's name, the graph's where PyTorch has none
	Node   string   `json:"node"`   // of the graph
	Op     string   `json:"op"`     // the node's operation
	Layer  int      `json:"layer"`  // -1 outside the layers
	Tapped bool     `json:"tapped"` // the dump has values of the tap
	From   []string `json:"from"`   // taps of the dump from which the values follow; empty: token ids
	Span   []string `json:"span"`   // operations between these and the tap
	Shape  []int    `json:"shape"`  // of a row
	Class  string   `json:"class"`  // of the engine's rounding
	// How the engine's values come of the expected ones; "" if no plain way is found.
	Relation string        `json:"relation"`
	Rows     []ExpectedRow `json:"rows"`
	Sight    bool          `json:"sight,omitempty"` // before the text: prompts are tiles, and positions rows
}

// ExpectedRow is a row of an expectation.
type ExpectedRow struct {
	Prompt   int          `json:"prompt"`
	Position int          `json:"position"`
	Residual lab.Number   `json:"residual"` // relative error of the engine's row; 0 without a tap
	Floor    lab.Number   `json:"floor"`    // the error of rounding alone
	Expected []lab.Number `json:"expected"`
	Engine   []lab.Number `json:"engine,omitempty"` // the tap's row
}

// IsOff reports whether a row is farther off than rounding takes it.
func (r *ExpectedRow) IsOff() bool { return r.ratio() > excess }

func (r *ExpectedRow) ratio() float64 {
	return rowError{residual: float64(r.Residual), floor: float64(r.Floor)}.ratio()
}

// Worst returns the place of the row farthest above its floor, -1 if there is no row.
func (e *Expectation) Worst() int {
	worst, most := -1, -1.0
	for i := range e.Rows {
		if ratio := e.Rows[i].ratio(); ratio > most {
			worst, most = i, ratio
		}
	}
	return worst
}

// Expect computes a value of the graph from the engine's own values at the taps before it, at all rows. The dump
// need not have the value.
func Expect(ctx context.Context, o Options, tap string) (e *Expectation, err error) {
	err = mmap.Guard(func() (err error) {
		e, err = expect(ctx, o, tap)
		return err
	})
	return e, err
}

func expect(ctx context.Context, o Options, tap string) (*Expectation, error) {
	var n *graph.Node // before the text
	if o.hasPictures() {
		text, tower, _, _, err := o.parts()
		if err != nil {
			return nil, err
		}
		if n = o.Eye.Find(tap); n != nil {
			o = tower
		} else {
			o = text
		}
	}
	d, err := place(ctx, o)
	if err != nil {
		return nil, err
	}
	sight := n != nil
	if !sight {
		if n, err = lab.Find(d.graph, tap); err != nil {
			return nil, fmt.Errorf("--tap %s: %w", tap, err)
		}
	}
	said := o.Dump.Declared
	m := &measurement{dump: d, declared: class{string(said.Activations), string(said.KV), string(said.GELU)},
		engine: simulate(d, class{}, nil, class{activations: "f64"}.center(), nil)}
	m.findEquations()
	m.limitScan()
	d.progress("finding the class of rounding", 0, 0)
	c, err := classifier{m}.infer()
	if err != nil {
		return nil, err
	}
	m.engine = newEngine(d, c, nil)
	e := &Expectation{Tap: d.tapName(n), Node: n.Name, Op: opName(n), Layer: n.Layer, Shape: n.Shape, Class: c.name(),
		From: []string{}, Span: []string{}, Rows: []ExpectedRow{}, Sight: sight}
	if heads := headsOf(n); heads > 1 {
		e.Shape = []int{heads, n.Shape.Size() / heads}
	}
	if e.Tap == n.Name && d.names.Torch[n] != "" {
		e.Tap = d.names.Torch[n]
	}
	d.progress("computing "+e.Tap, 0, 0)
	for _, p := range d.prompts {
		if err := m.expectIn(p, n, e); err != nil {
			return nil, err
		}
	}
	e.relate(n)
	return e, nil
}

// relate says how the rows that are off come of the expected ones. At position 0 attention passes the first value on,
// so that a relation between values shows there.
func (e *Expectation) relate(n *graph.Node) {
	e.Relation = e.relationIn(n, func(*ExpectedRow) bool { return true })
	if e.Relation == "" && n.Op == graph.Attention {
		if words := e.relationIn(n, func(r *ExpectedRow) bool { return r.Position == 0 }); words != "" {
			e.Relation = "at position 0, where attention passes on the value: " + words
		}
	}
}

// relationIn returns the relation of some of the rows that are off.
func (e *Expectation) relationIn(n *graph.Node, has func(*ExpectedRow) bool) string {
	r := &wrongRows{node: n}
	var places []int
	for i, x := range e.Rows {
		if x.IsOff() && x.Engine != nil && has(&x) {
			r.got, r.want = append(r.got, floatsOf(x.Engine)), append(r.want, floatsOf(x.Expected))
			r.floors, places = append(r.floors, float64(x.Floor)), append(places, i)
		}
	}
	r.neighbor = func(i, shift int) []float64 {
		at := places[i] + shift
		if at < 0 || at >= len(e.Rows) || e.Rows[at].Prompt != e.Rows[places[i]].Prompt {
			return nil
		}
		return floatsOf(e.Rows[at].Expected)
	}
	return r.relation()
}

// expectIn adds the rows of a prompt to an expectation.
func (m *measurement) expectIn(p *prompt, n *graph.Node, e *Expectation) error {
	center := m.engine.center[p]
	span, sources := center.Span(n)
	eq := &equation{target: n, span: span, sources: sources, prompts: []*prompt{p}}
	known, tapped := p.known[n]
	rows := upTo(0, len(p.IDs))
	if tapped {
		rows = upTo(known.Rows())
	}
	for _, x := range sources { // rows before those of the taps would follow from nothing that the engine computed
		first, _ := p.known[x].Rows()
		rows = slices.DeleteFunc(rows, func(row int) bool { return row < first })
	}
	if len(rows) == 0 {
		return nil
	}
	e.From, e.Span = m.dump.tapNames(sources), spanned(eq)
	want, err := center.Compute(n, rows)
	if err != nil {
		return err
	}
	var got []float64
	if tapped {
		e.Tapped, got = true, p.read(n, rows)
	}
	floors, err := m.noise(p, n, nil, rows, want, got)
	if err != nil {
		return err
	}
	w := n.Shape.Size()
	for k, row := range rows {
		x := ExpectedRow{Prompt: p.Index, Position: row, Floor: lab.Number(floors[k]),
			Expected: numbersOf(want[k*w : (k+1)*w])}
		if tapped {
			y := got[k*w : (k+1)*w]
			x.Engine, x.Residual = numbersOf(y), lab.Number(m.distance(n, y, want[k*w:(k+1)*w]))
		}
		e.Rows = append(e.Rows, x)
	}
	return nil
}

func floatsOf(x []lab.Number) []float64 {
	all := make([]float64, len(x))
	for i, v := range x {
		all[i] = float64(v)
	}
	return all
}

func numbersOf(x []float64) []lab.Number {
	all := make([]lab.Number, len(x))
	for i, v := range x {
		all[i] = lab.Number(v)
	}
	return all
}
