package server

import (
	"encoding/json"

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
	x.takesPlace = true
	r := readMessages(x, false)
	return map[string]int{"input_tokens": len(r.prompts[0])}
}

func (r *request) anthropicMessage(u usage) map[string]any {
	m := map[string]any{"id": r.id, "type": "message", "role": "assistant", "model": r.model.name, "content": []any{},
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
