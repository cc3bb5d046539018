package diagnose_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tensor"
)

// outputs leaves the layers' outputs in a dump.
func outputs(dump *lab.Record) *lab.Record {
	for _, p := range dump.Prompts {
		p.Hidden = nil
		maps.DeleteFunc(p.Taps, func(name string, _ *tensor.Tensor) bool { return strings.Count(name, ".") != 3 })
	}
	return dump
}

// TestEpsilon is another epsilon in all norms of some layers. Layers' outputs show them all in one equation. With all taps the
// norms of queries and keys are no broken probes, whose effect on attention hides behind keys in half precision.
func TestEpsilon(t *testing.T) {
	type engine struct {
		model, class, faults string
		outputs              bool
		layers               []int
	}
	for _, c := range golden.First(3, []engine{
		{"tiny-llama", "", "norm_eps=1e-3@2", true, []int{2}},
		{"tiny-gemma3", "activations=f32,kv=f16", "norm_eps=1e-3@sliding", false, []int{0, 1, 3, 4}},
		{"tiny-qwen3", "activations=bf16", "norm_eps:attn_q_norm=1e-3@2", false, []int{2}}, // far below the rounding
		{"tiny-qwen3", "", "norm_eps@2", true, []int{2}},
		{"tiny-gemma4", "", "norm_eps@full", true, []int{3, 7}}, // not in the norm of the layers' inputs, an input of the equation
	}) {
		t.Run(c.model, func(t *testing.T) {
			m := tiny(t, c.model)
			dump, _ := m.record(t, c.class, c.faults, m.texts(t, "The color of the sky is", mixed))
			if c.outputs {
				outputs(dump)
			}
			named(t, m.diagnose(t, dump, nil), map[string][]int{"norm_eps": c.layers})
		})
	}
}
