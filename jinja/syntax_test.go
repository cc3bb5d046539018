package jinja

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// host are the functions that transformers adds; its clock serves in clock.jsonl of
// internal/chat alone.
var host = map[string]Value{
	"raise_exception": Function("raise_exception", 1, 1, func(args []Value) (Value, error) { return nil, Raise(Format(args[0])) }),
	"strftime_now":    Function("strftime_now", 1, 1, func([]Value) (Value, error) { return String("now"), nil }),
}

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
	vars := NewDict()
	if s.Vars != nil {
		v, err := DecodeJSON(s.Vars)
		if err != nil {
			t.Fatal(err)
		}
		vars = v.(*Dict)
	}
	return run(s.Template, vars, Options{Globals: host})
}

// readLines decodes a file of JSON lines, which is packed if its name ends in .gz.
func readLines[T any](t testing.TB, path string) (all []T) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var x T
		if err := json.Unmarshal(sc.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSyntax runs snippets of each behaviour of the language; testdata/README.md
// says where they come from.
func TestSyntax(t *testing.T) {
	var rendered, failed int
	for _, s := range readLines[snippet](t, "testdata/syntax.jsonl") {
		text, err := s.render(t)
		raised, isRaised := strings.CutPrefix(s.Python, "RaiseException: ")
		var e *Error
		switch {
		case s.Render != nil && err == nil && text == *s.Render:
			rendered++
		case s.Error && errors.As(err, &e) && (!isRaised || e.Kind == KindRaised && e.Message == raised):
			failed++
		default:
			t.Errorf("%s: %q:\n got %q, %v\nwant %s%q", s.Name, s.Template, text, err, s.Python, deref(s.Render))
		}
	}
	if rendered != 275 || failed != 146 {
		t.Errorf("%d snippets rendered and %d failed as recorded, want 275 and 146", rendered, failed)
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
	vars, rendered, failed, missing := all[0].Vars, 0, 0, 0
	for _, s := range all[1:] {
		s.Vars = vars
		text, err := s.render(t)
		switch {
		case s.Render != nil && err == nil && text == *s.Render:
			rendered++
		case s.Error != "" && err != nil:
			failed++
		case isUnsupported(err):
			missing++
		default:
			t.Errorf("%q:\n got %q, %v\nwant %s%q", s.Template, text, err, s.Error, deref(s.Render))
		}
	}
	if rendered != 2030 || failed != 1970 || missing != 0 {
		t.Errorf("%d templates rendered and %d failed as recorded, %d are not supported", rendered, failed, missing)
	}
}

func isUnsupported(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == KindUnsupported
}
