package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/karat-run/karat"
)

// respond answers POST /v1/responses.
func respond(x *exchange) any {
	q := readResponse(x)
	q.r.id = newID("resp_")
	if q.r.reply.stream {
		return streamResponse(x, q)
	}
	u := q.r.answer(q.out.add)
	o := q.object(&u)
	q.keep(o)
	return o
}

// countResponse answers POST /v1/responses/input_tokens.
func countResponse(x *exchange) any {
	x.takesPlace = true
	q := readResponse(x)
	return map[string]any{"object": "response.input_tokens", "input_tokens": len(q.r.prompts[0])}
}

// response is a request of this API, its fields repeated in the answer, and the answer.
type response struct {
	r    *request
	echo map[string]any
	out  blocks
	ids  []string // of the items of the answer

	input   []json.RawMessage // items of the request
	before  string            // the response before this one
	kept    bool              // open to later references
	sealed  bool              // reasoning is also there in its opaque form
	summary bool              // reasoning is also there as its summary
}

func readResponse(x *exchange) *response {
	f, m := x.readRequest(x.readModel)
	q := &response{r: x.newRequest(m)}
	r := q.r
	q.echo = map[string]any{"error": nil, "incomplete_details": nil, "max_output_tokens": nil,
		"previous_response_id": nullable(peek(f, "previous_response_id")),
		"text":                 map[string]any{"format": map[string]string{"type": "text"}},
		"truncation":           cmp.Or(peek(f, "truncation"), "disabled")}
	for name, absent := range map[string]string{"instructions": "null", "metadata": "{}", "tools": "[]",
		"tool_choice": `"auto"`, "parallel_tool_calls": "true", "reasoning": "null"} {
		q.echo[name] = null(f, name, absent)
	}
	readLimit(f, r, "max_output_tokens", 1)
	readTemperature(f, r, 2)
	q.echo["temperature"], q.echo["top_p"] = r.sampling.Temperature, topPOf(r.sampling.TopP)
	if r.max >= 0 {
		q.echo["max_output_tokens"] = r.max
	}
	r.reply.stream = f.boolean("stream", false)
	text := null(f, "text", "{}")
	q.before, q.kept = peek(f, "previous_response_id"), f.boolean("store", true) && !x.who.late
	responseRefused(f)
	if r.form = responseText(f); !r.form.isFree() {
		q.echo["text"] = text
	}
	q.include(f)
	q.echo["top_logprobs"] = r.top
	c := conversation{args: templateArgs(f), pieces: true}
	q.reasoning(f, &c)
	if text := f.text("instructions"); text != "" {
		c.messages = append(c.messages, karat.TextMessage(karat.RoleSystem, text))
		c.setPlaces("instructions")
	}
	responseTools(f, &c)
	in := items{x: x, f: f}
	responseInput(f, in.read(), &c)
	q.input = in.own
	for _, raw := range q.input {
		q.kept = q.kept && len(raw) < recentBytes/2
	}
	q.echo["store"] = q.kept
	c.choose(f, f.take("tool_choice"))
	c.single = !f.boolean("parallel_tool_calls", true) || c.single
	f.done()
	r.converse(x.ctx, &c, "input")
	return q
}

// peek returns a text left unread; "" is none.
func peek(f *fields, name string) string {
	text, _ := decodeAs[string](f.values[name])
	return text
}

// null returns a field's JSON, or a stand-in for its absence, and leaves the field unread.
func null(f *fields, name, absent string) json.RawMessage {
	if f.has(name) {
		return f.values[name]
	}
	return json.RawMessage(absent)
}

// topPOf returns a top_p in the API's form, with 1 for off.
func topPOf(p float64) float64 {
	if p == 0 {
		return 1
	}
	return p
}

// responseRefused reads the fields asking for more than an answer.
func responseRefused(f *fields) {
	f.lacks("conversation", "prompt", "background")
	f.oneOf("truncation", "auto", "disabled") // nothing is ever cut: an overlong prompt is refused
	f.hint("max_tool_calls", "context_management")
	if o := f.object("stream_options"); o != nil {
		o.hint("include_obfuscation")
		o.done()
	}
	metadata(f) // repeated in the answer
	hintIdle(f)
	f.hint("prediction")
}

