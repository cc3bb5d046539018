package cpu

import (
	"testing"

	"github.com/karat-run/karat/internal/graph"
)

// TestForeignCache: a cache has room for its backend's threads only.
func TestForeignCache(t *testing.T) {
	store := &graph.KV{Heads: 1, Dim: 32}
	one, three := newAttending(t, Options{Threads: 1}, 1, store, 1, 1), newAttending(t, Options{Threads: 3}, 1, store, 1, 1)
	for _, a := range []*attending{one, three} {
		a.step(0, 1)
		a.e.vocab = 1
	}
	one.e.step.Cache, three.e.step.Cache = three.e.step.Cache, one.e.step.Cache
	for _, a := range []*attending{one, three} {
		if _, err := a.e.Run(t.Context(), a.e.step, nil); err == nil || err.Error() != "cpu: the step's cache is not this backend's" {
			t.Errorf("with the cache of another backend: %v", err)
		}
	}
}
