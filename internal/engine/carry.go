package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/kvfile"
)

// carry calls f with the cache, if its contents can be carried. A step under way ends first, and none begins meanwhile.
func (s *Sequence) carry(f func(p backend.Portable) error) error {
	e := s.e
	if e.InTap() {
		return ErrInTap
	}
	e.group.between.Lock()
	defer e.group.between.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.cache.(backend.Portable)
	switch {
	case e.closed || s.closed:
		return ErrClosed
	case !ok:
		return errors.New("the keys and values of this backend cannot be carried: the CPU's can, with precision fast or f32")
	case e.entire:
		return errors.New("the model sees later tokens or pools rows: nothing of a prefix can be kept")
	case s.rows != "":
		return errors.New("the prompt has rows beside its tokens")
	}
	return f(p)
}

// needed is the first position of a window that the next token sees, n being stored.
func needed(window, n int) int {
	if window == 0 {
		return 0
	}
	return max(0, n-window+1)
}

// Carry is the keys, values and states of the sequence, of which nothing but the model's name is missing. The engine's
// options must have Private.
func (s *Sequence) Carry() (f *kvfile.File, err error) {
	err = s.carry(func(p backend.Portable) error {
		f, err = s.held(p)
		return err
	})
	return f, err
}

// ErrGone is the error of a sequence whose keys and values were given back to others.
var ErrGone = errors.New("the keys and values were given back")

// held is the contents of p that are the sequence's.
func (s *Sequence) held(p backend.Portable) (f *kvfile.File, err error) {
	e, n := s.e, len(s.tokens)
	if n == 0 || s.pages.Len() != n {
		return nil, fmt.Errorf("%w: there are those of %d tokens of %d", ErrGone, s.pages.Len(), n)
	}
	f = &kvfile.File{Element: p.Element(), Tokens: slices.Clone(s.tokens), Held: n}
	for _, x := range e.graph.KVs() {
		store := kvfile.Store{Layer: x.Layer, Heads: x.Heads, Dim: x.Dim, Values: x.Values(), Window: x.Window, From: needed(x.Window, n)}
		if store.Data, err = p.ReadStore(x, s.pages, store.From, n); err != nil {
			return nil, err
		}
		f.Stores = append(f.Stores, store)
	}
	for _, x := range e.graph.States() {
		data, err := p.ReadState(x, s.pages)
		if err != nil {
			return nil, err
		}
		f.States = append(f.States, kvfile.State{Size: x.Size, Data: data})
	}
	return f, nil
}

// Take makes an empty sequence that of f, which must be of the same model. The engine's options must have Private: nothing
// of it goes to other sequences.
func (s *Sequence) Take(f *kvfile.File) error {
	if len(s.tokens) > 0 || !s.e.private {
		return errors.New("a state for a sequence that is not empty, or that shares with others")
	}
	if err := s.fits(f); err != nil {
		return fmt.Errorf("the state is not this model's: %w", err)
	}
	return s.carry(func(p backend.Portable) error {
		if err := s.take(p, f); err != nil {
			s.pages.Truncate(0)
			return err
		}
		s.tokens = slices.Clone(f.Tokens[:f.Held])
		s.pages.Commit(s.tokens)
		s.e.list(s)
		return nil
	})
}

// take grows the sequence, and writes.
func (s *Sequence) take(p backend.Portable, f *kvfile.File) error {
	for left := f.Held; left > 0; left -= s.e.chunk {
		err := s.pages.Grow(min(left, s.e.chunk))
		if errors.Is(err, kv.ErrFull) && s.e.group.makeRoom(s.e) {
			err = s.pages.Grow(min(left, s.e.chunk))
		}
		if s.e.group.unstick(s.e); err != nil {
			return err
		}
	}
	for i, x := range s.e.graph.KVs() {
		if err := p.WriteStore(x, s.pages, f.Stores[i].From, f.Held, f.Stores[i].Data); err != nil {
			return err
		}
	}
	for i, x := range s.e.graph.States() {
		if err := p.WriteState(x, s.pages, f.States[i].Data); err != nil {
			return err
		}
	}
	return nil
}

// fits compares f's shapes with the graph's.
func (s *Sequence) fits(f *kvfile.File) error {
	e := s.e
	stores, states := e.graph.KVs(), e.graph.States()
	if len(f.Stores) != len(stores) || len(f.States) != len(states) {
		return fmt.Errorf("%d stores and %d states, the model has %d and %d", len(f.Stores), len(f.States), len(stores), len(states))
	}
	if p, ok := e.cache.(backend.Portable); ok && p.Element() != f.Element {
		return fmt.Errorf("elements of %d bytes, the cache's have %d", f.Element, p.Element())
	}
	for i, x := range stores {
		want := kvfile.Store{Layer: x.Layer, Heads: x.Heads, Dim: x.Dim, Values: x.Values(), Window: x.Window, From: needed(x.Window, f.Held)}
		got := f.Stores[i]
		got.Data = nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("store %d is %+v, the model's %+v", i, got, want)
		}
	}
	for i, x := range states {
		if f.States[i].Size != x.Size {
			return fmt.Errorf("state %d has %d elements, the model's %d", i, f.States[i].Size, x.Size)
		}
	}
	for _, id := range f.Tokens {
		if id < 0 || int(id) >= e.ids {
			return fmt.Errorf("token id %d, the vocabulary has %d", id, e.ids)
		}
	}
	return nil
}
