package mistake

import "testing"

// TestBeforeTheEnd: features whose rows lie past the end of a weight count for nothing only where enough others are left.
func TestBeforeTheEnd(t *testing.T) {
	for _, c := range []struct{ width, laid, read, want int }{
		{160, 416, 512, 130}, {256, 32, 256, 32}, {256, 8, 256, 256}, // of which 8 are left
		{64, 4, 32, 8}, {48, 4, 32, 48}, {8, 416, 512, 8},
	} {
		if got := beforeEnd(c.width, c.laid, c.read); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
