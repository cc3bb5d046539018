package server

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/karat-run/karat"
)

func readOllama(x *exchange, chat bool) *request {
	f, m := x.readRequest(x.ollamaModel)
	r := x.newRequest(m)
	r.reply.stream, r.form = f.boolean("stream", true), ollamaFormat(f)
	readKeepAlive(x, f, m)
	ollamaOptions(f, r)
	r.logprobs = f.boolean("logprobs", false)
	if integer(f, &r.top, "top_logprobs", 0, maxTop); !r.logprobs {
		r.top = 0
	}
	c := conversation{args: map[string]any{}}
	m.ollamaThink(f, &c)
	if name := map[bool]string{true: "messages", false: "prompt"}[chat]; !f.has(name) || isNeutral(f.values[name]) {
		// of a request to load a model
		f.ignore(name, "system", "template", "raw", "tools", "suffix", "images", "context")
		f.hintRest()
		return r
	}
	if chat {
		c.messages = ollamaMessages(f)
		chatTools(f, &c, "function")
		f.hintRest()
		c.goesOn = goesOn(c.messages)
		r.converse(x.ctx, &c, "messages")
		return r
	}
	readOllamaPrompt(x, f, r, &c)
	return r
}

// goesOn reports whether a conversation ends with the beginning of the answer, in the assistant's words.
func goesOn(messages []karat.Message) bool {
	last := messages[len(messages)-1]
	called := slices.ContainsFunc(last.Parts, func(p karat.Part) bool { _, is := p.(karat.ToolCall); return is })
	return last.Role == karat.RoleAssistant && !called && !isBlank(last.Parts)
}

// isBlank reports whether a message has no text.
func isBlank(parts []karat.Part) bool {
	return join(slices.DeleteFunc(slices.Clone(parts), notText)) == ""
}

// readOllamaPrompt reads the prompt of a generation. The ids of context, from an earlier answer, come before the
// prompt.
func readOllamaPrompt(x *exchange, f *fields, r *request, c *conversation) {
	prompt, raw, before := f.text("prompt"), f.boolean("raw", false), []int(nil)
	if given := f.take("context"); given != nil && given[0] != '[' {
		fail("context", "%s, want an array of token ids", kindOf(given))
	} else if given != nil {
		before = tokenIDs("context", given, r.model.room, r.leastAnswer())
	}
	f.lacks("suffix", "template")
	pictures := ollamaPictures(f)
	if pictures != nil && (raw || before != nil) {
		fail("images", "beside raw or context there is no place for pictures: send messages to /api/chat")
	}
	if system := f.text("system"); system != "" {
		c.messages = append(c.messages, karat.TextMessage(karat.RoleSystem, system))
		c.setPlaces("system")
	}
	c.messages = append(c.messages, karat.Message{Role: karat.RoleUser, Parts: append(pictures, karat.Text(prompt))})
	c.setPlaces("prompt")
	f.hintRest()
	if raw {
		r.param, r.texts = "prompt", []string{prompt}
		r.prompts = [][]int{x.tokenIDs(r.model, "prompt", prompt, karat.TokenizeOptions{})}
		r.constrainText(x.ctx)
	} else {
		r.converse(x.ctx, c, "prompt")
	}
	// after an earlier turn: a text has a single begin token
	ids := r.prompts[0]
	if bos, ok := r.model.model.BOS(); ok && len(before) > 0 && len(ids) > 0 && ids[0] == bos {
		ids = ids[1:]
	}
	r.prompts[0] = append(slices.Clip(before), ids...)
}

// ollamaThink reads whether the answer is to begin with reasoning, or how much.
func (m *served) ollamaThink(f *fields, c *conversation) {
	if !f.has("think") {
		f.take("think") // a null
		return
	}
	if level, ok := decodeAs[string](f.values["think"]); ok {
		m.reason(f, "think", c)
		if level != "none" {
			m.switchReason(f, "think", true, c)
		}
		return
	}
	on := false
	f.decode("think", "a boolean or a level", &on)
	m.switchReason(f, "think", on, c)
}

// readKeepAlive reads the fields of all requests with a model to load.
func readKeepAlive(x *exchange, f *fields, m *served) {
	raw := f.take("keep_alive")
	if raw == nil {
		return
	}
	keep, ok := keepAlive(raw)
	if !ok {
		fail("keep_alive", "%s, want seconds, or a time as \"5m\"; below 0 is for ever", kindOf(raw))
		return
	}
	x.s.pool.stay(x.s.pool.find(m.name), x.who.name, keep)
}

