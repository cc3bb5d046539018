package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat"
)

// Kind is the operation of an edit on values.
type Kind string

// The kinds. Sums and products are rounded to float32 once.
const (
	Ablate  Kind = "ablate"  // sets values to 0
	Mean    Kind = "mean"    // sets values to their mean over the prompt, of a run without edits
	Scale   Kind = "scale"   // multiplies values by By
	Replace Kind = "replace" // sets values to Rows
	Steer   Kind = "steer"   // adds By times Rows
)

// Edit is an intervention.
type Edit struct {
	Kind  Kind
	Place Place
	At    Positions
	By    float64

	// Rows are the numbers of Replace and Steer, by the name of the node: a row for all positions, or a row
	// for each. A row has the elements of Place, or all of the node's.
	Rows map[string][][]float32
}

// applied is an edit for a prompt.
type applied struct {
	site
	kind Kind
	by   float64
	rows [][]float32 // of the elements of the site
	at   map[int]int // position to the row
	more bool        // also generated positions
}

// apply finds the nodes and positions of e.
func (e *Edit) apply(m *karat.Model, p *Prompt) ([]applied, error) {
	sites, err := e.Place.find(m.Nodes())
	if err != nil {
		return nil, err
	}
	at, generated, err := e.At.Of(p)
	if err != nil {
		return nil, err
	}
	var all []applied
	for _, s := range sites {
		a := applied{site: s, kind: e.Kind, by: e.By, at: map[int]int{}, more: generated}
		rows, ok := e.Rows[s.node.Name]
		if needs := e.Kind == Replace || e.Kind == Steer || e.Kind == Mean; needs && !ok {
			return nil, fmt.Errorf("node %s: no values for it", s.node.Name)
		}
		for _, row := range rows {
			if row, err = s.part(row); err != nil {
				return nil, err
			}
			a.rows = append(a.rows, row)
		}
		if len(a.rows) > 1 && (len(a.rows) != len(at) || generated && e.At.Said != "") {
			return nil, fmt.Errorf("node %s: values of %d positions for %d: name as many, of the prompt", s.node.Name,
				len(a.rows), len(at))
		}
		for i, pos := range at {
			a.at[pos] = min(i, max(0, len(a.rows)-1))
		}
		a.more = a.more && len(a.rows) < 2
		all = append(all, a)
	}
	return all, nil
}

// part returns the elements of a row at s.
func (s *site) part(row []float32) ([]float32, error) {
	size := 1
	for _, d := range s.node.Shape {
		size *= d
	}
	switch len(row) {
	case s.size:
		return row, nil
	case size:
		var some []float32
		for _, r := range s.runs {
			some = append(some, row[r.from:r.to+1]...)
		}
		return some, nil
	}
	return nil, fmt.Errorf("node %s: %d values for %d elements (of %d)", s.node.Name, len(row), s.size, size)
}

// write changes the row of a position.
func (a *applied) write(row []float32, pos, prompt int) {
	i, ok := a.at[pos]
	if !ok && (pos < prompt || !a.more) {
		return
	}
	var with []float32
	if len(a.rows) > 0 {
		with = a.rows[i]
	}
	k := 0
	for _, r := range a.runs {
		x := row[r.from : r.to+1]
		switch a.kind {
		case Ablate:
			clear(x)
		case Scale:
			for j := range x {
				x[j] = float32(float64(x[j]) * a.by)
			}
		case Mean, Replace:
			copy(x, with[k:])
		case Steer:
			for j := range x {
				x[j] = float32(float64(x[j]) + float64(a.by*float64(with[k+j])))
			}
		}
		k += len(x)
	}
}

// hooks returns the hooks of a request with edits.
func hooks(all []applied, prompt int) *karat.Hooks {
	if len(all) == 0 {
		return nil
	}
	by := map[string][]*applied{}
	for i := range all {
		by[all[i].node.Name] = append(by[all[i].node.Name], &all[i])
	}
	return &karat.Hooks{Nodes: func(n karat.Node) bool {
		return by[n.Name] != nil
	}, See: func(n karat.Node, at []int, x []float32) {
		size := len(x) / len(at)
		for i, pos := range at {
			for _, a := range by[n.Name] {
				a.write(x[i*size:][:size], pos, prompt)
			}
		}
	}}
}

// Outcome is the result of a run.
type Outcome struct {
	Logits []float32 // after the prompt
	Text   string    // of the next tokens, the likeliest each
	IDs    []int
}

// Run computes a prompt with edits, in order, and at most most tokens behind the prompt. Without edits the
// run is an ordinary run.
func Run(ctx context.Context, m *karat.Model, p *Prompt, edits []Edit, most int) (*Outcome, error) {
	all, err := prepare(ctx, m, p, edits)
	if err != nil {
		return nil, err
	}
	return run(ctx, m, p, hooks(all, len(p.IDs)), most)
}

