package diagnose

import (
	"context"
	"errors"
	"time"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
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

// ErrUnusable is wrapped by errors of dumps in which there is nothing to judge.
var ErrUnusable = errors.New("unusable dump")

// Run diagnoses a dump. An error that wraps ErrUnusable says what the dump lacks.
func Run(ctx context.Context, o Options) (d *Diagnosis, err error) {
	start := time.Now()
	err = mmap.Guard(func() (err error) {
		d, err = newSubject(ctx, o).diagnose()
		return err
	})
	if err != nil {
		return nil, err
	}
	d.Seconds = time.Since(start).Seconds()
	return d, nil
}

func newSubject(ctx context.Context, o Options) *subject {
	o.Graph = withActivations(o.Graph, o.Dump)
	w := mistake.Wire(o.Graph)
	return &subject{Options: o, wiring: &wiring{w, o.Graph, w.Model(), map[*graph.Node]string{}, lab.NamesOf(o.Graph)}, ctx: ctx, inferred: []string{}}
}

// diagnose goes through the stages. What goes from one to the next is the subject, which
// placement fills; the measurement, of which the classifier sets the class, probing discards
// taps, and search adds the edits; and what search accepted.
func (r *subject) diagnose() (*Diagnosis, error) {
	p, m := placement{r}, &measurement{subject: r}
	c, s, end := classifier{m}, &search{measurement: m}, &closing{measurement: m}
	place := func() error {
		err := p.place()
		if err == nil {
			m.begin()
		}
		return err
	}
	for _, stage := range []struct {
		name string
		do   func() error
	}{
		{"placing taps", place},
		{"judging the input", p.judgeInput},
		{"comparing taps of the same value", p.judgeTwice},
		{"finding the class of rounding", c.infer},
		{"checking equations", func() error { return m.check(m.eqs) }},
		{"trying coarser classes", c.coarser},
		{"asking whether it is this model", probing{m}.judgeModel},
		{"testing the instrument", probing{m}.judgeProbes},
		{"naming causes", s.causes},
		{"comparing layers", s.unify},
		{"comparing kinds of layers", s.kinds},
		{"looking in other layers", s.extend},
		{"looking below the floors", func() error { return s.below(1) }},
		{"looking for epsilons", s.epsilons},
		{"running the reference", end.close},
		{"asking the logits", func() error { return s.again(end) }},
	} {
		r.progress(stage.name, 0, 0)
		if err := stage.do(); err != nil {
			return nil, err
		}
	}
	return (&conclusion{measurement: m, closing: end, accepted: s.accepted}).conclude(), nil
}