// keepAlive reads seconds, or a time as "5m".
func keepAlive(raw json.RawMessage) (time.Duration, bool) {
	if text, ok := decodeAs[string](raw); ok {
		if d, err := time.ParseDuration(text); err == nil {
			return d, true
		}
		raw = json.RawMessage(text)
	}
	n, ok := decodeAs[float64](raw)
	if !ok || math.Abs(n) > 1e9 { // some thirty years
		return -1, ok && n < 0
	}
	return time.Duration(n * float64(time.Second)), true
}

// ollamaOptions reads the options of a request. Options for loading change nothing, since the server's own settings
// loaded the model; neither does a num_ctx beyond the context.
func ollamaOptions(f *fields, r *request) {
	o := f.object("options")
	if o == nil {
		return
	}
	s := &r.sampling
	readTemperature(o, r, 2)
	o.number(&s.MinP, "min_p", 0, 1)
	readPenalties(o, r, "repeat_penalty")
	integer(o, &s.TopK, "top_k", 0, 1<<20)
	integer(o, &s.RepeatLast, "repeat_last_n", -1, 1<<20)
	if integer(o, &r.max, "num_predict", -2, maxTokens); r.max < 0 {
		r.max = -1
	}
	if n := 0; integer(o, &n, "num_ctx", 1, maxTokens) && n > r.model.room {
		o.hints.add(o.path + "num_ctx") // the context dates from the loading
	}
	r.stop = o.texts("stop", maxStops)
	o.hint("num_keep", "num_batch", "num_thread", "num_gpu", "main_gpu", "low_vram", "numa", "use_mmap", "use_mlock",
		"f16_kv", "logits_all", "mirostat_tau", "mirostat_eta")
	if !o.boolean("penalize_newline", true) && s.RepeatPenalty != 0 && s.RepeatPenalty != 1 {
		o.hints.add(o.path + "penalize_newline")
	}
	for _, x := range ollamaOff {
		if v := o.take(x.name); v != nil && !x.off(v) {
			throw(refuseFeature(o.path+x.name, x.name))
		}
	}
	o.done()
}

// ollamaOff are options of Ollama without an implementation here, accepted if switched off, as sent by clients.
var ollamaOff = []struct {
	name string
	off  func(json.RawMessage) bool
}{
	{"mirostat", equals("0")}, {"typical_p", equals("1")}, {"tfs_z", equals("1")}, {"vocab_only", equals("false")},
	{"embedding_only", equals("false")},
}

// equals finds a value, however its number is written.
func equals(want string) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		n, ok := parseWhole(raw)
		return ok && strconv.FormatInt(n, 10) == want || string(raw) == want
	}
}

// ollamaMessages reads a conversation, whose calls have objects as arguments and may have no ids.
func ollamaMessages(f *fields) (all []karat.Message) {
	names := map[string]string{} // of tools, by the ids of calls
	for _, m := range f.objects("messages", maxMessages) {
		role, text := m.needOneOf("role", "system", "user", "assistant", "tool", "developer"), m.text("content")
		var pictures []karat.Part
		if role == "user" || role == "tool" {
			pictures = ollamaPictures(m)
		} else if raw := m.take("images"); raw != nil && !isNeutral(raw) {
			throw(misplaced(m.path + "images"))
		}
		message := karat.Message{Role: karat.Role(role), Name: m.text("name")}
		id, tool := m.text("tool_call_id"), m.text("tool_name")
		switch role {
		case "tool":
			result := toolResult(id, cmp.Or(tool, names[id], message.Name), append(pictures, karat.Text(text)))
			message.Name, message.Parts = "", []karat.Part{result}
		case "assistant":
			message.Parts = ollamaTurn(m, text, names)
		case "developer":
			message.Role = karat.RoleSystem
			fallthrough
		default:
			message.Parts = append(pictures, karat.Text(text))
		}
		all = append(all, message)
		m.done()
	}
	if len(all) == 0 {
		fail("messages", "it is missing or empty, want an array of messages")
	}
	return all
}

// ollamaTurn reads the assistant's turn, and notes the names of the called tools.
func ollamaTurn(m *fields, text string, names map[string]string) (parts []karat.Part) {
	if thinking := m.text("thinking"); thinking != "" {
		parts = append(parts, karat.Reasoning(thinking))
	}
	if text != "" {
		parts = append(parts, karat.Text(text))
	}
	for _, c := range m.objects("tool_calls", maxTools) {
		id := c.text("id")
		c.ignore("type")
		if o := c.object("function"); o != nil {
			o.ignore("index")
			call := toolCall(o, "arguments", id, o.needText("name"), string(o.take("arguments")))
			if parts = append(parts, call); id != "" {
				names[id] = call.Name
			}
			o.done()
		}
		c.done()
	}
	return parts
}
