package diagnose_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tensor"
)

// only drops all taps but those whose names end in one of ends.
func only(dump *lab.Record, ends ...string) *lab.Record {
	for _, p := range dump.Prompts {
		p.Hidden = nil
		maps.DeleteFunc(p.Taps, func(name string, _ *tensor.Tensor) bool {
			return !slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
		})
	}
	return dump
}

// TestNarrow: a finding between coarse taps blames no single operation, and says which taps tell. The norm behind attention
// and the sum are not among them, since the equation of the next layer has them, too, and holds.
func TestNarrow(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "x_clipped@3", m.texts(t, mixed))
	full := m.diagnose(t, dump, nil)
	if f := full.Findings[0]; len(f.Among)+len(f.AddTaps) > 0 || full.Coverage.Spanning > 0 {
		t.Errorf("with all taps: %v, %v, %d", f.Among, f.AddTaps, full.Coverage.Spanning)
	}
	d := m.diagnose(t, only(dump, "o_proj.out", "mlp.out"), nil)
	if len(suspicions(d)) != 1 || !slices.Equal(layers(d, "unknown"), []int{3}) {
		t.Fatal(say(d))
	}
	f := d.Findings[0]
	if want := []string{"RMSNorm ffn_norm", "Linear ffn_gate", "Linear ffn_up", "GLU glu", "Linear ffn_down"}; !slices.Equal(f.Among, want) {
		t.Errorf("among %q, want %q", f.Among, want)
	}
	const layer = "model.layers.3."
	if want := []string{layer + "post_attention_layernorm.out", layer + "mlp.gate_proj.out", layer + "mlp.up_proj.out", layer + "mlp.down_proj.in"}; !slices.Equal(f.AddTaps, want) {
		t.Errorf("taps %q, want %q", f.AddTaps, want)
	}
	if want := "mlp.down_proj.in (llama.cpp: ffn_norm-3, ffn_gate-3, ffn_up-3, ffn_swiglu-3)"; !strings.Contains(f.Fix, want) {
		t.Errorf("%q does not have %q", f.Fix, want)
	}
	if c := d.Coverage; c.Spanning < 8 || c.Longest < 7 {
		t.Errorf("%d equations span several operations, up to %d", c.Spanning, c.Longest)
	}
}

// TestSharedThroughLayers: where outputs of layers alone are tapped, the equation of a layer that reads another's keys has these,
// too. A cause is none of those keys, nor of what all layers read, if it is one of each layer.
func TestSharedThroughLayers(t *testing.T) {
	golden.SkipFast(t, "it takes more than five seconds")
	for _, c := range []struct {
		faults, cause string
		layers        []int
		quick         bool
	}{
		{"attention_scale@shared", "attention_scale", []int{4, 5, 6, 7}, true},
		{"attention_scale@sliding", "attention_scale", []int{0, 1, 2, 4, 5, 6}, false},
		{"norm_order@sliding", "norm_order", []int{0, 1, 2, 4, 5, 6}, false},
		{"x_last_row:ffn_down", "unknown", []int{0, 1, 2, 3, 4, 5, 6, 7}, false},
	} {
		if !golden.Slow() && !c.quick {
			continue
		}
		t.Run(c.faults, func(t *testing.T) {
			m := tiny(t, "tiny-gemma4")
			dump, _ := m.record(t, "", c.faults, m.texts(t, mixed))
			d := m.diagnose(t, outputs(dump), nil)
			if len(suspicions(d)) != 1 || !slices.Equal(layers(d, c.cause), c.layers) {
				t.Error(say(d))
			}
		})
	}
}

// TestTurnedAlone: queries alone that turn at another base's speeds are named though a layer's output is the next tap.
func TestTurnedAlone(t *testing.T) {
	golden.SkipFast(t, "it takes more than five seconds")
	m := tiny(t, "tiny-llama")
	dump, _ := m.record(t, "", "rope_theta:attn_q_rope@2", m.texts(t, mixed))
	d := m.diagnose(t, outputs(dump), nil)
	named(t, d, map[string][]int{"rope_theta": {2}})
	if side := d.Findings[0].Detail["side"]; side != "queries" {
		t.Errorf("of %v, want queries", side)
	}
}
