package karat

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/kvfile"
)

// ExportState computes a prompt of two ids or more, except for the last, and writes the model's state: keys and values,
// and the states of convolutions and scans, with the prompt's ids, a hash of the model (Fingerprint) and a checksum.
// The same prompt gives the same bytes. ExportState is an error on GPUs and with Float64.
func (m *Model) ExportState(ctx context.Context, w io.Writer, prompt []int) error {
	ids, err := m.promptIDs(ctx, prompt)
	if err != nil {
		return err
	}
	if len(ids) < 2 {
		return fmt.Errorf("the prompt's length is %d: one of 2 tokens or more has a state", len(ids))
	}
	p, err := m.unsharedPlan(ctx)
	if err != nil {
		return err
	}
	f, err := state(ctx, p, ids[:len(ids)-1])
	for errors.Is(err, engine.ErrGone) { // another request took the room between two moments
		f, err = state(ctx, p, ids[:len(ids)-1])
	}
	if err != nil {
		return err
	}
	if f.Model, err = m.Fingerprint(ctx); err != nil {
		return err
	}
	f.Program, f.Tokens = "karat "+Version(), ids
	return f.Write(w)
}

// state computes ids, and returns the resulting state.
func state(ctx context.Context, p *engine.Plan, ids []int32) (*kvfile.File, error) {
	s := p.NewSequence()
	defer s.Close()
	if _, err := s.Feed(ctx, ids, 0); err != nil {
		return nil, err
	}
	return s.Carry()
}

// ImportState returns a session at a state of ExportState, and the prompt's ids: a GenerateIDs of the ids, or of a
// longer prompt, computes the last id and the rest. A changed file, and a file of another model or of other numerics,
// is an error. A forged state of the same model looks like a true state until computed again: take files from nobody
// but yourself.
func (m *Model) ImportState(ctx context.Context, data []byte) (*Session, []int, error) {
	if ctx == nil {
		return nil, nil, errNilContext
	}
	f, err := kvfile.Parse(data)
	if err != nil {
		return nil, nil, err
	}
	print, err := m.Fingerprint(ctx)
	if err != nil {
		return nil, nil, err
	}
	if f.Model != print {
		return nil, nil, fmt.Errorf("the state is of another model, or of other numerics: fingerprint %s, this is %s",
			f.Model, print)
	}
	p, err := m.unsharedPlan(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := &Session{m: m, s: p.NewSequence()}
	if err := s.s.Take(f); err != nil {
		s.Close()
		return nil, nil, err
	}
	var ids []int
	for _, id := range f.Tokens {
		ids = append(ids, int(id))
	}
	return s, ids, nil
}

// unsharedPlan returns the plan of sequences without sharing, made at the first use.
func (m *Model) unsharedPlan(ctx context.Context) (*engine.Plan, error) {
	return m.planOf(ctx, &m.unshared, engine.Options{Private: true})
}

// planOf returns the plan at p, made at the first use by o.
func (m *Model) planOf(ctx context.Context, p **engine.Plan, o engine.Options) (made *engine.Plan, err error) {
	if m.opened.Engine.InTap() {
		return nil, ErrInTap
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if *p == nil {
		*p, err = m.opened.Plan(ctx, o)
	}
	return *p, err
}
