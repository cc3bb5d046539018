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
		"a{#":       "a",
		"{#-":       "",
		"{{ 1 }}{#": "1",
		"a\n{#\n":   "a\n",
		"a{# x":     "!Missing end of comment",
		"a {#- ":    "!Missing end of comment",
		"{{ 0 / -2 }} {{ 0 // -2 }} {{ 0 % -2 }} {{ false / -1 }}":                                                   "-0.0 0 0 -0.0",
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

// TestUnsupported: what Jinja2 has and this package has not is an error that names it, with its line.
func TestUnsupported(t *testing.T) {
	for src, want := range map[string]string{
		"\n{{ [1, 2] | batch(2) | list }}":             "line 2: template error: the filter 'batch' is not supported",
		"{{ us | groupby('age') }}":                    "the filter 'groupby'",
		"{{ s | center(9) }}":                          "the filter 'center'",
		"{{ 1 | filesizeformat }}":                     "the filter 'filesizeformat'",
		"{{ s | forceescape }}":                        "the filter 'forceescape'",
		"{{ s | pprint }}":                             "the filter 'pprint'",
		"{{ s | random }}":                             "the filter 'random'",
		"{{ s | slice(2) }}":                           "the filter 'slice'",
		"{{ s | striptags }}":                          "the filter 'striptags'",
		"{{ s | truncate(9) }}":                        "the filter 'truncate'",
		"{{ s | urlencode }}":                          "the filter 'urlencode'",
		"{{ s | urlize }}":                             "the filter 'urlize'",
		"{{ s | wordcount }}":                          "the filter 'wordcount'",
		"{{ s | wordwrap }}":                           "the filter 'wordwrap'",
		"{{ {} | xmlattr }}":                           "the filter 'xmlattr'",
		"{% if true %}{{ s | truncate }}{% endif %}":   "the filter 'truncate'",
		"{{ ['a'] | map('center', 3) | list }}":        "the filter 'center'",
		"{{ 'a' is filter }}{{ s | format(a=1) }}":     "the filter 'format' with arguments by name",
		"\n\n{{ 'a'.zfill(3) }}":                       "line 3: template error: the method str.zfill is not supported",
		"{{ ('a' | safe).unescape() }}":                "the method Markup.unescape",
		"{{ 'a'.center(3) is defined }}":               "the method str.center",
		"{{ {}.fromkeys('ab') }}":                      "the method dict.fromkeys",
		"{{ 5.0.real }}":                               "the method float.real",
		"{{ (5).bit_length() }}":                       "the method int.bit_length",
		"{{ range(3).count(1) }}":                      "the method range.count",
		"{% block a %}{% endblock %}":                  "the tag 'block'",
		"{% if false %}\n{% include 'x' %}{% endif %}": "line 2: template error: the tag 'include' is not supported",
		"{% extends 'x' %}":                            "the tag 'extends'",
		"{% import 'x' as y %}":                        "the tag 'import'",
		"{% from 'x' import y %}":                      "the tag 'from'",
		"{% print 1 %}":                                "the tag 'print'",
		"{% autoescape true %}{% endautoescape %}":     "the tag 'autoescape'",
		"{{ cycler('a') }}":                            "the function 'cycler'",
		"{{ lipsum() }}":                               "the function 'lipsum'",
		"{{ '%5.2f' % 1.5 }}":                          "the format '%5.2f'",
		"{{ '%r' % 1 }}":                               "the format '%r'",
		"{{ '%(a)s' % {'a': 1} }}":                     "the format '%(a)s'",
		"{{ '{:>8}'.format(1) }}":                      "the format field '{:>8}'",
		"{{ '{0.a}'.format(1) }}":                      "the format field '{0.a}'",
		"{{ '{0!r}'.format(1) }}":                      "the format field '{0!r}'",
		"{{ '\\N{BULLET}' }}":                          `the escape \N{...}`,
		"{{ 9223372036854775808 }}":                    "an integer of more than 64 bits",
		"\n{{ 9223372036854775807 + 1 }}":              "line 2: template error: an integer of more than 64 bits is not supported",
		"{{ -9223372036854775807 - 2 }}":               "an integer of more than 64 bits",
		"{{ 3037000500 * 3037000500 }}":                "an integer of more than 64 bits",
		"{{ 2 ** 63 }}":                                "an integer of more than 64 bits",
		"{{ (-9223372036854775807 - 1) // -1 }}":       "an integer of more than 64 bits",
		"{{ -(-9223372036854775807 - 1) }}":            "an integer of more than 64 bits",
		"{{ '9223372036854775808' | int }}":            "an integer of more than 64 bits",
		"{{ 1e20 | int }}":                             "an integer of more than 64 bits",
		"{{ 2 ** 0.5 }}":                               "a power of floats, or with a negative exponent",
		"{{ 15 | round(-1) }}":                         "a precision of -1 digits",
		"{{ '7' | int(0, 0) }}":                        "a base of 0",
	} {
		got, err := run(src, nil, Options{})
		if !isUnsupported(err) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%s: %q, %v; want %q", src, got, err, want)
		}
	}
	for src, want := range map[string]string{
		"{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}":     "9223372036854775807 -9223372036854775808",
		"{{ 3037000499 * 3037000499 }} {{ 2 ** 62 }} {{ (-2) ** 63 }}": "9223372030926249001 4611686018427387904 -9223372036854775808",
		"{{ (-1) ** 9999999999 }} {{ 0 ** 0 }} {{ 1 ** 99 }}":          "-1 1 1",
		"{{ 9007199254740993 / 3 }} {{ 9223372036854775807 / 10 }}":    "3002399751580331.0 9.223372036854776e+17",
		"{{ 9007199254740993 == 9007199254740992.0 }}":                 "False",
		"{{ 9223372036854775807 < 9223372036854775808.0 }}":            "True",
	} {
		if got, err := run(src, nil, Options{}); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", src, got, err, want)
		}
	}
}

