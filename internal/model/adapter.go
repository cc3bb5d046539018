package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/karat-run/karat/internal/adapter"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/sysinfo"
)

// Adapters reads o's adapters for g, the graph of c, with notes on tensors set aside. Adapters ends with ctx,
// between two adapters. Adapters that would not fit the memory together with the model are an error that
// wraps ErrMemory, except with o.NoFit.
func Adapters(
	ctx context.Context, c *checkpoint.Checkpoint, g *graph.Graph, o Options,
) (parts []backend.Part, notes []string, err error) {
	if runtime.GOOS == "js" && len(o.Adapters) > 0 {
		return nil, nil, errors.New("adapters are files, and a browser has none")
	} else if runtime.GOOS == "js" { // a constant: the program for browsers links no adapters
		return nil, nil, nil
	}
	var files []*adapter.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	named := map[string]bool{}
	var bytes int64
	for _, a := range o.Adapters {
		name := cmp.Or(a.Name, a.Path)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case named[name]:
			return nil, nil, fmt.Errorf("two adapters have the name %q", name)
		}
		named[name] = true
		f, err := adapter.Open(a.Path)
		if err != nil {
			return nil, nil, err
		}
		files, bytes = append(files, f), bytes+f.Bytes()
	}
	if err := adaptersFit(c, g, o, bytes); err != nil {
		return nil, nil, err
	}
	labeled := map[string]bool{}
	for i, a := range o.Adapters {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		x, more, err := files[i].Bind(c, g)
		if err != nil {
			return nil, nil, err
		}
		x.Name = cmp.Or(a.Name, a.Path)
		base := cmp.Or(a.Name, filepath.Base(a.Path))
		x.Label = base
		for n := 2; labeled[x.Label]; n++ {
			x.Label = fmt.Sprintf("%s#%d", base, n)
		}
		labeled[x.Label] = true
		parts, notes = append(parts, backend.Part{Adapter: x, By: a.By}), append(notes, more...)
	}
	return parts, notes, nil
}

// Adopt reads one more adapter for an open model, as Adapters does. The caller adds the part to a new list in
// m.Adapters.
func (m *Model) Adopt(ctx context.Context, a Adapter) (p backend.Part, err error) {
	if runtime.GOOS == "js" || m.Numerics.GPU > 0 {
		return p, errors.New("on a GPU, and in a browser, adapters are given when the model is loaded")
	}
	for _, other := range m.Adapters {
		if other.Name == a.Name {
			return p, fmt.Errorf("two adapters have the name %q", a.Name)
		}
	}
	f, err := adapter.Open(a.Path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	if err := sysinfo.FitsIn(f.Bytes(), 0, 0, 0); err != nil {
		return p, fmt.Errorf("%s %w", a.Path, tooLarge{err})
	}
	p.By = a.By
	if p.Adapter, _, err = f.Bind(m.Checkpoint, m.Graph); err != nil {
		return p, err
	}
	p.Name, p.Label = a.Name, a.Name
	return p, ctx.Err()
}

// adaptersFit does Fits's work for a model without any part in memory yet, and bytes of adapters.
func adaptersFit(c *checkpoint.Checkpoint, g *graph.Graph, o Options, bytes int64) error {
	if o.NoFit || bytes == 0 {
		return nil
	}
	context := o.Engine.Context // 0 where the caller looks after keys and values
	cache := cacheBytes(g, o.Numerics, o.Threads, context, o.Engine.Budget)
	err := sysinfo.FitsIn(c.Bytes()+o.Numerics.Repacked(g)+bytes, cache, context, o.Memory)
	if err != nil {
		return fmt.Errorf("%s with its %d adapters %w", c.Path, len(o.Adapters), tooLarge{err})
	}
	return nil
}

// Blend returns o's adapters, each with its factor; nil if there are none.
func Blend(ctx context.Context, c *checkpoint.Checkpoint, g *graph.Graph, o Options) (*backend.Blend, error) {
	parts, _, err := Adapters(ctx, c, g, o)
	if err != nil {
		return nil, err
	}
	return backend.NewBlend(parts...)
}
