package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/lab"
)

// Cell is an intervention, and its results.
type Cell struct {
	Pair   int    `json:"pair"` // of Manifest.Pairs
	Node   string `json:"node"`
	Layer  int    `json:"layer"`
	Head   string `json:"head,omitempty"`
	At     string `json:"at"`               // position, or the spec's name for several
	Token  string `json:"token,omitempty"`  // at a single position
	Column int    `json:"column,omitempty"` // of the heat map
	Values
}

// Values are the metrics and the logits of a run.
type Values struct {
	Difference  *lab.Number `json:"logit_difference,omitempty"` // of the target's logit, and less the foil's
	Probability *lab.Number `json:"probability,omitempty"`      // of the target
	KL          *lab.Number `json:"kl,omitempty"`               // of the distribution from the clean run's, in nats
	Logits      string      `json:"logits_sha256"`
}

// metric is a number for comparing runs.
type metric struct {
	name, title string // in files; for people
	of          func(v *Values) **lab.Number
	compute     func(p *Pair, logits, clean []float32) float64
}

// metrics lists all metrics, in the order of pages. A pair's strongest cells are the strongest by its first metric.
var metrics = []metric{
	{"logit_difference", "logit difference", func(v *Values) **lab.Number { return &v.Difference },
		func(p *Pair, logits, _ []float32) float64 {
			d := float64(logits[p.Target])
			if p.Foil != nil {
				d -= float64(logits[*p.Foil])
			}
			return d
		}},
	{"probability", "probability", func(v *Values) **lab.Number { return &v.Probability },
		func(p *Pair, logits, _ []float32) float64 {
			return math.Exp(float64(logits[p.Target]) - lab.LogSumExp(logits))
		}},
	{"kl", "KL divergence", func(v *Values) **lab.Number { return &v.KL },
		func(_ *Pair, logits, clean []float32) float64 { return lab.KL(clean, logits) }},
}

// key returns the identity of a cell.
func (c *Cell) key() string { return fmt.Sprintf("%d %s %s %s", c.Pair, c.Node, c.Head, c.At) }

// Pair is a stimulus in a template.
type Pair struct {
	Template  string  `json:"template"`
	Clean     *Prompt `json:"clean"`
	Corrupted *Prompt `json:"corrupted,omitempty"`
	Target    int     `json:"target"`
	Foil      *int    `json:"foil,omitempty"`
	Base      Values  `json:"clean_run"`
	Start     *Values `json:"corrupted_run,omitempty"` // at the start of a trace
}

// Runner computes the cells of a spec.
type Runner struct {
	Spec  *Spec
	Model *karat.Model
	Token func(ctx context.Context, s string) (int, error) // an id or a text as a token

	Pairs  []Pair
	grid   []gridCell
	clean  [][]float32 // logits, by pair
	rows   rowsAt      // values of the clean run of rowsOf at all nodes of the grid
	rowsOf *Prompt
	paths  *paths // of the last pair computed
}

// gridCell is a cell to compute.
type gridCell struct {
	Cell
	place Place
	at    Positions // all for "mean"
}

// prepare counts the cells, computes the runs without interventions, and lists the cells.
func (r *Runner) prepare(ctx context.Context) error {
	columns, err := r.columns()
	if err != nil {
		return err
	}
	var all []Pair
	cells := 0
	for _, t := range r.Spec.Templates {
		for i, s := range r.Spec.Stimuli {
			p, err := r.prompts(ctx, t, &s)
			if err == nil {
				cells, err = r.count(cells, len(columns), &p)
			}
			if err != nil {
				return fmt.Errorf("stimuli %d: %w", i, err)
			}
			all = append(all, p)
		}
	}
	for i := range all {
		if err := r.run(ctx, &all[i]); err != nil {
			return fmt.Errorf("stimuli %d: %w", i%len(r.Spec.Stimuli), err)
		}
		for _, c := range columns {
			if err := r.list(i, c); err != nil {
				return fmt.Errorf("stimuli %d: %w", i%len(r.Spec.Stimuli), err)
			}
		}
	}
	return nil
}

// count adds the cells of a pair in so many columns.
func (r *Runner) count(cells, columns int, p *Pair) (int, error) {
	for _, at := range r.Spec.Positions {
		n := 1
		if at == "each" {
			n = len(p.Clean.IDs)
		}
		if cells += columns * n; cells > maxCells {
			return 0, fmt.Errorf("more than %d cells", maxCells)
		}
	}
	return cells, nil
}

