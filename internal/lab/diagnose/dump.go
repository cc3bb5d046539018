package diagnose

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// dump is an engine's dump and its model: the known values by the nodes of the graph that they belong to. A stage that
// leaves out values makes another dump.
type dump struct {
	options Options
	ctx     context.Context
	graph   *graph.Graph
	wiring  *mistake.Wiring
	model   *reference.Model
	names   lab.Names // PyTorch's and llama.cpp's names of all values

	prompts  []*prompt
	taps     map[*graph.Node]string // PyTorch's names of the values any prompt has
	blackBox bool                   // there are only logits
	misfit   []lab.Unplaced         // taps with a place of another width
	unplaced []string               // taps without a place, and why
	strange  int                    // how many of them have names that are no value's
	foreign  map[string]bool        // of such taps, names of no such model that are near no other name
	amiss    int                    // taps without a place that nobody writes beside
	misspelt map[string]string      // of such taps, the names that they may be meant to have
	findings []Finding              // faults of the dump itself, not of the engine
	inferred notes
}

// notes are sentences on facts a dump does not say, each once.
type notes []string

func (n *notes) add(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(*n, s) {
		*n = append(*n, s)
	}
}

// clone returns a copy of d whose prompts may be changed.
func (d *dump) clone() *dump {
	c := *d
	c.prompts = nil
	for _, p := range d.prompts {
		x := *p
		x.known = maps.Clone(p.known)
		c.prompts = append(c.prompts, &x)
	}
	c.findings, c.inferred = slices.Clone(d.findings), slices.Clone(d.inferred)
	return &c
}

func (d *dump) progress(stage string, done, total int) {
	if d.options.Progress != nil {
		d.options.Progress(stage, done, total)
	}
}

func (d *dump) tapName(n *graph.Node) string {
	if name, ok := d.taps[n]; ok {
		return name
	}
	if n.HF != "" {
		return n.HF
	}
	return n.Name
}

func (d *dump) tapNames(nodes []*graph.Node) []string {
	names := []string{}
	for _, n := range nodes {
		names = append(names, d.tapName(n))
	}
	return names
}

func (d *dump) hasGELU() bool {
	return slices.ContainsFunc(d.graph.Nodes, func(n *graph.Node) bool {
		a, ok := n.Activates()
		return ok && a.Act == graph.GELUTanh
	})
}

// untold returns the values before target no tap shows and that have a module in PyTorch. Their taps would
// separate the nodes among which a fault lies.
func (d *dump) untold(among []*graph.Node, target *graph.Node) (values []*graph.Node) {
	for _, n := range among {
		if n != target && d.taps[n] == "" && d.names.Torch[n] != "" {
			values = append(values, n)
		}
	}
	return values
}

func layers(g *graph.Graph) int {
	n := 0
	for _, x := range g.Nodes {
		n = max(n, x.Layer+1)
	}
	return n
}

func opName(n *graph.Node) string { return mistake.OpName(n.Op) }

// hypothesis is something that an engine may do instead of what the graph says.
type hypothesis = mistake.Hypothesis

// detail is the facts of a finding; numbers are float64.
type detail = map[string]any

// Names of the table the stages use.
var (
	role      = mistake.Role
	behind    = mistake.Behind
	turned    = mistake.Turned
	union     = mistake.Union
	layersOf  = mistake.LayersOf
	sectioned = mistake.Sectioned
	theta     = mistake.Theta
	speeds    = mistake.Speeds
	list      = mistake.List
	times     = mistake.Times
	same      = mistake.Same
)

// prompt is a prompt of the dump, with its known values.
type prompt struct {
	*lab.Prompt
	tapped  bool    // there are more values than logits, and these are used
	given   bool    // by another source of ids than the dump
	outline bool    // there are the hidden states of the last positions
	step    float64 // largest relative error of the form that values are stored in
	sight   sight   // nil where no rounding changes the rows of pictures
	known   map[*graph.Node]reference.Known
	placed  map[*graph.Node]lab.Placed
	twice   [][2]lab.Placed // taps of the same value
}

// eval returns an evaluation of m for the prompt.
func (p *prompt) eval(m *reference.Model, known map[*graph.Node]reference.Known,
	num *reference.Numerics) *reference.Eval {
	mixed := p.Mixed()
	groups := make([]backend.Group, 0, len(p.IDs))
	for _, g := range mixed.Groups {
		groups = append(groups, make([]backend.Group, int(g.First)-len(groups))...)
		for range g.End - g.First {
			groups = append(groups, g)
		}
	}
	e := m.Eval(p.IDs, known, num).At(p.Parts).See(groups, mixed.Embeddings).Decode(p.Decode)
	if p.sight != nil && num != nil {
		e.Later(p.sight(num))
	}
	return e
}

// Names of values that are no taps: hidden begins the names of hidden states.
const (
	hidden     = "hidden."
	logitsName = "logits"
)

// read returns the engine's rows of n.
func (p *prompt) read(n *graph.Node, rows []int) []float64 {
	w := n.Shape.Size()
	x := make([]float64, len(rows)*w)
	for i, row := range rows {
		p.known[n].Read(x[i*w:(i+1)*w], row)
	}
	return x
}

// rows returns the positions of n's known rows.
func (p *prompt) rows(n *graph.Node) []int { return upTo(p.known[n].Rows()) }

func upTo(first, n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = first + i
	}
	return rows
}

// isWritten reports whether any value differs from 0, of a tower's also the patches, which are the engine's own.
func (p *prompt) isWritten() bool {
	patches := p.Mixed().Embeddings
	if !slices.ContainsFunc(patches, func(row []float32) bool { return row == nil }) &&
		slices.ContainsFunc(slices.Concat(patches...), func(v float32) bool { return v != 0 }) {
		return true
	}
	for n := range p.known {
		for _, row := range p.rows(n) {
			if slices.ContainsFunc(p.read(n, []int{row}), func(v float64) bool { return v != 0 }) {
				return true
			}
		}
	}
	return false
}

// stored returns the largest relative error of the form that values are stored in. Products show the form. Where no
// product is tapped, all sums and norms have to agree, since a wrong sum may hold a copy of a weight.
func (p *prompt) stored() float64 {
	step, least, products := float32Step, 1.0, false
	for n, t := range p.placed {
		step, products = max(step, t.Step()), products || n.Op == graph.Linear
		switch n.Op {
		case graph.Add, graph.Mul, graph.RMSNorm, graph.LayerNorm, graph.Softcap:
			least = min(least, t.Held())
		}
	}
	if !products && least < 1 {
		step = max(step, least)
	}
	return step
}

// decoded returns the number of the prompt's last tokens that were decoded singly.
func (p *prompt) decoded() int { return p.Decode }

// rowsOf makes computed rows a known value.
type rowsOf struct {
	width, first int
	data         []float64 // [n, width]
}

func (v rowsOf) Rows() (first, n int)        { return v.first, len(v.data) / v.width }
func (v rowsOf) Read(dst []float64, row int) { copy(dst, v.data[(row-v.first)*v.width:]) }