// prepare finds the nodes and positions of edits, and their means.
func prepare(ctx context.Context, m *karat.Model, p *Prompt, edits []Edit) (all []applied, err error) {
	for _, e := range edits {
		if e.Kind == Mean {
			if e.Rows, err = Means(ctx, m, p, e.Place); err != nil {
				return nil, err
			}
		}
		some, err := e.apply(m, p)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func run(ctx context.Context, m *karat.Model, p *Prompt, h *karat.Hooks, most int) (*Outcome, error) {
	o := &Outcome{}
	greedy := karat.GenerateOptions{MaxTokens: max(1, most), Sampling: &karat.Sampling{}, Logits: true, Hooks: h}
	for t, err := range m.GenerateIDs(ctx, p.IDs, greedy) {
		if err != nil {
			if errors.Is(err, karat.ErrFull) && o.Logits != nil {
				break
			}
			return nil, err
		}
		if o.Logits == nil {
			o.Logits = slices.Clone(t.Logits)
		}
		o.Text += t.Text
		o.IDs = append(o.IDs, t.ID)
	}
	if o.Logits == nil {
		return nil, errors.New("no token follows: the context is full")
	}
	if most == 0 {
		o.Text, o.IDs = "", nil
	}
	return o, nil
}

// rowsAt are rows by node and position.
type rowsAt map[string]map[int][]float32

// takeRows computes a prompt, and keeps the rows of the wanted nodes.
func takeRows(ctx context.Context, m *karat.Model, p *Prompt, wanted func(karat.Node) bool) (rowsAt, error) {
	r := rowsAt{}
	_, err := run(ctx, m, p, &karat.Hooks{Nodes: wanted, See: r.keep}, 0)
	return r, err
}

// keep clones the rows seen by a hook.
func (r rowsAt) keep(n karat.Node, at []int, x []float32) {
	size := len(x) / len(at)
	for i, pos := range at {
		if r[n.Name] == nil {
			r[n.Name] = map[int][]float32{}
		}
		r[n.Name][pos] = slices.Clone(x[i*size:][:size])
	}
}

// write sets the rows of a hook to the ones kept.
func (r rowsAt) write(n karat.Node, at []int, x []float32) {
	size := len(x) / len(at)
	for i, pos := range at {
		copy(x[i*size:][:size], r[n.Name][pos])
	}
}

// pick returns the rows of a node at positions.
func (r rowsAt) pick(node string, positions []int) (rows [][]float32, err error) {
	for _, pos := range positions {
		row := r[node][pos]
		if row == nil {
			return nil, fmt.Errorf("node %s has no value at position %d: behind the choice of outputs only the "+
				"last has one", node, pos)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Capture returns the values of the nodes of a place at the positions of a prompt, by node, a row of each position.
func Capture(ctx context.Context, m *karat.Model, p *Prompt, place Place, at Positions) (map[string][][]float32,
	error) {
	sites, err := place.find(m.Nodes())
	if err != nil {
		return nil, err
	}
	positions, _, err := at.Of(p)
	if err != nil {
		return nil, err
	}
	if len(positions) == 0 {
		return nil, fmt.Errorf("positions %q: none is of the prompt whose values are taken: name one, as last", at.Said)
	}
	wanted := map[string]bool{}
	for _, s := range sites {
		wanted[s.node.Name] = true
	}
	all, err := takeRows(ctx, m, p, func(n karat.Node) bool { return wanted[n.Name] })
	if err != nil {
		return nil, err
	}
	rows := map[string][][]float32{}
	for name := range wanted {
		if rows[name], err = all.pick(name, positions); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Means returns the means over a prompt's positions of the values of a place's nodes, a row of each node. Sums are in
// float64.
func Means(ctx context.Context, m *karat.Model, p *Prompt, place Place) (map[string][][]float32, error) {
	all, err := Capture(ctx, m, p, place, Positions{})
	if err != nil {
		return nil, err
	}
	for name, rows := range all {
		all[name] = [][]float32{meanOf(rows)}
	}
	return all, nil
}

// meanOf returns the mean of rows of equal length, in order.
func meanOf(rows [][]float32) []float32 {
	mean := make([]float32, len(rows[0]))
	for i := range mean {
		sum := 0.0
		for _, r := range rows {
			sum += float64(r[i])
		}
		mean[i] = float32(sum / float64(len(rows)))
	}
	return mean
}

// RowsOf returns the same rows for every node of a place.
func RowsOf(m *karat.Model, place Place, rows [][]float32) (map[string][][]float32, error) {
	sites, err := place.find(m.Nodes())
	if err != nil {
		return nil, err
	}
	all := map[string][][]float32{}
	for _, s := range sites {
		all[s.node.Name] = rows
	}
	return all, nil
}

// Direction returns a row for each node of a place: the mean of its values at positions of a prompt, less the
// mean for another prompt where minus is not nil.
func Direction(ctx context.Context, m *karat.Model, place Place, at Positions, of,
	minus *Prompt) (map[string][][]float32, error) {
	plus, err := Capture(ctx, m, of, place, at)
	if err != nil {
		return nil, err
	}
	var less map[string][][]float32
	if minus != nil {
		if less, err = Capture(ctx, m, minus, place, at); err != nil {
			return nil, err
		}
	}
	for name, rows := range plus {
		row := meanOf(rows)
		if less != nil {
			for i, v := range meanOf(less[name]) {
				row[i] -= v
			}
		}
		plus[name] = [][]float32{row}
	}
	return plus, nil
}
