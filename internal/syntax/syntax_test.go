package syntax

import (
	"encoding/json"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var tools = Tools{"weather": {"city": {"string"}}, "now": {}}

// rows are a template's mark, an answer and its parts.
var rows = []struct {
	name, template, answer  string
	opened                  bool
	text, reasoning, called string
}{
	{"plain", "", "Hello <tool_call>", false, "Hello <tool_call>", "", ""},
	{"json", "<tool_call>", "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>", false, "Let me see.", "", `weather{"city":"Oslo"}`},
	{"two", "<tool_call>", `<tool_call>{"name":"now","arguments":{}}</tool_call>` + "\n" + `<tool_call>{"name":"weather","arguments":{"city":"a"}}</tool_call>`, false, "", "", `now{} weather{"city":"a"}`},
	{"function", "<tool_call> <function=", "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", false, "", "", `weather{"city":"12","days":3}`},
	{"pairs", "<tool_call> <arg_key>", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>x</arg_key><arg_value>[1]</arg_value>\n</tool_call>", false, "", "", `weather{"city":"Oslo","x":[1]}`},
	{"list", "[TOOL_CALLS]", `[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]`, false, "", "", `weather{"city":"Rome"}`},
	{"named", "[TOOL_CALLS]", `[TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]now{}`, false, "", "", `weather{"city":"Rome"} now{}`},
	{"bare", "<|python_tag|>", ` {"name": "weather", "parameters": {"city": "Bonn"}}`, false, "", "", `weather{"city":"Bonn"}`},
	{"bare text", "<|python_tag|>", `{"a": 1} is JSON`, false, `{"a": 1} is JSON`, "", ""},
	{"bare text after reasoning", "<|python_tag|> <think>", "<think>Hm.\n</think>\n{\"a\": 1} is JSON", false, `{"a": 1} is JSON`, "Hm.", ""},
	{"bare after reasoning", "<|python_tag|> <think>", "<think>Hm.\n</think>\n{\"name\": \"now\"}", false, "", "Hm.", "now{}"},
	{"action", "<|START_ACTION|> <|START_THINKING|>", "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>", false, "", "Hm.", `now{}`},
	{"frame", "<|START_ACTION|> <|START_RESPONSE|>", "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", false, "Yes.", "", ""},
	{"quoted", "<|tool_call> <|channel>", `<|channel>thought` + "\nWhy{?" + `<channel|><|tool_call>call:weather{city:<|"|>a "b", {c}<|"|>,days:3,x:{y:[true,<|"|>z<|"|>]}}<tool_call|>`, false, "", "Why{?", `weather{"city":"a \"b\", {c}","days":3,"x":{"y":[true,"z"]}}`},
	{"section", "<|tool_call_argument_begin|> <think>", "<think>Hm.</think>Look. <|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"a}\"}<|tool_call_end|><|tool_call_begin|>now:12<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>", false, "Look.", "Hm.", `weather{"city":"a}"} now{}`},
	{"separated", "<｜tool▁call▁begin｜>", "A.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"a\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false, "A.", "", `weather{"city":"a"} now{}`},
	{"fenced", "<｜tool▁call▁begin｜> ```json", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"a\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false, "", "", `weather{"city":"a"} now{}`},
	{"ids", "<|tool_call:begin|> <|think|>", "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|><|tool_call:begin|>b2<|tool_call:name|>weather<|tool_call:args|>{\"city\":\"a\"}<|tool_call:end|><|calls|>", false, "", "Hm.", `now{} weather{"city":"a"}`},
	{"content", "<|tool_call:begin|> <|think|>", "<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes.<|end|>", false, "Yes.", "Hm.", ""},
	{"channels", "<|channel|>analysis", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes <b>.", false, "Yes <b>.", "Hm.", ""},
	{"channel of a call", "<|channel|>analysis", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"a\"}", false, "", "Hm.", `weather{"city":"a"}`},
	{"channel of text and calls", "<|channel|>analysis", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}<|call|><|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"a\"}<|call|>", false, "I look.", "", `now{} weather{"city":"a"}`},
	{"recipient first", "<|channel|>analysis", " to=functions.now<|channel|>commentary json<|message|>{}", false, "", "", `now{}`},
	{"channel to nobody", "<|channel|>analysis", "<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{}<|call|>", false, "{}", "", ""},
	{"recipient", ">>>all", "all\nI look.>>>weather\n{\"city\": \"a\"}>>>now\n{}", false, "I look.", "", `weather{"city":"a"} now{}`},
	{"recipient at once", ">>>all", "weather\n{\"city\": \"a\"}", false, "", "", `weather{"city":"a"}`},
	{"recipient unknown", ">>>all", "rm\n{}", false, "rm\n{}", "", ""},
	{"function and object", "<function=", "Look.<function=weather>{\"city\": \"a\"}</function><function=now>{}</function>", false, "Look.", "", `weather{"city":"a"} now{}`},
	{"keyed", "<|tools_prefix|> <|inner_prefix|>", `<|inner_prefix|>Hm.<|inner_suffix|><|tools_prefix|>[{"weather": {"city": "a"}}, {"now": {}}]<|tools_suffix|>`, false, "", "Hm.", `weather{"city":"a"} now{}`},
	{"to the end", "<|function_call|>", `I look.<|function_call|>{"name": "weather", "arguments": {"city": "a"}}`, false, "I look.", "", `weather{"city":"a"}`},
	{"functools", "functools[", `I look. functools[{"name": "now", "arguments": {}}]`, false, "I look.", "", `now{}`},
	{"action list", "Action: \"tool_name\"", "Action: ```json\n[\n    {\n        \"tool_name\": \"now\",\n        \"parameters\": {}\n    }\n]```", false, "", "", `now{}`},
	{"steps", "<tool_calls> [BEGIN FINAL RESPONSE]", "Hm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]", true, "Yes.", "Hm.", ""},
	{"python", "List of tools: ", `<|tool_call_start|>[weather(city='it\'s', days=+3, x=[True, None, (1.5,)], y={'a': "b\u00e9"},), now()]<|tool_call_end|>Wait.`, false, "Wait.", "", `weather{"city":"it's","days":3,"x":[true,null,[1.5]],"y":{"a":"bé"}} now{}`},
	{"python without escapes", "List of tools: ", `<|tool_call_start|>[weather(city='it's (a) "b"')]<|tool_call_end|>`, false, "", "", `weather{"city":"it's (a) \"b\""}`},
	{"python is cut", "List of tools: ", `<|tool_call_start|>[weather(city='a)]<|tool_call_end|>`, false, `<|tool_call_start|>[weather(city='a)]<|tool_call_end|>`, "", ""},
	{"python lines", "<function_calls>", "<function_calls>\nweather(city=\"a\", x=null)\nnow()\n</function_calls>", false, "", "", `weather{"city":"a","x":null} now{}`},
	{"python bare", "func_name1(param", `[weather(city="a"), now()]`, false, "", "", `weather{"city":"a"} now{}`},
	{"python bare, a list", "func_name1(param", `[1, 2] is a list`, false, "[1, 2] is a list", "", ""},
	{"name and object", "在调用上述函数时 <think>", "<think>Hm.</think>\nweather\n{\"city\": \"a\"}", false, "", "Hm.", `weather{"city":"a"}`},
	{"name in a text", "在调用上述函数时", "weather is fine", false, "weather is fine", "", ""},
	{"attributes", "｜DSML｜ function_calls> <think>", "A\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\"> 1\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", false, "A", "", `weather{"city":" 1\n","days":3} now{}`},
	{"invokes", "<minimax:tool_call>", "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">5</parameter>\n<parameter name=\"days\">[3]</parameter>\n</invoke>\n</minimax:tool_call>", false, "", "", `weather{"city":"5","days":[3]}`},
	{"values with tags", "]<]minimax[>[ <mm:think>", "<mm:think>Hm.</mm:think>" + strings.ReplaceAll("#<tool_call>\n#<invoke name=\"weather\">#<city>1#</city>#<x>#<item>a <b>#</item>#<item>#<k>true#</k>#</item>#</x>#<y>#<z>#</z>#</y>#</invoke>\n#</tool_call>", "#", "]<]minimax[>["), false, "", "Hm.", `weather{"city":"1","x":["a \u003cb\u003e",{"k":true}],"y":{"z":""}}`},
	{"an item among others", "]<]minimax[>[", strings.ReplaceAll("#<tool_call>\n#<invoke name=\"now\">#<x>#<item>1#</item>#<k>2#</k>#</x>#</invoke>\n#</tool_call>", "#", "]<]minimax[>["), false, "", "", `now{"x":{"item":1,"k":2}}`},
	{"values without lines", "<seed:tool_call> <seed:think>", "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=weather>\n<parameter=city>a\nb</parameter>\n</function>\n</seed:tool_call>", false, "", "Hm.", `weather{"city":"a\nb"}`},
	{"reasoning", "<think>", "<think>\nA\nB\n</think>\n\nC\n", false, "C\n", "A\nB", ""},
	{"opened", "<think>", "A</think>B", true, "B", "A", ""},
	{"cut reasoning", "<think>", "<think>A", false, "", "A", ""},
	{"answer in marks", "<tool_call> <response> <think>", "Hm.\n</think>\n\n<response>\nYes.\n</response>\n", true, "Yes.", "Hm.", ""},
	{"values as they are", "<tool_call> <function= value_1</parameter>", "<tool_call>\n<function=weather>\n<parameter=city>\n a\n</parameter>\n</function>\n</tool_call>", false, "", "", `weather{"city":"\n a\n"}`},
	{"beginning of an answer", "<tool_calls> 助手：", "助手：Yes, 助手：.", false, "Yes, 助手：.", "", ""},
	{"quoted words", "<|tool_call>", "<|tool_call>call:weather{a:None,b:[True,None]}<tool_call|>", false, "", "", `weather{"a":null,"b":[true,null]}`},
	{"parameters by name", `<function name=" <param name="`, `Look.<function name="weather"><param name="city"><![CDATA[a </x>]]></param><param name="days">3</param></function>`, false, "Look.", "", `weather{"city":"a \u003c/x\u003e","days":3}`},
	{"message of a call", "'function call' <|role_sep|>", "Look.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"now\", \"arguments\": {}}", false, "Look.", "", "now{}"},
	{"end of reasoning at once", "<think>", "</think>\n\nYes.", false, "Yes.", "", ""},
	{"unknown tool", "<tool_call>", `<tool_call>{"name":"rm","arguments":{}}</tool_call>`, false, `<tool_call>{"name":"rm","arguments":{}}</tool_call>`, "", ""},
	{"broken call", "<tool_call>", `a <tool_call>{"name":"now"`, false, `a <tool_call>{"name":"now"`, "", ""},
	{"parameter twice", "<tool_call> <function=", "<tool_call><function=now><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>", false, "<tool_call><function=now><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>", "", ""},
}

// TestTypes: a value written without quotes is of a type that its schema allows, text where several are possible.
func TestTypes(t *testing.T) {
	var tools Tools
	tools.Add("f", []byte(`{"properties": {"s": {"type": "string"}, "b": {"type": "boolean"}, "n": {"type": ["string", "null"]}, "e": {"enum": ["1", "x"]},
		"c": {"const": 2}, "a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "l": {"type": "array"}, "o": {"oneOf": [{"type": "string"}, {}]}, "u": {}, "y": true, "z": {"type": "string", "enum": 7}}}`))
	for _, row := range [][3]string{{"s", "None", `"None"`}, {"s", " 1", `" 1"`}, {"s", `"q"`, `"\"q\""`}, {"b", "True", "true"}, {"b", "yes", `"yes"`}, {"n", "12", `"12"`}, {"n", "None", "null"}, {"n", "null", "null"},
		{"e", "1", `"1"`}, {"c", "2", "2"}, {"a", "12", "12"}, {"a", "true", `"true"`}, {"l", "[1, 'x', None]", `[1,"x",null]`}, {"l", "[1", `"[1"`}, {"o", "12", "12"}, {"u", "True", `"True"`}, {"u", "[1]", "[1]"}, {"x", "12", "12"}, {"y", "12", "12"}, {"z", "12", `"12"`}} {
		answer := "<tool_call>\n<function=f>\n<parameter=" + row[0] + ">\n" + row[1] + "\n</parameter>\n</function>\n</tool_call>"
		s := Of("<tool_call> <function=")
		_, _, called := read(s.NewParser(tools, false), strings.Split(answer, ""))
		if want := "f{\"" + row[0] + "\":" + row[2] + "}"; called != want {
			t.Errorf("%s=%s: %s, want %s", row[0], row[1], called, want)
		}
	}
}

func read(p *Parser, pieces []string) (text, reasoning, called string) {
	var names []string
	more := false
	take := func(all []Event) {
		for _, e := range all {
			text, reasoning = text+e.Text, reasoning+e.Reasoning
			for _, c := range e.Calls {
				if more {
					names[len(names)-1] += c.Name + c.Arguments
				} else {
					names = append(names, c.Name+c.Arguments)
				}
				more = c.More
			}
		}
	}
	for _, piece := range pieces {
		take(p.Write(piece))
	}
	take(p.End())
	return text, reasoning, strings.Join(names, " ")
}

// TestParser: an answer has the same parts however it is cut, whether arguments come whole or in pieces.
func TestParser(t *testing.T) {
	for _, r := range rows {
		for size := 1; size <= len(r.answer); size++ {
			var pieces []string
			for rest := r.answer; rest != ""; {
				n := min(size, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			for _, held := range []bool{false, true} {
				p := Of(r.template).NewParser(tools, r.opened)
				p.Held = held
				text, reasoning, called := read(p, pieces)
				if got, want := []string{text, reasoning, called}, []string{r.text, r.reasoning, r.called}; !reflect.DeepEqual(got, want) {
					t.Fatalf("%s, held %v, in pieces of %d: %q, want %q", r.name, held, size, got, want)
				}
			}
		}
	}
}

// TestPieces: where arguments are JSON in a syntax, a call that a model is held to comes in pieces as it is written,
// and one that is cut is as much of it.
func TestPieces(t *testing.T) {
	const whole, written = `{"x":"a"}`, `{"x": "a"}`
	for _, k := range known().Calls {
		s := k.Syntax
		answer, mark := s.example(), s.example()
		if form := s.Style.Form; form != Object && form != Keyed && form != Named {
			continue
		}
		if s.Lead != "" {
			answer = strings.TrimPrefix(answer, s.Lead)
		}
		if s.Open, s.Close = "<think>", "</think>"; s.Bare {
			answer = "<think>Hm.</think>\n\n" + answer
		}
		at := strings.Index(answer, written)
		for n := range len(answer) + 1 {
			p := s.NewParser(Tools{"f": {"x": {"string"}}}, false)
			p.Held = true
			text, _, called := read(p, strings.Split(answer[:n], "")) // reasoning is no text
			if n > at && (!strings.HasPrefix("f"+whole, called) || len(called) < 2 || n < at+len(written) && text != "") || n <= at && called != "" || n == len(answer) && called != "f"+whole {
				t.Errorf("%s, cut at %d, %q: text %q, call %q", mark, n, answer[:n], text, called)
			}
		}
		p := s.NewParser(Tools{"f": {"x": {"string"}}}, false)
		p.Held = true
		pieces := 0
		for r := range strings.SplitSeq(answer, "") {
			for _, e := range p.Write(r) {
				pieces += len(e.Calls)
			}
		}
		if pieces != 1+len(whole) {
			t.Errorf("%s: %d pieces", mark, pieces)
		}
	}
}

// TestNoTools: without tools a call is text.
func TestNoTools(t *testing.T) {
	for _, r := range rows {
		s := Of(r.template)
		s.Open, s.Frame, s.Header = "", nil, ""
		if text, reasoning, called := read(s.NewParser(nil, false), []string{r.answer}); text != r.answer || reasoning+called != "" {
			t.Errorf("%s: %q %q %q", r.name, text, reasoning, called)
		}
	}
}

// TestHostile: what a model may write without end costs no more than its length, and stays text.
func TestHostile(t *testing.T) {
	const n = 1 << 20
	for _, r := range []struct{ name, template, begin, more string }{
		{"a call without end", "<tool_call>", "<tool_call>", "{ <"},
		{"a call to the end", "<|function_call|>", "<|function_call|>", "{}{"},
		{"an object", "<|python_tag|>", "{", "{{["},
		{"white space", "<|python_tag|>", "", "\n \n"},
		{"Python's lists", "List of tools: ", "<|tool_call_start|>[weather(x=", "[[["},
		{"Python's quotes", "List of tools: ", "<|tool_call_start|>[weather(x='", "'' "},
		{"tags in tags", "]<]minimax[>[", "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"weather\">", "]<]minimax[>[<a>"},
		{"beginnings of marks", "<|channel|>analysis", "", "<|channel|>final <|constrain|>json<|"},
		{"quoted objects", "<|tool_call>", "<|tool_call>call:weather", "{a:"},
	} {
		for _, end := range []string{"", Of(r.template).Calls[0].End} {
			answer := r.begin + strings.Repeat(r.more, n/len(r.more)) + end
			p := Of(r.template).NewParser(tools, false)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			text, calls := 0, 0
			take := func(all []Event) {
				for _, e := range all {
					text += len(e.Text)
					calls += len(e.Calls)
				}
			}
			for i := 0; i < len(answer); i += 64 {
				take(p.Write(answer[i:min(i+64, len(answer))]))
			}
			take(p.End())
			runtime.ReadMemStats(&after)
			if calls > 0 || text < len(answer)*3/4 && r.name != "white space" && r.name != "beginnings of marks" {
				t.Errorf("%s: %d calls, %d bytes of text", r.name, calls, text)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 48*n {
				t.Errorf("%s: %d bytes allocated for %d", r.name, got, n)
			}
		}
	}
}

// FuzzParser: no answer panics, calls are objects of known tools, letters are lost with marks and calls alone, and cuts
// change nothing.
func FuzzParser(f *testing.F) {
	for _, r := range rows {
		f.Add(r.template, r.answer, r.opened)
	}
	f.Fuzz(func(t *testing.T, template, answer string, opened bool) {
		s, answer := Of(template), strings.ToValidUTF8(answer, "?")
		opened = opened && s.Open != ""
		p := s.NewParser(tools, opened)
		whole, calls := "", 0
		for _, e := range append(p.Write(answer), p.End()...) {
			whole += e.Text + e.Reasoning
			for _, c := range e.Calls {
				var o map[string]any
				if err := json.Unmarshal([]byte(c.Arguments), &o); err != nil || tools[c.Name] == nil {
					t.Fatalf("%q: call %+v: %v", answer, c, err)
				}
				calls++
			}
		}
		if calls == 0 && s.Lead == "" && !marked(s, answer) && strings.TrimSpace(whole) != strings.TrimSpace(answer) {
			t.Fatalf("%q became %q", answer, whole)
		}
		text, reasoning, called := read(s.NewParser(tools, opened), []string{answer})
		pieces := strings.Split(answer, "")
		held, cut := s.NewParser(tools, opened), s.NewParser(tools, opened)
		held.Held, cut.Held = true, true
		a, b, c := read(held, []string{answer})
		if x, y, z := read(cut, pieces); x != a || y != b || z != c {
			t.Fatalf("held, %q is %q, %q, %q; in pieces %q, %q, %q", answer, a, b, c, x, y, z)
		}
		p, cutShort := s.NewParser(tools, opened), ""
		for _, e := range append(p.Write(answer), p.Cut()...) {
			cutShort += e.Text
		}
		p = s.NewParser(tools, opened)
		for _, piece := range pieces {
			for _, e := range p.Write(piece) {
				got, ok := strings.CutPrefix(cutShort, e.Text)
				if cutShort = got; !ok {
					t.Fatalf("%q, cut: %q is no part of the whole", answer, e.Text)
				}
			}
		}
		if x, y, z := read(s.NewParser(tools, opened), pieces); x != text || y != reasoning || z != called {
			t.Fatalf("%q is %q, %q, %q; in pieces %q, %q, %q", answer, text, reasoning, called, x, y, z)
		}
	})
}

// marked reports whether an answer has a mark that is no text.
func marked(s Syntax, answer string) bool {
	marks := append([]string{s.Open, s.Close}, s.Frame...)
	for _, c := range s.Calls {
		marks = append(marks, c.Begin)
	}
	return slices.ContainsFunc(marks, func(m string) bool { return m != "" && strings.Contains(answer, m) })
}
