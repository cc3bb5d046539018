package diagnose_test

import (
	"strings"
	"testing"
)

// TestExponent: powers of the root or the square of the right theta are those of another exponent.
func TestExponent(t *testing.T) {
	m := tiny(t, "qwen3moe")
	for f, want := range map[string]string{
		"rope_theta=root@all": "theta 1000 is the root of 1e6: the exponent is probably i/dim instead of 2i/dim.",
		"rope_theta=1e12@all": "theta 1e12 is the square of 1e6: the exponent is probably 4i/dim instead of 2i/dim.",
		"rope_theta=1e4@all":  "Read rope_theta",
	} {
		dump, _ := m.record(t, "activations=f32", f, m.texts(t, mixed))
		d := m.diagnose(t, dump, nil)
		named(t, d, map[string][]int{"rope_theta": {0, 1, 2, 3}})
		if len(d.Findings) == 0 || !strings.HasPrefix(d.Findings[0].Fix, want) {
			t.Errorf("%s: want %q, got %q", f, want, d.Findings[0].Fix)
		}
	}
}
