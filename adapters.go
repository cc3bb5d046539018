package karat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/model"
)

// LoadAdapter adds an adapter to the loaded model. Requests that begin later may choose the adapter by its name. No
// request has the adapter by default, so a.Scale must be 0. A model on a GPU takes adapters of Options alone. The print
// is a hash of the adapter.
func (m *Model) LoadAdapter(ctx context.Context, a Adapter) (print string, err error) {
	switch {
	case ctx == nil:
		return "", errNilContext
	case a.Name == "":
		return "", fmt.Errorf("the adapter %s needs a name", a.Path)
	case a.Scale != 0:
		return "", fmt.Errorf("the adapter %s has a default factor, which Options alone can give", a.Name)
	}
	m.adapted.turn.Lock()
	defer m.adapted.turn.Unlock()
	p, err := m.opened.Adopt(ctx, model.Adapter{Name: a.Name, Path: a.Path})
	if err != nil {
		return "", err
	}
	m.adapted.Lock()
	defer m.adapted.Unlock()
	m.opened.Adapters = append(slices.Clip(m.opened.Adapters), p)
	m.adapted.changes++
	return hex.EncodeToString(p.Hash[:8]), nil
}

// UnloadAdapter takes an adapter of LoadAdapter away. Requests under way keep the adapter, later requests have none.
func (m *Model) UnloadAdapter(name string) error {
	m.adapted.turn.Lock()
	defer m.adapted.turn.Unlock()
	m.adapted.Lock()
	defer m.adapted.Unlock()
	left := slices.DeleteFunc(slices.Clone(m.opened.Adapters), func(p backend.Part) bool { return p.Name == name })
	if len(left) == len(m.opened.Adapters) {
		return fmt.Errorf("no adapter %q is loaded", name)
	}
	m.opened.Adapters = left
	m.adapted.changes++
	return nil
}

// adapters returns the adapters open to requests.
func (m *Model) adapters() []backend.Part {
	m.adapted.Lock()
	defer m.adapted.Unlock()
	return m.opened.Adapters
}

// CachePage is a page of the KV cache: so many tokens of a prompt or an answer, all computed. Later requests find the
// page, or find the page no longer.
type CachePage struct {
	Hash   [32]byte // of the page's tokens, all before, and everything else behind the values
	Parent [32]byte // of the page before; zero for a first page
	Tokens []int32  // nil for a page found no longer; below 0 for rows of pictures; not to be kept
	// Adapter is a request's single adapter, chosen by a factor of 1, or a hash of the request's adapters. "" is the
	// model's default, "none" no adapter where there is a default.
	Adapter string
	// Of tells apart the pages of callers with a PrivateCache, and of pictures without Tokens of their own.
	Of string
}

// WatchCache calls see for pages of the KV cache coming and going from now on, in order. see must return at once, and
// must not use the model. The model's Close tells the end of all pages. A later WatchCache replaces see.
func (m *Model) WatchCache(see func(CachePage)) {
	last, changes, name := "", -1, "" // the name stays until a change of the adapters
	engine.Watch(m.opened.Engine, func(e kv.Event, o engine.Origin) {
		m.adapted.Lock()
		now := m.adapted.changes
		m.adapted.Unlock()
		if o.Adapters != last || now != changes {
			last, changes, name = o.Adapters, now, m.adapterName(o.Adapters)
		}
		of := o.Rows + o.Salt
		if of != "" {
			sum := sha256.Sum256([]byte(of))
			of = hex.EncodeToString(sum[:16])
		}
		see(CachePage{e.Key, e.Parent, e.Tokens, name, of})
	})
}

// adapterName returns the name in CachePage of a blend's ID.
func (m *Model) adapterName(id string) string {
	usual := ""
	if b := m.opened.Blend; b != nil {
		usual = b.ID
	}
	switch id {
	case usual:
		return ""
	case "":
		return "none"
	}
	for _, p := range m.adapters() {
		if b, err := backend.NewBlend(backend.Part{Adapter: p.Adapter, By: 1}); err == nil && b.ID == id {
			return p.Name
		}
	}
	return hex.EncodeToString([]byte(id))
}
