package jinja

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// run parses and renders a template.
func run(src string, vars *Dict, o Options) (string, error) {
	t, err := Parse(src, o)
	if err != nil {
		return "", err
	}
	return t.Execute(context.Background(), vars)
}

func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
	}
	return b.String()
}

// nest wraps n times.
func nest(open string, n int, body, end string) string {
	return strings.Repeat(open, n) + body + strings.Repeat(end, n)
}

// loops runs a statement as often as a template can say.
func loops(before, body string) string {
	return before + nest("{% for i in range(100000) %}", 2, body, "{% endfor %}")
}

// hostile are templates that would run, grow or nest without end.
var hostile = map[string]struct {
	src  string
	kind Kind // 0: none, it is only big
}{
	"range":             {"{% for i in range(10**9) %}{% endfor %}", KindValue},
	"loops":             {nest("{% for i in range(100000) %}", 6, "", "{% endfor %}"), KindLimit},
	"text":              {nest("{% for i in range(100000) %}", 6, "text", "{% endfor %}"), KindLimit},
	"string times":      {"{{ 'a' * 10**9 }}", KindLimit},
	"list times":        {"{{ [0] * 10**9 }}", KindLimit},
	"macro":             {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", KindLimit},
	"caller":            {"{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}", KindLimit},
	"recursive loop":    {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", KindLimit},
	"block":             {"{% block a %}{{ self.a() }}{% endblock %}", KindUnsupported},
	"loop over itself":  {"{% for x in [1] %}{% for y in loop %}{% for z in loop %}{% endfor %}{% endfor %}{% endfor %}", 0},
	"list doubles":      {loops("{% set n = namespace(l=[1]) %}", "{% set n.l = n.l + n.l %}"), KindLimit},
	"string doubles":    {loops("{% set n = namespace(l='ab') %}", "{% set n.l = n.l ~ n.l %}"), KindLimit},
	"garbage is kept":   {loops("{% set n = namespace(l=[]) %}", "{% set n.l = [n.l, 'a' * 1000 ~ i] %}"), KindLimit},
	"deep value":        {"{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}", KindLimit},
	"deep equality":     {"{% set n = namespace(l=[], k=[]) %}{% for i in range(50000) %}{% set n.l = [n.l] %}{% set n.k = [n.k] %}{% endfor %}{{ n.l == n.k }}", KindLimit},
	"deep json":         {"{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l | tojson }}", KindLimit},
	"deep key":          {"{% set n = namespace(l=()) %}{% for i in range(100000) %}{% set n.l = (n.l,) %}{% endfor %}{{ {n.l: 1} }}", KindLimit},
	"deep generator":    {"{% set n = namespace(l=[1]) %}{% for i in range(100000) %}{% set n.l = n.l | map('string') %}{% endfor %}{{ n.l | list }}", KindLimit},
	"center":            {"{{ 'a' | center(1000000000) }}", KindUnsupported},
	"percent width":     {"{{ '%1000000000d' % 1 }}", KindUnsupported},
	"percent argument":  {"{{ '%*d' % (1000000000, 1) }}", KindUnsupported},
	"format width":      {"{{ '{:1000000000}'.format(1) }}", KindUnsupported},
	"precision":         {"{{ '%.1000000000f' % 1.5 }}", KindUnsupported},
	"power":             {"{{ 10 ** (10 ** 10) }}", KindUnsupported},
	"squares":           {loops("{% set n = namespace(x=3) %}", "{% set n.x = n.x * n.x %}"), KindUnsupported},
	"replace":           {"{% set a = 'a' * 100000 %}{{ a | replace('', a) }}", KindLimit},
	"indent":            {"{% set n = namespace(l=[]) %}{% for i in range(800) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l | tojson(indent=100000) }}", KindLimit},
	"format repeats":    {"{% set a = '{0}' * 100000 %}{{ a.format('x' * 10000) }}", KindLimit},
	"dict grows":        {loops("{% set n = namespace(d={}) %}", "{% set n.d = dict(n.d, **{'k' ~ i: i}) %}"), KindLimit},
	"search":            {loops("{% set a = 'ab' * 1000000 %}", "{{ 'c' in a }}{{ a.rfind('aab') }}"), KindLimit},
	"index":             {loops("{% set a = 'é' * 1000000 %}", "{{ a[999999] }}{{ a | length }}"), KindLimit},
	"split":             {loops("{% set a = 'a ' * 1000000 %}", "{% set b = a.split() %}"), KindLimit},
	"strip":             {loops("{% set a = 'ab' * 100000 %}", "{% set b = a.strip(a) %}"), KindLimit},
	"case":              {loops("{% set a = 'Σ' * 100000 %}", "{% set b = a | lower %}"), KindLimit},
	"sort":              {loops("{% set a = range(100000) | list %}", "{% set b = a | sort %}"), KindLimit},
	"group":             {loops("", "{% set b = range(10000) | map('string') | groupby(0) %}"), KindUnsupported},
	"compare":           {loops("{% set a = range(100000) | list %}", "{{ a == a | list }}{{ -1 in a }}"), KindLimit},
	"json":              {loops("{% set a = range(10000) | list %}", "{% set b = a | tojson %}"), KindLimit},
	"tags":              {loops("{% set a = '&amp;<a>' * 100000 %}", "{% set b = a | striptags %}"), KindUnsupported},
	"digits":            {loops("{% set a = '1' * 1000000 %}", "{{ a | int }}{{ a.isdigit() }}"), KindUnsupported},
	"arguments":         {loops("{% macro m() %}{{ kwargs }}{% endmacro %}", "{{ m(a=1, b=2, c=3) }}"), KindLimit},
	"source":            {strings.Repeat("a", 10<<20), KindLimit},
	"parentheses":       {"{{ " + nest("(", 60000, "1", ")") + " }}", KindSyntax},
	"brackets":          {"{{ " + nest("[", 60000, "1", "]") + " }}", KindSyntax},
	"nots":              {"{{ " + strings.Repeat("not ", 60000) + "1 }}", KindSyntax},
	"signs":             {"{{ " + strings.Repeat("- ", 60000) + "1 }}", KindSyntax},
	"sums":              {"{{ 1" + strings.Repeat(" + 1", 60000) + " }}", KindSyntax},
	"attributes":        {"{{ a" + strings.Repeat(".b", 60000) + " }}", KindSyntax},
	"filters":           {"{{ a" + strings.Repeat("|e", 60000) + " }}", KindSyntax},
	"calls":             {"{{ a" + strings.Repeat("()", 60000) + " }}", KindSyntax},
	"inline ifs":        {"{{ 1" + strings.Repeat(" if 1", 40000) + " }}", KindSyntax},
	"nested ifs":        {nest("{% if a %}", 10000, "", "{% endif %}"), KindSyntax},
	"nested targets":    {"{% set " + nest("(", 60000, "a", ")") + " = 1 %}", KindSyntax},
	"unclosed":          {strings.Repeat("{", 260000), KindSyntax},
	"unclosed tags":     {strings.Repeat("{%", 130000), KindSyntax},
	"unclosed raw":      {"{% raw %}" + strings.Repeat("{% ", 80000), KindSyntax},
	"unclosed comments": {strings.Repeat("{# ", 80000), KindSyntax},
	"many ifs":          {lines(5500, "{% if a# %}{% set b# = 1 %}{% endif %}"), 0},
	"many elifs":        {"{% if a %}" + strings.Repeat("{% elif b %}", 20000) + "{% endif %}", 0},
	"many blocks":       {lines(5500, "{% block b# %}{{ x }}{% endblock %}"), KindUnsupported},
	"many names":        {nest("{% for i in x %}", 100, lines(13000, "{{ v# }}{{ w }}"), "{% endfor %}"), 0},
}

// TestHostile bounds what anyone may send by steps, and so time, and by memory: a
// tenth of the default's steps is enough to see that all of them end.
func TestHostile(t *testing.T) {
	for name, c := range hostile {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := run(c.src, nil, Options{MaxSteps: defaultMaxSteps / 10})
		runtime.ReadMemStats(&after)
		var e *Error
		if errors.As(err, &e); c.kind == 0 && err != nil || c.kind != 0 && (e == nil || e.Kind != c.kind) {
			t.Errorf("%s: %.200v, want %v", name, err, c.kind)
		}
		if e != nil && e.Kind != KindLimit && e.Line == 0 {
			t.Errorf("%s: no line: %v", name, err)
		}
		// All that was ever made: what lives at a time is a fraction of it.
		if made := after.TotalAlloc - before.TotalAlloc; made > 256<<20 {
			t.Errorf("%s: %d MiB", name, made>>20)
		}
	}
}

func TestOptions(t *testing.T) {
	long := "{% for i in range(1000) %}{{ 'word ' * 10 }}{% endfor %}"
	for _, c := range []struct {
		src  string
		o    Options
		want string
	}{
		{long, Options{MaxSource: 10}, "more than 10"},
		{long, Options{MaxSteps: 1000}, "more than 1000 steps"},
		{long, Options{MaxMemory: 10000}, "more than 10000 bytes of values"},
		{long, Options{MaxOutput: 1000}, "more than 1000 bytes of output"},
		{"{% macro m(n) %}{{ m(n - 1) if n else 'end' }}{% endmacro %}{{ m(9) }}", Options{MaxDepth: 10}, "more than 10 calls"},
	} {
		_, err := run(c.src, nil, c.o)
		var e *Error
		if !errors.As(err, &e) || e.Kind != KindLimit || !strings.Contains(e.Message, c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		if _, err := run(c.src, nil, Options{}); err != nil {
			t.Errorf("without limits: %v", err)
		}
	}
	if text, err := run("{{ m }}", nil, Options{Globals: map[string]Value{"m": Int(3)}}); text != "3" || err != nil {
		t.Errorf("a global: %q, %v", text, err)
	}
}

// TestContext: a rendering ends soon after its context is done, whatever its
// limits. The context is done once it was asked three times.
func TestContext(t *testing.T) {
	tmpl, err := Parse(nest("{% for i in range(100000) %}", 2, "", "{% endfor %}"), Options{MaxSteps: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	ctx := &asked{Context: context.Background(), left: 3}
	_, err = tmpl.Execute(ctx, nil)
	var e *Error
	if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Kind != KindCanceled {
		t.Errorf("%v", err)
	}
	if _, err := tmpl.Execute(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: %v", err)
	}
}

// asked is a context that is done after some looks at it.
type asked struct {
	context.Context
	left int
}

func (a *asked) Err() error {
	if a.left--; a.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestLooks: an operation over a long text looks at the context for each MiB that it reads or
// writes, and ends there.
func TestLooks(t *testing.T) {
	const mib = 6
	for _, c := range []struct {
		src, unit string
		looks     int // for each MiB
	}{
		{"{{ x }}", "ab ", 1},
		{"{{ x ~ 'a' }}", "é", 2},
		{"{{ x | trim }}", " ", 1},
		{"{{ x.rstrip() }}", "\u3000", 1},
		{"{{ 'zz' in x }}", "the z ", 1},
		{"{{ x.find('zz') }}", "the z ", 1},
		{"{{ x.rfind('zz') }}", "the z ", 1},
		{"{{ x.split('zz') | length }}", "the z ", 1},
		{"{{ x.rsplit('zz') | length }}", "the z ", 1},
		{"{{ x.partition('zz') | length }}", "the z ", 1},
		{"{{ x.replace('zz', 'y') | length }}", "the z ", 2},
		{"{{ x.replace('z ', 'y') | length }}", strings.Repeat("the ", 40) + "z ", 2},
		{"{{ x | tojson }}", "a\"b\n", 2},
		{"{{ x | e }}", "a&b", 2},
		{"{{ [x] | string }}", "a\u0301", 2},
	} {
		tmpl, err := Parse(c.src, Options{MaxMemory: 1 << 30, MaxOutput: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		vars := NewDict()
		vars.Set("x", Mark(String(strings.Repeat(c.unit, mib<<20/len(c.unit)))))
		const many = 1 << 30
		all := &asked{Context: context.Background(), left: many}
		if _, err := tmpl.Segments(all, vars); err != nil || many-all.left < c.looks*(mib-2) {
			t.Errorf("%s: %d looks, %v", c.src, many-all.left, err)
		}
		for _, last := range []int{2, mib / 2} {
			some := &asked{Context: context.Background(), left: last}
			if _, err := tmpl.Segments(some, vars); !errors.Is(err, context.Canceled) || some.left != -1 {
				t.Errorf("%s: done at look %d of %d: %v, %d more looks", c.src, last, many-all.left, err, -1-some.left)
			}
		}
	}
}

// TestPays: what goes through a text takes a step for each 64 bytes of it at least, so that
// templates that do it often end, however long the text is.
func TestPays(t *testing.T) {
	const size = 1 << 16
	for _, unit := range []string{"ab ", "é"} {
		vars := NewDict()
		vars.Set("x", Mark(String(strings.Repeat(unit, size/len(unit)))))
		for _, src := range []string{
			"x ~ 'a'", "x * 1", "x == x", "x < x", "'zz' in x", "x % ()", "x[-1]", "x[1:]", "x[:0]", "x[::-1]", "{x: 1}",
			"{}[x]", "[][x]", "[x, x] | join", "[x, x] | max", "[x] | string", "[x] | tojson", "dict([(x, 1)])", "x is lower",
			"x is upper", "x is in x", "x is eq x", "x | attr(x)", "x | capitalize", "x | e", "x | float", "x | format",
			"x | indent", "x | int", "x | length", "x | list", "x | lower", "x | replace('zz', '')", "x | reverse",
			"x | title", "x | tojson", "x | tojson(ensure_ascii=true)", "x | trim('q')", "x | upper", "x | unique | list",
			"x | sort", "x.capitalize()", "x.count('zz')", "x.endswith(x)", "x.find('zz')", "x.find('zz', 1)", "x.format()",
			"x.isalnum()", "x.isalpha()", "x.isdigit()", "x.islower()", "x.isspace()", "x.isupper()", "x.join('ab')",
			"x.lower()", "x.lstrip('q')", "x.partition('zz')", "x.removeprefix(x)", "x.removesuffix(x)",
			"x.replace('zz', '')", "x.rfind('zz')", "x.rpartition('zz')", "x.rsplit('zz')", "x.rsplit()", "x.rstrip('q')",
			"x.split('zz')", "x.split()", "x.splitlines()", "x.startswith(('zz', 'yy', x))", "x.strip(x)", "x.title()",
			"x.upper()", "'%s' % x", "'{}'.format(x)",
		} {
			_, err := run("{% set y = "+src+" %}", vars, Options{MaxSteps: size / 64})
			var e *Error
			if !errors.As(err, &e) || e.Kind != KindLimit || !strings.Contains(e.Message, "steps") {
				t.Errorf("%s of %q: %v", src, unit, err)
			}
		}
		for _, src := range []string{"x | default(1)", "x | first", "x.startswith('zz')"} {
			if _, err := run("{% set y = "+src+" %}", vars, Options{MaxSteps: size / 32}); err != nil {
				t.Errorf("%s of %q: %v", src, unit, err)
			}
		}
	}
}

// TestErrorLines: an error names the line it is on.
func TestErrorLines(t *testing.T) {
	for src, want := range map[string]int{
		"a\n{{ x.y }}":                                            2,
		"\n\n{{ 1 }}\n{{ 'a' + 1 }}":                              4,
		"{% if true %}\n\n{% else":                                3,
		"{{ 1 }}\n{# \n #}{{ 1 | nope }}":                         3,
		"{% macro m() %}\n{{ x() }}\n{% endmacro %}\n\n{{ m() }}": 2,
		"{% for a, b in [1] %}\n{% endfor %}":                     1,
		"a\n  {%- set x = \n 1 / 0 %}":                            3,
		"{% set x %}\n{{ [][0].y }}{% endset %}":                  2,
	} {
		_, err := run(src, nil, Options{})
		var e *Error
		if !errors.As(err, &e) || e.Line != want {
			t.Errorf("%q: %v, want line %d", src, err, want)
		}
	}
}