func (r *Runner) prompt(ctx context.Context, template, words string) (*Prompt, error) {
	text := strings.Replace(template, "{}", words, 1)
	ids, err := r.Model.Tokenize(ctx, text, karat.TokenizeOptions{})
	if err != nil {
		return nil, err
	}
	return NewPrompt(r.Model, text, ids), nil
}

// prompts reads a stimulus in a template.
func (r *Runner) prompts(ctx context.Context, template string, s *Stimulus) (p Pair, err error) {
	p.Template = template
	if p.Clean, err = r.prompt(ctx, template, s.Clean); err != nil {
		return p, err
	}
	if p.Target, err = r.Token(ctx, s.Target); err != nil {
		return p, fmt.Errorf("target: %w", err)
	}
	if s.Foil != "" {
		foil, err := r.Token(ctx, s.Foil)
		if err != nil {
			return p, fmt.Errorf("foil: %w", err)
		}
		p.Foil = &foil
	}
	if s.Corrupted != "" {
		p.Corrupted, err = r.prompt(ctx, template, s.Corrupted)
	}
	return p, err
}

// run computes a pair's prompts without interventions.
func (r *Runner) run(ctx context.Context, p *Pair) error {
	clean, err := run(ctx, r.Model, p.Clean, nil, 0)
	if err != nil {
		return err
	}
	p.Base = r.values(p, clean.Logits, clean.Logits)
	if p.Corrupted != nil {
		start, err := run(ctx, r.Model, p.Corrupted, nil, 0)
		if err != nil {
			return err
		}
		v := r.values(p, start.Logits, clean.Logits)
		p.Start = &v
	}
	r.Pairs, r.clean = append(r.Pairs, *p), append(r.clean, clean.Logits)
	return nil
}

// column is a node, or a head of a node, with the cells of all positions.
type column struct {
	node  karat.Node
	place Place
	head  string
	index int // of the head
}

// columns lists the columns of all pairs.
func (r *Runner) columns() (all []column, err error) {
	layers, err := ParseSet(r.Spec.Layers)
	if err != nil {
		return nil, err
	}
	receivers, err := r.receivers()
	if err != nil {
		return nil, err
	}
	nodes := r.Model.Nodes()
	var residual *stream // of paths alone
	if r.Spec.Kind == "path" {
		if residual, err = newStream(nodes); err != nil {
			return nil, err
		}
	}
	for _, name := range r.Spec.Sites {
		place := Place{Node: name, Layers: layers}
		if r.Spec.Heads != "" { // finds the node with heads
			place.Heads = Set{{0, 0}}
		}
		sites, err := place.find(nodes)
		if err != nil {
			return nil, err
		}
		for _, s := range sites {
			if residual != nil {
				if _, err := residual.branches(s.node.Name, receivers); err != nil {
					return nil, err
				}
			}
			heads := []string{r.Spec.Heads}
			if r.Spec.Heads == "each" {
				heads = nil
				for h := range s.node.Heads {
					heads = append(heads, fmt.Sprint(h))
				}
			}
			for i, h := range heads {
				at := Place{Node: s.node.Name}
				if at.Heads, err = ParseSet(h); err != nil {
					return nil, err
				}
				all = append(all, column{s.node, at, h, i})
			}
		}
	}
	return all, nil
}

// list adds the cells of a pair in a column.
func (r *Runner) list(pair int, col column) error {
	p := r.Pairs[pair]
	var all []string
	for _, at := range r.Spec.Positions {
		if at != "each" {
			all = append(all, at)
			continue
		}
		if p.Corrupted != nil && len(p.Corrupted.IDs) != len(p.Clean.IDs) {
			return fmt.Errorf("positions each: the clean prompt has %d tokens and the corrupted one %d",
				len(p.Clean.IDs), len(p.Corrupted.IDs))
		}
		for i := range p.Clean.IDs {
			all = append(all, fmt.Sprint(i))
		}
	}
	for i, said := range all {
		c := gridCell{Cell: Cell{Pair: pair, Node: col.node.Name, Layer: col.node.Layer, Head: col.head, At: said,
			Column: i}, place: col.place}
		if r.Spec.Heads == "each" {
			c.Column = col.index
		}
		if said != "mean" {
			var err error
			if c.at, err = ParsePositions(said); err != nil {
				return err
			}
			on, _, err := c.at.Of(p.Clean)
			if err != nil {
				return err
			}
			if len(on) == 1 {
				c.Token = p.Clean.Tokens[on[0]]
			}
		}
		r.grid = append(r.grid, c)
	}
	return nil
}

// Len returns the number of cells.
func (r *Runner) Len() int { return len(r.grid) }

// Key returns the identity of the i-th cell.
func (r *Runner) Key(i int) string { return r.grid[i].key() }

