package server

import (
	"encoding/json"

	"github.com/karat-run/karat"
)

// anthropic is the voice of the Messages API.
type anthropic struct{}

func (anthropic) problem(p *problem) any {
	kind := map[int]string{400: invalid, 401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large", 415: invalid, 429: "rate_limit_error", 503: "overloaded_error", 405: invalid}[p.status]
	if kind == "" {
		kind = "api_error"
	}
	return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": p.message}}
}

func (a anthropic) broken(p *problem) (string, any) { return "error", a.problem(p) }

// messages is POST /v1/messages.
func (x *exchange) messages() *problem {
	r, p := x.messageRequest(true)
	if p != nil {
		return p
	}
	r.id = newID("msg_")
	var l blocks
	if r.stream {
		return x.streamMessages(r, &l)
	}
	u, p := x.s.answer(x.ctx, r, l.add)
	if p != nil {
		return p
	}
	content := []any{}
	for _, b := range l.all {
		content = append(content, anthropicBlock(b, false))
	}
	m := r.anthropicMessage(len(r.prompts[0]))
	m["content"], m["stop_reason"], m["stop_sequence"] = content, anthropicEnd(&l), orNull(l.stopped)
	m["usage"] = map[string]int{"input_tokens": u.prompt, "output_tokens": u.completion}
	return x.reply(m)
}

// countTokens is POST /v1/messages/count_tokens.
func (x *exchange) countTokens() *problem {
	x.placed = true
	r, p := x.messageRequest(false)
	if p != nil {
		return p
	}
	return x.reply(map[string]int{"input_tokens": len(r.prompts[0])})
}

func (r *request) anthropicMessage(prompt int) map[string]any {
	return map[string]any{"id": r.id, "type": "message", "role": "assistant", "model": r.model.name, "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": map[string]int{"input_tokens": prompt, "output_tokens": 0}}
}

// anthropicBlock is a block of an answer; an empty one begins a stream.
func anthropicBlock(b *block, empty bool) any {
	text := b.text.String()
	switch b.kind {
	case callBlock:
		input := json.RawMessage("{}")
		if !empty {
			input = json.RawMessage(b.call.arguments)
		}
		return map[string]any{"type": "tool_use", "id": b.call.id, "name": b.call.name, "input": input}
	case reasoningBlock:
		if empty {
			text = ""
		}
		return map[string]any{"type": "thinking", "thinking": text, "signature": ""}
	}
	if empty {
		text = ""
	}
	return map[string]any{"type": "text", "text": text}
}

func anthropicEnd(l *blocks) string {
	switch {
	case l.finish == finishCalls:
		return "tool_use"
	case l.finish == finishLength:
		return "max_tokens"
	case l.stopped != "":
		return "stop_sequence"
	}
	return "end_turn"
}

func (x *exchange) streamMessages(r *request, l *blocks) *problem {
	s := x.open(false)
	send := func(kind string, more map[string]any) {
		more["type"] = kind
		s.send(kind, more)
	}
	started := false
	l.opened = func(i int, b *block) {
		send("content_block_start", map[string]any{"index": i, "content_block": anthropicBlock(b, true)})
	}
	l.grew = func(i int, b *block, piece string, _ []karat.Token) {
		delta := map[string]any{"type": "text_delta", "text": piece}
		switch b.kind {
		case callBlock:
			delta = map[string]any{"type": "input_json_delta", "partial_json": piece}
		case reasoningBlock:
			delta = map[string]any{"type": "thinking_delta", "thinking": piece}
		}
		send("content_block_delta", map[string]any{"index": i, "delta": delta})
	}
	l.closed = func(i int, _ *block) { send("content_block_stop", map[string]any{"index": i}) }
	u, p := x.s.answer(x.ctx, r, func(e event) {
		if !started {
			started = true
			send("message_start", map[string]any{"message": r.anthropicMessage(len(r.prompts[0]))})
		}
		l.add(e)
	})
	if p != nil {
		return p
	}
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": anthropicEnd(l), "stop_sequence": orNull(l.stopped)}, "usage": map[string]int{"output_tokens": u.completion}})
	send("message_stop", map[string]any{})
	return nil
}

// messageRequest reads a request; only one that is to be answered needs max_tokens.
func (x *exchange) messageRequest(answer bool) (*request, *problem) {
	f, m, p := x.asked(x.named)
	if p != nil {
		return nil, p
	}
	r := x.newRequest(m)
	if answer && !f.has("max_tokens") {
		f.reject(bad("max_tokens", "max_tokens: Field required"))
	}
	r.limit(f, "max_tokens", 1)
	r.heat(f, 1)
	if k := f.integer("top_k", 0, 1<<20); k != nil {
		r.sampling.TopK = int(*k)
	}
	r.stop = f.texts("stop_sequences", maxStops)
	r.stream = f.boolean("stream", false)
	f.hint("metadata", "service_tier")
	c := conversation{args: map[string]any{}}
	if parts := anthropicText(f, "system"); len(parts) > 0 {
		c.messages = append(c.messages, karat.Message{Role: karat.RoleSystem, Parts: parts})
		c.placed("system")
	}
	anthropicMessages(f, &c)
	anthropicTools(f, &c)
	r.anthropicThinking(f, &c)
	if f.done(); *f.err != nil {
		return nil, *f.err
	}
	return r, r.converse(x.ctx, &c, "messages")
}

// anthropicThinking reads whether the answer is to reason, and how much.
func (r *request) anthropicThinking(f *fields, c *conversation) {
	t := f.object("thinking")
	if t == nil {
		return
	}
	m := r.model
	switch t.needOne("type", "enabled", "adaptive", "disabled") {
	case "enabled":
		m.switchReason(t, "thinking.type", true, c)
		if !t.has("budget_tokens") {
			t.reject(bad("thinking.budget_tokens", "thinking.budget_tokens: Field required"))
		}
		if m.budget(t, "budget_tokens", 1, maxTokens, c); c.budget != nil && *c.budget >= r.max && r.max > 0 {
			f.fail("max_tokens", "%d, want more than thinking.budget_tokens, %d: the reasoning counts", r.max, *c.budget)
		}
	case "adaptive": // as much as the model likes
		m.set(c, thinking, true)
	case "disabled":
		m.switchReason(t, "thinking.type", false, c)
	}
	t.done()
}

// anthropicText is a text, or a list of blocks of text.
func anthropicText(f *fields, name string) (parts []karat.Part) {
	if text, ok := as[string](f.values[name]); ok {
		f.take(name)
		return []karat.Part{karat.Text(text)}
	}
	for _, b := range f.objects(name, maxParts) {
		b.kind("Content", "", "text")
		parts = append(parts, karat.Text(b.text("text")))
		b.hint("cache_control", "citations")
		b.done()
	}
	return parts
}

// anthropicMessages reads the messages, of which one may be two: results of tools are apart.
func anthropicMessages(f *fields, c *conversation) {
	before := len(c.messages)
	names := map[string]string{} // of tools, by the ids of calls
	for _, m := range f.objects("messages", maxMessages) {
		role := m.needOne("role", "user", "assistant")
		if text, ok := as[string](m.values["content"]); ok {
			m.take("content")
			c.messages = append(c.messages, karat.TextMessage(karat.Role(role), text))
		} else {
			results, parts := anthropicBlocks(m, role, names)
			if len(results) > 0 {
				c.messages = append(c.messages, karat.Message{Role: karat.RoleTool, Parts: results})
			}
			if len(parts) > 0 {
				c.messages = append(c.messages, karat.Message{Role: karat.Role(role), Parts: parts})
			}
		}
		c.placed(m.path)
		m.done()
	}
	if len(c.messages) == before {
		f.fail("messages", "it is missing or empty, want an array of messages")
	}
}

// anthropicBlocks are the blocks of a message: results of tools apart from the rest.
func anthropicBlocks(m *fields, role string, names map[string]string) (results, parts []karat.Part) {
	of := []string{"text", "tool_result"}
	if role == "assistant" {
		of = []string{"text", "thinking", "tool_use"}
	}
	for _, b := range m.objects("content", maxParts) {
		b.hint("cache_control", "citations")
		switch b.kind("In a message of the "+role+", content", "", of...) {
		case "text":
			parts = append(parts, karat.Text(b.text("text")))
		case "thinking":
			parts = append(parts, karat.Reasoning(b.text("thinking")))
			b.ignore("signature")
		case "tool_use":
			id, name := b.needText("id"), b.needText("name")
			parts, names[id] = append(parts, toolCall(b, id, name, string(b.take("input")))), name
		case "tool_result":
			id := b.needText("tool_use_id")
			if names[id] == "" && *b.err == nil {
				b.fail(b.path+"tool_use_id", "no message before has a call of id %q", id)
			}
			text := joined(anthropicText(b, "content"))
			if b.boolean("is_error", false) {
				text = "Error: " + text // templates have no other place for it
			}
			results = append(results, karat.ToolResult{ID: id, Name: names[id], Content: text})
		}
		b.done()
	}
	return results, parts
}

func anthropicTools(f *fields, c *conversation) {
	for _, t := range f.objects("tools", maxTools) {
		if t.toolKind("custom", "custom") != "" {
			c.tools = append(c.tools, tool(t, "input_schema"))
		}
	}
	o := f.object("tool_choice")
	if o == nil {
		return
	}
	switch o.needOne("type", "auto", "any", "tool", "none") {
	case "none":
		c.tools, c.mute = nil, true
	case "any":
		c.choice.required = true
	case "tool":
		c.choice.required = true
		c.pick(f, "tool_choice.name", o.needText("name"))
	}
	c.single = o.boolean("disable_parallel_tool_use", false)
	if c.choice.required && len(c.tools) == 0 {
		o.fail("tool_choice", "it is for requests with tools alone that the model can call")
	}
	o.done()
}
