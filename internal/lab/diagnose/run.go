package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/sim"
	"github.com/karat-run/karat/internal/mmap"
)

// Options of Run.
type Options struct {
	Model string       // its name, for the report
	Graph *graph.Graph // what the engine ran
	Dump  *lab.Record
	Names string // of the dump's taps; "" is auto

	Golden *lab.Record // what a trusted engine computed for the same prompts; may be nil

	Asked *Asked // makes ids of what the dump says was asked for; may be nil

	Progress func(stage string, done, total int) // may be nil
}

// run is a diagnosis in the making.
type run struct {
	Options
	ctx      context.Context
	g        *graph.Graph
	model    *sim.Model
	prompts  []*prompt
	taps     map[*graph.Node]string // PyTorch's names of the values that any prompt has
	eqs      []*equation
	byNode   map[*graph.Node][]*equation // the equations whose span has the node
	covered  int                         // nodes that an equation spans
	perScan  int                         // rows of a prompt that scan may look at
	declared class                       // what the dump says; "" where it does not
	class    class
	edits    sim.Edits // of the accepted hypotheses
	accepted []*hypothesis
	speeds   [][]float64    // of rope, that were found where none on the list fit
	vain     int            // equations in which none were
	blackBox bool           // there are only logits
	disputed bool           // the golden record and the reference disagree
	misfit   []lab.Unplaced // taps that have a place, but not its width
	findings []Finding      // of the stages before the equations
	frees    []*free
	out      Diagnosis
}

// prompt is one of the dump's, with what is known of it.
type prompt struct {
	*lab.Prompt
	tapped  bool    // there are more values than logits, and these are used
	outline bool    // there are the hidden states of the last positions
	step    float64 // the largest relative error of the form that values are stored in
	known   map[*graph.Node]sim.Known
	placed  map[*graph.Node]lab.Placed
	twice   [][2]lab.Placed // taps of the same value
	center  *sim.Eval       // what an engine of the class computes, with the accepted edits
	arms    []*sim.Eval     // and with its roundings falling otherwise
}

// hidden begins the names of hidden states.
const hidden = "hidden."

// tap makes a placed tap a known value.
type tap struct{ lab.Placed }

func (t tap) Rows() (first, n int)        { return t.First, t.Placed.Rows }
func (t tap) Read(dst []float64, row int) { t.Placed.Read(dst, row-t.First) }

// written reports whether any value is not 0.
func (p *prompt) written() bool {
	for _, k := range p.known {
		first, n := k.Rows()
		x := make([]float64, k.(tap).Width)
		for i := range n {
			k.Read(x, first+i)
			if slices.ContainsFunc(x, func(v float64) bool { return v != 0 }) {
				return true
			}
		}
	}
	return false
}

// read is the engine's rows of n.
func (p *prompt) read(n *graph.Node, rows []int) []float64 {
	w := n.Shape.Size()
	x := make([]float64, len(rows)*w)
	for i, row := range rows {
		p.known[n].Read(x[i*w:(i+1)*w], row)
	}
	return x
}

// ErrUnusable is wrapped by errors of dumps in which there is nothing to judge.
var ErrUnusable = errors.New("unusable dump")

// Run diagnoses a dump. An error that wraps ErrUnusable says what the dump lacks.
func Run(ctx context.Context, o Options) (*Diagnosis, error) {
	start := time.Now()
	r := newRun(ctx, o)
	err := mmap.Guard(r.stages)
	if err != nil {
		return nil, fmt.Errorf("diagnose: %w", err)
	}
	r.out.Seconds = time.Since(start).Seconds()
	return &r.out, nil
}

func newRun(ctx context.Context, o Options) *run {
	r := &run{Options: o, ctx: ctx, g: o.Graph, model: sim.Of(o.Graph), taps: map[*graph.Node]string{}}
	r.out = Diagnosis{Model: o.Model, Dump: o.Dump.Path, Layers: layers(o.Graph), Findings: []Finding{}, Inferred: []string{}, Coverage: Coverage{Blind: []string{}}}
	said := o.Dump.Declared
	r.declared = class{string(said.Activations), string(said.KV), string(said.GELU)}
	return r
}

func layers(g *graph.Graph) int {
	n := 0
	for _, x := range g.Nodes {
		n = max(n, x.Layer+1)
	}
	return n
}

func (r *run) stages() error {
	for _, stage := range []struct {
		name string
		do   func() error
	}{
		{"placing taps", r.place},
		{"judging the input", r.judgeInput},
		{"comparing taps of the same value", r.judgeTwice},
		{"finding the class of rounding", r.infer},
		{"checking equations", func() error { return r.check(r.eqs) }},
		{"trying coarser classes", r.coarser},
		{"asking whether it is this model", r.judgeModel},
		{"testing the instrument", r.judgeProbes},
		{"naming causes", r.search},
		{"comparing layers", r.unify},
		{"comparing kinds of layers", r.kinds},
		{"looking in other layers", r.extend},
		{"running the reference", r.close},
	} {
		r.progress(stage.name, 0, 0)
		if err := stage.do(); err != nil {
			return err
		}
	}
	r.conclude()
	return nil
}

