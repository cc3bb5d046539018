package server

import (
	"fmt"
)

// completeChat answers POST /v1/chat/completions.
func completeChat(x *exchange) any {
	r := readChat(x)
	r.id = newID("chatcmpl-")
	if r.reply.stream {
		return streamChat(x, r)
	}
	answers := make([]blocks, r.n)
	u := r.answer(func(e event) { answers[e.choice].add(e) })
	return chatBody(r, answers, u)
}

// countChat answers POST /v1/chat/completions/input_tokens.
func countChat(x *exchange) any {
	x.takesPlace, x.counts = true, true
	r := readChat(x)
	return map[string]any{"object": "response.input_tokens", "input_tokens": len(r.prompts[0])}
}

func readChat(x *exchange) *request {
	f, m := x.readRequest(x.readModel)
	r := x.newRequest(m)
	readSampling(f, r)
	readLimit(f, r, "max_tokens", 0)
	readLimit(f, r, "max_completion_tokens", 0)
	r.logprobs = f.boolean("logprobs", false)
	if integer(f, &r.top, "top_logprobs", 0, maxTop); !r.logprobs && r.top > 0 {
		fail("top_logprobs", "it needs logprobs: true")
	}
	r.form = formOf(f)
	for _, kind := range f.texts("modalities", 8) {
		if kind != "text" {
			throw(refuseFeature("modalities", fmt.Sprintf("The modality %q", kind)))
		}
	}
	f.lacks("audio")
	f.hint("web_search_options") // a tool of OpenAI's service
	c := conversation{messages: messages(f), args: templateArgs(f), pieces: true}
	c.readEnding(f)
	m.reasonOther(f, &c)
	m.reason(f, effort, &c) // behind the switches
	m.budget(f, "thinking_budget", 0, maxTokens, &c)
	chatTools(f, &c, "function", "custom")
	c.readFunctions(f)
	hintIdle(f)
	f.done()
	r.converse(x.ctx, &c, "messages")
	return r
}

// readEnding reads whether a conversation goes on with its last message: continue_final_message and
// add_generation_prompt, from vLLM.
func (c *conversation) readEnding(f *fields) {
	c.goesOn = f.boolean("continue_final_message", c.goesOn)
	if c.bare = !f.boolean("add_generation_prompt", !c.goesOn); c.goesOn && !c.bare {
		fail("add_generation_prompt", "a new turn begins there, and continue_final_message is to have none")
	}
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Refusal   *string    `json:"refusal"`
	Calls     []chatCall `json:"tool_calls,omitempty"`

	Legacy *chatFunction `json:"function_call,omitempty"`
}

type chatCall struct {
	Index    *int          `json:"index,omitempty"` // of a stream
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function *chatFunction `json:"function,omitempty"`
	Custom   *chatCustom   `json:"custom,omitempty"`
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatCustom struct {
	Name  string `json:"name,omitempty"`
	Input string `json:"input"`
}

// toChat returns a call with its name, and as much of its arguments.
func (c *call) toChat(arguments string) chatCall {
	if c.custom {
		return chatCall{ID: c.id, Type: "custom", Custom: &chatCustom{c.name, arguments}}
	}
	return chatCall{ID: c.id, Type: "function", Function: &chatFunction{c.name, arguments}}
}

// chatBody returns collected answers.
func chatBody(r *request, answers []blocks, u usage) any {
	type choice struct {
		Index    int         `json:"index"`
		Message  chatMessage `json:"message"`
		Logprobs any         `json:"logprobs"`
		Finish   string      `json:"finish_reason"`
	}
	all := []choice{}
	for i := range answers {
		l := &answers[i]
		calls, text := l.calls(), l.text(textBlock)
		m := chatMessage{Role: "assistant", Reasoning: l.text(reasoningBlock)}
		if text != "" || len(calls) == 0 {
			m.Content = &text
		}
		if r.turn.functions && len(calls) > 0 {
			m.Legacy, calls = &chatFunction{calls[0].call.name, calls[0].text.String()}, nil
		}
		for _, b := range calls {
			m.Calls = append(m.Calls, b.call.toChat(b.text.String()))
		}
		all = append(all, choice{i, m, r.logprobsOf(l.tokens), r.openAIFinish(l.finish)})
	}
	return struct {
		head
		Choices []choice     `json:"choices"`
		Usage   *openAIUsage `json:"usage"`
	}{r.head("chat.completion"), all, u.openAI()}
}

// chatDelta is a chunk's addition to a message.
type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []chatCall `json:"tool_calls,omitempty"`

	Legacy *chatFunction `json:"function_call,omitempty"`
}

type chunkChoice struct {
	Index    int       `json:"index"`
	Delta    chatDelta `json:"delta"`
	Logprobs any       `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
}

func streamChat(x *exchange, r *request) any {
	begun := make([]bool, r.n)
	return streamChunks(x, r, func(e event, send func(any)) {
		if !begun[e.choice] {
			begun[e.choice] = true
			send(chunkChoice{Index: e.choice, Delta: chatDelta{Role: "assistant", Content: new(string)}})
		}
		for _, d := range deltas(e) {
			c := chunkChoice{Index: e.choice, Delta: d}
			if r.turn.functions && d.Calls != nil {
				c.Delta = chatDelta{Legacy: d.Calls[0].Function}
			}
			if len(e.tokens) > 0 {
				c.Logprobs, e.tokens = r.logprobsOf(e.tokens), nil
			}
			send(c)
		}
		if e.finish != "" {
			finish := r.openAIFinish(e.finish)
			send(chunkChoice{Index: e.choice, Finish: &finish})
		}
	})
}

// deltas returns an event's additions to a message: of a call its name, then its arguments.
func deltas(e event) (all []chatDelta) {
	switch {
	case e.call != nil:
		first, rest := e.call.toChat(""), chatCall{Index: &e.call.index,
			Function: &chatFunction{Arguments: e.call.arguments}}
		if first.Index = &e.call.index; e.call.custom {
			rest.Function, rest.Custom = nil, &chatCustom{Input: e.call.arguments}
		}
		if !e.call.again {
			all = append(all, chatDelta{Calls: []chatCall{first}})
		}
		if e.call.arguments != "" {
			all = append(all, chatDelta{Calls: []chatCall{rest}})
		}
	case e.reasoning != "":
		all = append(all, chatDelta{Reasoning: e.reasoning})
	case e.text != "" || len(e.tokens) > 0:
		all = append(all, chatDelta{Content: &e.text})
	}
	return all
}

// openAIFinish returns how an answer ends in the words of its API.
func (r *request) openAIFinish(finish string) string {
	if r.turn.functions && finish == finishCalls {
		return "function_call"
	}
	return finish
}
