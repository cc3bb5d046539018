package chat

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/jinja"
)

// foreign writes letters and signs in characters that no template has.
var foreign = strings.NewReplacer("<", "\ue001", ">", "\ue002", "|", "\ue003", "a", "\ue004", "e", "\ue005", "t", "\ue006", "o", "\ue007")

func isForeign(r rune) bool { return r >= '\ue001' && r <= '\ue007' }

// translated is a copy of a conversation's value whose contents are foreign; keys
// and what templates compare with stay as they are.
func translated(v jinja.Value, key string) jinja.Value {
	if d, ok := v.(*jinja.Dict); ok {
		c := jinja.NewDict()
		for _, k := range d.Keys() {
			x, _ := d.Get(k)
			c.Set(k, translated(x, k))
		}
		return c
	}
	if items, ok := jinja.Items(v); ok {
		for i, x := range items {
			items[i] = translated(x, key)
		}
		return jinja.List(items...)
	}
	if s, ok := jinja.Text(v); ok && key != "role" && key != "type" {
		return jinja.String(foreign.Replace(s))
	}
	return v
}

func (in Input) translated() Input {
	for i, m := range in.Messages {
		in.Messages[i] = translated(m, "").(*jinja.Dict)
	}
	for i, x := range in.Tools {
		in.Tools[i] = translated(x, "")
	}
	for i, x := range in.Documents {
		in.Documents[i] = translated(x, "")
	}
	return in
}

// checkSegments: put together they are the prompt, each is as long as can be, and
// no foreign character is in a part of the template's own.
func checkSegments(t *testing.T, tmpl *Template, in Input) (foreignSeen int) {
	t.Helper()
	text, err := tmpl.Render(context.Background(), in)
	segments, err2 := tmpl.Segments(context.Background(), in)
	if (err == nil) != (err2 == nil) {
		t.Fatalf("%v, but %v", err, err2)
	}
	var all strings.Builder
	for i, s := range segments {
		all.WriteString(s.Text)
		if s.Text == "" || i > 0 && segments[i-1].FromContent == s.FromContent {
			t.Errorf("segment %d of %+v", i, segments)
		}
		n := strings.Count(s.Text, "") - 1 - len([]rune(strings.Map(func(r rune) rune {
			if isForeign(r) {
				return -1
			}
			return r
		}, s.Text)))
		if foreignSeen += n; n > 0 && !s.FromContent {
			t.Errorf("content in the template's part %q", s.Text)
		}
	}
	if all.String() != text {
		t.Errorf("segments are %q, the prompt is %q", all.String(), text)
	}
	return foreignSeen
}

// TestSegments follows foreign contents through all templates.
func TestSegments(t *testing.T) {
	dir, inputs := "testdata/templates", "testdata/conversations.json"
	if shared := sharedOrEmpty(t); shared != "" {
		dir = shared
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 14 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	seen, all := 0, conversations(t, inputs)
	for name, in := range all {
		all[name] = in.translated()
	}
	for _, f := range files {
		tmpl, err := Parse(string(read(t, filepath.Join(dir, f.Name()))), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range all {
			seen += checkSegments(t, tmpl, in)
		}
	}
	if want := 500 * len(files); seen < want {
		t.Errorf("%d characters of content were seen, want %d", seen, want)
	}
}

// sharedOrEmpty is the folder of all templates, "" where there is none.
func sharedOrEmpty(t *testing.T) (dir string) {
	t.Run("shared", func(t *testing.T) { dir = golden.Shared(t, "chat/templates") })
	return dir
}

// TestMarks: what an operation does with marked text, the template's own in
// brackets.
func TestMarks(t *testing.T) {
	in := Input{Messages: []*jinja.Dict{Message("user", " ab<c>,d ")}}
	for source, want := range map[string]string{
		"{{ c }}!":                                          " ab<c>,d [!]",
		"{{ 'x' ~ c + 'y' }}":                               "[x] ab<c>,d [y]",
		"{{ (c + 'y') | trim }}":                            "ab<c>,d [y]",
		"{{ c.strip() }}":                                   "ab<c>,d",
		"{{ c[2:4] }}{{ c[1] }}":                            "b<a",
		"{{ ('x' ~ c)[::-1] }}":                             " d,>c<ba [x]",
		"{{ c.split(',') }}":                                "[['] ab<c>[', ']d [']]",
		"{{ c.split(',') | join('|') }}":                    " ab<c>[|]d ",
		"{{ c | replace('<', '<<') }}":                      " ab[<<]c>,d ",
		"{{ 'x-y'.replace('-', c) }}":                       "[x] ab<c>,d [y]",
		"{{ c | upper }}":                                   " AB<C>,D ",
		"{{ ('x' ~ c) | upper }}":                           "[X] AB<C>,D ",
		"{{ ('É' ~ c) | lower }}":                           "é ab<c>,d ",
		"{{ c | tojson }}":                                  "[\"] ab<c>,d [\"]",
		"{{ {'k': c} | tojson }}":                           "[{\"k\": \"] ab<c>,d [\"}]",
		"{{ [c] }}":                                         "[['] ab<c>,d [']]",
		"{{ c | e }}":                                       " ab&lt;c&gt;,d ",
		"{{ '<%s>' % c }}":                                  "[<] ab<c>,d [>]",
		"{{ '<{}>'.format(c) }}":                            "[<] ab<c>,d [>]",
		"{{ c | indent(2, true) }}":                         "[  ] ab<c>,d ",
		"{{ c | list | first ~ c | last }}":                 "  ",
		"{% for x in c.strip() %}{{ x }}.{% endfor %}":      "a[.]b[.]<[.]c[.]>[.],[.]d[.]",
		"{% set x %}<{{ c }}>{% endset %}{{ x }}":           "[<] ab<c>,d [>]",
		"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(c) }}": "[<] ab<c>,d [>]",
		"{% filter trim %} {{ c }}{% endfilter %}":          "ab<c>,d",
		"{{ c if c == ' ab<c>,d ' else 'other' }}":          " ab<c>,d ",
		"{{ messages[0] | tojson }}":                        "[{\"]role[\": \"user\", \"]content[\": \"] ab<c>,d [\"}]",
		"{{ dict(**messages[0]) }}":                         "[{']role[': 'user', ']content[': '] ab<c>,d ['}]",
		"{{ c | length }}{{ messages[0].role }}":            "[9user]",
	} {
		tmpl, err := Parse("{% set c = messages[0].content %}"+source, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		segments, err := tmpl.Segments(context.Background(), in)
		var got strings.Builder
		for _, s := range segments {
			if s.FromContent {
				got.WriteString(s.Text)
			} else {
				got.WriteString("[" + s.Text + "]")
			}
		}
		if err != nil || got.String() != want {
			t.Errorf("%s: %q, %v; want %q", source, got.String(), err, want)
		}
	}
}
