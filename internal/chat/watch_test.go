package chat

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/jinja"
)

// TestWatch wants each string told that a template compares a message with,
// however it compares and wherever it has the string from.
func TestWatch(t *testing.T) {
	for source, want := range map[string]string{
		"{{ 'ba' ~ 'nk' in c }}":                                  "bank",
		"{{ c == 'bank' }}":                                       "bank",
		"{{ 'bank' != c|lower }}":                                 "bank",
		"{{ c < 'bank' }}":                                        "bank",
		"{{ c is eq 'bank' }}":                                    "bank",
		"{{ c.startswith(('rank', 'bank')) }}":                    "bank",
		"{{ c.endswith('knab'[::-1]) }}":                          "bank",
		"{{ c.find('bank') }}{{ c.count('x') }}":                  "bank",
		"{{ c.split('bank') }}":                                   "bank",
		"{{ c|replace('bank', '') }}":                             "bank",
		"{{ c|replace(old='bank', new='') }}":                     "bank",
		"{{ {'bank': 1}[c] }}":                                    "bank",
		"{{ {'bank': 1}.get(c.split()[0]) }}":                     "bank",
		"{{ ['bank'] | select('in', c) | list }}":                 "bank",
		"{% for w in c.split() %}{{ w in ['bank'] }}{% endfor %}": "bank",
	} {
		var seen []string
		tmpl, err := Parse("{% set c = messages[0].content %}"+source, Limits{Watch: func(_, with string) { seen = append(seen, with) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tmpl.Render(t.Context(), Input{Messages: []*jinja.Dict{Message("user", "some words")}}); err != nil {
			t.Errorf("%s: %v", source, err)
		}
		if !slices.Contains(seen, want) {
			t.Errorf("%s: told of %q", source, seen)
		}
	}
}
