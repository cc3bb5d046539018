package model

import (
	"cmp"
	"context"
	"fmt"

	"github.com/karat-run/karat/internal/adapter"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/sysinfo"
)

// Adapters reads o's adapters for g, the graph of c, with notes on tensors that are set aside. It ends with ctx, between two of them. One
// that would not fit the memory is an error that wraps ErrMemory, but for o.NoFit.
func Adapters(ctx context.Context, c *checkpoint.Checkpoint, g *graph.Graph, o Options) (parts []backend.Part, notes []string, err error) {
	named := map[string]bool{}
	for _, a := range o.Adapters {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if o.Numerics.GPU != 0 {
			return nil, nil, fmt.Errorf("karat: %s: webgpu: %w", a.Path, backend.ErrAdapters)
		}
		name := cmp.Or(a.Name, a.Path)
		if named[name] {
			return nil, nil, fmt.Errorf("karat: two adapters have the name %q", name)
		}
		named[name] = true
		x, more, err := readAdapter(c, g, a.Path, o.NoFit)
		if err != nil {
			return nil, nil, err
		}
		x.Name = name
		parts, notes = append(parts, backend.Part{Adapter: x, By: a.By}), append(notes, more...)
	}
	return parts, notes, nil
}

// Blend is o's adapters, each by its factor; nil if there are none.
func Blend(ctx context.Context, c *checkpoint.Checkpoint, g *graph.Graph, o Options) (*backend.Blend, error) {
	parts, _, err := Adapters(ctx, c, g, o)
	if err != nil {
		return nil, err
	}
	return backend.NewBlend(parts...)
}

func readAdapter(c *checkpoint.Checkpoint, g *graph.Graph, path string, noFit bool) (*backend.Adapter, []string, error) {
	f, err := adapter.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := sysinfo.Fits(f.Bytes(), 0, 0); err != nil && !noFit {
		return nil, nil, fmt.Errorf("karat: adapter %s %w", path, tooLarge{err})
	}
	return f.Bind(c, g)
}
