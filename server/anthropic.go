package server

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/karat-run/karat"
)

// anthropic is the voice of the Messages API.
type anthropic struct{}

func (anthropic) problem(p *problem) any {
	kind := map[int]string{400: invalid, 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 415: invalid, 429: "rate_limit_error", 503: "overloaded_error",
		405: invalid}[p.status]
	if kind == "" {
		kind = "api_error"
	}
	e := map[string]any{"type": kind, "message": p.message}
	if p.code != "" {
		e["details"] = map[string]string{"error_code": p.code}
	}
	return map[string]any{"type": "error", "error": e}
}

func (a anthropic) streamProblem(p *problem) (string, any) { return "error", a.problem(p) }

// answerMessages answers POST /v1/messages.
func answerMessages(x *exchange) any {
	r := readMessages(x, true)
	r.id = newID("msg_")
	var l blocks
	if r.reply.stream {
		return streamMessages(x, r, &l)
	}
	u := r.answer(l.add)
	content := []any{}
	for _, b := range l.all {
		content = append(content, r.anthropicBlock(b, false))
	}
	m := r.anthropicMessage(usage{})
	m["content"], m["stop_reason"], m["stop_sequence"] = content, anthropicEnd(&l), nullable(l.stopped)
	m["usage"] = u.anthropic()
	return m
}

// countMessages answers POST /v1/messages/count_tokens.
func countMessages(x *exchange) any {
	x.takesPlace, x.counts = true, true
	r := readMessages(x, false)
	return map[string]int{"input_tokens": len(r.prompts[0])}
}

func (r *request) anthropicMessage(u usage) map[string]any {
	m := map[string]any{"id": r.id, "type": "message", "role": "assistant",
		"model": r.asked.tuned.nameOf(r.model), "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": u.anthropic()}
	if r.reply.edits {
		m["context_management"] = noEdits
	}
	return m
}

// noEdits reports to a client that no edit of the context was applied.
var noEdits = map[string]any{"applied_edits": []any{}}

// anthropic counts tokens in Anthropic's words: cached tokens of the prompt are no input tokens.
func (u usage) anthropic() map[string]int {
	return map[string]int{"input_tokens": u.prompt - u.cached, "cache_read_input_tokens": u.cached,
		"cache_creation_input_tokens": 0, "output_tokens": u.completion}
}

// anthropicBlock returns a block of an answer; an empty block begins a stream.
func (r *request) anthropicBlock(b *block, empty bool) any {
	text := b.text.String()
	if empty || r.reply.hides && b.kind == reasoningBlock {
		text = ""
	}
	switch b.kind {
	case callBlock:
		input := json.RawMessage("{}")
		if !empty {
			input = json.RawMessage(b.call.arguments)
		}
		return map[string]any{"type": "tool_use", "id": b.call.id, "name": b.call.name, "input": input}
	case reasoningBlock:
		return map[string]any{"type": "thinking", "thinking": text, "signature": ""}
	}
	return map[string]any{"type": "text", "text": text}
}

func anthropicEnd(l *blocks) string {
	switch {
	case l.finish == finishCalls:
		return "tool_use"
	case l.finish == finishLength && l.full:
		return "model_context_window_exceeded"
	case l.finish == finishLength:
		return "max_tokens"
	case l.stopped != "":
		return "stop_sequence"
	}
	return "end_turn"
}

func streamMessages(x *exchange, r *request, l *blocks) any {
	s := x.open(false)
	send := func(kind string, more map[string]any) {
		more["type"] = kind
		s.send(kind, more)
	}
	started := false
	l.opened = func(i int, b *block) {
		send("content_block_start", map[string]any{"index": i, "content_block": r.anthropicBlock(b, true)})
	}
	l.grew = func(i int, b *block, piece string, _ []karat.Token) {
		delta := map[string]any{"type": "text_delta", "text": piece}
		switch b.kind {
		case callBlock:
			delta = map[string]any{"type": "input_json_delta", "partial_json": piece}
		case reasoningBlock:
			if r.reply.hides {
				return
			}
			delta = map[string]any{"type": "thinking_delta", "thinking": piece}
		}
		send("content_block_delta", map[string]any{"index": i, "delta": delta})
	}
	l.closed = func(i int, _ *block) { send("content_block_stop", map[string]any{"index": i}) }
	u := r.answer(func(e event) {
		if !started {
			started = true
			send("message_start", map[string]any{"message": r.anthropicMessage(usage{prompt: len(r.prompts[0]),
				cached: e.cached})})
		}
		l.add(e)
	})
	last := map[string]any{"delta": map[string]any{"stop_reason": anthropicEnd(l),
		"stop_sequence": nullable(l.stopped)}, "usage": u.anthropic()}
	if r.reply.edits {
		last["context_management"] = noEdits
	}
	send("message_delta", last)
	send("message_stop", map[string]any{})
	return nil
}

