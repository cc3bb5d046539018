package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
)

// TestForms: an answer fits the regular expression, the grammar or the list that a field has, in chat and completions.
func TestForms(t *testing.T) {
	c := serve(t, demo(t), Options{})
	quoted := func(s string) string {
		b, _ := json.Marshal(s)
		return string(b)
	}
	const date = `(19|20)\d\d-(0[1-9]|1[0-2])`
	list := quoted("root ::= (\"- \" [a-z]{2,5} \"\\n\"){1,3}")
	for _, x := range []struct{ more, fits string }{
		{`"structured_outputs":{"regex":` + quoted(date) + `}`, date},
		{`"structured_outputs":{"choice":["yes (1+1)","no"]}`, `yes \(1\+1\)|no`},
		{`"structured_outputs":{"grammar":` + list + `}`, `(- [a-z]{2,5}\n){1,3}`},
		{`"structured_outputs":{"json":{"type":"integer","minimum":1,"maximum":12}}`, `[1-9]|1[0-2]`},
		{`"structured_outputs":{"json":"{\"enum\":[1,null]}"}`, `1|null`},
		{`"structured_outputs":{"grammar":"start: (\"- \" /[a-z]{2,5}/ \"\\n\")~1..3"}`, `(- [a-z]{2,5}\n){1,3}`},
		{`"structured_outputs":{"grammar":"// x ::= y\nstart: \"::=\" | word // ::=\nword: /[a-z]{2,5}/"}`, `::=|[a-z]{2,5}`},
		{`"structured_outputs":{"grammar":"# start: x\n\nroot ::= \"start: \" [a-z]{2,5}"}`, `start: [a-z]{2,5}`},
		{`"grammar":` + list, `(- [a-z]{2,5}\n){1,3}`},
		{`"response_format":{"type":"regex","pattern":` + quoted(date) + `}`, date},
		{`"response_format":{"type":"grammar","grammar":` + list + `}`, `(- [a-z]{2,5}\n){1,3}`},
	} {
		fits := regexp.MustCompile(`^(?:` + x.fits + `)$`)
		for seed := range 3 {
			hot := fmt.Sprintf(`,"max_tokens":60,"temperature":2,"seed":%d,%s}`, seed, x.more)
			o := c.post("/v1/chat/completions", `{`+hello+hot)
			if text := at(o, "choices", 0, "message", "content").(string); !fits.MatchString(text) {
				t.Errorf("%s: chat: %q", x.more, text)
			}
			o = c.post("/v1/completions", `{"model":"demo","prompt":"It is"`+hot)
			if text := at(o, "choices", 0, "text").(string); !fits.MatchString(text) {
				t.Errorf("%s: completions: %q", x.more, text)
			}
		}
	}
	for _, x := range []struct{ param, why, more string }{
		{"grammar", "no rule root", `"grammar":"a ::= \"b\""`},
		{"grammar", "line 2", `"grammar":"root ::= a\na ::= ["`},
		{"grammar", "empty", `"grammar":""`},
		{"grammar", "one form", `"grammar":"root ::= \"a\"","response_format":{"type":"json_object"}`},
		{"structured_outputs.regex", "one form", `"structured_outputs":{"json_object":true,"regex":"a"}`},
		{"structured_outputs.regex", "missing closing", `"structured_outputs":{"regex":"(a"}`},
		{"structured_outputs", "want one of", `"structured_outputs":{"choice":[]}`},
		{"structured_outputs.grammar", "line 2", `"structured_outputs":{"grammar":"start: \"::=\"\nword ::= /a/"}`},
		{"structured_outputs.structural_tag", "Unrecognized", `"structured_outputs":{"regex":"a","structural_tag":{}}`},
		{"response_format.pattern", "Missing", `"response_format":{"type":"regex"}`},
	} {
		c.refuses(400, x.param, x.why, "POST", "/v1/chat/completions", `{`+hello+`,`+x.more+`}`)
		c.refuses(400, x.param, x.why, "POST", "/v1/completions", `{"model":"demo","prompt":"a",`+x.more+`}`)
	}
}
