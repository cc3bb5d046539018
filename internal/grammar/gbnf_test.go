package grammar

import (
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var patterns = []struct{ pattern, fits, not string }{
	{`abc`, `abc`, `ab abcd xabc`},
	{`^abc$`, `abc`, `ab`},
	{`[0-9]{3}-[0-9]{4}`, `555-1234`, `555-123 5555-1234`},
	{`(yes|no)!*`, `yes no no!!`, `y maybe`},
	{`a.c`, `abc aéc a😀c`, `ac abbc`},
	{`[^a-z]+`, `ABC É9`, `a Ab`},
	{`\d+(\.\d{1,2})?`, `1 1.5 1.55`, `1. 1.555`},
	{`(?i)ok`, `ok OK oK`, `o`},
	{`\x41\u0042`, `AB`, `ab`},
	{`(a{0,300}b){1,3}`, `b aab bab`, `a bbbb`},
	{`(?s).{2}`, `ab`, `a abc`},
	{`\p{Greek}+`, `αβγ`, `abc`},
	{`(a|aa){1,500}`, `a aaaa`, `b`},
}

// TestRegexp: what fits a pattern is what package regexp finds in it as a whole.
func TestRegexp(t *testing.T) {
	for _, p := range patterns {
		g, err := Regexp(p.pattern)
		if err != nil {
			t.Errorf("%s: %v", p.pattern, err)
			continue
		}
		re := regexp.MustCompile(`^(?:` + ecma(p.pattern) + `)$`)
		for i, list := range []string{p.fits, p.not} {
			for _, text := range strings.Fields(list) {
				if ok, err := g.Fits([]byte(text)); ok != (i == 0) || err != nil || ok != re.MatchString(text) {
					t.Errorf("%s: %s: %v, %v", p.pattern, text, ok, err)
				}
			}
		}
	}
	for pattern, why := range map[string]string{`(?=a)`: "", `a**`: "", `\bx`: `\b`, `a^b`: "ends", `(^a)*`: "end", `(?m)^a$`: "lines", `[b-a]`: "", `(`: "", `a{2000}`: "", strings.Repeat("a", maxPattern+1): "bytes"} {
		if _, err := Regexp(pattern); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(why)) && why != "ends" && why != "end" {
			t.Errorf("%.40s: %v", pattern, err)
		}
	}
}

var grammarsGBNF = []struct{ source, fits, not string }{
	{`root ::= "a" | "b"`, `a b`, `c ab`},
	{"root ::= item+ # items\nitem ::= [a-c] \",\"?", `a a,b abc`, `d ,`},
	{"root ::= \"(\" root \")\" | \"x\"", `x (x) (((x)))`, `( (x ()`},
	{"root ::= (\n  \"a\"\n  | \"b\" {2,3}\n)\n", `a bb bbb`, `b bbbb`},
	{"root ::= word (\"-\" word){0,2}\nword ::= [^-\\n]{1,4}", `ab ab-cd a-b-c`, `a-b-c-d abcde`},
	{`root ::= "\x41\u00e9\U0001F600\""`, `Aé😀"`, `A`},
	{"root ::= ex\nex ::= term ([-+*] term)*\nterm ::= num | \"(\" ex \")\"\nnum ::= [0-9]+", `1 1+2 (1+2)*3`, `1+ (1 ()`},
	{"root ::= object\nvalue ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\nobject ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\narray ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\nstring ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt])* \"\\\"\" ws\nnumber ::= \"-\"? [0-9]+ ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}",
		`{} {"a":[1,{"b":null}]} {"a":"\n"}`, `[] {"a"} {a:1}`},
	{`root ::= <think> [a-z]* </think> "x"`, "\xff<think>\xffab\xff</think>\xffx", `<think>ab</think>x`},
	{`root ::= .{2}`, `ab éé`, `a abc`},
	{"root ::= a-b | c_d\na-b ::= \"1\"\nc_d ::= \"2\"", `1 2`, `3`},
}