// readMessages reads a request. max_tokens is required only for an answer.
func readMessages(x *exchange, answer bool) *request {
	f, m := x.readRequest(x.readModel)
	r := x.newRequest(m)
	if answer && !f.has("max_tokens") {
		throw(bad("max_tokens", "max_tokens: Field required"))
	}
	readLimit(f, r, "max_tokens", 1)
	readTemperature(f, r, 1)
	integer(f, &r.sampling.TopK, "top_k", 0, 1<<20)
	r.stop = f.texts("stop_sequences", maxStops)
	r.reply.stream = f.boolean("stream", false)
	// clients send the whole conversation then
	if kind, _ := decodeAs[map[string]any](f.values["thread"]); kind["type"] == "continue" {
		throw(refuse(http.StatusNotFound, "thread_not_found", "thread", "This server keeps no threads: send the whole "+
			"conversation again"))
	}
	r.reply.edits = f.has("context_management") // none is applied, as the answer reports
	f.hint("metadata", "service_tier", "cache_control", "container", "mcp_servers", "thread", "inference_geo", "speed",
		"context_management", "compaction", "diagnostics", "user_profile_id", "workspace_id", "billing_policy",
		"fallbacks", "fallback_credit_token")
	c := conversation{args: map[string]any{}, gone: map[string]bool{}}
	if _, parts := anthropicBlocks(f, "system", "system", nil, &c); len(parts) > 0 {
		c.messages = append(c.messages, karat.Message{Role: karat.RoleSystem, Parts: parts})
		c.setPlaces("system")
	}
	anthropicMessages(f, &c)
	anthropicTools(f, &c)
	anthropicOutput(f, r, &c)
	thinks := anthropicThinking(f, r, &c)
	c.prefill(thinks)
	f.done()
	r.converseAnywhere(x.ctx, &c)
	return r
}

// prefill finds the beginning of an answer: a last message of the assistant, continued by the answer. An empty message
// begins nothing.
func (c *conversation) prefill(thinks bool) {
	last := len(c.messages) - 1
	if c.messages[last].Role != karat.RoleAssistant {
		return
	}
	parts := c.messages[last].Parts
	if len(parts) == 1 && parts[0] == karat.Text("") {
		c.messages, c.places = c.messages[:last], c.places[:last]
		return
	}
	if c.goesOn = goesOn(c.messages); !c.goesOn {
		return
	}
	text := join(slices.DeleteFunc(slices.Clone(parts), notText))
	if end, _ := utf8.DecodeLastRuneInString(text); unicode.IsSpace(end) {
		fail(c.places[last], "final assistant content cannot end with trailing whitespace")
	}
	if _, reasoned := parts[0].(karat.Reasoning); thinks && !reasoned {
		fail(c.places[last], "where thinking is enabled, a final message of the assistant must begin with a thinking "+
			"block: its words are no beginning of an answer that thinks first")
	}
}

// converseAnywhere converses with messages of the system at any place. If the chat template has no place for a later
// message of the system, the message becomes a part of the user's before.
func (r *request) converseAnywhere(ctx context.Context, c *conversation) {
	p := catch(func() { r.converse(ctx, c, "messages") })
	if p == nil || p.status != http.StatusBadRequest || p.code != "" || ctx.Err() != nil {
		throw(p)
		return
	}
	within := *c
	within.messages, within.places = nil, nil
	var moved []string
	for i, m := range c.messages {
		if m.Role == karat.RoleSystem && i > 0 {
			moved = append(moved, c.places[i]+".role")
			m.Role = karat.RoleUser
			if before := within.messages[len(within.messages)-1:]; before[0].Role == karat.RoleUser {
				before[0].Parts = append(append(slices.Clip(before[0].Parts), karat.Text("\n\n")), m.Parts...)
				continue
			}
		}
		within.messages, within.places = append(within.messages, m), append(within.places, c.places[i])
	}
	if moved == nil || catch(func() { r.converse(ctx, &within, "messages") }) != nil {
		throw(p) // with the request's place
	}
	for _, place := range moved {
		r.asked.hints.add(place)
	}
}