func (r *run) progress(stage string, done, total int) {
	if r.Progress != nil {
		r.Progress(stage, done, total)
	}
}

func (r *run) infers(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(r.out.Inferred, s) {
		r.out.Inferred = append(r.out.Inferred, s)
	}
}

// place finds the nodes that the dump's taps belong to.
func (r *run) place() error {
	unplaced := map[string]bool{}
	names := r.schema()
	for _, p := range r.Dump.Prompts {
		if p = r.withIDs(p); p == nil {
			continue
		}
		if err := checkIDs(r.g, p.IDs); err != nil {
			return fmt.Errorf("%w: %s: prompt %d: ids that MODEL does not have: %v", ErrUnusable, r.Dump.Path, p.Index, err)
		}
		found, err := lab.Place(r.g, names, p, r.Dump.Prompts...)
		if err != nil {
			return err
		}
		r.misfits(found)
		q := &prompt{Prompt: p, known: map[*graph.Node]sim.Known{}, placed: map[*graph.Node]lab.Placed{}}
		for _, t := range found.Taps {
			q.tapped = q.tapped || t.Node != r.g.Result() && !strings.HasPrefix(t.Name, hidden)
			q.outline = q.outline || strings.HasPrefix(t.Name, hidden)
			if old, ok := q.placed[t.Node]; ok {
				q.twice = append(q.twice, [2]lab.Placed{old, t})
				if old.Name == logitsName || old.Rows >= t.Rows && t.Name != logitsName {
					continue
				}
			}
			q.known[t.Node], q.placed[t.Node] = tap{t}, t
			q.step = max(q.step, t.Step())
			if _, ok := r.taps[t.Node]; !ok || strings.HasPrefix(r.taps[t.Node], hidden) {
				r.taps[t.Node] = t.Tap
			}
		}
		for _, u := range found.Unplaced {
			unplaced[u.Name+": "+u.Why] = true
		}
		for _, s := range found.Inferred {
			r.infers("%s", s)
		}
		if len(q.known) > 0 {
			r.prompts = append(r.prompts, q)
		}
	}
	r.without()
	if len(r.prompts) == 0 {
		return fmt.Errorf("%w: %s: no prompt has ids and logits or taps%s", ErrUnusable, r.Dump.Path, r.lackingIDs())
	}
	if !slices.ContainsFunc(r.prompts, (*prompt).written) {
		return fmt.Errorf("%w: %s: all values are 0: the probe reads buffers that were never written, or copies none", ErrUnusable, r.Dump.Path)
	}
	for s := range unplaced {
		r.out.Coverage.Unplaced = append(r.out.Coverage.Unplaced, s)
	}
	slices.Sort(r.out.Coverage.Unplaced)
	r.setCenter(class{activations: "f64"})
	r.equations()
	r.limitScan()
	return nil
}

// without takes hidden states, or else the logits of the shortest prompts, for taps
// where there are no others.
func (r *run) without() {
	if slices.ContainsFunc(r.prompts, func(p *prompt) bool { return p.tapped }) {
		return
	}
	if slices.ContainsFunc(r.prompts, func(p *prompt) bool { return p.outline }) {
		for _, p := range r.prompts {
			p.tapped = p.outline
		}
		return
	}
	short := slices.Clone(r.prompts)
	slices.SortStableFunc(short, func(a, b *prompt) int { return len(a.IDs) - len(b.IDs) })
	// Attention says little of prompts of one or two tokens.
	if i := slices.IndexFunc(short, func(p *prompt) bool { return len(p.IDs) > 2 }); i > 0 {
		short = short[i:]
	}
	tokens := 0
	for i, p := range short {
		if tokens += len(p.IDs); i > 0 && (i == 3 || tokens > 40) {
			break
		}
		p.tapped, r.blackBox = true, true
	}
}

// withIDs is p with ids: its own, or the golden record's, or the tokenizer's; nil if
// there are none.
func (r *run) withIDs(p *lab.Prompt) *lab.Prompt {
	if len(p.IDs) > 0 {
		return p
	}
	ids, how, err := r.expected(p)
	if err != nil || len(ids) == 0 || len(ids[0]) == 0 {
		r.infers("prompt %d has no ids and is left out: --golden may give them, or text in the dump's JSON file", p.Index)
		return nil
	}
	r.infers("the dump has no ids: they are those that %s gives", how)
	q := *p
	q.IDs = ids[0]
	return &q
}

// lackingIDs says how to give ids, if a prompt has values and none.
func (r *run) lackingIDs() string {
	if slices.ContainsFunc(r.Dump.Prompts, func(p *lab.Prompt) bool { return len(p.IDs) == 0 && (p.Logits != nil || len(p.Taps) > 0) }) {
		return ": the ids are missing; --golden gives those of a record, or write the text into the dump's JSON file"
	}
	return ""
}

func (r *run) tapName(n *graph.Node) string {
	if name, ok := r.taps[n]; ok {
		return name
	}
	if n.HF != "" {
		return n.HF
	}
	return n.Name
}

// schema is whose names the taps have.
func (r *run) schema() string { return cmp.Or(r.Names, r.Dump.Names) }

// decoded is how many of the prompt's last tokens were decoded one by one.
func (p *prompt) decoded() int { return p.Decode }
