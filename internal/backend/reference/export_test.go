package reference

import (
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// Inside readies a cache for a step, and gives what a state of it holds. (backendtest imports this
// package, so tests that use it stand outside.)
func Inside(c backend.Cache) (begin func(*backend.Step) error, state func(*graph.State, *kv.Sequence) []float64) {
	begin = func(s *backend.Step) error {
		c.(*cache).begin(s)
		return nil
	}
	return begin, c.(*cache).state
}

// Stored returns all that a cache holds of keys and values.
func Stored(c backend.Cache) (all []float64) {
	for _, s := range c.(*cache).stores {
		all = append(append(all, s.k...), s.v...)
	}
	return all
}
