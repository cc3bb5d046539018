package family

import "github.com/karat-run/karat/internal/graph"

// Model makes what runs.
type Model struct {
	Config func() any                          // a pointer to an empty configuration, whose json tags are settings
	New    func(config any) (Forwarder, error) // the model of a configuration, whose weights are yet to be bound
}

// Forwarder is a model with fields for its weights.
type Forwarder interface {
	Forward(g graph.Builder) *graph.Node
}

// Of makes a Model of a family's New.
func Of[C any, M Forwarder](newModel func(C) (M, error)) Model {
	return Model{
		Config: func() any { return new(C) },
		New:    func(config any) (Forwarder, error) { return newModel(*config.(*C)) },
	}
}