// anthropicOutput reads how much an answer takes pains, and its form.
func anthropicOutput(f *fields, r *request, c *conversation) {
	form := func(o *fields, name string) {
		if s := o.object(name); s != nil {
			s.needOneOf("type", "json_schema")
			r.form.param, r.form.schema = s.path+"schema", s.take("schema")
			if r.form.schema == nil || r.form.schema[0] != '{' {
				fail(s.path+"schema", "%s, want a JSON schema, an object", kindOf(r.form.schema))
			}
			s.hintRest()
		}
	}
	form(f, "output_format") // as the field was called before
	o := f.object("output_config")
	if o == nil {
		return
	}
	form(o, "format")
	switch level := o.oneOf("effort", "low", "medium", "high", "xhigh", "max"); level {
	case "":
	case "xhigh", "max":
		level = "high" // the maximum known to templates
		fallthrough
	default:
		if !r.model.setEffort(c, level) {
			o.hints.add(o.path + "effort")
		}
	}
	o.hint("task_budget")
	o.done()
}

// anthropicThinking reads whether the answer is to reason, and how much. A model without reasoning answers at once.
func anthropicThinking(f *fields, r *request, c *conversation) (enabled bool) {
	t := f.object("thinking")
	if t == nil {
		return false
	}
	m := r.model
	r.reply.hides = t.oneOf("display", "summarized", "omitted", "updates") == "omitted"
	t.hint("block_binding")
	switch t.needOneOf("type", "enabled", "adaptive", "between_tools", "disabled") {
	case "enabled":
		enabled = true
		if !t.has("budget_tokens") {
			throw(bad("thinking.budget_tokens", "thinking.budget_tokens: Field required"))
		}
		if m.syntax.Open == "" {
			t.hint("budget_tokens")
			t.hints.add("thinking.type")
			break
		}
		m.switchReason(t, "thinking.type", true, c)
		// where a budget is of a whole turn
		interleaved := strings.Contains(strings.Join(r.asked.r.Header.Values("Anthropic-Beta"), ","),
			"interleaved-thinking")
		if m.budget(t, "budget_tokens", 1, maxTokens, c); !interleaved && c.budget != nil && *c.budget >= r.max &&
			r.max > 0 {
			fail("max_tokens", "%d, want more than thinking.budget_tokens, %d: the reasoning counts", r.max, *c.budget)
		}
	case "adaptive", "between_tools": // as much as the model likes
		m.setThink(c, true)
		t.hint("budget_tokens")
	case "disabled":
		m.switchReason(t, "thinking.type", false, c)
		t.hint("budget_tokens")
	}
	t.done()
	return enabled && m.syntax.Open != ""
}

// anthropicMessages reads the messages. A message with results of tools may become two.
func anthropicMessages(f *fields, c *conversation) {
	before := len(c.messages)
	names := map[string]string{} // of tools, by the ids of calls
	for _, m := range f.objects("messages", maxMessages) {
		role := m.needOneOf("role", "user", "assistant", "system")
		results, parts := anthropicBlocks(m, "content", role, names, c)
		if len(results) > 0 {
			c.messages = append(c.messages, karat.Message{Role: karat.RoleTool, Parts: results})
		}
		if len(parts) > 0 {
			c.messages = append(c.messages, karat.Message{Role: karat.Role(role), Parts: parts})
		}
		c.setPlaces(m.path)
		m.done()
	}
	if len(c.messages) == before {
		fail("messages", "it is missing or empty, want an array of messages")
	}
}

// serviceBlock finds the blocks of tools run by Anthropic's service, without meaning for a model here.
var serviceBlock = regexp.MustCompile(`^(server_tool_use|mcp_tool_use|\w+_tool_result)$`)

