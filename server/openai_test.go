package server

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/sample"
)

const hello = `"model":"demo","messages":[{"role":"user","content":"What is the capital of Egypt?"}]`

func TestChat(t *testing.T) {
	c := serve(t, demo(t), Options{})
	o := c.post("/v1/chat/completions", `{`+hello+`,"temperature":0}`)
	if at(o, "choices", 0, "message", "content") != "The capital of Egypt is Cairo." || at(o, "choices", 0, "finish_reason") != "stop" || at(o, "choices", 0, "message", "role") != "assistant" ||
		o["object"] != "chat.completion" || o["model"] != "demo" || !strings.HasPrefix(o["id"].(string), "chatcmpl-") || !strings.HasPrefix(o["system_fingerprint"].(string), "karat_") {
		t.Errorf("%v", o)
	}
	_, text, _ := c.do("POST", "/v1/chat/completions", `{`+hello+`,"temperature":0}`)
	for _, key := range []string{`"refusal":null`, `"logprobs":null`, `"cached_tokens":`} {
		if !strings.Contains(text, key) {
			t.Errorf("no %s in %s", key, text)
		}
	}
	prompt, answer, total := at(o, "usage", "prompt_tokens").(float64), at(o, "usage", "completion_tokens").(float64), at(o, "usage", "total_tokens").(float64)
	n := c.post("/v1/chat/completions/input_tokens", `{`+hello+`}`)["input_tokens"].(float64)
	if prompt != n || prompt+answer != total || answer < 5 {
		t.Errorf("usage %v, %v input tokens", o["usage"], n)
	}
	all := c.events("/v1/chat/completions", `{`+hello+`,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`)
	first, last, end := parseObject(t, all[0].data), parseObject(t, all[len(all)-2].data), parseObject(t, all[len(all)-3].data)
	if at(first, "choices", 0, "delta", "role") != "assistant" || at(first, "choices", 0, "delta", "content") != "" || first["object"] != "chat.completion.chunk" {
		t.Errorf("first chunk %v", first)
	}
	if len(last["choices"].([]any)) != 0 || at(last, "usage", "completion_tokens") != answer || at(end, "choices", 0, "finish_reason") != "stop" || !strings.Contains(all[0].data, `"usage":null`) {
		t.Errorf("last chunks %v, %v", end, last)
	}
}

// TestSameAnswers: an answer has the same text, the same log-probabilities and the same end alone and
// under load, cold and from a prefix, streamed and not.
func TestSameAnswers(t *testing.T) {
	var bodies []string
	for i := range 12 {
		ask := []string{"What is the capital of Egypt?", "What color is the sky?", "Write a function in Go."}[i%3]
		more := []string{`"temperature":0`, `"seed":7`, `"seed":8,"temperature":1.5,"top_p":0.9`, `"n":3,"seed":1,"frequency_penalty":0.5`}[i%4]
		bodies = append(bodies, fmt.Sprintf(`{"model":"demo","messages":[{"role":"user","content":%q}],"max_tokens":%d,"logprobs":true,"top_logprobs":2,%s}`, ask, 8+i, more))
	}
	want := make([]string, len(bodies))
	for i, body := range bodies { // each on a server of its own, so that nothing is there to reuse
		if i < 4 {
			want[i] = serve(t, model(t, karat.Options{Context: 512}), Options{}).said("/v1/chat/completions", body)
		} else {
			want[i] = serve(t, demo(t), Options{}).said("/v1/chat/completions", body)
		}
	}
	now := demo(t).Stats()
	page := now.KVBudget / int64(now.Pages)
	for _, o := range []karat.Options{{Context: 512, Parallel: 5}, {Context: 512, KVBudget: 17 * page}} { // the second one's sequences give way to each other
		c := serve(t, model(t, o), Options{Requests: 1000})
		sameUnderLoad(t, c, bodies, want)
	}
}

// sameUnderLoad asks all at once, three times, and wants the same of each.
func sameUnderLoad(t *testing.T, c *client, bodies, want []string) {
	var wg sync.WaitGroup
	for round := range 3 {
		for i, body := range bodies {
			if (i+round)%2 == 0 {
				body = strings.Replace(body, `{`, `{"stream":true,`, 1)
			}
			wg.Go(func() {
				if got := c.said("/v1/chat/completions", body); got != want[i] {
					t.Errorf("%s:\n%s\nwant\n%s", body, got, want[i])
				}
			})
		}
	}
	wg.Wait()
}

