package reference_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

func TestState(t *testing.T) {
	backendtest.States(t, func(g *graph.Graph, pool *kv.Pool) (func(*backend.Step) error, func(*graph.State, *kv.Sequence) []float64) {
		c, err := reference.Backend{}.NewCache(g, pool)
		if err != nil {
			t.Fatal(err)
		}
		return reference.Inside(c)
	})
}
