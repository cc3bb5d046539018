package server

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

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
	x.takesPlace, x.counts = true, true
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
	in := items{x: x, f: f}
	list := in.read()
	responseTools(f, list, &c)
	responseInput(f, list, &c)
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
	f.hint("max_tool_calls", "context_management", "image")
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
	o.hint("context", "mode")
	o.done()
}

// serviceItem finds the items of tools run by OpenAI's service, and of its own records, without meaning for a model
// here.
var serviceItem = regexp.MustCompile(
	`^(apply_patch|code_interpreter|computer|file_search|image_generation|local_shell|mcp|shell|tool_search|` +
		`web_search)_call(_output)?$|^mcp_(list_tools|approval_request|approval_response)$|` +
		`^(tool_search|program)_output$|^program$|^configuration_update$`)

// responseInput reads items: messages, calls and their results.
func responseInput(f *fields, list []*fields, c *conversation) {
	before := len(c.messages)
	names := map[string]string{} // of tools, by the ids of calls
	for _, m := range list {
		if serviceItem.MatchString(peek(m, "type")) {
			m.hints.add(strings.TrimSuffix(m.path, "."))
			continue
		}
		m.ignore("status", "id")
		m.hint("phase", "created_by", "agent", "caller", "internal_chat_message_metadata_passthrough")
		switch kind := m.kind("An item", "message", "message", "reasoning", "function_call", "function_call_output",
			"custom_tool_call", "custom_tool_call_output", "additional_tools"); kind {
		case "additional_tools": // already read
			m.ignore("role", "tools")
			m.done()
			continue
		case "message":
			if said := message(m, names); said.Role == karat.RoleAssistant {
				c.messages = appendAssistant(c.messages, isReasoning, said.Parts...)
			} else {
				c.messages = append(c.messages, said)
			}
		case "reasoning":
			c.messages = appendAssistant(c.messages, isReasoning, reasoningItem(m))
		case "function_call", "custom_tool_call":
			id, name := m.needText("call_id"), c.nameOf(m.text("namespace"), m.needText("name"))
			var call karat.ToolCall
			if kind == "function_call" {
				call = toolCall(m, "arguments", id, name, m.text("arguments"))
			} else {
				call = customCall(m, id, name)
			}
			names[id] = name
			// the calls of a turn share a message
			c.messages = appendAssistant(c.messages, func(karat.Message) bool { return true }, call)
		case "function_call_output", "custom_tool_call_output":
			m.result = true
			m.ignore("name", "namespace")
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
	if as = cmp.Or(as, summary); sealed != "" && as == "" && !own { // encrypted by another server
		m.hints.add(m.path + "encrypted_content")
	}
	return karat.Reasoning(as)
}

// object returns the answer, unfinished without usage.
func (q *response) object(u *usage) map[string]any {
	o := map[string]any{"id": q.r.id, "object": "response", "created_at": q.r.created, "status": "in_progress",
		"model": q.r.asked.tuned.nameOf(q.r.model), "output": []any{}, "usage": nil}
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

// Bounds of the responses kept for each key.
const (
	recentBytes = 16 << 20
	recentMost  = 1024
	recentTime  = time.Hour // since the last use
	itemBytes   = 256       // of an item, beside its text
)

// recent keeps the last answers of the responses API in memory, for later requests of the same key with references to
// them, or to their items, in the place of texts. The least recently used go first.
type recent struct {
	mu  sync.Mutex
	now func() time.Time
	of  map[string]*keptResponses // by the names of keys
}

// keptResponses are the responses of a key.
type keptResponses struct {
	byID  map[string]*keptResponse
	items map[string]json.RawMessage // of their outputs, by their ids
	list  []*keptResponse            // the last used comes last
	bytes int
}

type keptResponse struct {
	id, before    string // before is the response before this one
	used          time.Time
	input, output []json.RawMessage
	ids           []string // of output
	body          []byte
	bytes         int
}

// put keeps a response.
func (k *recent) put(who string, r *keptResponse) {
	r.bytes = len(r.body)
	for _, item := range slices.Concat(r.input, r.output) {
		r.bytes += len(item) + itemBytes
	}
	if r.bytes > recentBytes {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.of[who]
	if of == nil {
		of = &keptResponses{byID: map[string]*keptResponse{}, items: map[string]json.RawMessage{}}
		k.of[who] = of
	}
	r.used = k.now()
	of.byID[r.id], of.list, of.bytes = r, append(of.list, r), of.bytes+r.bytes
	for i, id := range r.ids {
		of.items[id] = r.output[i]
	}
	for of.bytes > recentBytes || len(of.list) > recentMost {
		of.drop(of.list[0])
	}
}

// drop forgets a response.
func (of *keptResponses) drop(r *keptResponse) {
	of.bytes -= r.bytes
	delete(of.byID, r.id)
	for _, id := range r.ids {
		delete(of.items, id)
	}
	of.list = slices.DeleteFunc(of.list, func(x *keptResponse) bool { return x == r })
}

// unexpired returns the responses of a key without the ones whose time is over; nil are none. k.mu is held.
func (k *recent) unexpired(who string) *keptResponses {
	of := k.of[who]
	for of != nil && len(of.list) > 0 && k.now().Sub(of.list[0].used) > recentTime {
		of.drop(of.list[0])
	}
	return of
}

// expire forgets the responses past their time, also of keys without further requests.
func (k *recent) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for who := range k.of {
		if len(k.unexpired(who).list) == 0 {
			delete(k.of, who)
		}
	}
}

// get returns a response, nil if not kept.
func (k *recent) get(who, id string) *keptResponse {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.unexpired(who)
	if of == nil || of.byID[id] == nil {
		return nil
	}
	r, i := of.byID[id], slices.Index(of.list, of.byID[id])
	r.used, of.list = k.now(), append(slices.Delete(of.list, i, i+1), r)
	return r
}

// item returns an item of an output, nil if not kept.
func (k *recent) item(who, id string) json.RawMessage {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of := k.unexpired(who); of != nil {
		return of.items[id]
	}
	return nil
}

// remove forgets a response, and reports whether it was kept.
func (k *recent) remove(who, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.unexpired(who)
	if of == nil || of.byID[id] == nil {
		return false
	}
	of.drop(of.byID[id])
	return true
}

// goneProblem returns the problem of a reference to a forgotten answer or item.
func goneProblem(param, what, id string) *problem {
	return refuse(http.StatusBadRequest, "previous_response_not_found", param,
		"There is no %s %q: answers are kept in memory, for an hour after their last use and up to %d MiB of "+
			"each key. Send what was said as input; clients do "+
			"with store: false", what, id, recentBytes>>20)
}

// items reads the items of a request's input, kept ones in the places of their names.
type items struct {
	x     *exchange
	f     *fields
	own   []json.RawMessage // of the request itself, including named items
	bytes int64             // of kept items
}

// count counts a kept item like a part of the body.
func (l *items) count(param string, raw json.RawMessage) {
	if l.bytes += int64(len(raw)); l.bytes > l.x.s.o.MaxBody {
		fail(param, "with it the request has more than %d bytes", l.x.s.o.MaxBody)
	}
}

// read returns all items of a request, each with its place: the ones of earlier answers, then its own.
func (l *items) read() (all []*fields) {
	f, id := l.f, l.f.text("previous_response_id")
	var before [][]json.RawMessage // the newest first
	for at := id; at != ""; {
		r := l.x.s.kept.recent.get(l.x.who.name, at)
		if r == nil {
			throw(goneProblem("previous_response_id", "response", at))
		}
		before = append(before, r.output, r.input)
		at = r.before
		for _, raw := range slices.Concat(r.input, r.output) {
			l.count("previous_response_id", raw)
		}
	}
	for _, list := range slices.Backward(before) {
		for _, raw := range list {
			all = append(all, f.inner(fmt.Sprintf("previous_response_id[%d]", len(all)), raw))
		}
	}
	if text, ok := decodeAs[string](f.values["input"]); ok {
		f.take("input")
		item, _ := encode(map[string]string{"role": "user", "content": text}) // texts have JSON
		l.own = []json.RawMessage{item}
		return append(all, f.inner("input", item))
	}
	for i, raw := range f.list("input", maxMessages) {
		path := fmt.Sprintf("input[%d]", i)
		of := f.inner(path, raw)
		if isReference(of) {
			id := of.needText("id")
			if raw = l.x.s.kept.recent.item(l.x.who.name, id); raw == nil {
				throw(goneProblem(path+".id", "item", id))
			}
			of.done()
			l.count(path, raw)
			of = f.inner(path, raw)
		}
		all, l.own = append(all, of), append(l.own, raw)
	}
	return all
}

// isReference reports whether an item is a reference into an earlier answer: by its type, or as an id alone.
func isReference(f *fields) bool {
	if kind, _ := decodeAs[string](f.values["type"]); kind == "item_reference" {
		f.ignore("type")
		return true
	}
	return len(f.values) == 1 && f.has("id")
}

// keep keeps a finished answer. body is its JSON.
func (q *response) keep(body any) {
	if !q.kept {
		return
	}
	r := &keptResponse{id: q.r.id, before: q.before, input: q.input, ids: q.ids}
	r.body, _ = encode(body) // body has JSON, since it is sent
	for i, b := range q.out.all {
		item, _ := encode(q.item(i, b, b.status()))
		r.output = append(r.output, item)
	}
	q.r.asked.s.kept.recent.put(q.r.asked.who.name, r)
}

// showResponse answers GET /v1/responses/{id}.
func showResponse(x *exchange) any {
	r := x.s.kept.recent.get(x.who.name, x.r.PathValue("id"))
	if r == nil {
		return x.noResponse()
	}
	return json.RawMessage(r.body)
}

// deleteResponse answers DELETE /v1/responses/{id}.
func deleteResponse(x *exchange) any {
	id := x.r.PathValue("id")
	if !x.s.kept.recent.remove(x.who.name, id) {
		return x.noResponse()
	}
	return map[string]any{"id": id, "object": "response", "deleted": true}
}

func (x *exchange) noResponse() *problem {
	p := goneProblem("", "response", x.r.PathValue("id"))
	p.status, p.code = http.StatusNotFound, "not_stored"
	return p
}

// sealMark begins reasoning in its opaque form. It hides nothing, and nothing depends on its maker: a client may send
// the text as it is.
const sealMark = "karat1."

func seal(text string) string {
	return sealMark + base64.StdEncoding.EncodeToString([]byte(text))
}

// unseal reads reasoning in its opaque form, and reports whether the text has that form.
func unseal(sealed string) (string, bool) {
	coded, ok := strings.CutPrefix(sealed, sealMark)
	text, err := base64.StdEncoding.DecodeString(coded)
	return string(text), ok && err == nil && utf8.Valid(text)
}
