package numerics

import "testing"

func TestParse(t *testing.T) {
	for _, c := range []struct {
		precision, kv string
		want          Numerics
		activations   string
		bytes         int64
	}{
		{"", "", Numerics{"fast", "f16"}, "i16_32", 2},
		{"fast", "f32", Numerics{"fast", "f32"}, "i16_32", 4},
		{"f32", "", Numerics{"f32", "f32"}, "f32", 4},
		{"f32", "f16", Numerics{"f32", "f16"}, "f32", 2},
		{"f64", "", Numerics{"f64", "f64"}, "f64", 8},
	} {
		n, err := Parse(c.precision, c.kv)
		if err != nil || n != c.want || n.Activations() != c.activations || n.KVBytes() != c.bytes {
			t.Errorf("Parse(%q, %q) = %v, %v", c.precision, c.kv, n, err)
		}
		b, err := n.Backend(1)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
	for _, c := range [][2]string{{"f16", ""}, {"fast", "q8"}, {"fast", "f64"}, {"f64", "f16"}, {"f64", "f32"}} {
		if n, err := Parse(c[0], c[1]); err == nil {
			t.Errorf("Parse(%q, %q) = %v", c[0], c[1], n)
		}
	}
	if _, err := (Numerics{"f64", "f64"}).Backend(1, "glu"); err == nil {
		t.Error("f64 without a fusion")
	}
	for _, threads := range []int{-1, 1025} {
		if _, err := (Numerics{"fast", "f16"}).Backend(threads); err == nil {
			t.Errorf("%d threads", threads)
		}
	}
}
