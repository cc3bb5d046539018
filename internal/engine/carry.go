package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/kvfile"
)

// carrier moves a sequence's part of a cache.
type carrier struct {
	s     *Sequence
	cache backend.Portable
}

// carry calls f with the sequence's cache, if its contents can be carried. A step under way ends first, and none begins
// meanwhile.
func (s *Sequence) carry(f func(c carrier) error) error {
	e := s.plan.e
	if e.InTap() {
		return ErrInTap
	}
	e.computing.Lock()
	defer e.computing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.cache.(backend.Portable)
	switch {
	case e.closed || s.closed:
		return ErrClosed
	case !ok:
		return errors.New("the keys and values of this backend cannot be carried: the CPU's can, with precision " +
			"fast or f32")
	case e.entire:
		return errors.New("the model sees later tokens or pools rows: nothing of a prefix can be kept")
	case s.extras.digest != "":
		return errors.New("the prompt has rows beside its tokens")
	}
	return f(carrier{s, p})
}

// ErrGone is the error of a sequence with keys and values given back to others.
var ErrGone = errors.New("the keys and values were given back")

// Carry returns the keys, values and states of the sequence, in a file complete except for the model's name. The plan's
// options must have Private.
func (s *Sequence) Carry() (f *kvfile.File, err error) {
	err = s.carry(func(c carrier) error {
		f, err = c.read()
		return err
	})
	return f, err
}

// storesOf returns the forms of the stores of n positions: only the positions seen by the next token.
func storesOf(g *graph.Graph, cache backend.Portable, n int) (list []kvfile.Store, of []*graph.KV) {
	for _, x := range g.KVs() {
		for _, p := range cache.Spans(x, n) {
			s := kvfile.Store{Layer: x.Layer, Heads: x.Heads, Dim: x.Dim, Values: x.Values(), Window: x.Window,
				From: p.From, Narrow: p.Narrow}
			if p.To < n {
				s.To = p.To
			}
			list, of = append(list, s), append(of, x)
		}
	}
	return list, of
}

// spanOf returns the span of a store kept by s, in a file of n positions.
func spanOf(s *kvfile.Store, n int) backend.Span {
	return backend.Span{From: s.From, To: cmp.Or(s.To, n), Narrow: s.Narrow}
}

// read returns the sequence's part of the cache.
func (c carrier) read() (f *kvfile.File, err error) {
	n, pages, g := len(c.s.tokens), c.s.seat.Pages, c.s.plan.e.graph
	if n == 0 || pages.Len() != n {
		return nil, fmt.Errorf("%w: there are those of %d tokens of %d", ErrGone, pages.Len(), n)
	}
	f = &kvfile.File{Element: c.cache.Element(), Tokens: slices.Clone(c.s.tokens), Held: n}
	stores, of := storesOf(g, c.cache, n)
	for i := range stores {
		if stores[i].Data, err = c.cache.ReadStore(of[i], pages, spanOf(&stores[i], n)); err != nil {
			return nil, err
		}
	}
	f.Stores = stores
	for _, x := range g.States() {
		data, err := c.cache.ReadState(x, pages)
		if err != nil {
			return nil, err
		}
		f.States = append(f.States, kvfile.State{Size: x.Size, Row: x.Row(), Rows: n - pages.Start(), Data: data})
	}
	return f, nil
}

// Take makes an empty sequence the sequence of f, a file of the same model. The plan's options must have Private:
// nothing goes to other sequences.
func (s *Sequence) Take(f *kvfile.File) error {
	if len(s.tokens) > 0 || !s.plan.private {
		return errors.New("a state for a sequence that is not empty, or that shares with others")
	}
	if err := s.plan.e.checkFile(f); err != nil {
		return fmt.Errorf("the state is not this model's: %w", err)
	}
	return s.carry(func(c carrier) error {
		if err := c.write(f); err != nil {
			s.seat.Pages.Truncate(0)
			return err
		}
		s.tokens = slices.Clone(f.Tokens[:f.Held])
		s.plan.e.schedule.List(&s.seat)
		return nil
	})
}

// write grows the sequence, and writes its contents to the cache.
func (c carrier) write(f *kvfile.File) error {
	e, pages := c.s.plan.e, c.s.seat.Pages
	for left := f.Held; left > 0; left -= e.chunk {
		err := pages.Grow(min(left, e.chunk))
		for errors.Is(err, kv.ErrFull) && e.schedule.MakeRoom(&c.s.seat) {
			err = pages.Grow(min(left, e.chunk))
		}
		if err != nil {
			return err
		}
	}
	pages.Commit(f.Tokens[:f.Held])
	_, of := storesOf(e.graph, c.cache, f.Held)
	for i, x := range of {
		if err := c.cache.WriteStore(x, pages, spanOf(&f.Stores[i], f.Held), f.Stores[i].Data); err != nil {
			return err
		}
	}
	for i, x := range e.graph.States() {
		if err := c.cache.WriteState(x, pages, f.States[i].Data); err != nil {
			return err
		}
	}
	return nil
}

// checkFile compares f's shapes with the graph's.
func (e *Engine) checkFile(f *kvfile.File) error {
	p, ok := e.cache.(backend.Portable)
	if !ok {
		return nil // carry refuses
	}
	stores, _ := storesOf(e.graph, p, f.Held)
	states := e.graph.States()
	if len(f.Stores) != len(stores) || len(f.States) != len(states) {
		return fmt.Errorf("%d stores and %d states, the model has %d and %d", len(f.Stores), len(f.States), len(stores),
			len(states))
	}
	if p.Element() != f.Element {
		return fmt.Errorf("elements of %d bytes, the cache's have %d", f.Element, p.Element())
	}
	for i, want := range stores {
		got := f.Stores[i]
		got.Data = nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("store %d is %+v, the model's %+v", i, got, want)
		}
	}
	for i, x := range states {
		want, got := kvfile.State{Size: x.Size, Row: x.Row(), Rows: (f.Held-1)%kv.PageSize + 1}, f.States[i]
		got.Data = nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("state %d is %+v, the model's %+v", i, got, want)
		}
	}
	return e.checkIDs(f.Tokens)
}
