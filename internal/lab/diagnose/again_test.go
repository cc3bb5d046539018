package diagnose_test

import (
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// TestLongLogits is an engine whose pattern of layers has another period, seen through the taps of a
// prompt that is shorter than the window, and the logits of one that is longer: those alone show the window.
func TestLongLogits(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	window := 0
	for _, n := range m.graph.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok {
			window = max(window, a.KV.Window)
		}
	}
	for _, c := range []struct {
		class, faults string
		want          map[string][]int
		quick         bool
	}{
		{"activations=f32", "window_missing@3", map[string][]int{"window_missing": {3}}, false},
		{"activations=f32", "window_missing@all", map[string][]int{"window_missing": {0, 1, 3, 4}}, false},
		{"activations=f32", "layer_pattern@3; attention_scale@3", map[string][]int{"layer_pattern": {3}, "attention_scale": {3}}, false},
		{"activations=q8_32", "window_size=128@all", map[string][]int{"window_size": {0, 1, 3, 4}}, true}, // with no window at all the logits are within rounding, too
	} {
		if !golden.Slow() && !c.quick {
			continue
		}
		t.Run(c.faults, func(t *testing.T) {
			dump, _ := m.record(t, c.class, c.faults, m.texts(t, mixed, strings.Repeat("The sky is blue. ", 22)))
			long := dump.Prompts[1]
			if len(dump.Prompts[0].IDs) >= window || len(long.IDs) <= window {
				t.Fatal(window, len(dump.Prompts[0].IDs), len(long.IDs))
			}
			long.Hidden = nil
			clear(long.Taps)
			d := m.diagnose(t, modules(dump), nil)
			named(t, d, c.want)
			closed(t, d)
		})
	}
}
