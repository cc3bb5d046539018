package grammar

import (
	"strings"
	"testing"
)

// features are schemas, with values that fit, and values that do not, apart by blanks; ␣ is a blank.
var features = []struct{ schema, fits, not string }{
	{`true`, `1 "a" null {} [] [1,{"a":[]}] -0 1e5 true`, `a {a} [1,] {"a"} 01 1. .5 +1 NaN "`},
	{`false`, ``, `1 null`},
	{`{}`, `{"a":{"b":[null]}} "x"`, `'x' nul`},
	{`{"title":"t","description":"d","default":1,"examples":[1],"$comment":"c","deprecated":true}`, `1 "x"`, `x`},
	{`{"type":"null"}`, `null`, `nul "null" 0`},
	{`{"type":"boolean"}`, `true false`, `True 1 "true" null`},
	{`{"type":"string"}`, `"" "abc" "é😀" "\n\"\\\/\u00e9\ud83d\ude00"`, "\"a \"\\x\" \"\\ud83d\" \"\\ude00\" \"\t\" abc"},
	{`{"type":"integer"}`, `0 -0 7 -12 123456789012345678`, `00 1.0 1e3 1. - +1 1234567890123456789 "1"`},
	{`{"type":"number"}`, `0 -1.5 1e5 1E-5 2.5e+10 0.001`, `.5 1. 01 1e 1e999 --1 Infinity`},
	{`{"type":["string","null"]}`, `"a" null`, `1 {}`},
	{`{"type":["integer","number"]}`, `1 1.5`, `"1"`},
	{`{"type":"string","nullable":true}`, `"a" null`, `1`},
	{`{"type":"object"}`, `{} {"a":1} {"a":1,"b":{"c":[]}} {␣"a":␣1,␣"b":2␣}`, `[] {"a"} {"a":1,} {a:1} {,} 1`},
	{`{"type":"array"}`, `[] [1] [1,"a",[]] [␣1,␣2␣]`, `{} [1,] [,] 1`},
	{`{"properties":{"a":{"type":"integer"}}}`, `{"a":1} {}`, `{"a":"x"} 1`},
	{`{"items":{"type":"integer"}}`, `[] [1]`, `["a"]`},
	{`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"],"additionalProperties":false}`,
		`{"a":1,"b":"x"} {"a":␣1,␣"b":␣"x"}`, `{} {"a":1} {"b":"x","a":1} {"a":1,"b":"x","c":2} {"a":1,"b":"x",} {"a":1"b":"x"}`},
	{`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false}`,
		`{"b":"x"} {"a":1,"b":""} {"b":"","c":null} {"a":1,"b":"","c":null}`, `{} {"a":1} {"c":null} {"b":"","a":1} {"a":1,,"b":""} {"b":"",}`},
	{`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false}`, `{} {"a":1} {"b":1} {"a":1,"b":2}`, `{"b":1,"a":2} {"a":1,"a":2} {,"a":1}`},
	{`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":true}`, `{} {"a":1} {"x":"y"} {"a":1,"x":[]} {"ab":1}`, `{"a":"x"} {"x":1,"a":"y"}`},
	{`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, `{"a":1,"x":"y"} {"x":"y"}`, `{"x":1} {"a":"y"}`},
	{`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`, `{"a":1}`, `{} {"a":1,"b":2}`},
	{`{"type":"object","required":["x"]}`, `{"x":1} {"x":{},"y":2}`, `{} {"y":1}`},
	{`{"type":"object","required":["x"],"additionalProperties":{"type":"integer"}}`, `{"x":1} {"x":1,"y":2}`, `{} {"x":"a"} {"x":1,"y":"b"}`},
	{`{"type":"object","additionalProperties":false}`, `{} {␣}`, `{"a":1}`},
	{`{"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2}`, `{"a":1} {"a":1,"b":2}`, `{} {"a":1,"b":2,"c":3}`},
	{`{"type":"object","additionalProperties":{"type":"integer"},"minProperties":2}`, ``, ``},
	{`{"type":"object","maxProperties":0}`, `{}`, `{"a":1}`},
	{`{"type":"object","patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":false}`, `{} {"x_a":1} {"x_":1,"x_b":2}`, `{"y":1} {"x_a":"s"}`},
	{`{"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"type":"string"}},"additionalProperties":{"type":"null"}}`, `{"xa":1} {"ay":"s"} {"b":null}`, `{"b":1} {"ay":1} {"xa":null}`},
	{`{"type":"object","properties":{"xa":{"minimum":5}},"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false}`, `{"xa":5} {"xb":1}`, `{"xa":1} {"xa":"s"} {"b":1}`},
	{`{"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":3}}`, `{"abc":1} {}`, `{"abcd":1} {"A":1} {"":1}`},
	{`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]}},"required":["a"]}`, `{"a":{"b":1}} {"a":␣{"b":2}␣}`, `{"a":{}} {"a":{"b":1}`},
	{`{"type":"object","properties":{"a b\n\"":{"type":"integer"}},"required":["a b\n\""]}`, `{"a␣b\n\"":1}`, `{"ab":1}`},
	{`{"type":"object","properties":{"a":false,"b":true}}`, `{} {"b":1}`, `{"a":1}`},
	{`{"type":"object","properties":{"a":true},"required":["a"]}`, `{"a":1} {"a":null}`, `{}`},
	{`{"type":"array","items":{"type":"integer"}}`, `[] [1] [1,2]`, `["a"] [1,]`},
	{`{"type":"array","items":{"type":"integer"},"minItems":2}`, `[1,2] [1,2,3]`, `[] [1]`},
	{`{"type":"array","items":{"type":"integer"},"maxItems":2}`, `[] [1] [1,2]`, `[1,2,3]`},
	{`{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":1}`, `[1]`, `[] [1,2]`},
	{`{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3}`, `[1,2] [1,2,3]`, `[1] [1,2,3,4]`},
	{`{"type":"array","maxItems":0}`, `[] [␣]`, `[1]`},
	{`{"type":"array","items":false}`, `[]`, `[1]`},
	{`{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false}`, `[] [1] [1,"a"]`, `["a"] [1,"a",2]`},
	{`{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"minItems":2,"maxItems":2}`, `[1,"a"]`, `[] [1] [1,"a",2]`},
	{`{"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"},"minItems":2,"maxItems":3}`, `[1,"a"] [1,"a","b"]`, `[1] [1,2] [1,"a","b","c"]`},
	{`{"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}}`, `[1] [1,null]`, `[null] [1,1]`},
	{`{"type":"array","uniqueItems":false,"items":{"type":"null"}}`, `[null,null]`, `[1]`},
	{`{"type":"array","items":{"type":"array","items":{"type":"integer"},"maxItems":1}}`, `[] [[]] [[1],[]]`, `[1] [[1,2]]`},
	{`{"type":"array","items":{"type":"integer"},"maxItems":1000000000}`, `[] [1,1,1]`, `["a"]`},
	{`{"enum":["red","green","blue"]}`, `"red" "green" "blue"`, `"re" red "yellow" null`},
	{`{"enum":[1,2.5,"a",null,true,[1,"x"],{"a":1}]}`, `1 2.5 "a" null true [1,"x"] {"a":1}`, `2 "b" false [1] {"a":2}`},
	{`{"type":"string","enum":["a",1,null]}`, `"a"`, `1 null`},
	{`{"type":"integer","enum":[1,2.0,2.5]}`, `1 2.0`, `2.5`},
	{`{"type":["string","null"],"enum":["a",null]}`, `"a" null`, `1`},
	{`{"const":"x"}`, `"x"`, `"y" x`},
	{`{"const":{"a":[1,2]}}`, `{"a":[1,2]}`, `{"a":[1]}`},
	{`{"enum":["a","b"],"const":"b"}`, `"b"`, `"a"`},
	{`{"enum":["é\n<","😀"]}`, `"é\n<" "😀"`, `"e"`},
	{`{"anyOf":[{"type":"integer"},{"type":"string"}]}`, `1 "a"`, `null 1.5`},
	{`{"anyOf":[{"const":1},{"const":12}]}`, `1 12`, `2 123`},
	{`{"type":"object","properties":{"k":{"type":"string"}},"required":["k"],"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"integer"}},"required":["b"]}]}`,
		`{"k":"x","a":1} {"k":"x","b":1}`, `{"k":"x"} {"a":1}`},
	{`{"anyOf":[{"type":"object","properties":{"t":{"const":"a"},"x":{"type":"integer"}},"required":["t","x"]},{"type":"object","properties":{"t":{"const":"b"},"y":{"type":"string"}},"required":["t","y"]}]}`,
		`{"t":"a","x":1} {"t":"b","y":"s"}`, `{"t":"a","y":"s"} {"t":"b","x":1}`},
	{`{"oneOf":[{"type":"integer"},{"type":"string"}]}`, `1 "a"`, `null`},
	{`{"oneOf":[{"type":"object","properties":{"t":{"const":"a"}},"required":["t"]},{"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]}`, `{"t":"a"} {"t":"b"}`, `{"t":"c"} {}`},
	{`{"oneOf":[{"enum":[1,2]},{"enum":[3]}]}`, `1 3`, `4`},
	{`{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}]}`, `{"a":1,"b":"x"}`, `{"a":1} {"b":"x"}`},
	{`{"allOf":[{"type":"integer"},{"minimum":3},{"minimum":5,"maximum":9}]}`, `5 9`, `3 10`},
	{`{"type":["integer","string"],"allOf":[{"type":["string","null"]}]}`, `"a"`, `1 null`},
	{`{"$ref":"#/$defs/x","$defs":{"x":{"type":"integer"}}}`, `1`, `"a"`},
	{`{"$ref":"#/definitions/a~1b","definitions":{"a/b":{"type":"null"}}}`, `null`, `1`},
	{`{"type":"object","properties":{"a":{"$ref":"#/$defs/p"},"b":{"$ref":"#/$defs/p","description":"d"}},"required":["a","b"],"$defs":{"p":{"type":"integer","minimum":1}}}`, `{"a":1,"b":2}`, `{"a":0,"b":1}`},
	{`{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}`,
		`{"v":1,"next":null} {"v":1,"next":{"v":2,"next":{"v":3,"next":null}}}`, `{"v":1} {"v":1,"next":{}} {"v":1,"next":{"v":2,"next":null}`},
	{`{"$ref":"#/$defs/t","$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"}}}}`, `[] [[]] [[],[[]]]`, `[1] [[]`},
	{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/b"}},"b":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}}}`, `[] [{}] [{"a":[{}]}]`, `{} [[]]`},
	{`{"$ref":"#/$defs/n","minimum":3,"$defs":{"n":{"type":"integer","maximum":5}}}`, `3 5`, `2 6`},
	{`{"type":"string","minLength":2}`, `"ab" "éé" "\n\n" "abc"`, `"" "a" "é" "\n"`},
	{`{"type":"string","maxLength":2}`, `"" "ab" "😀😀" "\ud83d\ude00a" "\u0041b"`, `"abc" "😀😀😀" "\n\n\n"`},
	{`{"type":"string","minLength":1,"maxLength":1}`, `"a"`, `"" "ab"`},
	{`{"type":"string","maxLength":100000}`, `"" "abc"`, `1`},
	{`{"type":"string","pattern":"^[a-z]{2,3}$"}`, `"ab" "abc"`, `"a" "abcd" "AB" ""`},
	{`{"type":"string","pattern":"b"}`, `"b" "abc" "bbb"`, `"" "ac"`},
	{`{"type":"string","pattern":"^a"}`, `"a" "ab"`, `"ba"`},
	{`{"type":"string","pattern":"a$"}`, `"a" "ba"`, `"ab"`},
	{`{"type":"string","pattern":"^(a|b$)"}`, `"a" "ax" "b"`, `"bx" "xa"`},
	{`{"type":"string","pattern":"^\\d{3}-\\w+$"}`, `"123-ab_"`, `"12-a" "123-"`},
	{`{"type":"string","pattern":"^\"[\\\\\\n]$"}`, `"\"\\" "\"\n"`, `"\"n"`},
	{`{"type":"string","pattern":"^\\u00e9+\\/$"}`, `"é/" "éé/"`, `"e/"`},
	{`{"type":"string","pattern":"^(?:ab)?c*(d|e)+$"}`, `"d" "abcce"`, `"abab" ""`},
	{`{"type":"string","pattern":"(?i)^yes$"}`, `"yes" "YES" "yEs"`, `"no"`},
	{`{"type":"string","pattern":"^.*x.*$","maxLength":3}`, `"x" "axb"`, `"abx1" "ab"`},
	{`{"type":"string","pattern":"^[^a]$"}`, `"b" "é" "\"" "\u0001"`, `"a" "" "bb"`},
	{`{"type":"string","pattern":""}`, `"" "a"`, `1`},
	{`{"type":"string","format":"date"}`, `"2024-02-29" "2023-12-31" "2000-02-29" "1999-01-01"`, `"2023-02-29" "1900-02-29" "2023-13-01" "2023-04-31" "23-01-01"`},
	{`{"type":"string","format":"time"}`, `"12:30:00Z" "23:59:59.123+02:00"`, `"24:00:00Z" "12:30" "12:60:00Z"`},
	{`{"type":"string","format":"date-time"}`, `"2024-01-01T00:00:00Z" "2024-01-01T10:20:30.5-08:00"`, `"2024-01-01" "2024-01-01␣00:00:00Z"`},
	{`{"type":"string","format":"duration"}`, `"P1D" "PT1H30M" "P1Y2M3DT4H" "P2W"`, `"P" "PT" "1D" "P1S"`},
	{`{"type":"string","format":"email"}`, `"a@b.c" "a.b+c@x-y.org"`, `"a" "@b" "a@" "a..b@c"`},
	{`{"type":"string","format":"hostname"}`, `"a" "a-b.example.com"`, `"-a" "a-" "a..b"`},
	{`{"type":"string","format":"ipv4"}`, `"0.0.0.0" "255.10.1.99"`, `"256.0.0.1" "1.2.3" "01.2.3.4"`},
	{`{"type":"string","format":"ipv6"}`, `"::" "::1" "1:2:3:4:5:6:7:8" "fe80::1:2" "1::"`, `"1:2" ":::" "12345::" "1:2:3:4:5:6:7:8:9"`},
	{`{"type":"string","format":"uuid"}`, `"123e4567-e89b-12d3-a456-426614174000"`, `"123e4567" "g23e4567-e89b-12d3-a456-426614174000"`},
	{`{"type":"string","format":"uri"}`, `"https://a.b/c?d=e#f" "ftp://x"`, `"a.b" "http:/x" "https://a␣b"`},
	{`{"type":"integer","minimum":3}`, `3 10 1000`, `2 -3 0 3.5`},
	{`{"type":"integer","minimum":-3}`, `-3 -1 0 5`, `-4 -10`},
	{`{"type":"integer","maximum":12}`, `12 0 -100 9`, `13 100 20`},
	{`{"type":"integer","minimum":8,"maximum":123}`, `8 10 99 100 123`, `7 124 200 1 1000`},
	{`{"type":"integer","minimum":-12,"maximum":-3}`, `-12 -3 -10`, `-13 -2 0 3`},
	{`{"type":"integer","minimum":-5,"maximum":5}`, `-5 0 5`, `-6 6 -0`},
	{`{"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":5}`, `4`, `3 5`},
	{`{"type":"integer","minimum":1.5,"maximum":3.5}`, `2 3`, `1 4`},
	{`{"type":"integer","minimum":1e3}`, `1000 1001`, `999`},
	{`{"type":"integer","minimum":0}`, `0 7`, `-1`},
	{`{"type":"integer","exclusiveMinimum":0}`, `1 10`, `0 -1`},
	{`{"type":"number","minimum":0,"maximum":1}`, `0 1 0.5 1.0 0.999 0.0`, `1.01 -0.1 2`},
	{`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1}`, `0.5 0.001 0.10`, `0 1 0.0 1.0 0.00`},
	{`{"type":"number","minimum":1.25,"maximum":1.75}`, `1.25 1.3 1.5 1.75 1.750`, `1.24 1.2 1.76 1 2 1.7501`},
	{`{"type":"number","minimum":-1.5}`, `-1.5 -1.49 0 -1 -0.7 100.25`, `-1.51 -2 -1.6`},
	{`{"type":"number","maximum":-1.5}`, `-1.5 -1.50 -2 -1.6`, `-1.4 0 1 -1`},
	{`{"type":"number","exclusiveMaximum":0.05}`, `0.04 0 -1 0.0499`, `0.05 0.050 0.1 1`},
	{`{"type":"integer","multipleOf":3}`, `0 3 12 -9 123456`, `1 2 100 -4`},
	{`{"type":"integer","multipleOf":7,"minimum":10,"maximum":30}`, `14 21 28`, `7 35 15`},
	{`{"type":"number","multipleOf":0.01}`, `1 1.5 1.25 -0.07`, `1.255 0.001`},
	{`{"type":"number","multipleOf":0.25}`, `0.25 0.5 1 1.75 -2.5`, `0.3 0.1 1.26`},
	{`{"type":"integer","multipleOf":0.5}`, `1 2`, `0.5`},
	{`{"type":"integer","multipleOf":2.5}`, `0 5 10`, `1 2 7`},
	{`{"type":"number","multipleOf":10}`, `0 10 -120`, `1 15`},
	{`{"minimum":5}`, `5 6.5`, `4`},
	{`{"type":"string","minimum":5}`, `"a"`, `5`},
	{`{"type":["integer","string"],"minimum":5,"minLength":1}`, `5 "a"`, `4 ""`},
	{`{"type":"object","properties":{"a":{"type":"string","x-order":1}},"x-y":2}`, `{"a":"b"}`, `{"a":1}`},
	{`{"$defs":{"a b":{"type":"integer"}},"$ref":"#/$defs/a%20b"}`, `5`, `"a"`},
	{`{"$defs":{"é%\"^":{"type":"integer"}},"$ref":"#/$defs/%C3%A9%25%22%5E"}`, `5`, `"a"`},
	{`{"$defs":{"~/":{"a~1b":{"type":"null"}}},"$ref":"#/$defs/~0~1/a%7E01b"}`, `null`, `5`},
	{`{"$defs":{"":{"":{"type":"null"}}},"$ref":"#/$defs//"}`, `null`, `5`},
	{`{"$defs":{"x":{"$anchor":"here","type":"null"}},"$ref":"#here"}`, `null`, `5`},
	{`{"$id":"https://a.example/b/c.json","$defs":{"x":{"type":"null"}},"$ref":"c.json#/$defs/x"}`, `null`, `5`},
	{`{"$id":"https://a.example/b/c.json","$defs":{"x":{"$id":"../d","$defs":{"y":{"type":"null"}},"items":{"$ref":"#/$defs/y"},"type":"array"},"z":{"type":"integer"}},"items":{"$ref":"/d"},"prefixItems":[{"$ref":"#/$defs/z"},{"$ref":"https://a.example/d#/$defs/y"}],"type":"array"}`,
		`[1,null] [1,null,[null]]`, `[1,1] [1,null,[1]] [null]`},
	{`{"$id":"urn:uuid:deadbeef-1234-0000-0000-4321feebdaed","$defs":{"x":{"$anchor":"n","type":"null"}},"$ref":"urn:uuid:deadbeef-1234-0000-0000-4321feebdaed#n"}`, `null`, `5`},
	{`{"$defs":{"x":{"enum":[{"$id":"t","type":"string"}]},"y":{"$id":"t","type":"null"}},"$ref":"t"}`, `null`, `"a"`},
	{`{"properties":{"$ref":{"type":"integer"}},"required":["$ref"]}`, `{"$ref":1}`, `{"$ref":"a"} {}`},
	{`{"type":"string","format":"byte"}`, `"" "QQ==" "QUI=" "QUJD"`, `"Q" "QQ=" "Q===" "QUJ-"`},
	{`{"type":"string","format":"uri-reference"}`, `"" "a/b" "/a" "//x/y" "?a=b" "#c" "../x" "https://a.b/c"`, `"a␣b" "<"`},
	{`{"type":"string","format":"url"}`, `"https://a.b/c"`, `"a/b"`},
	{`{"type":"string","format":"json-pointer"}`, `"" "/a/~0~1" "/"`, `"a" "/~"`},
	{`{"type":"string","format":"binary","maxLength":2}`, `"" "é␣"`, `"abc" 1`},
	{`{"type":"string","format":"phone","minLength":1}`, `"+47"`, `"" 1`},
	{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":{"explanation":{"type":"string"},"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},"final_answer":{"type":"string"}},"required":["steps","final_answer"],"additionalProperties":false}`,
		`{"steps":[{"explanation":"a","output":"b"}],"final_answer":"c"} {"steps":[],"final_answer":""}`, `{"steps":[{}],"final_answer":"c"} {"final_answer":"c","steps":[]}`},
}

func blanks(s string) (all []string) {
	for _, x := range strings.Fields(s) {
		all = append(all, strings.ReplaceAll(x, "␣", " "))
	}
	return all
}

// TestSchema: what fits a schema, and what does not.
func TestSchema(t *testing.T) {
	for _, f := range features {
		g, err := JSONSchema([]byte(f.schema))
		if f.fits == "" {
			if err == nil {
				t.Errorf("%s: no error", f.schema)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f.schema, err)
			continue
		}
		for _, text := range blanks(f.fits) {
			if ok, err := g.Fits([]byte(text)); !ok || err != nil {
				t.Errorf("%s: %s does not fit, %v", f.schema, text, err)
			}
		}
		for _, text := range blanks(f.not) {
			if ok, err := g.Fits([]byte(text)); ok || err != nil {
				t.Errorf("%s: %s fits, %v", f.schema, text, err)
			}
		}
	}
}