// blockKinds are the types of blocks in messages, by the role, and in the results of tools.
var blockKinds = map[string][]string{"user": {"text", "image", "document", "tool_result"},
	"system": {"text", "tool_addition", "tool_removal"}, "result": {"text", "tool_reference", "image", "document"},
	"assistant": {"text", "thinking", "redacted_thinking", "tool_use"}}

// anthropicBlocks returns a text, or the blocks of a message or a result: results of tools apart from the rest.
func anthropicBlocks(m *fields, name, role string, names map[string]string, c *conversation) (
	results, parts []karat.Part) {
	if text, ok := decodeAs[string](m.values[name]); ok {
		m.take(name)
		return nil, []karat.Part{karat.Text(text)}
	}
	for _, b := range m.objects(name, maxParts) {
		if serviceBlock.MatchString(peek(b, "type")) {
			b.hints.add(strings.TrimSuffix(b.path, "."))
			continue
		}
		b.hint("cache_control", "citations")
		switch kind := b.kind("In "+role+" messages, content", "", blockKinds[role]...); kind {
		case "document":
			s := b.needObject("source")
			if role == "result" && peek(s, "type") != "text" {
				parts = append(parts, b.unseen("document"))
				continue
			}
			s.kind("In documents, a source", "", "text")
			parts = append(parts, karat.Text(s.needText("data")))
			b.hint("title", "context")
		case "tool_reference": // results of a search for tools, all known to the model
			parts = append(parts, karat.Text("The tool "+b.needText("tool_name")+" is there."))
		case "tool_addition", "tool_removal":
			c.change(b.needObject("tool"), kind == "tool_removal")
		case "text":
			parts = append(parts, karat.Text(b.text("text")))
		case "image":
			if role == "result" && !b.sees {
				parts = append(parts, b.unseen("picture"))
				continue
			}
			parts = append(parts, anthropicPicture(b))
		case "thinking":
			if text := b.text("thinking"); text != "" { // else the text was omitted
				parts = append(parts, karat.Reasoning(text))
			}
			b.ignore("signature")
		case "redacted_thinking": // encrypted by another server
			b.hint("data")
		case "tool_use":
			b.ignore("caller")
			id, name := b.needText("id"), b.needText("name")
			parts, names[id] = append(parts, toolCall(b, "input", id, name, string(b.take("input")))), name
		case "tool_result":
			b.hint("toolset_name")
			id := calledID(b, "tool_use_id", "no message before has", names)
			_, said := anthropicBlocks(b, "content", "result", nil, c)
			result := toolResult(id, names[id], said)
			if b.boolean("is_error", false) {
				result.Content = "Error: " + result.Content // templates have no other place for an error
			}
			results = append(results, result)
		}
		b.done()
	}
	return results, parts
}

// change reads a tool that comes or goes at a message: a whole definition, or the name of a tool of the request.
func (c *conversation) change(o *fields, gone bool) {
	t := karat.Tool{Name: o.text("name")}
	if d := o.object("definition"); d != nil && toolKind(d, "custom", "custom") != "" {
		t = tool(d, "input_schema")
		if c.added = append(c.added, t); len(c.added) > maxAllTools {
			fail(d.path+"name", "more than %d tools come at messages", maxAllTools)
		}
	}
	c.gone[t.Name] = gone
	o.ignore("type")
	o.hintRest()
}

func anthropicTools(f *fields, c *conversation) {
	for _, t := range f.objects("tools", maxParts) {
		if toolKind(t, "custom", "custom") != "" {
			c.tools = append(c.tools, tool(t, "input_schema"))
		}
	}
	for _, t := range c.added { // the latest definition holds
		c.tools = append(slices.DeleteFunc(c.tools, func(k karat.Tool) bool { return k.Name == t.Name }), t)
	}
	c.tools = slices.DeleteFunc(c.tools, func(k karat.Tool) bool { return c.gone[k.Name] })
	o := f.object("tool_choice")
	if o == nil {
		return
	}
	switch o.needOneOf("type", "auto", "any", "tool", "none") {
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
		fail("tool_choice", "it is for requests with tools alone that the model can call")
	}
	o.done()
}
