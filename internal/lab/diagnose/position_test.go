package diagnose_test

import (
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestPositions wants positions that are off by no constant, and other bases under a scaling, named
// through the taps of modules, where attention alone shows them.
func TestPositions(t *testing.T) {
	for _, c := range []struct {
		model, faults, cause string
		layers               []int
		quick                bool
	}{
		{"tiny-gemma3", "rope_position:attn_q_rope+attn_k_rope=slot@sliding", "rope_position", []int{0, 1, 3, 4}, false},
		{"tiny-gemma3", "rope_position:attn_k_rope=slot@1", "rope_position", []int{1}, false},
		{"tiny-qwen3", "rope_position:attn_q_rope+attn_k_rope=bos@all", "rope_position", []int{0, 1, 2, 3}, true},
		{"tiny-qwen3", "rope_position:attn_q_rope=-2@2", "rope_position", []int{2}, false},
		{"tiny-llama", "rope_theta=1e4@all", "rope_theta", []int{0, 1, 2, 3}, false},
	} {
		if !golden.Slow() && !c.quick {
			continue
		}
		t.Run(c.model+"/"+c.faults, func(t *testing.T) {
			m := tiny(t, c.model)
			text := mixed
			if strings.Contains(c.faults, "slot") {
				text = strings.Repeat("The sky is blue. ", 15)
			}
			dump, _ := m.record(t, "activations=f32", c.faults, m.texts(t, text))
			d := m.diagnose(t, modules(dump), nil)
			named(t, d, map[string][]int{c.cause: c.layers})
			closed(t, d)
		})
	}
}

// TestFarPosition wants any number of positions found where rope has a tap.
func TestFarPosition(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	dump, _ := m.record(t, "activations=f32", "rope_position:attn_q_rope=37@1", m.texts(t, mixed))
	d := m.diagnose(t, dump, nil)
	named(t, d, map[string][]int{"rope_position": {1}})
	if by := d.Findings[0].Detail["shift"]; by != 37.0 {
		t.Error(by, say(d))
	}
}
