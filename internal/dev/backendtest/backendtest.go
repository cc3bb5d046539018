// Package backendtest is the conformance suite of backends. It builds small
// graphs of every operation and compares what a backend computes with package
// ref, which is the operations' meaning.
//
// Files, users before the used: backendtest.go, value.go, special.go, attribute.go, adapter.go, hook.go,
// decoder.go, operation.go, part.go, patch.go, row.go, scan.go, sequence.go, step.go, sketch.go, machine.go, weight.go.
package backendtest

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
)

// Run tests the backend that open makes; each call of open is followed by a
// Close. With -short it leaves out the largest steps.
func Run(t *testing.T, open func() backend.Backend, tol Tolerances) {
	tol.Short = tol.Short || testing.Short()
	s := &suite{open, tol}
	t.Run("operations", s.operations)
	t.Run("sequences", s.sequences)
	t.Run("plans", s.plans)
	t.Run("pages", s.pages)
	if tol.Stores {
		return
	}
	t.Run("attributes", s.decoder)
	t.Run("ahead", s.ahead)
	t.Run("special", s.special)
	t.Run("positions", s.pastTable)
	t.Run("states", s.states)
	t.Run("pools", s.pools)
	t.Run("pictures", s.pictures)
	t.Run("route", s.routes)
	t.Run("wild", s.wild)
	t.Run("rows", s.outputs)
	t.Run("embeddings", s.embeddings)
	t.Run("adapters", s.adapters)
	t.Run("taps", s.taps)
	t.Run("values", s.values)
	t.Run("hooks", s.hooks)
	t.Run("sections", s.sections)
	t.Run("groups", s.groups)
	t.Run("deepstack", s.deepstack)
	t.Run("cancel", s.cancel)
	t.Run("bad steps", s.badSteps)
	t.Run("bad graphs", s.badGraphs)
}
