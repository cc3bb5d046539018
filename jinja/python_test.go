package jinja

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestPython has small things that were once unlike Jinja2 3.1.6, each with its
// text, or "!" and what its error says.
func TestPython(t *testing.T) {
	for src, want := range map[string]string{
		"{{ 'abc' | truncate(255, true, x) }}":            "abc",
		"{{ 'a' | truncate(0, true, x) }}":                "a",
		"{{ ('abc' * 100) | truncate(9, true, x) }}":      "!'x' is undefined",
		"{{ 'a' | truncate(5, true, []) }}":               "a",
		"{{ 'a' | truncate(5, true, 3) }}":                "!no len()",
		"{{ ('a' * 17) | truncate(5, true, ()) }}":        "!concatenate",
		"{{ range(20) | list | truncate(3, true, [1]) }}": "[0, 1, 1]",
		"{{ ('ab cd ' * 9) | truncate(8) }}":              "ab...",
		"a{#":                                             "a",
		"{#-":                                             "",
		"{{ 1 }}{#":                                       "1",
		"a\n{#\n":                                         "a\n",
		"a{# x":                                           "!Missing end of comment",
		"a {#- ":                                          "!Missing end of comment",
		"{{ range(5).count(3) }}{{ range(5).count('a') }}":                       "10",
		"{{ range(5).count(2.0) }}{{ range(0, 10, 2).index(4) }}":                "12",
		"{{ range(5).index(9) }}":                                                "!9 is not in range",
		"{{ range(5).count() }}":                                                 "!argument",
		"{{ 0 / -2 }} {{ 0 // -2 }} {{ 0 % -2 }} {{ false / -1 }}":               "-0.0 0 0 -0.0",
		"{{ 2 ** 2.5 }}":                                                         "5.656854249492381",
		"{{ 2 ** 0.5 }} {{ 10 ** 0.3 }}":                                         "1.4142135623730951 1.9952623149688795",
		"{{ 0.5 ** 2.5 }} {{ 3 ** -1.5 }}":                                       "0.1767766952966369 0.19245008972987526",
		"{% block a required %} \n {% endblock %}":                               "!Required block 'a' not found",
		"{% block a required %}{# c #}{% endblock %}":                            "!Required block 'a' not found",
		"{% block a required %}x{% endblock %}":                                  "!can only contain comments or whitespace",
		"{% block a required %}{{ x }}{% endblock %}":                            "!can only contain comments or whitespace",
		"{% block a required %}{% if x %}{% endif %}{% endblock %}":              "!can only contain comments or whitespace",
		"{% if true %}{% extends 'x' %}{% endif %}":                              "!no loader",
		"{% if false %}{% extends 'x' %}{% endif %}a":                            "a",
		"{% block a %}{% if false %}{% extends 'x' %}{% endif %}b{% endblock %}": "!non top-level scope",
		"{% for i in [] %}{% extends 'x' %}{% endfor %}":                         "!non top-level scope",
		"{% macro m() %}{% extends 'x' %}{% endmacro %}a":                        "!non top-level scope",
		"{% macro m() %}{% include 'x' %}{% endmacro %}a":                        "a",
		"{% set n = namespace(x='a') %}{% macro m() %}{% set n.x = n.x ~ 'b' %}c{% endmacro %}{{ n.x ~ m() ~ n.x }}": "acab",
		"{% set a = 'x' ~ 1 %}{% set b = a ~ 'y' %}{% set c = a ~ 'z' %}{{ a }} {{ b }} {{ c }} {{ b ~ c }} {{ b }}": "x1 x1y x1z x1yx1z x1y",
		"{% set a = 'é' ~ 1 %}{% set b = a[1:] ~ 'y' %}{% set c = a ~ b %}{{ a }} {{ b }} {{ c }} {{ b ~ b }}":       "é1 1y é11y 1y1y",
	} {
		got, err := run(src, nil, Options{})
		if message, ok := strings.CutPrefix(want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("%s: %q, %v; want %q", src, got, err, message)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", src, got, err, want)
		}
	}
}

