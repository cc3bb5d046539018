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
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
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

// Planned lists the tensors that the settings of c demand, by GGUF's names without .weight, in the order in which the
// graph reads them. They have shapes and no values: c needs no files.
func Planned(c *checkpoint.Checkpoint) (tensors []tensor.Tensor, err error) {
	m, _, err := model(c, 0)
	if err != nil {
		return nil, err
	}
	bind.Model(m, absent{c}) // names the weights; all are missing
	b := graph.New()
	m.Forward(b)
	_, recorded := b.Graph()
	seen := map[string]bool{}
	for _, err := range recorded.(interface{ Unwrap() []error }).Unwrap() { // the embedding at least is missing
		var e *graph.TensorError
		if !errors.As(err, &e) || e.Want == nil {
			return nil, err
		}
		if !seen[e.Tensor] {
			tensors = append(tensors, tensor.Tensor{Name: e.Tensor, Shape: e.Want})
		}
		seen[e.Tensor] = true
	}
	return tensors, nil
}

// absent is a source whose tensors are all missing.
type absent struct{ *checkpoint.Checkpoint }

func (absent) Names() []string { return nil }

func (absent) Name(gguf, _ string) string { return gguf }

// Tensor names a tensor, so that the graph reports its shape.
func (absent) Tensor(gguf, _ string) (tensor.Tensor, bool) { return tensor.Tensor{Name: gguf}, false }

func from(c *checkpoint.Checkpoint, src bind.Source, context int) (*graph.Graph, []*graph.Weight, []string, error) {
	g, weights, notes, err := load(c, src, context)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return g, weights, notes, nil
}

// Unread lists the settings of c that its architecture does not ask for and
// that switch something on, whether logits depend on them or not.
func Unread(c *checkpoint.Checkpoint) []settings.Entry {
	return c.Unread(c.Family.Model.Config())
}

// load is the path that all families share: configuration, weights, graph.
func load(c *checkpoint.Checkpoint, src bind.Source, context int) (*graph.Graph, []*graph.Weight, []string, error) {
	m, notes, err := model(c, context)
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

// model makes c's model, whose weights are yet to be bound.
func model(c *checkpoint.Checkpoint, context int) (m family.Forwarder, notes []string, err error) {
	config := c.Family.Model.Config()
	if notes, err = c.Config(config); err != nil {
		return nil, nil, err
	}
	m, err = c.Family.Model.New(config, context)
	return m, notes, err
}
