package diagnose_test

import (
	"testing"

	"github.com/karat-run/karat/internal/round"
)

// TestKept: the forms in whole numbers of other engines' keys and values are told apart, turned or not.
func TestKept(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	for _, kv := range []round.Format{round.KVQ8, round.KVQ8Turned, round.KVQ4, round.KVQ4Turned} {
		dump, _ := m.record(t, "activations=f32,kv="+string(kv), "", m.texts(t, mixed))
		if d := m.diagnose(t, dump, nil); d.Floors.KV != string(kv) || !good(d.Verdict) {
			t.Errorf("%s is taken for %s: %s", kv, d.Floors.KV, say(d))
		}
	}
}
