package round

import "testing"

// FuzzParse: a class is the same after it was written and read again.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Parse(s)
		if err != nil {
			return
		}
		if err := c.Check(); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if again, err := Parse(c.String()); err != nil || again != c {
			t.Fatalf("%q is %v, and then %v, %v", s, c, again, err)
		}
	})
}