// cell computes the i-th.
func (r *Runner) cell(ctx context.Context, i int) (*Cell, error) {
	c := r.grid[i]
	out, err := r.outcome(ctx, &c)
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", c.Node, c.At, err)
	}
	c.Values = r.values(&r.Pairs[c.Pair], out.Logits, r.clean[c.Pair])
	return &c.Cell, nil
}

// outcome runs a cell's intervention.
func (r *Runner) outcome(ctx context.Context, c *gridCell) (*Outcome, error) {
	p := &r.Pairs[c.Pair]
	e := Edit{Kind: Ablate, Place: c.place, At: c.at}
	if r.Spec.Kind == "mean" {
		e.Kind = Mean
	}
	if !r.Spec.writes() {
		return Run(ctx, r.Model, p.Clean, []Edit{e}, 0)
	}
	if err := r.takeRows(ctx, p.Clean); err != nil {
		return nil, err
	}
	at, _, err := c.at.Of(p.Clean)
	if err != nil {
		return nil, err
	}
	rows, err := r.rows.pick(c.Node, at)
	if err != nil {
		return nil, err
	}
	if c.At == "mean" {
		rows = [][]float32{meanOf(rows)}
	}
	e.Kind, e.Rows = Replace, map[string][][]float32{c.Node: rows}
	if r.Spec.Kind == "trace" {
		return Run(ctx, r.Model, p.Corrupted, []Edit{e}, 0)
	}
	x, err := r.pathsOf(ctx, c.Pair)
	if err != nil {
		return nil, err
	}
	return x.run(ctx, e)
}

// pathsOf keeps the common part of the paths of a pair, for a single pair at a time.
func (r *Runner) pathsOf(ctx context.Context, pair int) (*paths, error) {
	if r.paths != nil && r.paths.prompt == r.Pairs[pair].Corrupted {
		return r.paths, nil
	}
	receivers, err := r.receivers()
	if err != nil {
		return nil, err
	}
	r.paths, err = newPaths(ctx, r.Model, r.Pairs[pair].Corrupted, receivers)
	return r.paths, err
}

// receivers returns the nodes at the ends of paths.
func (r *Runner) receivers() (all []site, err error) {
	heads, err := ParseSet(r.Spec.ReceiverHeads)
	if err != nil {
		return nil, err
	}
	for _, name := range r.Spec.Receivers {
		place := Place{Node: name, Heads: heads}
		sites, err := place.find(r.Model.Nodes())
		if err != nil {
			return nil, fmt.Errorf("receivers: %w", err)
		}
		all = append(all, sites...)
	}
	return all, nil
}

// takeRows sets r.rows to the values of a prompt at all nodes of the grid.
func (r *Runner) takeRows(ctx context.Context, p *Prompt) (err error) {
	if r.rowsOf == p {
		return nil
	}
	wanted := map[string]bool{}
	for _, c := range r.grid {
		wanted[c.Node] = true
	}
	r.rowsOf = p
	r.rows, err = takeRows(ctx, r.Model, p, func(n karat.Node) bool { return wanted[n.Name] })
	return err
}

// values computes the spec's metrics of logits.
func (r *Runner) values(p *Pair, logits, clean []float32) Values {
	v := Values{Logits: hashOf(littleEndian(logits))}
	for _, m := range metrics {
		if slices.Contains(r.Spec.Metrics, m.name) {
			x := lab.Number(m.compute(p, logits, clean))
			*m.of(&v) = &x
		}
	}
	return v
}

// Spec is an experiment: interventions at a grid of sites, heads and positions, for each stimulus.
type Spec struct {
	Name      string   `toml:"name"`
	Model     string   `toml:"model"`     // file, folder or name; "" is whatever the command is given
	Precision string   `toml:"precision"` // fast, f32 or f64; "" is fast
	Kind      string   `toml:"kind"`      // trace, path, ablate or mean; "" is trace
	Sites     []string `toml:"sites"`     // nodes, as in Place.Node
	Layers    string   `toml:"layers"`    // "" is all
	// "" is whole values, "each" single heads, or a Set of heads together
	Heads         string     `toml:"heads"`
	Receivers     []string   `toml:"receivers"`      // nodes at the ends of paths, in every layer with the names
	ReceiverHeads string     `toml:"receiver_heads"` // a Set of their heads; "" is whole values
	Positions     []string   `toml:"positions"`      // each, mean, or as for ParsePositions; none is each
	Metrics       []string   `toml:"metrics"`        // logit_difference, probability and kl; none is all
	Templates     []string   `toml:"templates"`      // with {} for a stimulus' words; none is the words alone
	Stimuli       []Stimulus `toml:"stimuli"`

	hash string
}

