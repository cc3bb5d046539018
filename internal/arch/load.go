// Package arch turns a checkpoint into the recorded graph of its family. Each
// family is a folder below this one, and a line in package registry;
// docs/adding-a-model.md tells how to add one.
package arch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/bind"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
)

// Load records the graph of c's model over its bound weights. The notes tell
// of settings that were not read. The error joins everything in which the
// file's tensors disagree with its configuration.
func Load(c *checkpoint.Checkpoint) (g *graph.Graph, notes []string, err error) {
	return LoadFor(c, 0)
}

// LoadFor is Load of a model that is opened for sequences of so many tokens, by which
// some choose how they turn; 0 is the longest that it was made for.
func LoadFor(c *checkpoint.Checkpoint, context int) (g *graph.Graph, notes []string, err error) {
	g, _, notes, err = from(c, c, context)
	return g, notes, err
}

// Stored is Load over the tensors as the files have them, of which it makes no
// copies: a graph to be read, not to be run.
func Stored(c *checkpoint.Checkpoint) (g *graph.Graph, notes []string, err error) {
	g, _, notes, err = from(c, checkpoint.Stored{Checkpoint: c}, 0)
	return g, notes, err
}

// Weights lists the tensors of c's model, with their names in both formats and as
// the files have them, in the order of the files. Notes and errors are Load's: a
// file that Load takes has a name for each of its tensors.
func Weights(c *checkpoint.Checkpoint) (weights []*graph.Weight, notes []string, err error) {
	_, weights, notes, err = from(c, checkpoint.Stored{Checkpoint: c}, 0)
	at := make(map[string]int, len(weights))
	for i, name := range c.Names() {
		at[name] = i
	}
	slices.SortFunc(weights, func(a, b *graph.Weight) int { return at[c.Name(a.GGUF, a.HF)] - at[c.Name(b.GGUF, b.HF)] })
	return weights, notes, err
}

func from(c *checkpoint.Checkpoint, src bind.Source, context int) (*graph.Graph, []*graph.Weight, []string, error) {
	g, weights, notes, err := load(c, src, context)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return g, weights, notes, nil
}

// Unread lists the settings of c that its architecture does not ask for and
// that switch something on, whether logits depend on them or not.
func Unread(c *checkpoint.Checkpoint) []checkpoint.Entry {
	return c.Unread(c.Family().Model.Config())
}

// load is the path that all families share: configuration, weights, graph.
func load(c *checkpoint.Checkpoint, src bind.Source, context int) (*graph.Graph, []*graph.Weight, []string, error) {
	config := c.Family().Model.Config()
	notes, err := c.Config(config)
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := c.Family().Model.New(config, context)
	if err != nil {
		return nil, nil, nil, err
	}
	// Binding may read the tensors of a file that shrank.
	var weights []*graph.Weight
	var bound error
	if err := mmap.Guard(func() error { weights, bound = bind.Model(m, src); return nil }); err != nil {
		return nil, nil, nil, err
	}
	b := graph.New()
	m.Forward(b)
	g, recorded := b.Graph()
	return g, weights, notes, errors.Join(bound, recorded)
}
