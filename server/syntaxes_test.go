package server

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// serveTemplate serves a model of the repository with another chat template.
func serveTemplate(t *testing.T, model, template string) *client {
	t.Helper()
	m, err := withTemplate(model, template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return serve(t, m, Options{})
}

// says makes a server's answers a text.
func (c *client) says(text string) {
	c.s.generate = func(context.Context, *karat.Session, []int, karat.GenerateOptions) iter.Seq2[karat.Token, error] {
		return func(yield func(karat.Token, error) bool) {
			for r := range strings.SplitSeq(text, "") {
				if !yield(karat.Token{ID: 5, Text: r}, nil) {
					return
				}
			}
			yield(karat.Token{ID: 1, Stop: karat.StopEnd}, nil)
		}
	}
}

func keptTemplate(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../internal/chat/testdata/templates/" + name + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// lists is a template that shows its tools behind some words.
func lists(words string) string {
	return "{% if tools %}" + words + "{{ tools | tojson }}\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
}

// TestSyntaxes: a client gets reasoning, text and calls apart, whatever syntax a model has, and the model itself can be held to calls.
func TestSyntaxes(t *testing.T) {
	for _, x := range []struct{ name, template, said string }{
		{"channels", keptTemplate(t, "openai-gpt-oss-120b"), "<|channel|>analysis<|message|>Hm, Oslo.<|end|><|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}"},
		{"separated", lists("<think> <｜tool▁call▁begin｜>"), "<think>Hm, Oslo.</think>Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
		{"python", lists("<think> List of tools: "), "<think>Hm, Oslo.</think>Let me see.<|tool_call_start|>[weather(city='Oslo')]<|tool_call_end|>"},
		{"attributes", lists("<think> ｜DSML｜ function_calls>"), "<think>Hm, Oslo.</think>Let me see.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
	} {
		c := serveTemplate(t, "tiny-llama", x.template)
		c.says(x.said)
		o := c.post("/v1/chat/completions", `{`+ask+`,`+weather+`}`)
		m := at(o, "choices", 0, "message")
		if at(m, "content") != "Let me see." || at(m, "reasoning_content") != "Hm, Oslo." || at(m, "tool_calls", 0, "function", "name") != "weather" || at(m, "tool_calls", 0, "function", "arguments") != wantCall || at(o, "choices", 0, "finish_reason") != "tool_calls" {
			t.Errorf("%s: %v", x.name, o)
		}
		streamed := ""
		for _, e := range c.events("/v1/chat/completions", `{`+ask+`,`+weather+`,"stream":true}`) {
			if e.data == "[DONE]" {
				break
			}
			delta := at(parseObject(t, e.data), "choices", 0, "delta")
			for _, path := range [][]any{{"reasoning_content"}, {"content"}, {"tool_calls", 0, "function", "name"}, {"tool_calls", 0, "function", "arguments"}} {
				s, _ := at(delta, path...).(string)
				streamed += s
			}
		}
		if streamed != "Hm, Oslo.Let me see.weather"+wantCall {
			t.Errorf("%s: streamed %q", x.name, streamed)
		}
	}
	for name, template := range map[string]string{"channels": keptTemplate(t, "openai-gpt-oss-120b"), "separated": lists("<｜tool▁call▁begin｜>"), "python": lists("List of tools: "), "attributes": lists("｜DSML｜ function_calls>")} {
		serveTemplate(t, "tiny-llama", template).forced(t, name, "")
	}
}

// forced wants calls from a model that says anything else by itself.
func (c *client) forced(t *testing.T, name, more string) {
	t.Helper()
	for seed := range 8 {
		o := c.post("/v1/chat/completions", fmt.Sprintf(`{%s,"tools":[{"type":"function","function":{"name":"fact","strict":true,"parameters":%s}}],"tool_choice":"required","parallel_tool_calls":false,"max_tokens":300,"temperature":1.5,"seed":%d%s}`, ask, fact, seed, more))
		if at(o, "choices", 0, "finish_reason") == "length" {
			continue
		}
		for _, call := range at(o, "choices", 0, "message", "tool_calls").([]any) {
			if err := wrongFact(at(call, "function", "arguments").(string)); err != nil {
				t.Errorf("%s: %v: %v", name, call, err)
			}
		}
		return
	}
	t.Errorf("%s: no call came", name)
}

// TestSpecialChannels: where the marks of channels are special tokens, a model is held to them, and they are read.
func TestSpecialChannels(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := copyModel(dir, "tiny-gemma4"); err != nil {
		t.Fatal(err)
	}
	tokens, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.NewReplacer("<|channel>", "<|channel|>", "<|tool_call>", "<|message|>", "<tool_call|>", "<|constrain|>", "<channel|>", "<|start|>", "<tool_response|>", "<|end|>").Replace(string(tokens))
	for name, text := range map[string]string{"chat_template.jinja": keptTemplate(t, "openai-gpt-oss-120b"), "tokenizer.json": renamed} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	m, err := karat.Load(t.Context(), dir, karat.Options{Threads: 2, Context: 2048})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	c := serve(t, m, Options{})
	special := c.s.pool.list[0].now.special
	slices.Sort(special)
	if got, want := strings.Join(special, " "), "<|channel|> <|constrain|> <|end|> <|message|> <|start|>"; got != want {
		t.Errorf("special marks %s, want %s", got, want)
	}
	o := c.post("/apply-template", `{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":null,"reasoning_content":"Hm.","tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"Rain"}],`+weather+`}`)
	if prompt := o["prompt"].(string); !strings.Contains(prompt, "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.weather") {
		t.Errorf("no reasoning before the call in %q", prompt)
	}
	c.forced(t, "special tokens", `,"logit_bias":{"15":30}`) // reasoning ends soon
}