// responseText returns the form of the answer's text.
func responseText(f *fields) (x form) {
	if o := f.object("text"); o != nil {
		x = format(o, "format", true)
		o.hint("verbosity")
		o.done()
	}
	return x
}

// include reads the further parts of the answer.
func (q *response) include(f *fields) {
	r := q.r
	for _, name := range f.texts("include", 32) {
		switch name {
		case "message.output_text.logprobs":
			r.logprobs = true
		case "reasoning.encrypted_content":
			q.sealed = true
		case "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
			"message.input_image.image_url", "web_search_call.action.sources",
			"web_search_call.results": // there are none
			f.hints.add("include." + name)
		default:
			throw(refuseFeature("include", fmt.Sprintf("include %q", name)))
		}
	}
	integer(f, &r.top, "top_logprobs", 0, maxTop)
	r.logprobs = r.logprobs || r.top > 0
}

// reasoning reads the amount of reasoning, and whether there is a summary: the reasoning as it is.
func (q *response) reasoning(f *fields, c *conversation) {
	m, o := q.r.model, f.object("reasoning")
	if o == nil {
		return
	}
	m.reason(o, "effort", c)
	m.budget(o, "max_tokens", 0, maxTokens, c)
	for _, name := range []string{"summary", "generate_summary"} {
		q.summary = o.oneOf(name, "auto", "concise", "detailed") != "" || q.summary
	}
	o.hint("context")
	o.done()
}

// serviceItem finds the items of tools run by OpenAI's service, and of its own records, without meaning for a model
// here.
var serviceItem = regexp.MustCompile(
	`^(code_interpreter|computer|file_search|image_generation|mcp|tool_search|web_search)_call$|` +
		`^mcp_(list_tools|approval_request|approval_response)$`)

// responseInput reads items: messages, calls and their results.
func responseInput(f *fields, list []*fields, c *conversation) {
	before := len(c.messages)
	names := map[string]string{} // of tools, by the ids of calls
	for _, m := range list {
		if serviceItem.MatchString(peek(m, "type")) {
			m.hints.add(strings.TrimSuffix(m.path, "."))
			continue
		}
		m.ignore("status")
		m.hint("phase", "created_by", "agent", "internal_chat_message_metadata_passthrough")
		switch kind := m.kind("An item", "message", "message", "reasoning", "function_call", "function_call_output",
			"custom_tool_call", "custom_tool_call_output"); kind {
		case "message":
			m.ignore("id")
			if said := message(m, names); said.Role == karat.RoleAssistant {
				c.messages = appendAssistant(c.messages, isReasoning, said.Parts...)
			} else {
				c.messages = append(c.messages, said)
			}
		case "reasoning":
			m.ignore("id")
			c.messages = appendAssistant(c.messages, isReasoning, reasoningItem(m))
		case "function_call", "custom_tool_call":
			m.ignore("id")
			id, name := m.needText("call_id"), c.nameOf(m.text("namespace"), m.needText("name"))
			var call karat.ToolCall
			if kind == "function_call" {
				call = toolCall(m, id, name, m.text("arguments"))
			} else {
				call = customCall(m, id, name)
			}
			names[id] = name
			// the calls of a turn share a message
			c.messages = appendAssistant(c.messages, func(karat.Message) bool { return true }, call)
		case "function_call_output", "custom_tool_call_output":
			m.ignore("id")
			id := calledID(m, "call_id", "no item before is", names)
			c.messages = append(c.messages, karat.Message{Role: karat.RoleTool,
				Parts: []karat.Part{toolResult(id, names[id], content(m, "output", true, pictureKinds...))}})
		}
		c.setPlaces(m.path)
		m.done()
	}
	if len(c.messages) == before {
		fail("input", "it is missing or empty, want a string or an array of items")
	}
}

