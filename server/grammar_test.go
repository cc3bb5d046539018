package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// fact is a schema, and what is wrong with a text that should fit it.
const fact = `{"type":"object","properties":{"name":{"type":"string","maxLength":8},"year":{"type":"integer","minimum":1,"maximum":99},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":2}},"required":["name","year","tags"],"additionalProperties":false}`

func wrongFact(text string) error {
	var o struct {
		Name *string  `json:"name"`
		Year *int     `json:"year"`
		Tags []string `json:"tags"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return err
	}
	if o.Name == nil || o.Year == nil || o.Tags == nil || len([]rune(*o.Name)) > 8 || *o.Year < 1 || *o.Year > 99 || len(o.Tags) > 2 {
		return fmt.Errorf("it does not fit")
	}
	for _, tag := range o.Tags {
		if tag != "a" && tag != "b" {
			return fmt.Errorf("tag %q", tag)
		}
	}
	return nil
}

// TestStructured: the text of every API's answer fits the schema, streamed or not, at a high temperature, and reasoning comes before it.
func TestStructured(t *testing.T) {
	c := serve(t, demo(t), Options{})
	wrapped := `{"type":"json_schema","json_schema":{"name":"fact","strict":true,"schema":` + fact + `}}`
	flat := `{"type":"json_schema","name":"fact","strict":true,"schema":` + fact + `}`
	for seed := range 4 {
		hot := fmt.Sprintf(`"temperature":1.5,"seed":%d`, seed)
		fits := func(from, text string) {
			t.Helper()
			if err := wrongFact(text); err != nil {
				t.Errorf("%s, seed %d: %q: %v", from, seed, text, err)
			}
		}
		chat := `{` + ask + `,` + hot + `,"max_tokens":400,"response_format":` + wrapped
		o := c.post("/v1/chat/completions", chat+`}`)
		if at(o, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("%v", o)
		}
		text := at(o, "choices", 0, "message", "content").(string)
		fits("chat", text)
		streamed := ""
		for _, e := range c.events("/v1/chat/completions", chat+`,"stream":true}`) {
			if e.data != "[DONE]" {
				s, _ := at(parseObject(t, e.data), "choices", 0, "delta", "content").(string)
				streamed += s
			}
		}
		if streamed != text {
			t.Errorf("streamed %q, else %q", streamed, text)
		}
		o = c.post("/v1/completions", `{"model":"demo","prompt":"A fact:","max_tokens":400,`+hot+`,"response_format":`+wrapped+`}`)
		fits("completions", at(o, "choices", 0, "text").(string))
		o = c.post("/api/generate", fmt.Sprintf(`{"model":"demo","prompt":"A fact:","raw":true,"stream":false,"options":{"temperature":1.5,"seed":%d,"num_predict":400},"format":%s}`, seed, fact))
		fits("ollama", o["response"].(string))
		o = c.post("/v1/responses", `{"model":"demo","input":"A fact, please.","temperature":1.5,"max_output_tokens":400,"text":{"format":`+flat+`}}`)
		if at(o, "text", "format", "name") != "fact" {
			t.Errorf("%v", o["text"])
		}
		for _, item := range o["output"].([]any) {
			if at(item, "type") == "message" {
				fits("responses", at(item, "content", 0, "text").(string))
			}
		}
		o = c.post("/v1/completions", `{"model":"demo","prompt":"A fact:","max_tokens":60,`+hot+`,"response_format":{"type":"json_object"}}`)
		if text := at(o, "choices", 0, "text").(string); !strings.HasPrefix(text, "{") || at(o, "choices", 0, "finish_reason") == "stop" && !json.Valid([]byte(text)) {
			t.Errorf("%q", text)
		}
	}
	if n := len(c.s.grammars.list); n != 3 { // of a conversation, of a text, of any object
		t.Errorf("%d grammars", n)
	}
}

// TestForced: a call that is required, named or strict comes, in every API, with arguments that fit.
func TestForced(t *testing.T) {
	m, err := withTools()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{})
	tools := `"tools":[{"type":"function","function":{"name":"fact","strict":true,"parameters":` + fact + `}},{"type":"function","function":{"name":"now"}}]`
	off := `"chat_template_kwargs":{"enable_thinking":false}`
	called := 0
	for _, seed := range golden.First(1, []int{1, 0, 2}) {
		hot := fmt.Sprintf(`"temperature":1.5,"max_tokens":400,"seed":%d`, seed)
		for choice, names := range map[string][]string{`"required"`: {"fact", "now"}, `{"type":"function","function":{"name":"fact"}}`: {"fact"}, `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"now"}}]}}`: {"now"}} {
			o := c.post("/v1/chat/completions", `{`+ask+`,`+hot+`,`+off+`,`+tools+`,"parallel_tool_calls":false,"tool_choice":`+choice+`}`)
			if at(o, "choices", 0, "finish_reason") == "length" {
				continue
			}
			calls := at(o, "choices", 0, "message", "tool_calls").([]any)
			name, arguments := at(calls[0], "function", "name").(string), at(calls[0], "function", "arguments").(string)
			if want := map[bool]string{true: "stop", false: "tool_calls"}[strings.Contains(choice, `"type":"function","function":{"name":"fact"`)]; at(o, "choices", 0, "finish_reason") != want {
				t.Errorf("%s: %v", choice, o)
			}
			if err := wrongFact(arguments); len(calls) != 1 || !slices.Contains(names, name) || name == "fact" && err != nil || name == "now" && arguments != "{}" {
				t.Errorf("%s: %v: %v", choice, calls, err)
			}
			called++
		}
		o := c.post("/v1/messages", `{"model":"demo","max_tokens":400,"temperature":1,"messages":[{"role":"user","content":"Q"}],"tools":[{"name":"fact","input_schema":`+fact+`}],"tool_choice":{"type":"any"}}`)
		if o["stop_reason"] != "max_tokens" {
			blocks := o["content"].([]any)
			if last := blocks[len(blocks)-1]; at(last, "type") != "tool_use" || o["stop_reason"] != "tool_use" {
				t.Errorf("%v", o)
			}
			called++
		}
	}
	if called < 2 || golden.Slow() && called < 3 {
		t.Errorf("only %d calls came", called)
	}
}

// TestFormRefused: what a form cannot be is a 400 that names the field.
func TestFormRefused(t *testing.T) {
	c := speak(t, "ok")
	for _, x := range []struct{ path, param, why, body string }{
		{"/v1/chat/completions", "response_format.type", "want text", `{` + ask + `,"response_format":{"type":"xml"}}`},
		{"/v1/chat/completions", "response_format.type", "Missing", `{` + ask + `,"response_format":{}}`},
		{"/v1/chat/completions", "response_format.json_schema", "Missing", `{` + ask + `,"response_format":{"type":"json_schema"}}`},
		{"/v1/chat/completions", "response_format.json_schema.name", "Missing", `{` + ask + `,"response_format":{"type":"json_schema","json_schema":{"schema":{}}}}`},
		{"/v1/chat/completions", "response_format.json_schema.name", "letters", `{` + ask + `,"response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{}}}}`},
		{"/v1/chat/completions", "response_format.json_schema.x", "Unrecognized", `{` + ask + `,"response_format":{"type":"json_schema","json_schema":{"name":"a","x":1}}}`},
		{"/v1/chat/completions", "tool_choice", "no tool", `{` + ask + `,` + weather + `,"tool_choice":{"type":"function","function":{"name":"rm"}}}`},
		{"/v1/chat/completions", "tool_choice", "want none", `{` + ask + `,` + weather + `,"tool_choice":"any"}`},
		{"/v1/chat/completions", "tool_choice", "with tools alone", `{` + ask + `,"tool_choice":"required"}`},
		{"/v1/chat/completions", "tools", "uniqueItems", `{` + ask + `,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}},"required":["a"]}}}]}`},
		{"/v1/responses", "text.format.schema", "#/type", `{"model":"demo","input":"a","text":{"format":{"type":"json_schema","name":"x","schema":{"type":"x"}}}}`},
		{"/v1/responses", "text.format.name", "Missing", `{"model":"demo","input":"a","text":{"format":{"type":"json_schema","schema":{}}}}`},
		{"/v1/completions", "response_format.json_schema.schema", "#/type", `{"model":"demo","prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"x"}}}}`},
	} {
		c.refuses(400, x.param, x.why, "POST", x.path, x.body)
	}
}

