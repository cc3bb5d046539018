package jinja

import (
	"strings"
	"testing"
)

func TestDecodeJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"b": 1, "a": [1.0, 1e2, -0, 9223372036854775807, true, null], "b": 2}`: `{"b": 2, "a": [1.0, 100.0, 0, 9223372036854775807, true, null]}`,
		` "\u00e9\ud83d\ude00\ud83dx\udc00\\\/\b" `:                              `"é😀` + "\ufffdx\ufffd" + `\\/\b"`,
		`1e400`:    `Infinity`,
		`-1.5E-3`:  `-0.0015`,
		`[[], {}]`: `[[], {}]`,
	} {
		v, err := DecodeJSON([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		vars := NewDict()
		vars.Set("x", v)
		if got, err := run("{{ x | tojson }}", vars, Options{}); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	deep := strings.Repeat("[", 502) + strings.Repeat("]", 502)
	for in, want := range map[string]string{
		``: "byte 0", `{`: "byte 1", `[1,]`: "byte 3", `[1 2]`: "byte 3", `{"a" 1}`: "byte 5", `{"a":1,}`: "byte 7", `{1:2}`: "byte 1",
		`"a`: "byte 2", `"\x"`: "byte 2", `"\u12"`: "byte 5", `01`: "byte 1", `1.`: "byte 2", `1e`: "byte 2", `-`: "byte 1", `tru`: "byte 3",
		`1 1`: "byte 2", "\"\n\"": "byte 1", "\"\xff\"": "UTF-8", deep: "nested deeper", "[1, 12345678901234567890]": "byte 4: an integer of more than 64 bits", `NaN`: "byte 0",
		`"\`: "byte 2", `"\ud800\u1"`: "byte 10",
	} {
		if v, err := DecodeJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, %v; want an error at %s", in, v, err, want)
		}
	}
}

// TestValues: values made by hand equal decoded ones.
func TestValues(t *testing.T) {
	d := NewDict()
	d.Set("s", String("a\xffb"))
	d.Set("n", Int(-3))
	d.Set("f", Float(2))
	d.Set("b", Bool(true))
	d.Set("l", List(None, Int(1)))
	d.Set("n", Int(4))
	vars := NewDict()
	vars.Set("x", d)
	vars.Set("twice", Function("twice", 1, 2, func(a []Value) (Value, error) { return List(a[0], a[0]), nil }))
	got, err := run("{{ x }} {{ twice(x.n) }} {{ twice(1, 2) }}", vars, Options{})
	if want := "{'s': 'a\ufffdb', 'n': 4, 'f': 2.0, 'b': True, 'l': [None, 1]} [4, 4] [1, 1]"; got != want || err != nil {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	for _, call := range []string{"twice()", "twice(1, 2, 3)", "twice(x=1)"} {
		if got, err := run("{{ "+call+" }}", vars, Options{}); err == nil {
			t.Errorf("%s: %s", call, got)
		}
	}
	if v, ok := d.Get("n"); !ok || v != Int(4) || d.Len() != 5 || strings.Join(d.Keys(), "") != "snfbl" {
		t.Errorf("%v, %v of %v", v, ok, d.Keys())
	}
	if _, ok := d.Get("x"); ok || NewDict().Len() != 0 {
		t.Error("a key that is not there")
	}
	if s, ok := Text(String("a")); s != "a" || !ok {
		t.Error("Text")
	}
	if _, ok := Items(d); ok || Format(List(Int(1), String("a"))) != "[1, 'a']" {
		t.Error("Items or Format")
	}
}

// TestMarkCopies: marking leaves the original as it was.
func TestMarkCopies(t *testing.T) {
	d := NewDict()
	d.Set("a", List(String("x")))
	m := Mark(d).(*Dict)
	m.Set("b", None)
	vars := NewDict()
	vars.Set("d", d)
	vars.Set("m", m)
	tmpl, err := Parse("{{ d }}{{ m.a[0] }}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := tmpl.Segments(t.Context(), vars)
	if err != nil || len(parts) != 2 || parts[0] != (Segment{Text: "{'a': ['x']}"}) || parts[1] != (Segment{Text: "x", Marked: true}) {
		t.Errorf("%+v, %v", parts, err)
	}
}

func TestConcurrent(t *testing.T) {
	tmpl, err := Parse("{% macro m(n) %}{{ n }}{{ 1 if false }}{{ nope.x if n > 90 }}{% endmacro %}{% for i in range(x) %}{{ m(i) }}{% endfor %}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan int)
	for g := range 8 {
		go func() {
			n := 0
			for range 50 {
				vars := NewDict()
				vars.Set("x", Int(int64(20*g)))
				s, err := tmpl.Execute(t.Context(), vars)
				if (err != nil) != (20*g > 91) {
					n = -1000
				}
				n += len(s)
			}
			done <- n
		}()
	}
	sum := 0
	for range 8 {
		sum += <-done
	}
	if want := 50 * (0 + 30 + 70 + 110 + 150); sum != want {
		t.Errorf("%d bytes, want %d", sum, want)
	}
}
