package grammar

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/syntax"
)

// grammarsLark are grammars, with texts that fit and texts that do not.
var grammarsLark = []struct {
	source    string
	fits, not []string
}{
	{`start: "a" | "b"`, []string{"a", "b"}, []string{"", "ab", "c"}},
	{"start: greeting \" \" name // who\n?greeting.2: \"hello\"i -> hi\n  | \"bye\"\nname: /[A-Z][a-z]{1,3}/", []string{"HeLLo Ann", "bye Bob"}, []string{"BYE Bob", "hello ann", "hello Annabel"}},
	{`start: sum
sum: product (("+" | "-") product)*
product: atom ("*" atom)*
atom: INT | "(" sum ")"
%import common.INT`, []string{"1", "1+2*3", "((1))-2"}, []string{"", "1+", "(1", "()"}},
	{`start: [SIGN] DIGIT~2..3 "x"?
SIGN: "+" | "-"
DIGIT: "0".."9"`, []string{"12", "-123x", "+12x"}, []string{"1", "1234", "--12"}},
	{"start: (\"a\"\n  | \"b\")+ W~2\n%import common (WORD,\n NUMBER)\n%import common.WS_INLINE -> W", []string{"a  ", "abba \t"}, []string{"a ", "c  "}},
	{`start: pair
pair: "<" [pair] ">"`, []string{"<>", "<<<>>>"}, []string{"", "<<>", "><"}},
	{`start: /a\/b/ /x.y/s`, []string{"a/bx\ny"}, []string{"abxy"}},
	{"start: SIGNED_FLOAT\n%import common.SIGNED_FLOAT", []string{"-1.5", "+2e3", ".5"}, []string{"1", "-", "--1.5"}},
	{`start: /x.y/`, []string{"xzy"}, []string{"x\ny"}},
}

// TestLark: the same texts fit a grammar alone and as strings of a JSON schema.
func TestLark(t *testing.T) {
	for _, x := range grammarsLark {
		g, err := Lark(x.source)
		if err != nil {
			t.Errorf("%s: %v", x.source, err)
			continue
		}
		s, err := JSONSchema(larkSchema(x.source))
		if err != nil {
			t.Errorf("%s: %v", x.source, err)
			continue
		}
		for i, text := range append(x.fits, x.not...) {
			if ok, err := g.Fits([]byte(text)); err != nil || ok != (i < len(x.fits)) {
				t.Errorf("%s: %q: %v, %v", x.source, text, ok, err)
			}
			if ok, err := s.Fits(appendString(nil, text)); err != nil || ok != (i < len(x.fits)) {
				t.Errorf("%s: the string %q: %v, %v", x.source, text, ok, err)
			}
		}
	}
}

func larkSchema(source string) []byte {
	return append(append([]byte(`{"type":"string","lark":`), appendString(nil, source)...), '}')
}

// TestLarkArguments: whatever is drawn, in every syntax of calls the argument that is read fits its grammar, marks
// within it or not. Where strings have no escapes, a grammar whose texts may have the mark that ends them is refused.
func TestLarkArguments(t *testing.T) {
	v := vocabulary(3000)
	for _, source := range []string{
		"start: sum\nsum: atom (OP atom)~0..2\natom: /[0-9]{1,2}/ | \"(\" sum \")\" | \"\\\"\"\nOP: \"+\" | \"<\"",
		"start: \"a\" (\"<\" tag \">\")~1..3\ntag: [\"/\"] /[^x]/~1..9",
	} {
		want, err := Lark(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range callSyntaxes {
			turn := Turn{Syntax: syntax.Of(c.template), Required: true, Single: true, Tools: []Tool{{"sum", []byte(`{"type":"object","properties":{"input":` + string(larkSchema(source)) + `},"required":["input"],"additionalProperties":false}`), true}}}
			g, err := turn.Compile(t.Context(), nil)
			form := turn.Syntax.Style.Form
			if raw := form == syntax.Tagged || form == syntax.Nested || form == syntax.Quoted; raw && strings.Contains(source, "[^x]") {
				if err == nil || !strings.Contains(err.Error(), "tool sum: #/properties/input/lark: its texts may have ") {
					t.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			ended := 0
			for seed := range uint64(20) {
				text, end := walk(t, g, v, seed, 300, nil)
				if !end {
					continue
				}
				ended++
				tools := syntax.Tools{"sum": {"input": {"string"}}}
				samePieces(t, &turn.Syntax, tools, string(text))
				p := turn.Syntax.NewParser(tools, false)
				var calls []syntax.Call
				for _, e := range append(p.Write(strings.ReplaceAll(string(text), "\xff", "")), p.End()...) {
					calls = append(calls, e.Calls...)
				}
				var a struct{ Input string }
				if len(calls) != 1 || json.Unmarshal([]byte(calls[0].Arguments), &a) != nil {
					t.Errorf("%s: %q: calls %+v", c.name, text, calls)
				} else if ok, err := want.Fits([]byte(a.Input)); !ok {
					t.Errorf("%s: %q: the argument %q does not fit, %v", c.name, text, a.Input, err)
				}
			}
			if ended == 0 {
				t.Errorf("%s: no answer ended", c.name)
			}
		}
	}
}

// TestLarkRefused: what the notation has beyond this, and what is wrong, is an error with its line.
func TestLarkRefused(t *testing.T) {
	for source, why := range map[string]string{
		``: "no rule start", `start: a`: "line 1: there is no rule a", "start: \"a\"\n%ignore \" \"": "line 2: %ignore is not supported", "%declare A\nstart: A": `line 1: "%declare" is not supported`,
		`start: sep{"a"}`: "templates", "start: \"a\"\nstart: \"b\"": "line 2: start is there twice", `start: "a" "b`: "want '\"'", `start: /a`: "does not end", `start: /a/x`: "flags",
		`%import python.NAME`: "only terminals of common", `%import common.FOO`: "common.FOO is not known", `start: "a"~3..1`: "wrong way round", `start: "ab".."c"`: "range", `start: ("a"`: `want ')'`,
		`start: "a" )`: `')' is not expected`, `start "a"`: "want ':'", `start: a` + "\na: a": "", `start: ` + strings.Repeat("(", 100): "levels", `start: /(?=a)/`: "regular expression",
	} {
		if _, err := Lark(source); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", source, err, why)
		}
	}
}

// FuzzLark is FuzzSchema for Lark's notation.
func FuzzLark(f *testing.F) {
	for _, x := range grammarsLark {
		f.Add(x.source, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if g, err := Lark(text); err == nil {
			follows(t, g, seed)
		}
	})
}