// made compiles a form in the room of k.
func (k *grammars) made(t *testing.T, caller string, o karat.ResponseFormat) func() (*karat.Grammar, error) {
	o.Room, o.Key = k.room, caller
	return func() (*karat.Grammar, error) { return karat.TextGrammar(t.Context(), o) }
}

// TestD5Grammars: distinct schemas are kept within a bound.
func TestD5Grammars(t *testing.T) {
	k := newGrammars(grammarBytes)
	for i := range 200 {
		schema := fmt.Sprintf(`{"const":%d}`, i)
		for range 2 {
			g, err := k.take(t.Context(), "a", schema, k.made(t, "a", karat.ResponseFormat{Schema: []byte(schema)}))
			if err != nil {
				t.Fatal(err)
			}
			k.give(g)
		}
	}
	if len(k.list) != maxGrammars {
		t.Errorf("%d grammars are kept", len(k.list))
	}
	if _, kept, _ := k.measure(); k.room.Bytes() != kept {
		t.Errorf("the room has %d bytes, the grammars %d", k.room.Bytes(), kept)
	}
}

// TestD5Bytes: 500 different schemas that need much memory leave no more than the bound, with all that is kept for them.
func TestD5Bytes(t *testing.T) {
	c := serve(t, demo(t), Options{})
	ask := func(i int) {
		var properties strings.Builder
		for n := range 80 {
			fmt.Fprintf(&properties, `,"p%d":{"type":"string","pattern":"^[a-f]{%d}x"}`, n, (i+n)%1000)
		}
		c.post("/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{`+properties.String()[1:]+`}}}}}`)
	}
	held := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers held
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	c.s.grammars.most = 2 << 20
	ask(-1)
	before := held()
	for i := range 500 {
		ask(i)
	}
	_, kept, used := c.s.grammars.measure()
	if took := held() - before; used != 0 || kept > 2<<20 || took > 4<<20 {
		t.Errorf("%d bytes are held, grammars that nobody uses say %d, others %d", took, kept, used)
	}
}

// TestD5Used: where the grammars of requests under way take much memory, no more are compiled than there is room for, and those that are
// there are shared.
func TestD5Used(t *testing.T) {
	k := newGrammars(1 << 20)
	var all []*keptGrammar
	take := func(i int) (*keptGrammar, error) {
		form := karat.ResponseFormat{Regexp: strings.Repeat(`[a-z]x`, 500) + strings.Repeat("y", i)}
		return k.take(t.Context(), "a", i, k.made(t, "a", form))
	}
	var err error
	for len(all) < 1000 {
		var g *keptGrammar
		if g, err = take(len(all)); err != nil {
			break
		}
		all = append(all, g)
	}
	if !errors.Is(err, karat.ErrGrammarRoom) || len(all) < 4 || k.room.Bytes() > 4<<20 {
		t.Errorf("%d grammars of %d bytes, then %v", len(all), k.room.Bytes(), err)
	}
	again, err := take(0)
	if err != nil || again != all[0] {
		t.Errorf("%v, %v", again, err)
	}
	for _, g := range append(all, again) {
		k.give(g)
	}
	if idle, kept, used := k.measure(); kept > 1<<20 || used != 0 || k.room.Bytes() != kept {
		t.Errorf("%d grammars are left, of %d bytes, %d in use, %d in the room", idle, kept, used, k.room.Bytes())
	}
}

// TestGrammarsOnce: what several requests of a key wait for is compiled once, what another key asks for again, and nobody compiles for a
// client that has gone.
func TestGrammarsOnce(t *testing.T) {
	k := newGrammars(grammarBytes)
	var made atomic.Int32
	compile := func(caller string) func() (*karat.Grammar, error) {
		return func() (*karat.Grammar, error) {
			made.Add(1)
			runtime.Gosched()
			return k.made(t, caller, karat.ResponseFormat{Schema: []byte(`true`)})()
		}
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			caller := string(rune('a' + i%2))
			if _, err := k.take(t.Context(), caller, i/4, compile(caller)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 8 {
		t.Errorf("%d were compiled, want 8: 4 forms of 2 keys", made.Load())
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	form := karat.ResponseFormat{Schema: []byte(`true`), Room: k.room}
	_, err := k.take(gone, "a", "other", func() (*karat.Grammar, error) { return karat.TextGrammar(gone, form) })
	if !errors.Is(err, context.Canceled) || len(k.making) != 0 {
		t.Errorf("of a client that has gone: %v", err)
	}
}

// TestFormatIgnored: a format of texts that is not known is named and changes nothing, in a schema of the answer and of a tool.
func TestFormatIgnored(t *testing.T) {
	m, err := withTools()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{})
	schema := `{"type":"object","properties":{"a":{"type":"string","format":"phone","maxLength":3}},"required":["a"]}`
	for body, want := range map[string]string{
		`{` + ask + `,"max_tokens":1,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}}`:                "response_format.json_schema.schema/properties/a/format",
		`{` + ask + `,"max_tokens":1,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":` + schema + `}}]}`: "tools[].parameters/properties/a/format",
	} {
		status, text, header := c.do("POST", "/v1/chat/completions", body)
		if got := header.Get(hintHeader); status != 200 || !strings.Contains(got, want) {
			t.Errorf("%d, %q, want %s: %s", status, got, want, text)
		}
	}
	c.refuses(400, "grammar", "root: the vocabulary has no special token <|nope|>", "POST", "/v1/completions", `{"model":"demo","prompt":"a","grammar":"root ::= \"a\" <|nope|>"}`)
}
