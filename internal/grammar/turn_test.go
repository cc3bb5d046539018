package grammar

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/syntax"
)

// callSyntaxes are templates, by what shows their syntax, and a call as their models write it.
var callSyntaxes = []struct{ name, template, call string }{
	{"json", "<tool_call> <think>", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>"},
	{"function", "<tool_call> <function=", "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
	{"pairs", "<tool_call> <arg_key>", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"},
	{"list", "[TOOL_CALLS]", `[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}]`},
	{"named", "[TOOL_CALLS] [ARGS]", `[TOOL_CALLS]weather[ARGS]{"city": "Oslo", "days": 3}`},
	{"granite", "<|tool_call|>", `<|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}]`},
	{"action", "<|START_ACTION|> <|START_THINKING|>", `<|START_ACTION|>[{"tool_name": "weather", "parameters": {"city": "Oslo", "days": 3}}]<|END_ACTION|>`},
	{"bare", "<|python_tag|>", `{"name": "weather", "parameters": {"city": "Oslo", "days": 3}}`},
	{"section", "<|tool_call_argument_begin|>", `<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Oslo", "days": 3}<|tool_call_end|><|tool_calls_section_end|>`},
	{"separated", "<｜tool▁call▁begin｜>", `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Oslo", "days": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`},
	{"fenced", "<｜tool▁call▁begin｜> ```json", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\", \"days\": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
	{"ids", "<|tool_call:begin|> <|think|>", `<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>weather<|tool_call:args|>{"city": "Oslo", "days": 3}<|tool_call:end|>`},
	{"channels", "<|channel|>analysis", `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo", "days": 3}`},
	{"recipient", ">>>all", "weather\n{\"city\": \"Oslo\", \"days\": 3}"},
	{"function and object", "<function=", `<function=weather>{"city": "Oslo", "days": 3}</function>`},
	{"keyed", "<|tools_prefix|>", `<|tools_prefix|>[{"weather": {"city": "Oslo", "days": 3}}]<|tools_suffix|>`},
	{"to the end", "<|function_call|>", `<|function_call|>{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}`},
	{"action list", "Action: \"tool_name\"", "Action:\n```json\n[{\"tool_name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 3}}]```"},
	{"python", "List of tools: ", `<|tool_call_start|>[weather(city="Oslo", days=3)]<|tool_call_end|>`},
	{"python lines", "<function_calls>", "<function_calls>\nweather(city=\"Oslo\", days=3)\n</function_calls>"},
	{"python bare", "func_name1(param", `[weather(city="Oslo", days=3, unit="c")]`},
	{"name and object", "在调用上述函数时", "weather\n{\"city\": \"Oslo\", \"days\": 3}"},
	{"attributes", "｜DSML｜ function_calls>", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
	{"invokes", "<minimax:tool_call>", "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>"},
	{"values with tags", "]<]minimax[>[", strings.ReplaceAll("#<tool_call>\n#<invoke name=\"weather\">#<city>Oslo#</city>#<days>3#</days>#</invoke>\n#</tool_call>", "#", "]<]minimax[>[")},
	{"values without lines", "<seed:tool_call>", "<seed:tool_call>\n<function=weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>"},
	{"quoted", "<|tool_call> <|channel>", `<|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|>`},
}

const weather = `{"type":"object","properties":{"city":{"type":"string","maxLength":9},"days":{"type":"integer","minimum":1,"maximum":7},"unit":{"type":"string","enum":["c","f"]},"who":{"type":"array","items":{"type":"string","maxLength":3},"maxItems":2}},"required":["city","days"],"additionalProperties":false}`

// TestForcedCalls: calls that are forced are in the syntax that the parser of answers reads, with arguments that fit,
// whatever is drawn.
func TestForcedCalls(t *testing.T) {
	args, err := JSONSchema([]byte(weather))
	if err != nil {
		t.Fatal(err)
	}
	v := vocabulary(3000)
	for _, c := range callSyntaxes {
		turn := Turn{Syntax: syntax.Of(c.template), Required: true, Tools: []Tool{{"weather", []byte(weather), true}, {"now", nil, true}}}
		turn.Single = c.name == "json"
		g, err := turn.Compile(t.Context(), nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if ok, err := g.Fits([]byte(c.call)); !ok || err != nil {
			t.Errorf("%s: the family's call does not fit, %v", c.name, err)
		}
		for _, not := range []string{"", "Hello", strings.Replace(c.call, "3", "8", 1), strings.Replace(c.call, "weather", "rm", 1)} {
			if ok, _ := g.Fits([]byte(not)); ok {
				t.Errorf("%s: %q fits", c.name, not)
			}
		}
		ended := 0
		for seed := range uint64(20) {
			text, end := walk(t, g, v, seed, 300, nil)
			if !end {
				continue
			}
			ended++
			tools := syntax.Tools{"weather": {"city": {"string"}, "unit": {"string"}}, "now": {}}
			samePieces(t, &turn.Syntax, tools, string(text))
			p := turn.Syntax.NewParser(tools, false)
			calls := 0
			for _, e := range append(p.Write(strings.ReplaceAll(string(text), "\xff", "")), p.End()...) {
				if e.Text != "" {
					t.Errorf("%s: %q: text %q", c.name, text, e.Text)
				}
				for _, call := range e.Calls {
					calls++
					if ok := json.Valid([]byte(call.Arguments)); !ok {
						t.Errorf("%s: %q", c.name, call.Arguments)
					}
					if ok, _ := args.Fits([]byte(canonical(t, call.Arguments))); !ok && call.Name == "weather" {
						t.Errorf("%s: %q: arguments %s", c.name, text, call.Arguments)
					}
				}
			}
			if calls == 0 || turn.Single && calls > 1 {
				t.Errorf("%s: %q: %d calls", c.name, text, calls)
			}
		}
		if ended == 0 {
			t.Errorf("%s: no answer ended", c.name)
		}
	}
}

// samePieces wants the calls of an answer that is held to its syntax to be the same whole and in pieces.
func samePieces(t *testing.T, s *syntax.Syntax, tools syntax.Tools, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, "\xff", "")
	whole, held := s.NewParser(tools, false), s.NewParser(tools, false)
	held.Held = true
	var want, got []syntax.Call
	for _, e := range append(whole.Write(text), whole.End()...) {
		want = append(want, e.Calls...)
	}
	var all []syntax.Event
	for i := range len(text) {
		all = append(all, held.Write(text[i:i+1])...)
	}
	more := false
	for _, e := range append(all, held.End()...) {
		if e.Text != "" {
			t.Errorf("%q: text %q beside pieces", text, e.Text)
		}
		for _, c := range e.Calls {
			if more {
				got[len(got)-1].Arguments += c.Arguments
			} else {
				got = append(got, syntax.Call{Name: c.Name, Arguments: c.Arguments})
			}
			more = c.More
		}
	}
	if !slices.Equal(got, want) || more {
		t.Errorf("%q: in pieces %+v, whole %+v", text, got, want)
	}
}

// canonical returns JSON as the program writes it.
func canonical(t *testing.T, text string) string {
	t.Helper()
	v, err := parseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(v.append(nil, false))
}

// TestTurn: reasoning, text and calls where they may be.
func TestTurn(t *testing.T) {
	number := []byte(`{"type":"integer"}`)
	tools := []Tool{{"now", nil, true}}
	call := "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"
	for _, c := range []struct {
		turn      Turn
		fits, not []string
	}{
		{Turn{Form: Form{Schema: number}}, []string{"12"}, []string{"x", "<think>a</think>12"}},
		{Turn{Syntax: syntax.Of("<think>"), Form: Form{Schema: number}}, []string{"12", "<think>\nHm.\n</think>\n\n12", "\xff<think>\xffa\xff</think>\xff1"}, []string{"<think>12", "</think>12", "<think></think>a"}},
		{Turn{Syntax: syntax.Of("<think>"), Form: Form{Schema: number}, Opened: true}, []string{"Hm.</think>12", "\n</think>\n3"}, []string{"12", "<think>", "a</think>b"}},
		{Turn{Syntax: syntax.Of("<|START_ACTION|> <|START_RESPONSE|>"), Form: Form{Schema: number}}, []string{"12", "<|START_RESPONSE|>12<|END_RESPONSE|>"}, []string{"<|START_RESPONSE|>x"}},
		{Turn{Syntax: syntax.Of("<tool_call>"), Tools: tools}, []string{"Hello", "", call, "Now.\n" + call + "\n" + call}, []string{"a <tool_call>", call + "b", "<tool_call>{}</tool_call>"}},
		{Turn{Syntax: syntax.Of("<tool_call>"), Tools: tools, Required: true, Single: true}, []string{call}, []string{"Hello", call + "\n" + call}},
		{Turn{Syntax: syntax.Of("<tool_call>"), Tools: tools, Form: Form{Schema: number}}, []string{"5", call}, []string{"Hello", "5" + call}},
		{Turn{Syntax: syntax.Of("<|python_tag|>"), Tools: tools}, []string{"Hello {", `{"name": "now", "parameters": {}}`}, []string{"{", ` {"a":1}`}},
		{Turn{Syntax: syntax.Of("func_name1(param"), Tools: tools}, []string{"Hello [", "[now()]"}, []string{"[1]", "{", " [now()]"}},
		{Turn{Syntax: syntax.Of("在调用上述函数时"), Tools: tools}, []string{"Hello", "now is", "now\n{}"}, []string{"now\nis", "now\n{}now\n{}"}},
		{Turn{Syntax: syntax.Of(">>>all"), Tools: tools}, []string{"all\nHello", "now\n{}", "now\n{}>>>now\n{}"}, []string{"all\nHello>>>now\n{}"}},
		{Turn{Syntax: syntax.Of("<|channel|>analysis"), Form: Form{Schema: number}}, []string{"12", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>12", "\xff<|channel|>\xffanalysis\xff<|message|>\xffHm.\xff<|end|>\xff12"}, []string{"<|channel|>final<|message|>x"}},
	} {
		g, err := c.turn.Compile(t.Context(), nil)
		if err != nil {
			t.Errorf("%+v: %v", c.turn, err)
			continue
		}
		for i, list := range [][]string{c.fits, c.not} {
			for _, text := range list {
				if ok, err := g.Fits([]byte(text)); ok != (i == 0) || err != nil {
					t.Errorf("%q in %+v: %v, %v", text, c.turn.Syntax, ok, err)
				}
			}
		}
	}
	if _, err := (&Turn{Tools: tools, Required: true}).Compile(t.Context(), nil); err == nil {
		t.Error("calls without a syntax")
	}
	strict := Turn{Syntax: syntax.Of("<tool_call>"), Tools: []Tool{{"now", []byte(`{"type":"object","not":{}}`), true}}}
	if _, err := strict.Compile(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `tool now: #: "not"`) {
		t.Error(err)
	}
	strict.Tools[0].Strict = false
	if _, err := strict.Compile(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := (&Turn{Form: Form{Pattern: "a", Lark: `start: "b"`}}).Compile(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "one form") {
		t.Error("two forms", err)
	}
}

// TestPublishedTemplates: calls can be forced with the templates of published models that have tools.
func TestPublishedTemplates(t *testing.T) {
	for _, name := range []string{"Qwen-Qwen3-0.6B", "mistralai-Mistral-Nemo-Instruct-2407", "ibm-granite-granite-3.3-2B-Instruct", "google-gemma-4-31B-it", "openai-gpt-oss-120b", "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"} {
		b, err := os.ReadFile("../chat/testdata/templates/" + name + ".jinja")
		if err != nil {
			t.Fatal(err)
		}
		turn := Turn{Syntax: syntax.Of(string(b)), Required: true, Tools: []Tool{{"weather", []byte(weather), true}}}
		if _, err := turn.Compile(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
