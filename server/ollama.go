package server

import (
	"encoding/json"
	"time"

	"github.com/karat-run/karat"
)

// ollama is the voice of Ollama's API.
type ollama struct{}

func (ollama) problem(p *problem) any { return map[string]string{"error": p.message} }

func (o ollama) broken(p *problem) (string, any) { return "", o.problem(p) }

// chatOllama answers POST /api/chat, ollamaGenerate POST /api/generate.
func chatOllama(x *exchange) any     { return answerOllama(x, true) }
func generateOllama(x *exchange) any { return answerOllama(x, false) }

func answerOllama(x *exchange, chat bool) any {
	began := time.Now()
	r := readOllama(x, chat)
	if r.prompts == nil {
		return r.ollamaLoaded(x, chat)
	}
	var all ollamaSaid
	finish, ids := "", []int(nil)
	s := x.open(true)
	u := r.answer(func(e event) {
		said := ollamaSaid{text: e.text, thinking: e.reasoning, tokens: e.tokens}
		if e.call != nil {
			said.calls = []any{map[string]any{"id": e.call.id, "function": map[string]any{"index": e.call.index, "name": e.call.name, "arguments": json.RawMessage(e.call.arguments)}}}
		}
		if finish, ids = e.finish, e.ids; finish == finishCalls {
			finish = finishStop
		}
		if r.stream && (e.text != "" || e.reasoning != "" || said.calls != nil || r.logprobs && e.tokens != nil) {
			s.send("", r.ollamaPiece(chat, said))
		}
		all.add(said)
	})
	last := r.ollamaPiece(chat, ollamaSaid{})
	if !r.stream {
		last = r.ollamaPiece(chat, all)
	}
	if !chat && r.turn != nil {
		last["context"] = append(r.prompts[0], ids...)
	}
	last["done"], last["done_reason"], last["total_duration"], last["load_duration"] = true, finish, time.Since(began).Nanoseconds(), x.loading.Nanoseconds()
	last["prompt_eval_count"], last["prompt_eval_duration"] = u.prompt, u.prefill.Nanoseconds()
	last["eval_count"], last["eval_duration"] = u.completion, u.decode.Nanoseconds()
	if !r.stream {
		return last
	}
	s.send("", last)
	return nil
}

// ollamaSaid is an answer, or a piece of one.
type ollamaSaid struct {
	text, thinking string
	calls          []any
	tokens         []karat.Token // if log-probabilities are asked for
}

func (a *ollamaSaid) add(b ollamaSaid) {
	a.text += b.text
	a.thinking += b.thinking
	a.calls = append(a.calls, b.calls...)
	a.tokens = append(a.tokens, b.tokens...)
}

// ollamaLoaded answers a request without a prompt, which loads the model, or with keep_alive 0 has it closed.
func (r *request) ollamaLoaded(x *exchange, chat bool) map[string]any {
	o := r.ollamaPiece(chat, ollamaSaid{})
	o["done"], o["done_reason"], o["load_duration"] = true, "load", x.loading.Nanoseconds()
	for _, m := range x.states() {
		if m.now == r.model && m.keep == 0 && m.Load != nil {
			o["done_reason"] = "unload"
		}
	}
	return o
}

// ollamaPiece is a line of an answer.
func (r *request) ollamaPiece(chat bool, said ollamaSaid) map[string]any {
	o := map[string]any{"model": r.model.name, "created_at": time.Now().UTC().Format(time.RFC3339Nano), "done": false}
	to, name := o, "response"
	if chat {
		to, name = map[string]any{"role": "assistant"}, "content"
		o["message"] = to
	}
	to[name] = said.text
	if said.thinking != "" {
		to["thinking"] = said.thinking
	}
	if said.calls != nil {
		to["tool_calls"] = said.calls
	}
	if r.logprobs && said.tokens != nil {
		o["logprobs"] = r.tokenLogprobs(said.tokens)
	}
	return o
}