// TestD14ContextLength is incident D14: a prompt of one token less than the context is answered with one
// token, and a longer one is refused, with both numbers.
func TestD14ContextLength(t *testing.T) {
	const room = 128
	c := serve(t, model(t, karat.Options{Context: room}), Options{})
	prompt := func(n int) string {
		return strings.TrimSuffix(`{"model":"demo","temperature":0,"prompt":[2`+strings.Repeat(",5", n-1)+`]`, "")
	}
	o := c.post("/v1/completions", prompt(room-1)+`,"max_tokens":1}`)
	if at(o, "choices", 0, "finish_reason") != "length" || at(o, "usage", "completion_tokens") != 1. || at(o, "usage", "prompt_tokens") != room-1. {
		t.Errorf("%v", o)
	}
	for _, x := range []struct{ prompt, answer int }{{room, 1}, {room + 1, 1}, {10 * room, 1}, {room, 32000}, {room, -1}} {
		c.refuses(400, "prompt", fmt.Sprintf("%d tokens. However, you requested %d tokens", room, x.prompt+1), "POST", "/v1/completions", prompt(x.prompt)+fmt.Sprintf(`,"max_tokens":%d}`, x.answer))
	}
	const on = `,"grammar":"root ::= [a-z ]{400}","max_tokens":`
	for _, x := range []struct{ most, tokens float64 }{{2, 2}, {15, 15}, {16, 16}, {17, 16}, {32000, 16}, {-1, 16}} { // a limit beyond the room is the room
		o := c.post("/v1/completions", prompt(room-16)+on+fmt.Sprint(x.most)+`}`)
		if at(o, "choices", 0, "finish_reason") != "length" || at(o, "usage", "completion_tokens") != x.tokens {
			t.Errorf("max_tokens %v: %v", x.most, o)
		}
	}
	c.post("/v1/completions", prompt(room)+`,"max_tokens":0,"echo":true}`)
	c.post("/v1/completions", prompt(room-16)+`,"max_tokens":16}`)
	long := `{"model":"demo","messages":[{"role":"user","content":"` + strings.Repeat("sky ", 10*room) + `"}]}`
	c.refuses(400, "messages", "maximum context length is 128 tokens", "POST", "/v1/chat/completions", long)
	_, answer, _ := c.do("POST", "/v1/chat/completions", long)
	if !strings.Contains(answer, `"code":"context_length_exceeded"`) {
		t.Error(answer)
	}
	o = c.post("/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"`+strings.Repeat("sky ", 60)+`"}],"temperature":0,"logit_bias":{"1":-100,"106":-100}}`)
	if at(o, "usage", "total_tokens").(float64) > room {
		t.Errorf("%v", o["usage"])
	}
}

// TestLongPrompt: a prompt that the context cannot hold is refused by its length: its tokens are not counted.
func TestLongPrompt(t *testing.T) {
	c := serve(t, model(t, karat.Options{Context: 128}), Options{})
	text := strings.Repeat("sky ", 1<<18)
	message := `[{"role":"user","content":"` + text + `"}]`
	const want = "maximum context length is 128 tokens. However, your prompt has more"
	c.refuses(400, "messages", want, "POST", "/v1/chat/completions", `{"model":"demo","messages":`+message+`}`)
	c.refuses(400, "input", want, "POST", "/v1/responses", `{"model":"demo","input":"`+text+`"}`)
	c.refuses(400, "prompt", want, "POST", "/v1/completions", `{"model":"demo","prompt":"`+text+`"}`)
	turns := `[{"role":"user","content":"Hi"},{"role":"assistant","content":"` + text + `"},{"role":"user","content":"Hi"}]`
	for path, body := range map[string]string{
		"/v1/chat/completions":      `{"model":"demo","messages":` + turns + `}`,
		"/v1/messages":              `{"model":"demo","max_tokens":1,"messages":` + message + `}`,
		"/v1/messages/count_tokens": `{"model":"demo","messages":` + message + `}`,
		"/api/chat":                 `{"model":"demo","messages":` + message + `}`,
		"/api/generate":             `{"model":"demo","raw":true,"prompt":"` + text + `"}`,
	} {
		if status, answer, _ := c.do("POST", path, body); status != 400 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %.300s", path, status, answer)
		}
	}
}

