package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// TestEffort: how much an answer reasons is told to the chat template, in the words of each API; a model that has no place for it says so.
func TestEffort(t *testing.T) {
	c := speak(t, "ok")
	m, _ := withTools()
	prompt := c.prompts(m)
	const off = "<think>\n\n</think>"
	for _, x := range []struct {
		path, more string
		off        bool
	}{
		{"/v1/chat/completions", `"reasoning_effort":"none"`, true}, {"/v1/chat/completions", `"reasoning_effort":"low"`, false}, {"/v1/chat/completions", `"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}`, false},
		{"/v1/chat/completions", `"thinking":{"type":"disabled"}`, true}, {"/v1/chat/completions", `"thinking":{"type":"enabled","clear_thinking":false}`, false}, {"/v1/chat/completions", `"enable_thinking":false`, true}, {"/v1/chat/completions", `"enable_thinking":null`, false},
		{"/v1/chat/completions", `"reasoning":{"effort":"none"}`, true}, {"/v1/chat/completions", `"reasoning":{"enabled":false,"exclude":true}`, true}, {"/v1/chat/completions", `"reasoning":{"max_tokens":5}`, false}, {"/v1/chat/completions", `"reasoning_effort":"max"`, false},
		{"/v1/responses", `"reasoning":{"effort":"none"}`, true}, {"/v1/responses", `"reasoning":{"effort":"high","summary":"auto"}`, false}, {"/v1/responses", `"reasoning":{"effort":null,"summary":null},"chat_template_kwargs":{"enable_thinking":false}`, true},
		{"/api/chat", `"think":false`, true}, {"/api/chat", `"think":"low"`, false}, {"/api/chat", `"think":"none"`, true}, {"/v1/messages", `"thinking":{"type":"disabled"}`, true},
	} {
		body := map[string]string{"/v1/responses": `"model":"demo","input":"Q"`, "/v1/messages": asking}[x.path]
		if body == "" {
			body = ask
		}
		if c.do("POST", x.path, `{`+body+`,`+x.more+`}`); strings.HasSuffix(strings.TrimSpace(prompt()), off) != x.off {
			t.Errorf("%s %s: %q", x.path, x.more, prompt())
		}
	}
	for param, more := range map[string]string{"enable_thinking": `"enable_thinking":true,"thinking":{"type":"disabled"}`, "reasoning_effort": `"enable_thinking":true,"reasoning_effort":"none"`,
		"reasoning.effort": `"reasoning":{"enabled":true,"effort":"none"}`, "thinking.type": `"thinking":{"type":"enabled"},"reasoning":{"enabled":false}`} {
		c.refuses(400, param, "the opposite", "POST", "/v1/chat/completions", `{`+ask+`,`+more+`}`)
	}
	c.refuses(400, "reasoning_effort", "another field", "POST", "/v1/chat/completions", `{`+ask+`,"reasoning":{"effort":"none"},"reasoning_effort":"high"}`)
	c.ignores("reasoning_effort", "/v1/chat/completions", `{`+ask+`,"enable_thinking":false,"reasoning_effort":"high"}`)
	if c.ignores("reasoning.effort", "/v1/chat/completions", `{`+ask+`,"reasoning":{"enabled":false,"effort":"high"}}`); !strings.HasSuffix(strings.TrimSpace(prompt()), off) {
		t.Errorf("a level beside enabled false: %q", prompt())
	}
	c.refuses(400, "reasoning.effort", "want none", "POST", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"effort":"lots"}}`)
	c.refuses(400, "reasoning.summary", "want auto", "POST", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"summary":"long"}}`)
	c.refuses(400, "reasoning.x", "Unrecognized", "POST", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"x":1}}`)
	plain := serve(t, demo(t), Options{})
	plain.ignores("reasoning_effort", "/v1/chat/completions", `{`+hello+`,"reasoning_effort":"low"}`)
	plain.ignores("thinking.type", "/v1/chat/completions", `{`+hello+`,"thinking":{"type":"enabled"}}`)
	plain.ignores("enable_thinking", "/v1/chat/completions", `{`+hello+`,"enable_thinking":true}`)
	plain.ignores("reasoning.max_tokens", "/v1/chat/completions", `{`+hello+`,"reasoning":{"max_tokens":9}}`)
	plain.ignores("reasoning.effort", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"effort":"high"}}`)
	for _, think := range []string{`true`, `"high"`} {
		if status, answer, _ := plain.do("POST", "/api/chat", `{`+hello+`,"think":`+think+`}`); status != 400 || !strings.Contains(answer, "does not reason") {
			t.Errorf("%s: %d %s", think, status, answer)
		}
	}
	for think, why := range map[string]string{`""`: "want none", `3`: "want a boolean or a level"} {
		if status, answer, _ := plain.do("POST", "/api/chat", `{`+hello+`,"think":`+think+`}`); status != 400 || !strings.Contains(answer, why) {
			t.Errorf("%s: %d %s", think, status, answer)
		}
	}
	for _, think := range []string{`false`, `null`} {
		plain.post("/api/chat", `{`+hello+`,"stream":false,"think":`+think+`,"options":{"num_predict":1}}`)
	}
}