// TestMemory: the bytes that a rendering makes are bounded wherever they go, and a string that grows by parts costs
// its parts alone.
func TestMemory(t *testing.T) {
	const big = "'a' * 20000 ~ i"
	for name, c := range map[string]struct {
		src  string
		ends bool // within 1 MB
	}{
		"grows by parts":        {"{% set n = namespace(s='') %}{% for i in range(3000) %}{% set n.s = n.s ~ 'part ' ~ i %}{% endfor %}", true},
		"grows in a macro":      {"{% set n = namespace(s='') %}{% macro m() %}{% for i in range(3000) %}{% set n.s = n.s + 'part' %}{% endfor %}{% endmacro %}{{ m() }}", true},
		"loops":                 {"{% for i in range(1000) %}{% for j in range(1000) %}{% if i == j %}{% endif %}{% endfor %}{% endfor %}", true},
		"parts of a string":     {"{% set s = 'a' * 200000 %}{% for i in range(5000) %}{% if s[i:] == s.strip() %}{% endif %}{% endfor %}", true},
		"garbage":               {"{% for i in range(1000) %}{% set x = " + big + " %}{% endfor %}", false},
		"kept in a list":        {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l, " + big + "] %}{% endfor %}", false},
		"kept as a key":         {"{% set n = namespace(d={}) %}{% for i in range(1000) %}{% set n.d = dict(n.d, **{" + big + ": 1}) %}{% endfor %}", false},
		"kept in a generator":   {"{% for i in range(1000) %}{% set x = [" + big + "] | map('upper') | list %}{% endfor %}", false},
		"kept in a macro":       {"{% macro m(i) %}{% set x = " + big + " %}{{ m(i + 1) if i < 150 }}{{ x[:1] }}{% endmacro %}{{ m(0) }}", false},
		"printed into a string": {"{% set x %}{% for i in range(1000) %}{{ " + big + " }}{% endfor %}{% endset %}", false},
		"variables":             {"{% macro m(i) %}" + lines(500, "{% set v# = i %}") + "{{ m(i + 1) if i < 150 }}{% endmacro %}{{ m(0) }}", false},
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

// TestScopes has where a name leads that a frame reads and assigns, as Jinja2 3.1.6 decides it.
func TestScopes(t *testing.T) {
	for src, want := range map[string]string{
		"{% for i in [1] %}{{ x }}{% endfor %}{% set x = 1 %}":                                                 "",
		"{{ x }}{% for i in [1] %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}":                                   "gg1",
		"{% for i in [1] %}{{ x }}{% endfor %}{% if true %}{% set x = 1 %}{% endif %}{{ x }}":                  "g1",
		"{% set x %}{{ x }}{% endset %}{{ x }}":                                                                "",
		"{% set x = x ~ 'h' %}{{ x }}":                                                                         "gh",
		"{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}":                                "1",
		"{% macro m() %}{% filter upper %}{{ x }}{% endfilter %}{% set x = 1 %}{% endmacro %}{{ m() }}{{ x }}": "Gg",
		"{% for i in [1, 2] %}{% if i == 2 %}{{ x }}{% endif %}{% set x = i %}{% endfor %}{{ x }}":             "gg",
		"{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}":                 "01020",
		"{% for x in [x] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}":                                   "g5g",
		"{% with x = x ~ 1 %}{{ x }}{% set x = 2 %}{{ x }}{% endwith %}{{ x }}":                                "g12g",
	} {
		vars := NewDict()
		vars.Set("x", String("g"))
		if got, err := run(src, vars, Options{}); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", src, got, err, want)
		}
	}
}
