package diagnose_test

import (
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/round"
)

// TestSaid: what a dump says of its rounding is reported as it says it, and where all
// positions agree that is all of them, to the bit.
func TestSaid(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	ids := []int32{1, 2, 3, 4, 5, 6} // a sixth, six times, is less than 1
	dump, _ := m.record(t, "activations=f32", "", []*lab.Prompt{{IDs: ids, Input: lab.Input{IDs: ids}}})
	dump.Declared = round.Class{Activations: round.F32, KV: round.F32}
	d := m.diagnose(t, dump, nil)
	if f := d.Floors; f.Activations != "f32" || f.KV != "f32" || !f.Declared {
		t.Errorf("activations %s, keys and values %s, as the dump says: %v", f.Activations, f.KV, f.Declared)
	}
	if l := d.Logits[0]; l.Top1 != 1 || l.Top10 != 1 {
		t.Errorf("the same first of %d positions: %v, of the first ten %v", len(ids), l.Top1, l.Top10)
	}
}

// TestSaidOfRounding: a class of rounding is not said to make all equations hold where some do not,
// and another kind's speeds are said by whose they are.
func TestSaidOfRounding(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	dump, _ := m.record(t, "activations=f32", "rope_theta@2", m.texts(t, mixed))
	d := m.diagnose(t, dump, nil)
	for _, f := range d.Findings {
		switch f.Cause {
		case "numeric_accumulation":
			if strings.HasPrefix(f.Evidence, "all equations hold") {
				t.Errorf("%s: %s", f.Cause, f.Evidence)
			}
		case "rope_theta":
			t.Log(f.Computed)
		}
	}
	if len(d.Findings) < 2 || !has(d, "numeric_accumulation") || !has(d, "rope_theta") {
		t.Error(say(d))
	}
}
