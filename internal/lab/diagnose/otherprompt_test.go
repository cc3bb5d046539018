package diagnose_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
)

// TestStuckRows: a probe that writes the last row everywhere is broken, whether it does so in
// all taps or in one of each layer, which is one finding.
func TestStuckRows(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	for _, which := range []string{"", "mlp.down_proj.out"} {
		dump, _ := m.record(t, "activations=f32", "", m.texts(t, "The color of the sky is"))
		p := dump.Prompts[0]
		for name, x := range p.Taps {
			if strings.HasSuffix(name, which) || which != "" && strings.HasSuffix(name, "mlp.out") {
				y := *x
				y.Data = bytes.Repeat(x.Data[len(x.Data)/x.Shape[0]*(x.Shape[0]-1):], x.Shape[0])
				p.Taps[name] = &y
			}
		}
		d := m.diagnose(t, dump, nil)
		f := suspicions(d)
		if d.Verdict != Instrument || len(f) != 1 || f[0].Cause != "probe_rows" || !strings.Contains(f[0].Computed, "the same one") {
			t.Errorf("%q: %s", which, say(d))
		}
		if which != "" && !slices.Equal(layers(d, "probe_rows"), []int{0, 1, 2, 3}) {
			t.Errorf("%q: %s", which, say(d))
		}
	}
}

// otherIDs are those of two texts, as many of each.
func otherIDs(t *testing.T, m *model) (a, b []int32) {
	t.Helper()
	p := m.texts(t, mixed, "func main() { return 1, 2, 3, 4 } // something else again")
	a, b = p[0].IDs, p[1].IDs
	n := min(len(a), len(b), 12)
	return a[:n], b[:n]
}

// TestOthersTaps: taps of a prompt that the dump does not have are no fault of the engine.
func TestOthersTaps(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	a, b := otherIDs(t, m)
	dump, _ := m.record(t, "activations=f32", "", []*lab.Prompt{{IDs: a, Input: lab.Input{IDs: a}}})
	other, _ := m.record(t, "activations=f32", "", []*lab.Prompt{{IDs: b, Input: lab.Input{IDs: b}}})
	p := dump.Prompts[0]
	p.Taps, p.Hidden = other.Prompts[0].Taps, nil
	delete(p.Taps, "lm_head.out")
	d := m.diagnose(t, dump, nil)
	if f := suspicions(d); d.Verdict != Instrument || len(f) != 1 || f[0].Cause != "probe_stale" || !strings.Contains(f[0].Computed, "another prompt") {
		t.Error(say(d))
	}
}

// TestOthersGolden: where the golden record that gives the ids is of other prompts, the taps tell.
func TestOthersGolden(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	a, b := otherIDs(t, m)
	dump, _ := m.record(t, "activations=f32", "", []*lab.Prompt{{IDs: a, Input: lab.Input{IDs: a}}})
	gold, _ := m.record(t, "", "", []*lab.Prompt{{IDs: b, Input: lab.Input{IDs: b}}})
	dump.Prompts[0].IDs, dump.Prompts[0].Input = nil, lab.Input{}
	d := m.diagnose(t, dump, gold)
	if f := suspicions(d); d.Verdict != Input || len(f) != 1 || f[0].Cause != "input_ids" || !strings.Contains(f[0].Fix, "golden record") {
		t.Error(say(d))
	}
}