// TestEcho: log-probabilities of a prompt are those of the logits, and a text can be scored without an answer.
func TestEcho(t *testing.T) {
	m := demo(t)
	c := serve(t, m, Options{})
	const text = "The color of the sky is"
	o := c.post("/v1/completions", `{"model":"demo","prompt":"`+text+`","max_tokens":2,"echo":true,"logprobs":1,"temperature":0}`)
	ids, err := m.Tokenize(context.Background(), text, karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	logits, err := m.Logits(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	x := at(o, "choices", 0)
	values := at(x, "logprobs", "token_logprobs").([]any)
	if len(values) != len(ids)+2 || values[0] != nil || !strings.HasPrefix(at(x, "text").(string), text+" blue") {
		t.Fatalf("%v", x)
	}
	for i := 1; i < len(ids); i++ {
		of, _, err := sample.Logprobs(logits[i-1], ids[i:i+1], 0)
		if err != nil || values[i] != of[0].Logprob {
			t.Errorf("token %d: %v, want %v %v", i, values[i], of, err)
		}
	}
	whole := at(x, "text").(string)
	for i, name := range at(x, "logprobs", "tokens").([]any) {
		from := int(at(x, "logprobs", "text_offset", i).(float64))
		if i > 0 && !strings.HasPrefix(" "+whole[from:], strings.TrimPrefix(" "+name.(string), " ")) && !strings.HasPrefix(whole[from:], name.(string)) {
			t.Errorf("token %d, %q, is not at %d of %q", i, name, from, whole)
		}
	}
	scored := c.post("/v1/completions", `{"model":"demo","prompt":["`+text+`","a"],"max_tokens":0,"echo":true,"logprobs":0}`)
	got, _ := json.Marshal(at(scored, "choices", 0, "logprobs", "token_logprobs"))
	if want, _ := json.Marshal(values[:len(ids)]); string(got) != string(want) || at(scored, "choices", 0, "text") != text || at(scored, "choices", 1, "index") != 1. {
		t.Errorf("scored %s, want %s: %v", got, want, scored)
	}
}

func TestChoices(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const body = `{"model":"demo","prompt":["One","Two"],"max_tokens":6,"n":2,"seed":3}`
	o := c.post("/v1/completions", body)
	if len(o["choices"].([]any)) != 4 {
		t.Fatalf("%v", o)
	}
	for i := range 4 {
		if at(o, "choices", i, "index") != float64(i) || at(o, "choices", i, "finish_reason") == nil {
			t.Errorf("choice %d: %v", i, at(o, "choices", i))
		}
	}
	if a, b := c.said("/v1/completions", body), c.said("/v1/completions", strings.Replace(body, "{", `{"stream":true,`, 1)); a != b {
		t.Errorf("%s\n%s", a, b)
	}
	one := c.post("/v1/completions", `{"model":"demo","prompt":"One","max_tokens":6,"seed":4}`)
	if at(one, "choices", 0, "text") != at(o, "choices", 1, "text") {
		t.Error("choice 1 is not that of the next seed")
	}
	if at(c.post("/v1/completions", `{"model":"an/alias","prompt":[[2,5],[2,6]]}`), "usage", "prompt_tokens") != 4. {
		t.Error("lists of ids")
	}
}

func TestStop(t *testing.T) {
	c := serve(t, demo(t), Options{})
	for _, stream := range []string{"", `"stream":true,`} {
		if got := c.said("/v1/completions", `{`+stream+`"model":"demo","prompt":"The color of the sky is","temperature":0,"stop":["lue","zzz"]}`); !strings.HasPrefix(got, "0  b ") || !strings.HasSuffix(got, "stop\n") {
			t.Errorf("%q", got)
		}
	}
	o := c.post("/v1/completions", `{"model":"demo","prompt":"The color of the sky is","temperature":0,"max_tokens":3,"logprobs":3}`)
	blue := at(o, "choices", 0, "logprobs", "tokens", 0).(string)
	if top := at(o, "choices", 0, "logprobs", "top_logprobs", 0).(object); len(top) != 3 || math.Abs(top[blue].(float64)-at(o, "choices", 0, "logprobs", "token_logprobs", 0).(float64)) > 0 {
		t.Errorf("%v", o)
	}
	for _, stop := range []string{`["zzz","Cairo","Cair"]`, `["Cairo"]`} {
		o := c.post("/v1/messages", `{`+hello+`,"max_tokens":30,"top_k":1,"stop_sequences":`+stop+`}`)
		if want := map[bool]string{true: "Cair", false: "Cairo"}[len(stop) > 12]; at(o, "content", 0, "text") != "The capital of Egypt is " || o["stop_reason"] != "stop_sequence" || o["stop_sequence"] != want {
			t.Errorf("%v", o)
		}
	}
	ids := c.post("/tokenize", `{"content":" red"}`)
	id, first := at(ids, "tokens", 0), at(c.post("/tokenize", `{"content":"`+blue+`"}`), "tokens", 0)
	biased := c.post("/v1/completions", fmt.Sprintf(`{"model":"demo","prompt":"The color of the sky is","temperature":0,"max_tokens":3,"logit_bias":{"%v":-100}}`, first))
	if strings.HasPrefix(at(biased, "choices", 0, "text").(string), blue) {
		t.Errorf("%v", biased)
	}
	forced := c.post("/v1/completions", fmt.Sprintf(`{"model":"demo","prompt":"Hello","max_tokens":3,"logit_bias":{"%v":100}}`, id))
	if at(forced, "choices", 0, "text") != strings.Repeat(at(c.post("/detokenize", fmt.Sprintf(`{"tokens":[%v]}`, id)), "content").(string), 3) {
		t.Errorf("%v", forced)
	}
	for _, x := range []struct {
		more  string
		kinds bool
	}{{"", false}, {`,"frequency_penalty":2`, true}} {
		o := c.post("/v1/completions", fmt.Sprintf(`{"model":"demo","prompt":"Hello","max_tokens":40,"temperature":0,"logit_bias":{"%v":40}%s,"logprobs":0}`, id, x.more))
		kinds := map[any]bool{}
		for _, name := range at(o, "choices", 0, "logprobs", "tokens").([]any) {
			kinds[name] = true
		}
		if len(kinds) > 1 != x.kinds {
			t.Errorf("%s: %v", x.more, kinds)
		}
	}
}

// TestRefused: what is wrong, or cannot be done, is an error that names the field.
func TestRefused(t *testing.T) {
	c := serve(t, demo(t), Options{NoToolFallback: true})
	chat := func(param, holds, more string) {
		t.Helper()
		c.refuses(400, param, holds, "POST", "/v1/chat/completions", `{`+hello+`,`+more+`}`)
	}
	chat("foo", "Unrecognized request argument supplied: foo", `"foo":null`)
	chat("Temperature", "Unrecognized", `"Temperature":0`)
	chat("messages", "twice", `"messages":[]`)
	chat("temperature", "not from 0 to 2", `"temperature":2.5`)
	chat("temperature", "a string, want a number", `"temperature":"1"`)
	chat("top_p", "not from", `"top_p":-0.1`)
	chat("n", "not from 1 to 128", `"n":1000000000`)
	chat("n", "integer", `"n":1.5`)
	chat("max_tokens", "not from", `"max_tokens":-2`)
	chat("max_tokens", "too large", `"max_tokens":1e18`)
	chat("seed", "too large", `"seed":-1e400`)
	chat("seed", "too large", `"seed":123456789012345678901234567890`)
	chat("temperature", "too large", `"temperature":1e400`)
	chat("logit_bias.5", "too large", `"logit_bias":{"5":-1e400}`)
	chat("max_tokens", "it is a number, want an integer", `"max_tokens":1.5`)
	chat("temperature", "it is a string, want a number", `"temperature":"1e400"`)
	chat("top_logprobs", "not from 0 to 20", `"top_logprobs":21`)
	chat("top_logprobs", "needs logprobs", `"top_logprobs":2`)
	chat("stop", "empty", `"stop":""`)
	chat("stop", "at most 16", `"stop":["`+strings.Repeat(`a","`, 17)+`"]`)
	chat("logit_bias.x", "no token id", `"logit_bias":{"x":1}`)
	chat("logit_bias", "vocabulary", `"logit_bias":{"99999999":1}`)
	chat("logit_bias.5", "not from -100", `"logit_bias":{"5":101}`)
	chat("stream_options", "streams alone", `"stream_options":{}`)
	chat("stream_options.x", "Unrecognized", `"stream":true,"stream_options":{"x":1}`)
	chat("tool_choice", "tools alone", `"tool_choice":"required"`)
	chat("messages", "template takes no tools", `"tools":[{"type":"function","function":{"name":"lookup"}}]`)
	chat("tools[0].function.name", "letters", `"tools":[{"type":"function","function":{"name":"f g"}}]`)
	chat("chat_template_kwargs.messages", "itself", `"chat_template_kwargs":{"messages":1}`)
	chat("function_call", "with functions alone", `"function_call":"auto"`)
	for _, x := range []struct{ param, holds, messages string }{
		{"messages", "missing or empty", `[]`},
		{"messages", "want an array", `"hi"`},
		{"messages[0].role", "want developer", `[{"role":"wizard","content":"x"}]`},
		{"messages[0].content", "missing", `[{"role":"user"}]`},
		{"messages[0].content[0].image_url.url", "data: URLs", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}]`},
		{"messages[0].x", "Unrecognized", `[{"role":"user","content":"a","x":1}]`},
		{"messages[0].tool_call_id", "no message before", `[{"role":"tool","content":"a","tool_call_id":"1"}]`},
	} {
		c.refuses(400, x.param, x.holds, "POST", "/v1/chat/completions", `{"model":"demo","messages":`+x.messages+`}`)
	}
	c.refuses(404, "model", "does not exist", "POST", "/v1/chat/completions", strings.Replace(`{`+hello+`}`, "demo", "gpt", 1))
	c.refuses(400, "messages", "missing or empty", "POST", "/v1/chat/completions", `{"messages":[]}`) // one model needs no name
	for _, body := range []string{``, `{`, `[]`, `"x"`, `nul`, `{"model":"demo"}{}`, "{\"model\":\"\xff\"}", strings.Repeat("[", 100000)} {
		c.refuses(400, "", "", "POST", "/v1/chat/completions", body+" ")
	}
	for _, prompt := range []string{`null`, `[]`, `[1.5]`, `{}`, `[[]]`, `[-1]`, `[99999999]`, `[["a"]]`} {
		c.refuses(400, "prompt", "", "POST", "/v1/completions", `{"model":"demo","prompt":`+prompt+`}`)
	}
	c.refuses(400, "suffix", "not supported", "POST", "/v1/completions", `{"model":"demo","prompt":"a","suffix":"b"}`)
}

// TestNulls: clients send null for what they do not set.
func TestNulls(t *testing.T) {
	c := serve(t, demo(t), Options{})
	c.post("/v1/chat/completions", `{`+hello+`,"max_tokens":2,"stop":null,"max_completion_tokens":null,"stream_options":null,"tools":null,"temperature":null,"seed":null,"logit_bias":null,"response_format":null,
		"n":null,"user":"u","metadata":{"a":"b"},"store":false,"service_tier":"auto","modalities":["text"],"parallel_tool_calls":null,"tool_choice":null,"reasoning_effort":"none"}`)
	c.post("/v1/chat/completions", `{"model":"demo","max_tokens":2,"messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":"Hello","refusal":null,"tool_calls":null,"audio":null},{"role":"user","content":"Hi"}]}`)
}

// TestBestOf: the client gets the answers whose tokens are the likeliest in the mean, and pays for all.
func TestBestOf(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const body = `{"model":"demo","prompt":["The color of","One"],"max_tokens":8,"seed":3,"temperature":1.5,`
	mean := func(choice any) (sum float64) {
		values := at(choice, "logprobs", "token_logprobs").([]any)
		for _, v := range values {
			sum += v.(float64)
		}
		return sum / float64(len(values))
	}
	all := c.post("/v1/completions", body+`"n":6,"logprobs":0}`)
	best := c.post("/v1/completions", body+`"n":2,"best_of":6,"logprobs":0}`)
	plain := c.post("/v1/completions", body+`"n":2,"best_of":6}`)
	if n := len(best["choices"].([]any)); n != 4 || at(best, "usage", "completion_tokens") != at(all, "usage", "completion_tokens") {
		t.Fatalf("%d choices, usage %v, want 4, %v", n, best["usage"], all["usage"])
	}
	for i, x := range best["choices"].([]any) {
		above := 0
		for _, y := range all["choices"].([]any)[i/2*6 : i/2*6+6] {
			if mean(y) > mean(x) {
				above++
			}
		}
		if above != i%2 || at(x, "index") != float64(i) || at(plain, "choices", i, "text") != at(x, "text") || at(plain, "choices", i, "logprobs") != nil {
			t.Errorf("choice %d: %d are likelier, %v, %v", i, above, x, at(plain, "choices", i))
		}
	}
	c.refuses(400, "best_of", "less than n", "POST", "/v1/completions", body+`"n":3,"best_of":2}`)
	c.refuses(400, "best_of", "streams", "POST", "/v1/completions", body+`"best_of":2,"stream":true}`)
}
