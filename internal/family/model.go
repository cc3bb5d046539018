package family

import "github.com/karat-run/karat/internal/graph"

// Model makes what runs.
type Model struct {
	Config func() any // a pointer to an empty configuration, whose json tags are settings

	// New is the model of a configuration, whose weights are yet to be bound, opened for
	// sequences of so many tokens; 0 is the longest that it was made for.
	New func(config any, context int) (Forwarder, error)
}

// Forwarder is a model with fields for its weights.
type Forwarder interface {
	Forward(g graph.Builder) *graph.Node
}

// Of makes a Model of a family's New.
func Of[C any, M Forwarder](newModel func(C) (M, error)) Model {
	return OfContext(func(c C, _ int) (M, error) { return newModel(c) })
}

// OfContext is Of for a family whose rotation depends on the context that a model is
// opened for.
func OfContext[C any, M Forwarder](newModel func(c C, context int) (M, error)) Model {
	return Model{
		Config: func() any { return new(C) },
		New:    func(config any, context int) (Forwarder, error) { return newModel(*config.(*C), context) },
	}
}