// Stimulus is a pair of prompts. In a trace, values of the clean prompt are written into the run of the corrupted
// prompt, and along a path the values reach the receivers alone; the other kinds have no corrupted prompt.
type Stimulus struct {
	Clean     string `toml:"clean"`
	Corrupted string `toml:"corrupted"`
	Target    string `toml:"target"` // right token after the clean prompt: an id, or its text
	Foil      string `toml:"foil"`   // token after the corrupted prompt; "" leaves logit_difference the target's logit
}

// Values of the keys with few.
var (
	kinds       = []string{"trace", "path", "ablate", "mean"}
	precisions  = []string{"fast", "f32", "f64"}
	metricNames = func() (names []string) {
		for _, m := range metrics {
			names = append(names, m.name)
		}
		return names
	}()
)

// MaxSpec is the size of the largest file, in bytes, and maxCells the largest grid.
const (
	MaxSpec  = 4 << 20
	maxCells = 1 << 22
)

// ParseSpec reads a TOML file's text.
func ParseSpec(text string) (*Spec, error) {
	if len(text) > MaxSpec {
		return nil, fmt.Errorf("more than %d bytes", MaxSpec)
	}
	s := &Spec{}
	m, err := toml.Decode(text, s)
	if err != nil {
		return nil, err
	}
	if unknown := m.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown key %s", unknown[0])
	}
	s.hash = hashOf([]byte(text))
	s.Kind, s.Precision = cmp.Or(s.Kind, kinds[0]), cmp.Or(s.Precision, precisions[0])
	for _, x := range []struct {
		to   *[]string
		with []string
	}{{&s.Positions, []string{"each"}}, {&s.Metrics, metricNames}, {&s.Templates, []string{"{}"}}} {
		if len(*x.to) == 0 {
			*x.to = x.with
		}
	}
	return s, s.check()
}

func (s *Spec) check() error {
	for _, x := range []struct {
		key   string
		said  []string
		known []string
	}{{"kind", []string{s.Kind}, kinds}, {"metrics", s.Metrics, metricNames},
		{"precision", []string{s.Precision}, precisions}} {
		for _, v := range x.said {
			if !slices.Contains(x.known, v) {
				return fmt.Errorf("%s: %q, want %s", x.key, v, strings.Join(x.known, ", "))
			}
		}
	}
	switch {
	case len(s.Sites) == 0:
		return fmt.Errorf("sites: none, want names of nodes such as \"blk.*.out\"")
	case len(s.Stimuli) == 0:
		return fmt.Errorf("stimuli: none")
	case len(s.Sites)*len(s.Positions)*len(s.Stimuli)*len(s.Templates) > maxCells:
		return fmt.Errorf("more than %d cells", maxCells)
	}
	if _, err := ParseSet(s.Layers); err != nil {
		return fmt.Errorf("layers: %w", err)
	}
	if s.Heads != "each" {
		if _, err := ParseSet(s.Heads); err != nil {
			return fmt.Errorf("heads: %w, or each", err)
		}
	}
	if _, err := ParseSet(s.ReceiverHeads); err != nil {
		return fmt.Errorf("receiver_heads: %w", err)
	}
	if path := s.Kind == "path"; path != (len(s.Receivers) > 0) || !path && s.ReceiverHeads != "" {
		return fmt.Errorf("receivers: a path needs nodes at which it ends, and other kinds have none")
	}
	for _, p := range s.Positions {
		if _, err := ParsePositions(p); err != nil && p != "each" && p != "mean" {
			return err
		}
	}
	for _, t := range s.Templates {
		if strings.Count(t, "{}") != 1 {
			return fmt.Errorf("templates: %q: want {} once", t)
		}
	}
	for i, x := range s.Stimuli {
		switch {
		case x.Clean == "":
			return fmt.Errorf("stimuli %d: no clean", i)
		case s.writes() && x.Corrupted == "":
			return fmt.Errorf("stimuli %d: no corrupted, which a %s writes into", i, s.Kind)
		case !s.writes() && x.Corrupted != "":
			return fmt.Errorf("stimuli %d: corrupted is for a trace or a path", i)
		case x.Target == "":
			return fmt.Errorf("stimuli %d: no target", i)
		}
	}
	return nil
}

// writes reports whether values of a clean run are written into a corrupted one.
func (s *Spec) writes() bool { return s.Kind == "trace" || s.Kind == "path" }

// Hash returns the SHA-256 of the spec's text.
func (s *Spec) Hash() string { return s.hash }
