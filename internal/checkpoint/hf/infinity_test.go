package hf

import "testing"

// TestFinite: Python's numbers that are none become objects, but for text.
func TestFinite(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": [0.0, Infinity]}`:                      `{"a": [0.0, {"__float__":"Infinity"}]}`,
		`{"a": -Infinity, "b":NaN}`:                   `{"a": {"__float__":"-Infinity"}, "b":{"__float__":"NaN"}}`,
		`{"Infinity": "a \"NaN\" \\", "b": Infinity}`: `{"Infinity": "a \"NaN\" \\", "b": {"__float__":"Infinity"}}`,
		`"\`:  `"\`,
		`"Na`: `"Na`,
		``:    ``,
	} {
		if got := string(Finite([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