// TestSwitches: reasoning is switched by the variable that has an effect in the chat template, and an amount is the nearest that the template takes.
func TestSwitches(t *testing.T) {
	const all = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think> #}"
	for template, want := range map[string]string{
		all + "{% if reasoning_effort is defined and reasoning_effort not in ['no_think', 'low', 'high'] %}{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}": "no_think low low high high high",
		all + "{% if reasoning_effort is defined and reasoning_effort in ['high', 'none'] %}{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}":                " minimal low medium xhigh xhigh",
		all + "{% if thinking %}on{% else %}off{% endif %}":                                                             "off on on on on on",
		all + "{% if thinking_mode == 'disabled' %}off{% elif thinking_mode == 'enabled' %}on{% else %}auto{% endif %}": "off on on on on on",
		all + "{% if thinking and enable_thinking %}on{% endif %}":                                                      "     ",
	} {
		c := serveParrot(t, template, "Yes.", parrot.Options{})
		var got []string
		for _, level := range efforts {
			o := c.post("/apply-template", `{"messages":[{"role":"user","content":"Q"}],"reasoning_effort":"`+level+`"}`)
			prompt, _ := o["prompt"].(string)
			got = append(got, strings.TrimPrefix(prompt, "Q"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
	}
}

// TestTopP0: a top_p of 0 is the likeliest token alone, in every API.
func TestTopP0(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const want = "The capital of Egypt is Cairo."
	for seed := range 3 {
		o := c.post("/api/chat", fmt.Sprintf(`{%s,"stream":false,"options":{"temperature":2,"top_p":0,"seed":%d}}`, hello, seed))
		if at(o, "message", "content") != want {
			t.Errorf("ollama: %v", o)
		}
		o = c.post("/v1/chat/completions", fmt.Sprintf(`{%s,"temperature":2,"top_p":0,"seed":%d}`, hello, seed))
		if at(o, "choices", 0, "message", "content") != want {
			t.Errorf("chat: %v", o)
		}
	}
	o := c.post("/v1/messages", `{`+hello+`,"max_tokens":30,"temperature":1,"top_p":0}`)
	if at(o, "content", 0, "text") != want {
		t.Errorf("messages: %v", o)
	}
	if o := c.post("/v1/responses", `{"model":"demo","input":"What is the capital of Egypt?","temperature":2,"top_p":0}`); at(o, "output", 0, "content", 0, "text") != want {
		t.Errorf("responses: %v", o)
	}
}

// reasoners are models that always reason: their templates begin each answer so, and have no switch. The first one's mark is a special token,
// the second one's is five tokens.
var reasoners = sync.OnceValues(func() (all [2]*karat.Model, err error) {
	const talk = "{% for m in messages %}{{ m.role }}\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}"
	if all[0], err = withTemplate("tiny-gemma4", talk+"<|channel>thought\n{% endif %}"); err == nil {
		all[1], err = withTemplate("tiny-llama", talk+"<think>\n{% endif %}")
	}
	return all, err
})

// TestBudget: an answer reasons for as many tokens as its budget has, and then says something; in every API, streamed and not, alone and under load.
func TestBudget(t *testing.T) {
	all, err := reasoners()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, all[0], Options{Requests: 1000})
	const free = 30 // tokens of an answer, all of them reasoning without a budget
	var bodies, want []string
	for _, budget := range []int{0, 1, 7, 20} {
		for seed := range 2 {
			body := fmt.Sprintf(`{%s,"temperature":1.2,"seed":%d,"max_tokens":%d,"logprobs":true,"thinking_budget":%d}`, ask, seed, free, budget)
			o := c.post("/v1/chat/completions", body)
			reasoned, text := at(o, "usage", "completion_tokens_details", "reasoning_tokens").(float64), at(o, "choices", 0, "message", "content")
			if reasoned != float64(budget) || text == nil || text == "" {
				t.Errorf("budget %d, seed %d: %v", budget, seed, o)
			}
			bodies, want = append(bodies, body), append(want, c.said("/v1/chat/completions", body))
		}
	}
	sameUnderLoad(t, c, bodies, want)
	o := c.post("/v1/chat/completions", fmt.Sprintf(`{%s,"seed":1,"max_tokens":%d}`, ask, free))
	if at(o, "usage", "completion_tokens_details", "reasoning_tokens") != float64(free) {
		t.Errorf("without a budget: %v", o)
	}
	o = c.post("/v1/responses", fmt.Sprintf(`{"model":"demo","input":"Q","temperature":0,"max_output_tokens":%d,"reasoning":{"max_tokens":5}}`, free))
	if at(o, "usage", "output_tokens_details", "reasoning_tokens") != 5. || at(o, "output", 1, "type") != "message" {
		t.Errorf("%v", o)
	}
	o = c.post("/v1/messages", `{`+asking+`,"temperature":0,"thinking":{"type":"enabled","budget_tokens":5}}`)
	if at(o, "content", 0, "type") != "thinking" || at(o, "content", 1, "type") != "text" {
		t.Errorf("%v", o)
	}
	for path, off := range map[string]string{"/v1/chat/completions": `{` + ask + `,"max_tokens":8,"reasoning_effort":"none"}`, "/v1/messages": `{` + asking + `,"thinking":{"type":"disabled"}}`, "/api/chat": `{` + ask + `,"stream":false,"think":false,"options":{"num_predict":8}}`} {
		if _, answer, _ := c.do("POST", path, off); strings.Contains(answer, `"thinking":`) || strings.Contains(answer, `"reasoning_content"`) {
			t.Errorf("%s reasons: %s", path, answer)
		}
	}
	if _, answer, _ := c.do("POST", "/v1/chat/completions", `{`+ask+`,"max_tokens":8,"reasoning_effort":"none","thinking_budget":5}`); strings.Contains(answer, `"reasoning_content"`) {
		t.Errorf("of two budgets the larger one holds: %s", answer)
	}
	c.post("/v1/messages", `{`+asking+`,"thinking":{"type":"adaptive"}}`)
	for _, budget := range []string{"1", "100"} {
		const body = `{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":"Q"}],"thinking":{"type":"enabled","budget_tokens":`
		if status, answer, _ := c.do("POST", "/v1/messages", body+budget+`}}`); status != 400 || !strings.Contains(answer, "'max_tokens': 1, want more than thinking.budget_tokens, "+budget) {
			t.Errorf("a budget of %s: %d %s", budget, status, answer)
		}
	}
	c.refuses(400, "thinking_budget", "not from 0", "POST", "/v1/chat/completions", `{`+ask+`,"thinking_budget":-1}`)
	serve(t, demo(t), Options{}).refuses(400, "thinking_budget", "This model does not reason", "POST", "/v1/chat/completions", `{`+hello+`,"thinking_budget":10}`)
}

// TestBudgetForm: behind a budget of reasoning the answer fits what it must.
func TestBudgetForm(t *testing.T) {
	all, err := reasoners()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, all[1], Options{})
	for seed := range 3 {
		o := c.post("/v1/chat/completions", fmt.Sprintf(`{%s,"temperature":1.2,"seed":%d,"max_tokens":400,"thinking_budget":9,"response_format":{"type":"json_schema","json_schema":{"name":"fact","schema":%s}}}`, ask, seed, fact))
		if at(o, "usage", "completion_tokens_details", "reasoning_tokens").(float64) > 9 || at(o, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("%v", o)
			continue
		}
		if err := wrongFact(at(o, "choices", 0, "message", "content").(string)); err != nil {
			t.Errorf("%v: %v", err, o)
		}
	}
}
