// Package arch turns a checkpoint into the recorded graph of its family. Each family is a folder below arch,
// and a line in package registry; docs/adding-a-model.md describes how to add a family.
package arch

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/bind"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// Load records the graph of c's model over its bound weights. The notes list settings left unread. The error
// joins all disagreements between the file's tensors and its configuration.
func Load(c *checkpoint.Checkpoint) (g *graph.Graph, notes []string, err error) {
	return LoadFor(c, 0)
}

// LoadFor is Load of a model opened for sequences of so many tokens: some models choose their rotation by the
// length; 0 is the model's longest.
func LoadFor(c *checkpoint.Checkpoint, context int) (g *graph.Graph, notes []string, err error) {
	l, err := load(c, c, context)
	return l.graph, l.notes, err
}

// Graphs are the graphs of a model with drafts by its head: the model's, the same nodes with keys and values of the
// head, and the head's, sharing these. Without a head Fed is Model, and Draft nil.
type Graphs struct{ Model, Fed, Draft *graph.Graph }

// Whole returns the nodes of all graphs.
func (g Graphs) Whole() *graph.Graph {
	if g.Draft == nil {
		return g.Fed
	}
	return &graph.Graph{Nodes: slices.Concat(g.Fed.Nodes, g.Draft.Nodes)}
}

// LoadHead is LoadFor of a model for drafts by its head.
func LoadHead(c *checkpoint.Checkpoint, context int) (g Graphs, notes []string, err error) {
	l, err := load(c, c, context)
	p, ok := l.model.(family.Predictor)
	if err != nil || !ok || p.Decoder().Next == nil {
		return Graphs{l.graph, l.graph, nil}, l.notes, err
	}
	d := p.Decoder()
	feeding, drafting := graph.New(), graph.New()
	result := d.Feed(feeding)
	d.Draft(drafting)
	all, fed := feeding.Graph()
	draft, drafted := drafting.Graph()
	if err := errors.Join(fed, drafted); err != nil {
		return Graphs{}, l.notes, fmt.Errorf("%s: %w", c.Path, err)
	}
	model := &graph.Graph{Nodes: all.Nodes[:result.ID+1]}
	return Graphs{model, all.Needed(result), draft}, l.notes, nil
}

// Drafter is LoadFor of the head alone, behind the model's pass, for the lab. PyTorch's names are the publisher's.
func Drafter(c *checkpoint.Checkpoint, context int) (*graph.Graph, []string, error) {
	l, err := load(c, c, context)
	p, ok := l.model.(family.Predictor)
	if err != nil {
		return nil, l.notes, err
	}
	if !ok || p.Decoder().Next == nil {
		return nil, l.notes, fmt.Errorf("%s: the model has no head for drafts", c.Path)
	}
	b := graph.New()
	p.Decoder().Whole(b)
	g, err := b.Graph()
	if err != nil {
		return nil, l.notes, fmt.Errorf("%s: %w", c.Path, err)
	}
	for _, n := range g.Nodes {
		name, ends := strings.CutSuffix(n.HF, ".out")
		if n.HF = c.Family.Apart(name, c.Values); ends && n.HF != "" {
			n.HF += ".out"
		}
	}
	return g, l.notes, nil
}

// Stored is Load over the tensors as stored in the files, without copies: a graph to be read, not to be run.
func Stored(c *checkpoint.Checkpoint) (g *graph.Graph, notes []string, err error) {
	l, err := load(c, checkpoint.Stored{Checkpoint: c}, 0)
	return l.graph, l.notes, err
}

// Tower records the graph of a tower over its bound weights, and says how it takes pictures.
func Tower(t *checkpoint.Tower) (g *graph.Graph, s family.Sight, err error) {
	g, _, s, err = tower(t)
	return g, s, err
}

// TowerWeights lists the tensors of a tower in the order of the files.
func TowerWeights(t *checkpoint.Tower) ([]*graph.Weight, error) {
	_, weights, _, err := tower(t)
	sortWeights(weights, t)
	return weights, err
}

// sortWeights sorts weights in the order of the files.
func sortWeights(weights []*graph.Weight, src bind.Source) {
	at := make(map[string]int, len(weights))
	for i, name := range src.Names() {
		at[name] = i
	}
	slices.SortFunc(weights, func(a, b *graph.Weight) int {
		return at[src.Name(a.GGUF, a.HF)] - at[src.Name(b.GGUF, b.HF)]
	})
}

func tower(t *checkpoint.Tower) (g *graph.Graph, weights []*graph.Weight, s family.Sight, err error) {
	config := t.Kind.Model.Config()
	if err = t.Config(config); err != nil {
		return nil, nil, s, fmt.Errorf("%s: %w", t.Path, err)
	}
	m, err := t.Kind.Model.New(config, 0, 0)
	if err != nil {
		return nil, nil, s, fmt.Errorf("%s: the part for pictures: %w", t.Path, err)
	}
	g, weights, bound, recorded := record(m, t)
	if err = errors.Join(bound, recorded); err != nil {
		return nil, nil, s, fmt.Errorf("%s: %w", t.Path, err)
	}
	return g, weights, m.(family.Eye).Sight(), nil
}

