package chat

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/chat/jinja"
)

// A snippet is what Jinja2 makes of a small template.
type snippet struct {
	Name     string          `json:"name"`
	Template string          `json:"template"`
	Vars     json.RawMessage `json:"vars"`
	Render   *string         `json:"render"`
	Error    bool            `json:"error"`
	Python   string          `json:"python"`
}

// render runs the snippet with its variables alone, and the functions that
// transformers adds.
func (s *snippet) render(t testing.TB) (string, error) {
	t.Helper()
	vars := jinja.NewDict()
	if s.Vars != nil {
		vars = decode(t, s.Vars).(*jinja.Dict)
	}
	tmpl, err := jinja.Parse(s.Template, jinja.Options{Globals: map[string]jinja.Value{
		"raise_exception": raiseException, "strftime_now": clock(frozen),
	}})
	if err != nil {
		return "", err
	}
	return tmpl.Execute(context.Background(), vars)
}

// TestSyntax runs snippets of each behaviour of the language; testdata/README.md
// says where they come from.
func TestSyntax(t *testing.T) {
	var rendered, failed int
	for _, s := range readLines[snippet](t, "testdata/syntax.jsonl") {
		text, err := s.render(t)
		raised, isRaised := strings.CutPrefix(s.Python, "RaiseException: ")
		var e *jinja.Error
		switch {
		case s.Render != nil && err == nil && text == *s.Render:
			rendered++
		case s.Error && errors.As(err, &e) && (!isRaised || e.Kind == jinja.KindRaised && e.Message == raised):
			failed++
		default:
			t.Errorf("%s: %q:\n got %q, %v\nwant %s%q", s.Name, s.Template, text, err, s.Python, deref(s.Render))
		}
	}
	if rendered != 295 || failed != 146 {
		t.Errorf("%d snippets rendered and %d failed as recorded, want 295 and 146", rendered, failed)
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// TestRandom runs random templates; testdata/random.py made them and what Jinja2
// makes of them.
func TestRandom(t *testing.T) {
	all := readLines[struct {
		snippet
		Error string `json:"error"`
	}](t, "testdata/random.jsonl.gz")
	vars, rendered, failed := all[0].Vars, 0, 0
	for _, s := range all[1:] {
		s.Vars = vars
		text, err := s.render(t)
		switch {
		case s.Render != nil && err == nil && text == *s.Render:
			rendered++
		case s.Error != "" && err != nil:
			failed++
		default:
			t.Errorf("%q:\n got %q, %v\nwant %s%q", s.Template, text, err, s.Error, deref(s.Render))
		}
	}
	if rendered != 1910 || failed != 2090 {
		t.Errorf("%d templates rendered and %d failed as recorded, want 1910 and 2090", rendered, failed)
	}
}