// TestGBNF: what fits a grammar.
func TestGBNF(t *testing.T) {
	for _, x := range grammarsGBNF {
		g, err := GBNF(x.source)
		if err != nil {
			t.Errorf("%s: %v", x.source, err)
			continue
		}
		for i, list := range []string{x.fits, x.not} {
			for _, text := range strings.Fields(list) {
				if ok, err := g.Fits([]byte(text)); ok != (i == 0) || err != nil {
					t.Errorf("%s: %s: %v, %v", x.source, text, ok, err)
				}
			}
		}
	}
	for source, why := range map[string]string{
		``: "no rule root", `root ::= x`: "no rule x", `root ::= "a`: "line 1", "root ::= \"a\"\nroot ::= \"b\"": "line 2: the rule root is there twice", `root ::= root "a" | "b"`: "left recursion",
		"root ::= a \"x\" | \"y\"\na ::= \"b\"? root": "left recursion", `root ::= root`: "no finite", `root ::= [z-a]`: "wrong way", `root ::= "a"{3,2}`: "want {m}", `root ::= "a"**`: "after a count", `root ::= "\q"`: "no escape",
		`root ::= "a" )`: "after the rule", `root`: "::=", "root ::= <[12": "want a token", `root ::= ` + strings.Repeat("(", 100): "levels", `root ::= "\uD800"`: "no character", strings.Repeat(" ", MaxSource+1): "bytes",
		`root ::= "a" root`: "no finite",
	} {
		if _, err := GBNF(source); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.60s: %v, want %q", source, err, why)
		}
	}
}