// Weights lists the tensors of c's model in the order of the files, with the names of both formats and of the
// files. Notes and errors are Load's: a file taken by Load names each of its tensors.
func Weights(c *checkpoint.Checkpoint) (weights []*graph.Weight, notes []string, err error) {
	l, err := load(c, checkpoint.Stored{Checkpoint: c}, 0)
	sortWeights(l.weights, c)
	return l.weights, l.notes, err
}

// Planned lists the tensors demanded by the settings of c, by GGUF's names without .weight, in the graph's
// reading order. The tensors have shapes and no values: c needs no files.
func Planned(c *checkpoint.Checkpoint) (tensors []tensor.Tensor, err error) {
	m, _, err := model(c, 0)
	if err != nil {
		return nil, err
	}
	bind.Model(m, absent{c}) // names the weights; all are missing
	b := graph.New()
	m.Forward(b)
	if p, ok := m.(family.Predictor); ok && p.Decoder().Next != nil {
		p.Decoder().Draft(b)
	}
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

// Tensor returns a tensor with a name only, for the graph to report its shape.
func (absent) Tensor(gguf, _ string) (tensor.Tensor, bool) { return tensor.Tensor{Name: gguf}, false }

// Unread lists the settings of c never read by its architecture that switch something on, with or without
// effect on logits.
func Unread(c *checkpoint.Checkpoint) []settings.Entry {
	return c.Unread(c.Family.Model.Config())
}

// loaded is a model with weights, and its graph.
type loaded struct {
	model   family.Forwarder
	graph   *graph.Graph
	weights []*graph.Weight
	notes   []string
}

// load makes the graph of any family from its configuration and weights.
func load(c *checkpoint.Checkpoint, src bind.Source, context int) (l loaded, err error) {
	defer func() {
		if err != nil {
			l, err = loaded{}, fmt.Errorf("%s: %w", c.Path, err)
		}
	}()
	if l.model, l.notes, err = model(c, context); err != nil {
		return l, err
	}
	var bound, recorded error
	l.graph, l.weights, bound, recorded = record(l.model, src)
	spare, bound := dropSpare(c, bound)
	if spare > 0 {
		l.notes = append(l.notes, fmt.Sprintf("%d biases of zeros are set aside: the model has no biases there", spare))
	}
	return l, errors.Join(bound, recorded)
}

// record binds weights to a model, and records its graph; the two errors are of the two steps.
func record(m family.Forwarder, src bind.Source) (g *graph.Graph, weights []*graph.Weight, bound, recorded error) {
	// Binding may read the tensors of a shrunk file.
	if err := mmap.Guard(func() error { weights, bound = bind.Model(m, src); return nil }); err != nil {
		return nil, nil, err, nil
	}
	b := graph.New()
	m.Forward(b)
	g, recorded = b.Graph()
	return g, weights, bound, recorded
}

// dropSpare drops the errors about biases of zeros in a packed folder beyond the model's tensors, and counts these
// biases: AutoGPTQ gave every layer one (auto_gptq/nn_modules/qlinear).
func dropSpare(c *checkpoint.Checkpoint, bound error) (spare int, rest error) {
	all, ok := bound.(interface{ Unwrap() []error })
	if !ok || c.Packing == "" {
		return 0, bound
	}
	var errs []error
	for _, err := range all.Unwrap() {
		var e *graph.TensorError
		if errors.As(err, &e) && (e.Fault == graph.Unclaimed || e.Fault == graph.Refused) && isZeroBias(c, e.Tensor) {
			spare++
		} else {
			errs = append(errs, err)
		}
	}
	return spare, errors.Join(errs...)
}

// isZeroBias reports whether a tensor is a bias of zeros.
func isZeroBias(c *checkpoint.Checkpoint, name string) bool {
	t, ok := c.Tensor("", name)
	if !ok || !strings.HasSuffix(name, ".bias") {
		return false
	}
	err := mmap.Guard(func() (err error) {
		t, err = t.Whole()
		ok = err == nil && len(bytes.Trim(t.Data, "\x00")) == 0
		return err
	})
	return ok && err == nil
}

// model makes c's model, with unbound weights.
func model(c *checkpoint.Checkpoint, context int) (m family.Forwarder, notes []string, err error) {
	config := c.Family.Model.Config()
	if notes, err = c.Config(config); err != nil {
		return nil, nil, err
	}
	m, err = c.Family.Model.New(config, c.ContextLength(), context)
	return m, notes, err
}
