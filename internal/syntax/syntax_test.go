package syntax

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var tools = Tools{"weather": {"city": true}, "now": {}}

// rows are a template's mark, an answer and its parts.
var rows = []struct {
	name, template, answer  string
	opened                  bool
	text, reasoning, called string
}{
	{"plain", "", "Hello <tool_call>", false, "Hello <tool_call>", "", ""},
	{"json", "<tool_call>", "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>", false, "Let me see.", "", `weather{"city":"Oslo"}`},
	{"two", "<tool_call>", `<tool_call>{"name":"now","arguments":{}}</tool_call>` + "\n" + `<tool_call>{"name":"weather","arguments":{"city":"a"}}</tool_call>`, false, "", "", `now{} weather{"city":"a"}`},
	{"function", "<tool_call>", "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", false, "", "", `weather{"city":"12","days":3}`},
	{"pairs", "<tool_call>", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>x</arg_key><arg_value>[1]</arg_value>\n</tool_call>", false, "", "", `weather{"city":"Oslo","x":[1]}`},
	{"list", "[TOOL_CALLS]", `[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]`, false, "", "", `weather{"city":"Rome"}`},
	{"named", "[TOOL_CALLS]", `[TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]now{}`, false, "", "", `weather{"city":"Rome"} now{}`},
	{"bare", "<|python_tag|>", ` {"name": "weather", "parameters": {"city": "Bonn"}}`, false, "", "", `weather{"city":"Bonn"}`},
	{"bare text", "<|python_tag|>", `{"a": 1} is JSON`, false, `{"a": 1} is JSON`, "", ""},
	{"action", "<|START_ACTION|> <|START_THINKING|>", "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>", false, "", "Hm.", `now{}`},
	{"frame", "<|START_ACTION|>", "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", false, "Yes.", "", ""},
	{"quoted", "<|tool_call> <|channel>", `<|channel>thought` + "\nWhy{?" + `<channel|><|tool_call>call:weather{city:<|"|>a "b", {c}<|"|>,days:3,x:{y:[true,<|"|>z<|"|>]}}<tool_call|>`, false, "", "Why{?", `weather{"city":"a \"b\", {c}","days":3,"x":{"y":[true,"z"]}}`},
	{"reasoning", "<think>", "<think>\nA\nB\n</think>\n\nC\n", false, "C\n", "A\nB", ""},
	{"opened", "<think>", "A</think>B", true, "B", "A", ""},
	{"cut reasoning", "<think>", "<think>A", false, "", "A", ""},
	{"unknown tool", "<tool_call>", `<tool_call>{"name":"rm","arguments":{}}</tool_call>`, false, `<tool_call>{"name":"rm","arguments":{}}</tool_call>`, "", ""},
	{"broken call", "<tool_call>", `a <tool_call>{"name":"now"`, false, `a <tool_call>{"name":"now"`, "", ""},
	{"parameter twice", "<tool_call>", "<tool_call><function=now><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>", false, "<tool_call><function=now><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>", "", ""},
}

func read(p *Parser, pieces []string) (text, reasoning, called string) {
	var names []string
	take := func(all []Event) {
		for _, e := range all {
			text, reasoning = text+e.Text, reasoning+e.Reasoning
			for _, c := range e.Calls {
				names = append(names, c.Name+c.Arguments)
			}
		}
	}
	for _, piece := range pieces {
		take(p.Write(piece))
	}
	take(p.End())
	return text, reasoning, strings.Join(names, " ")
}

// TestParser: an answer has the same parts however it is cut.
func TestParser(t *testing.T) {
	for _, r := range rows {
		for size := 1; size <= len(r.answer); size++ {
			var pieces []string
			for rest := r.answer; rest != ""; {
				n := min(size, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			text, reasoning, called := read(Of(r.template).NewParser(tools, r.opened), pieces)
			if got, want := []string{text, reasoning, called}, []string{r.text, r.reasoning, r.called}; !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, in pieces of %d: %q, want %q", r.name, size, got, want)
			}
		}
	}
}

// TestNoTools: without tools a call is text.
func TestNoTools(t *testing.T) {
	for _, r := range rows {
		s := Of(r.template)
		s.Open, s.Frame = "", nil
		if text, reasoning, called := read(s.NewParser(nil, false), []string{r.answer}); text != r.answer || reasoning+called != "" {
			t.Errorf("%s: %q %q %q", r.name, text, reasoning, called)
		}
	}
}

// TestTemplates: the syntax of published templates.
func TestTemplates(t *testing.T) {
	for name, want := range map[string]struct {
		begin, open string
		bare        bool
	}{
		"Qwen-Qwen3-0.6B":                          {"<tool_call>", "<think>", false},
		"mistralai-Mistral-Nemo-Instruct-2407":     {"[TOOL_CALLS]", "", false},
		"ibm-granite-granite-3.3-2B-Instruct":      {"<|tool_call|>", "<think>", false},
		"google-gemma-4-31B-it":                    {"<|tool_call>", "<|channel>thought", false},
		"HuggingFaceTB-SmolLM3-3B":                 {"", "<think>", false},
		"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": {"", "<think>", false},
	} {
		b, err := os.ReadFile(filepath.Join("../chat/testdata/templates", name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		s := Of(string(b))
		begin := ""
		if len(s.Calls) > 0 {
			begin = s.Calls[0].Begin
		}
		if begin != want.begin || s.Open != want.open || s.Bare != want.bare {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// FuzzParser: no answer panics, calls are objects of known tools, and without calls no letter is lost.
func FuzzParser(f *testing.F) {
	for _, r := range rows {
		f.Add(r.template, r.answer, r.opened)
	}
	f.Fuzz(func(t *testing.T, template, answer string, opened bool) {
		s := Of(template)
		p := s.NewParser(tools, opened && s.Open != "")
		whole := ""
		calls := 0
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
		letters := func(text string) int { return strings.Count(text, "e") }
		for _, m := range s.Marks() {
			answer, whole = strings.ReplaceAll(answer, m, ""), strings.ReplaceAll(whole, m, "")
		}
		if s.form != quoted && calls == 0 && s.Open != "<|channel>thought" && letters(whole) != letters(answer) && !strings.ContainsAny(answer, "<[{|") {
			t.Fatalf("%q became %q", answer, whole)
		}
	})
}