// appendAssistant adds parts to the assistant's last message, where joins takes the message, or else adds a message.
func appendAssistant(all []karat.Message, joins func(karat.Message) bool, parts ...karat.Part) []karat.Message {
	if n := len(all); n > 0 && all[n-1].Role == karat.RoleAssistant && joins(all[n-1]) {
		all[n-1].Parts = append(all[n-1].Parts, parts...)
		return all
	}
	return append(all, karat.Message{Role: karat.RoleAssistant, Parts: parts})
}

// isReasoning reports whether a message is reasoning, whose text may be the next item.
func isReasoning(m karat.Message) bool {
	return !slices.ContainsFunc(m.Parts, func(p karat.Part) bool {
		_, is := p.(karat.Reasoning)
		return !is
	})
}

// reasoningItem returns the text of an item of reasoning: as it is, or else its summary.
func reasoningItem(m *fields) karat.Reasoning {
	text := func(name, kind string) string {
		var b strings.Builder
		for _, p := range m.objects(name, maxParts) {
			p.needOneOf("type", kind)
			b.WriteString(p.text("text"))
			p.done()
		}
		return b.String()
	}
	as, summary := text("content", "reasoning_text"), text("summary", "summary_text")
	sealed := m.text("encrypted_content")
	said, own := unseal(sealed)
	if own {
		as = cmp.Or(as, said)
	}
	if as = cmp.Or(as, summary); sealed != "" && as == "" && !own {
		throw(refuseFeature(m.path+"encrypted_content", "reasoning that another server has encrypted"))
	}
	return karat.Reasoning(as)
}

// object returns the answer, unfinished without usage.
func (q *response) object(u *usage) map[string]any {
	o := map[string]any{"id": q.r.id, "object": "response", "created_at": q.r.created, "status": "in_progress",
		"model": q.r.model.name, "output": []any{}, "usage": nil}
	for name, v := range q.echo {
		o[name] = v
	}
	if u == nil {
		return o
	}
	o["status"] = q.status()
	if q.out.finish == finishLength {
		o["incomplete_details"] = map[string]string{"reason": "max_output_tokens"}
	}
	items := []any{}
	for i, b := range q.out.all {
		items = append(items, q.item(i, b, b.status()))
	}
	o["output"] = items
	o["usage"] = map[string]any{"input_tokens": u.prompt,
		"input_tokens_details": map[string]int{"cached_tokens": u.cached, "cache_write_tokens": 0},
		"output_tokens":        u.completion, "output_tokens_details": map[string]int{"reasoning_tokens": u.reasoning},
		"total_tokens": u.prompt + u.completion}
	return o
}

func (q *response) status() string {
	if q.out.finish == finishLength {
		return "incomplete"
	}
	return "completed"
}

func (b *block) status() string {
	if b.cut {
		return "incomplete"
	}
	return "completed"
}

// item returns a part of the answer, with its text so far.
func (q *response) item(i int, b *block, status string) map[string]any {
	for len(q.ids) <= i {
		q.ids = append(q.ids, newID([]string{textBlock: "msg_", reasoningBlock: "rs_", callBlock: "fc_",
			customBlock: "ctc_"}[q.out.all[len(q.ids)].kind]))
	}
	switch text := b.text.String(); b.kind {
	case callBlock:
		return b.call.addSpace(map[string]any{"type": "function_call", "id": q.ids[i], "call_id": b.call.id,
			"name": b.call.name, "arguments": text, "status": status})
	case customBlock:
		return b.call.addSpace(map[string]any{"type": "custom_tool_call", "id": q.ids[i], "call_id": b.call.id,
			"name": b.call.name, "input": text, "status": status})
	case reasoningBlock:
		parts, summary := []any{}, []any{}
		if text != "" {
			parts = append(parts, map[string]string{"type": "reasoning_text", "text": text})
		}
		if text != "" && q.summary {
			summary = append(summary, summaryText(text))
		}
		o := map[string]any{"type": "reasoning", "id": q.ids[i], "summary": summary, "content": parts, "status": status}
		if q.sealed && status != "in_progress" {
			o["encrypted_content"] = seal(text)
		}
		return o
	default:
		parts := []any{}
		if text != "" {
			parts = append(parts, q.outputText(text, b.tokens))
		}
		return map[string]any{"type": "message", "id": q.ids[i], "role": "assistant", "status": status,
			"content": parts}
	}
}