// TestRefusedSchemas: what is not supported is refused by its path.
func TestRefusedSchemas(t *testing.T) {
	for schema, why := range map[string]string{
		``: "ends too early", `[]`: "#: it is of type array", `1`: "want a schema", `{"type":"x"}`: `#/type: "x"`, `{"type":1}`: "#/type", `{"type":[]}`: "#/type", `{"a":1}`: `"a" is not supported`,
		`{"properties":{"a":{"properties":{"b":{"not":{}}}}}}`: `#/properties/a/properties/b: "not"`, `{"items":{"if":{}}}`: `#/items: "if"`, `{"type":"array","uniqueItems":true}`: "#/uniqueItems", `{"type":"array","contains":{}}`: "contains",
		`{"type":"string","format":1}`: `#/format`, `{"type":"string","pattern":"("}`: "#/pattern", `{"type":"string","pattern":"(?!a)"}`: "#/pattern", `{"type":"string","pattern":1}`: "#/pattern", `{"type":"string","minLength":-1}`: "#/minLength",
		`{"type":"string","minLength":5,"maxLength":4}`: "#/minLength", `{"type":"string","maxLength":1.5}`: "#/maxLength", `{"type":"array","minItems":2,"maxItems":1}`: "#/minItems", `{"type":"array","items":false,"minItems":1}`: "#/minItems",
		`{"type":"integer","multipleOf":0}`: "#/multipleOf", `{"type":"integer","multipleOf":123456789}`: "#/multipleOf", `{"type":"integer","minimum":"a"}`: "#/minimum", `{"type":"integer","minimum":1e999}`: "#/minimum", `{"type":"integer","minimum":5,"maximum":4}`: "no finite",
		`{"enum":[]}`: "#/enum", `{"enum":1}`: "#/enum", `{"enum":[1],"minimum":0}`: "beside enum", `{"const":1,"enum":[2]}`: "const is no value", `{"type":"string","enum":[1]}`: "no finite", `{"anyOf":[]}`: "#/anyOf", `{"anyOf":[{"x":1}]}`: "#/anyOf/0",
		`{"oneOf":[{"type":"integer"},{"type":"number"}]}`: "#/oneOf: schemas 0 and 1", `{"allOf":[]}`: "#/allOf", `{"allOf":[{"pattern":"a"},{"pattern":"b"}]}`: "cannot be combined", `{"allOf":[1]}`: "#/allOf/0", `{"type":"string","allOf":[{"type":"null"}]}`: "cannot be combined",
		`{"type":"string","lark":"start: a"}`: "#/lark: line 1: there is no rule a", `{"lark":1}`: "#/lark", `{"lark":"start: \"a\"","maxLength":3}`: "#/lark: maxLength is beside it", `{"propertyNames":{"lark":"start: \"a\""}}`: "no grammar",
		`{"$ref":"x"}`: "#/$ref", `{"$ref":"#/a%"}`: "%25", `{"$ref":"#a"}`: "nothing is fetched", `{"$ref":"http://a/b#/c"}`: "nothing is fetched", `{"$ref":"#/enum/00","enum":[{}]}`: "00", `{"$ref":1}`: "#/$ref", `{"$ref":"#/$defs/a"}`: `there is no "$defs"`, `{"$ref":"#"}`: "no finite", `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`: "no finite",
		`{"properties":{"a":1}}`: "#/properties/a", `{"properties":[]}`: "#/properties", `{"required":1}`: "#/required", `{"required":[1]}`: "#/required", `{"type":"object","required":["a"],"additionalProperties":false}`: "#/required", `{"type":"object","properties":{"a":{}},"minProperties":1}`: "minProperties",
		`{"type":"object","properties":{"a":{}},"additionalProperties":false,"allOf":[{"properties":{"b":{}}}]}`: "closes out", `{"type":"object","properties":{"A":{}},"propertyNames":{"pattern":"^[a-z]$"}}`: "#/propertyNames", `{"a":1,"a":2}`: "there twice", `{"type":"object"} x`: "JSON",
		strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100): "levels", `{"prefixItems":{}}`: "#/prefixItems", `{"dependentRequired":{}}`: "dependentRequired", `{"$dynamicRef":"#a"}`: "$dynamicRef", `{"enum":["` + strings.Repeat(`a","`, maxEnum) + `"]}`: "values of enums",
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`: "no finite", "\"\xff\"": "UTF-8", strings.Repeat(" ", MaxSource+1): "bytes",
	} {
		if _, err := JSONSchema([]byte(schema)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.80s: %v, want %q", schema, err, why)
		}
	}
}

// TestSearchIsBounded: a schema of few bytes, whose numbers are many states, does not take the memory of a machine.
func TestSearchIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := JSONSchema([]byte(`{"type":"integer","multipleOf":9999999,"minimum":3}`))
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "too complex") {
		t.Errorf("%v, want too complex", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 100<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	if _, err := JSONSchema([]byte(`{"type":"number","multipleOf":0.25,"minimum":3,"maximum":123456}`)); err != nil {
		t.Error(err)
	}
	if _, err := JSONSchema([]byte(`{"type":"integer","multipleOf":1000,"minimum":3,"maximum":123456}`)); err != nil {
		t.Error(err)
	}
}

// TestWork: grammars that make other engines hang are refused or cost a bounded amount of work.
func TestWork(t *testing.T) {
	v := vocabulary(3000)
	var deep strings.Builder
	deep.WriteString("root ::= r60\nr0 ::= \"a\"\n")
	for i := range 60 {
		deep.WriteString(strings.NewReplacer("N", itoa(i+1), "M", itoa(i)).Replace("rN ::= rM rM | rM \"x\" | \"b\"\n"))
	}
	for name, make := range map[string]func() (*Grammar, error){
		"counts":    func() (*Grammar, error) { return Regexp(`((a{1,9}b?){1,10}c?){1,10}`) },
		"ambiguous": func() (*Grammar, error) { return Regexp(`(a|b)*a(a|b){900}`) },
		"stars":     func() (*Grammar, error) { return Regexp(`((a*)*b*)*(a*)*x`) },
		"rules":     func() (*Grammar, error) { return GBNF(deep.String()) },
		"items": func() (*Grammar, error) {
			return JSONSchema([]byte(`{"type":"array","items":{"type":"array","maxItems":1000000000},"minItems":100000000}`))
		},
		"string": func() (*Grammar, error) { return JSONSchema([]byte(`{"type":"string","minLength":1000000000}`)) },
		"both": func() (*Grammar, error) {
			return JSONSchema([]byte(`{"type":"string","pattern":"(a|b)*a(a|b){300}c","minLength":900}`))
		},
		"many": func() (*Grammar, error) {
			return JSONSchema([]byte(`{"anyOf":[` + strings.Repeat(`{"type":"string","pattern":"^a*b"},`, 3000) + `{"type":"null"}]}`))
		},
	} {
		g, err := make()
		if err != nil {
			continue
		}
		m := matched(t, g, v)
		for range 50 {
			mask, err := m.Mask()
			if err != nil {
				break
			}
			id := 0
			for !mask.Has(id) {
				id++
			}
			if err := m.Accept(id); err != nil || m.ended {
				break
			}
		}
		g.mu.Lock()
		if g.terms.bytes > maxBytes+1<<20 {
			t.Errorf("%s: %d bytes of states", name, g.terms.bytes)
		}
		g.mu.Unlock()
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}
