// Package arch turns a checkpoint into the recorded graph of its architecture.
// Each architecture is a package of its own below this one; docs/adding-a-model.md
// tells how to add one.
package arch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/arch/gemma3"
	"github.com/karat-run/karat/internal/arch/gemma4"
	"github.com/karat-run/karat/internal/arch/llama"
	"github.com/karat-run/karat/internal/arch/qwen2"
	"github.com/karat-run/karat/internal/arch/qwen3"
	"github.com/karat-run/karat/internal/bind"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
)

var registry = map[string]loader{
	"llama":  load(llama.New),
	"qwen2":  load(qwen2.New),
	"qwen3":  load(qwen3.New),
	"gemma3": load(gemma3.New),
	"gemma4": load(gemma4.New),
}

// Names lists the architectures.
func Names() []string { return slices.Sorted(maps.Keys(registry)) }

// Load records the graph of c's model over its bound weights. The notes tell
// of settings that were not read. The error joins everything in which the
// file's tensors disagree with its configuration.
func Load(c *checkpoint.Checkpoint) (g *graph.Graph, notes []string, err error) {
	l, ok := registry[c.Arch]
	if !ok {
		return nil, nil, fmt.Errorf("arch: %s: architecture %q is not supported (%s are)", c.Path, c.Arch, strings.Join(Names(), ", "))
	}
	if g, notes, err = l(c); err != nil {
		return nil, nil, fmt.Errorf("arch: %s: %w", c.Path, err)
	}
	return g, notes, nil
}

type loader func(*checkpoint.Checkpoint) (*graph.Graph, []string, error)

type model interface {
	Forward(g graph.Builder) *graph.Node
}

// load is the path that all architectures share: configuration, weights, graph.
func load[C any, M model](newModel func(C) (M, error)) loader {
	return func(c *checkpoint.Checkpoint) (*graph.Graph, []string, error) {
		var config C
		notes, err := c.Config(&config)
		if err != nil {
			return nil, nil, err
		}
		m, err := newModel(config)
		if err != nil {
			return nil, nil, err
		}
		// Binding may read the tensors of a file that shrank.
		var bound error
		if err := mmap.Guard(func() error { bound = bind.Model(m, c); return nil }); err != nil {
			return nil, nil, err
		}
		b := graph.New()
		m.Forward(b)
		g, recorded := b.Graph()
		return g, notes, errors.Join(bound, recorded)
	}
}
