package diagnose

import (
	"context"
	"errors"
	"time"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/mmap"
)

// Options of Run.
type Options struct {
	Model string       // name, for the report
	Graph *graph.Graph // what the engine ran
	Dump  *lab.Record
	Names string // naming scheme of the dump's taps; "" is auto

	Golden *lab.Record // what a trusted engine computed for the same prompts; may be nil

	Eye    *lab.Eye // the tower of a model that sees; may be nil
	sights map[*lab.Prompt]sight
	read   bool // whether the text follows from the tower's result, Graph being the tower

	Asked *Asked // makes ids of what the dump says was asked for; may be nil

	Progress func(stage string, done, total int) // may be nil
}

// ErrUnusable is wrapped by errors of dumps without anything to judge.
var ErrUnusable = errors.New("unusable dump")

// Run diagnoses a dump. An error that wraps ErrUnusable says what the dump lacks.
func Run(ctx context.Context, o Options) (d *Diagnosis, err error) {
	start := time.Now()
	err = mmap.Guard(func() (err error) {
		if o.hasPictures() {
			d, err = diagnoseSight(ctx, o)
			return err
		}
		d, err = diagnose(ctx, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.Seconds = time.Since(start).Seconds()
	return d, nil
}

// diagnose goes through the stages. Each stage makes a value of the values before, and changes none of them: the
// search works on a copy of the measurement.
func diagnose(ctx context.Context, o Options) (*Diagnosis, error) {
	d, err := place(ctx, o)
	if err != nil {
		return nil, err
	}
	m, err := measure(d)
	if err != nil {
		return nil, err
	}
	if m, err = probe(m); err != nil {
		return nil, err
	}
	s, err := newSearch(m)
	if err != nil {
		return nil, err
	}
	c, err := closeOn(s.m)
	if err != nil {
		return nil, err
	}
	d.progress("asking the logits", 0, 0)
	more, err := s.askLogits(c)
	if err == nil && more {
		c, err = closeOn(s.m)
	}
	if err != nil {
		return nil, err
	}
	return conclude(s, c), nil
}