// TestManyNames: names that are compared with each other are few.
func TestManyNames(t *testing.T) {
	for src, ok := range map[string]bool{
		"{% macro m(" + lines(1000, "a#,") + "b) %}{% endmacro %}":                false,
		"{% macro m(" + lines(999, "a#,") + "b) %}{{ b }}{% endmacro %}{{ m() }}": true,
		"{{ dict(" + lines(1000, "a#=1,") + "b=1).b }}":                           false,
		"{{ dict(" + lines(999, "a#=1,") + "b=1).b }}":                            true,
	} {
		_, err := run(src, nil, Options{})
		var e *Error
		if (err == nil) != ok || !ok && (!errors.As(err, &e) || e.Kind != KindSyntax || e.Line != 1) {
			t.Errorf("%.20s: %v", src, err)
		}
	}
}

// TestDottedName: a long name is put together once.
func TestDottedName(t *testing.T) {
	src := "{{ x | a" + strings.Repeat(".a", 100_000) + " }}"
	if allocs := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := Parse(src, Options{}); err == nil {
				b.Fatal("a filter of that name")
			}
		}
	}).AllocedBytesPerOp(); allocs > 32<<20 {
		t.Errorf("%d bytes were allocated", allocs)
	}
}

// TestLive: garbage does not count, live values do, wherever they are.
func TestLive(t *testing.T) {
	const big = "'a' * 20000 ~ i"
	for name, c := range map[string]struct {
		src  string
		ends bool // within 1 MB of what lives
	}{
		"garbage":               {"{% for i in range(1000) %}{% set x = " + big + " %}{% endfor %}", true},
		"printed":               {"{% macro m(i) %}{{ " + big + " }}{% endmacro %}{% for i in range(1000) %}{% if m(i) %}{% endif %}{% endfor %}", true},
		"a list of one":         {"{% set n = namespace() %}{% for i in range(1000) %}{% set n.l = [" + big + "] %}{% endfor %}", true},
		"grows by parts":        {"{% set n = namespace(s='') %}{% for i in range(5000) %}{% set n.s = n.s ~ 'part ' ~ i %}{% endfor %}", true},
		"grows in a macro":      {"{% set n = namespace(s='') %}{% macro m() %}{% for i in range(5000) %}{% set n.s = n.s + 'part' %}{% endfor %}{% endmacro %}{{ m() }}", true},
		"read in loops":         {"{% set n = namespace(s='a' * 200000) %}{% for i in range(100) %}{% if n.s ~ '' ~ i == '' %}{% endif %}{% endfor %}", true},
		"kept in a list":        {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, " + big + "] %}{% endfor %}", false},
		"kept by parts":         {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, (" + big + ")[:1]] %}{% endfor %}", false},
		"kept as a key":         {"{% set n = namespace(d={}) %}{% for i in range(1000) %}{% set n.d = dict(n.d, **{" + big + ": 1}) %}{% endfor %}", false},
		"kept in a method":      {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, (" + big + ").upper] %}{% endfor %}", false},
		"kept in a generator":   {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, [" + big + "] | map('upper')] %}{% endfor %}", false},
		"kept in a loop":        {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% for x in [" + big + "] %}{% set n.l = [n.l, loop] %}{% endfor %}{% endfor %}", false},
		"kept by a filter":      {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, (" + big + ") | lower] %}{% endfor %}", false},
		"kept in a macro":       {"{% macro m(i) %}{% set x = " + big + " %}{{ m(i + 1) if i < 150 }}{{ x[:1] }}{% endmacro %}{{ m(0) }}", false},
		"kept in a call":        {"{% set n = namespace() %}{% macro m(i) %}{% set n.x = " + big + " %}{% if [n.x, m(i + 1) if i < 90] %}{% endif %}{% endmacro %}{{ m(0) }}", false},
		"printed into a string": {"{% set x %}{% for i in range(1000) %}{{ " + big + " }}{% endfor %}{% endset %}", false},
	} {
		tmpl, err := Parse(c.src, Options{MaxMemory: 1 << 20, MaxSteps: 1 << 40})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tmpl.Execute(context.Background(), nil)
		var e *Error
		if (err == nil) != c.ends || err != nil && (!errors.As(err, &e) || !strings.Contains(e.Message, "bytes of values")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
