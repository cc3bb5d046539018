package jinja

import (
	"strings"
	"testing"
)

func TestVars(t *testing.T) {
	vars, err := Vars(map[string]any{"a": map[string]any{"z": nil, "b": true, "f": 1.0}, "l": []any{1, int64(2), "x", List(Int(3))}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := run("{{ a }} {{ l }}", vars, Options{}); err != nil || got != "{'b': True, 'f': 1.0, 'z': None} [1, 2, 'x', [3]]" {
		t.Errorf("%s, %v", got, err)
	}
	for want, x := range map[string]any{"a chan int is no value": make(chan int), "a []string is no value": []any{[]string{"x"}}, "deeper": around(nil, 502)} {
		if _, err := Vars(map[string]any{"x": x}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// around is n lists inside each other.
func around(x any, n int) any {
	for range n {
		x = []any{x}
	}
	return x
}
