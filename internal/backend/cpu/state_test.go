package cpu

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

func TestState(t *testing.T) {
	b := New(Options{Threads: 1})
	t.Cleanup(func() { b.Close() }) // after its cache
	backendtest.States(t, func(g *graph.Graph, pool *kv.Pool) (func(*backend.Step) error, func(*graph.State, *kv.Sequence) []float32) {
		c, err := b.NewCache(g, pool)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*cache).begin, c.(*cache).state
	})
}
