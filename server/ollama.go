package server

import (
	"encoding/json"
	"time"
)

// ollama is the voice of Ollama's API.
type ollama struct{}

func (ollama) problem(p *problem) any { return map[string]string{"error": p.message} }

func (o ollama) streamProblem(p *problem) (string, any) { return "", o.problem(p) }

// chatOllama answers POST /api/chat, ollamaGenerate POST /api/generate.
func chatOllama(x *exchange) any     { return answerOllama(x, true) }
func generateOllama(x *exchange) any { return answerOllama(x, false) }

func answerOllama(x *exchange, chat bool) any {
	began := time.Now()
	r := readOllama(x, chat)
	if r.prompts == nil {
		return loadedOllama(x, r, chat)
	}
	var all blocks
	var ids []int
	s := x.open(true)
	u := r.answer(func(e event) {
		var one blocks
		one.add(e)
		if ids = e.ids; r.reply.stream && (one.all != nil || r.logprobs && e.tokens != nil) {
			s.send("", r.ollamaPiece(chat, &one))
		}
		all.add(e)
	})
	finish := all.finish
	if finish == finishCalls {
		finish = finishStop
	}
	if r.reply.stream {
		all = blocks{}
	}
	last := r.ollamaPiece(chat, &all)
	if !chat && r.turn != nil && !r.turn.shows() { // ids are no pictures
		last["context"] = append(r.prompts[0], ids...)
	}
	last["done"], last["done_reason"] = true, finish
	last["total_duration"], last["load_duration"] = time.Since(began).Nanoseconds(), x.loading.Nanoseconds()
	last["prompt_eval_count"], last["prompt_eval_duration"] = u.prompt, u.prefill.Nanoseconds()
	last["eval_count"], last["eval_duration"] = u.completion, u.decode.Nanoseconds()
	if !r.reply.stream {
		return last
	}
	s.send("", last)
	return nil
}

// loadedOllama answers a request without a prompt, for loading the model or, with keep_alive 0, for closing it.
func loadedOllama(x *exchange, r *request, chat bool) map[string]any {
	o := r.ollamaPiece(chat, &blocks{})
	o["done"], o["done_reason"], o["load_duration"] = true, "load", x.loading.Nanoseconds()
	for _, m := range x.states() {
		if m.now == r.model && m.keep == 0 && m.Load != nil {
			o["done_reason"] = "unload"
		}
	}
	return o
}

// ollamaPiece returns a line of an answer.
func (r *request) ollamaPiece(chat bool, said *blocks) map[string]any {
	o := map[string]any{"model": r.model.name, "created_at": time.Now().UTC().Format(time.RFC3339Nano), "done": false}
	to, name := o, "response"
	if chat {
		to, name = map[string]any{"role": "assistant"}, "content"
		o["message"] = to
	}
	to[name] = said.text(textBlock)
	if thinking := said.text(reasoningBlock); thinking != "" {
		to["thinking"] = thinking
	}
	var calls []any
	for _, b := range said.calls() {
		function := map[string]any{"index": b.call.index, "name": b.call.name,
			"arguments": json.RawMessage(b.call.arguments)}
		calls = append(calls, map[string]any{"id": b.call.id, "function": function})
	}
	if calls != nil {
		to["tool_calls"] = calls
	}
	if r.logprobs && said.tokens != nil {
		o["logprobs"] = r.tokenLogprobs(said.tokens)
	}
	return o
}
