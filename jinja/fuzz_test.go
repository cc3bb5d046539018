package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// fuzzLimits are small, so that reaching them is quick.
var fuzzLimits = Options{
	MaxSource: 1 << 14, MaxSteps: 200_000, MaxMemory: 4 << 20, MaxOutput: 1 << 18, MaxDepth: 50,
	Globals: host,
}

// FuzzTemplate renders any source with any variables: no panic, all limits hold,
// and marks change nothing.
func FuzzTemplate(f *testing.F) {
	for _, s := range readLines[snippet](f, "testdata/syntax.jsonl") {
		vars := s.Vars
		if vars == nil {
			vars = json.RawMessage("{}")
		}
		f.Add(s.Template, string(vars))
	}
	f.Fuzz(func(t *testing.T, source, vars string) {
		v, err := DecodeJSON([]byte(vars))
		if err != nil {
			v = NewDict()
		}
		d, ok := v.(*Dict)
		if !ok {
			d = NewDict()
			d.Set("x", v)
		}
		tmpl, err := Parse(source, fuzzLimits)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("an error of another type: %v", err)
			}
			return
		}
		text, err := tmpl.Execute(context.Background(), d)
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("an error of another type: %v", err)
		}
		if len(text) > fuzzLimits.MaxOutput || !utf8.ValidString(text) {
			t.Fatalf("%d bytes, valid %v", len(text), utf8.ValidString(text))
		}
		checkMarked(t, tmpl, d, text, err)
	})
}

// checkMarked renders again with marked variables.
func checkMarked(t *testing.T, tmpl *Template, d *Dict, text string, err error) {
	segments, err2 := tmpl.Segments(context.Background(), Mark(d).(*Dict))
	var e *Error
	if errors.As(errors.Join(err, err2), &e) && e.Kind == KindLimit {
		return // marks take memory, too
	}
	if (err == nil) != (err2 == nil) {
		t.Fatalf("%v, but marked %v", err, err2)
	}
	all := ""
	for i, s := range segments {
		if s.Text == "" || i > 0 && segments[i-1].Marked == s.Marked {
			t.Fatalf("segment %d of %+v", i, segments)
		}
		all += s.Text
	}
	if all != text {
		t.Fatalf("marked %q, not %q", all, text)
	}
}

// FuzzDecodeJSON: what Go's decoder takes, this one takes, integers of more than 64
// bits aside, and the other way round; there is no panic.
func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.0, -0, 1e400, "\u00e9\ud83d\ude00\ud83d"], "a": null}`, `[1,]`, `01`, `"\x"`, `1.`, ` true `, "\"\x01\"", `{"a":{}}x`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := DecodeJSON([]byte(s))
		valid := json.Valid([]byte(s)) && utf8.ValidString(s)
		if err == nil && (!valid || v == nil) {
			t.Fatalf("%q was taken", s)
		}
		if err != nil && valid && len(s) < 400 && !strings.Contains(err.Error(), "64 bits") {
			t.Fatalf("%q: %v", s, err)
		}
	})
}