func (q *response) outputText(text string, tokens []karat.Token) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{},
		"logprobs": q.r.tokenLogprobs(tokens)}
}

func summaryText(text string) map[string]string {
	return map[string]string{"type": "summary_text", "text": text}
}

// streamResponse sends the events of this API: each has a name and a number.
func streamResponse(x *exchange, q *response) any {
	s, number := x.open(false), 0
	send := func(kind string, more map[string]any) {
		more["type"], more["sequence_number"] = kind, number
		number++
		s.send(kind, more)
	}
	q.tell(send)
	begun := false
	u := q.r.answer(func(e event) {
		if !begun {
			begun = true
			send("response.created", map[string]any{"response": q.object(nil)})
			send("response.in_progress", map[string]any{"response": q.object(nil)})
		}
		q.out.add(e)
	})
	o := q.object(&u)
	q.keep(o)
	send("response."+q.status(), map[string]any{"response": o})
	return nil
}

// tell sends the events of the items of an answer.
func (q *response) tell(send func(kind string, more map[string]any)) {
	at := func(i int, more map[string]any) map[string]any {
		more["item_id"], more["output_index"] = q.ids[i], i
		return more
	}
	names := map[kind]string{textBlock: "response.output_text", reasoningBlock: "response.reasoning_text",
		callBlock: "response.function_call_arguments", customBlock: "response.custom_tool_call_input"}
	q.out.opened = func(i int, b *block) {
		send("response.output_item.added", map[string]any{"output_index": i, "item": q.item(i, b, "in_progress")})
		if b.kind == textBlock {
			send("response.content_part.added", at(i, map[string]any{"content_index": 0,
				"part": q.outputText("", nil)}))
		}
		if b.kind == reasoningBlock && q.summary {
			send("response.reasoning_summary_part.added", at(i,
				map[string]any{"summary_index": 0, "part": summaryText("")}))
		}
	}
	q.out.grew = func(i int, b *block, piece string, tokens []karat.Token) {
		more := map[string]any{"delta": piece}
		if b.kind < callBlock {
			more["content_index"] = 0
		}
		if b.kind == textBlock {
			more["logprobs"] = q.r.tokenLogprobs(tokens)
		}
		send(names[b.kind]+".delta", at(i, more))
		if b.kind == reasoningBlock && q.summary {
			send("response.reasoning_summary_text.delta", at(i, map[string]any{"summary_index": 0, "delta": piece}))
		}
	}
	q.out.closed = func(i int, b *block) {
		text := b.text.String()
		switch b.kind {
		case callBlock:
			send(names[b.kind]+".done", at(i, map[string]any{"arguments": text, "name": b.call.name}))
		case customBlock:
			send(names[b.kind]+".done", at(i, map[string]any{"input": text}))
		case reasoningBlock:
			send(names[b.kind]+".done", at(i, map[string]any{"content_index": 0, "text": text}))
			if q.summary {
				send("response.reasoning_summary_text.done", at(i, map[string]any{"summary_index": 0, "text": text}))
				send("response.reasoning_summary_part.done",
					at(i, map[string]any{"summary_index": 0, "part": summaryText(text)}))
			}
		case textBlock:
			send(names[b.kind]+".done", at(i, map[string]any{"content_index": 0, "text": text,
				"logprobs": q.r.tokenLogprobs(b.tokens)}))
			send("response.content_part.done", at(i, map[string]any{"content_index": 0,
				"part": q.outputText(text, b.tokens)}))
		}
		send("response.output_item.done", map[string]any{"output_index": i, "item": q.item(i, b, b.status())})
	}
}
