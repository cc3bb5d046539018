package family

import "testing"

// TestUnlimited drops limits that no step reaches, and keeps the others for the model to refuse.
func TestUnlimited(t *testing.T) {
	for _, x := range []struct {
		least, most any
		kept        bool
	}{
		{0., map[string]any{"__float__": "Infinity"}, false},
		{0., 1e308, false},
		{0., 1e30, true},
		{0., 0.1, true},
		{1e-3, 1e308, true},
		{0., map[string]any{"__float__": "NaN"}, true},
		{0., "Infinity", true},
	} {
		s := Settings{"time_step_limit": []any{x.least, x.most}}
		Unlimited(s, nil)
		if _, kept := s["time_step_limit"]; kept != x.kept {
			t.Errorf("[%v %v]: kept %v, want %v", x.least, x.most, kept, x.kept)
		}
	}
}
