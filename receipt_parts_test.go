package karat

import (
	"context"
	"math"
	"testing"

	"github.com/karat-run/karat/internal/family"
)

// TestIdentifyWaits: a request that waits for another's reading of the weights ends with its context, and the reader
// that gives up leaves its turn to the next.
func TestIdentifyWaits(t *testing.T) {
	m, err := Load(t.Context(), "cmd/karat/demo.gguf", Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	m.parts.turn <- struct{}{}
	if _, err := m.identify(ended); err != context.Canceled {
		t.Errorf("waiting: %v", err)
	}
	<-m.parts.turn
	if _, err := m.identify(ended); err != context.Canceled {
		t.Errorf("reading: %v", err)
	}
	if _, err := m.identify(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSettingsHash: settings that fmt prints alike have hashes of their own.
func TestSettingsHash(t *testing.T) {
	m, err := Load(t.Context(), "cmd/karat/demo.gguf", Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	seen := map[[32]byte]bool{}
	for _, s := range []family.Settings{{"a": "1 b:2"}, {"a": "1", "b": "2"}, {"a": 1., "b": 2.}, {"a": []any{"x y"}}, {"a": []any{"x", "y"}},
		{"a": []any{math.Inf(-1)}}, {"a": []any{math.Inf(1)}}} {
		m.opened.Checkpoint.Values, m.parts.found = s, nil
		id, err := m.identify(t.Context())
		if err != nil || seen[id.Settings] {
			t.Errorf("%q: the hash of other settings, %v", s, err)
		}
		seen[id.Settings] = true
	}
}
