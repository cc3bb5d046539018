package server

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/chat"
)

// Limits of OpenAI's API, and of this server's own fields.
const (
	maxChoices  = 128
	maxTop      = 20
	maxStops    = 16
	maxStopSize = 1024
	maxBiases   = 4096
	maxTools    = 128
	maxMessages = 4096
	maxParts    = 1024
	maxTokens   = math.MaxInt32
)

// readSampling reads the fields for choosing tokens, shared by chat and completions.
func readSampling(f *fields, r *request) {
	s := &r.sampling
	readTemperature(f, r, 2)
	integer(f, &s.TopK, "top_k", -1, 1<<20)
	s.TopK = max(s.TopK, 0) // -1 is off, as vLLM's
	f.number(&s.MinP, "min_p", 0, 1)
	readPenalties(f, r, "repetition_penalty")
	integer(f, &r.n, "n", 1, maxChoices)
	r.stop = f.texts("stop", maxStops)
	readBias(f, r)
	readDraft(f, r)
	if r.reply.stream = f.boolean("stream", false); !r.reply.stream && f.has("stream_options") {
		fail("stream_options", "it is for streams alone: stream is not true")
	}
	if o := f.object("stream_options"); o != nil {
		r.reply.usage = o.boolean("include_usage", false)
		o.hint("include_obfuscation")
		o.done()
	}
}

// readPenalties reads the penalties of earlier tokens, and the seed; repeat is the name of the first penalty.
func readPenalties(f *fields, r *request, repeat string) {
	s := &r.sampling
	f.number(&s.RepeatPenalty, repeat, 0.01, 100)
	f.number(&s.PresencePenalty, "presence_penalty", -2, 2)
	f.number(&s.FrequencyPenalty, "frequency_penalty", -2, 2)
	if seed := uint64(0); integer(f, &seed, "seed", math.MinInt64, math.MaxInt64) {
		s.Seed = &seed
	}
}

// readTemperature reads temperature, up to most, and top_p. A top_p of 0 is the likeliest token alone; inside, 0 is
// off.
func readTemperature(f *fields, r *request, most float64) {
	f.number(&r.sampling.Temperature, "temperature", 0, most)
	if f.number(&r.sampling.TopP, "top_p", 0, 1) {
		r.sampling.TopP = max(r.sampling.TopP, 1e-12)
	}
}

// readBias reads logit_bias, in addition to the bans of the model's publisher.
func readBias(f *fields, r *request) {
	o := f.object("logit_bias")
	if o == nil {
		return
	}
	if len(o.order) > maxBiases {
		fail("logit_bias", "%d tokens, at most %d", len(o.order), maxBiases)
	}
	all := map[int]float32{}
	maps.Copy(all, r.sampling.LogitBias)
	for _, name := range o.order {
		id, err := strconv.Atoi(name)
		if err != nil || id < 0 {
			fail(o.path+name, "the name is no token id")
		}
		if x := 0.0; o.number(&x, name, -100, 100) {
			all[id] = float32(x)
			if x <= -100 {
				all[id] = float32(math.Inf(-1))
			}
		}
	}
	r.sampling.LogitBias = all
}

// readDraft reads OpenAI's prediction of the answer, and draft: Karat's own field, the source of drafts.
func readDraft(f *fields, r *request) {
	r.reply.draft = karat.Draft(f.oneOf("draft", string(karat.DraftAuto), string(karat.DraftNgram),
		string(karat.DraftMTP), string(karat.DraftOff)))
	o := f.object("prediction")
	if o == nil {
		return
	}
	o.needOneOf("type", "content")
	if !strings.HasPrefix(string(o.values["content"]), "[") {
		r.reply.prediction = o.needText("content")
	} else {
		var text strings.Builder
		for _, p := range o.objects("content", maxParts) {
			p.needOneOf("type", "text")
			text.WriteString(p.needText("text"))
			p.done()
		}
		r.reply.prediction = text.String()
	}
	o.done()
}

// hintIdle reads the hints of OpenAI's API, without meaning for a model run here.
func hintIdle(f *fields) {
	if raw, there := f.values["metadata"]; there {
		metadata(f)
		f.values["metadata"] = raw
	}
	f.hint("client_metadata", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
		"prompt_cache_retention", "prompt_cache_options", "verbosity", "usage", "include_reasoning", "cache_prompt",
		"moderation", "access_programs")
}

// Limits of OpenAI's API of metadata, in characters.
const (
	maxPairs     = 16
	maxPairName  = 64
	maxPairValue = 512
)

// metadata reads a client's texts by names.
func metadata(f *fields) map[string]string {
	o := f.object("metadata")
	if o == nil {
		return nil
	}
	if len(o.order) > maxPairs {
		fail("metadata", "%d pairs, at most %d", len(o.order), maxPairs)
	}
	all := map[string]string{}
	for _, name := range o.order {
		if n := utf8.RuneCountInString(name); n > maxPairName {
			fail("metadata", "a name has %d characters, at most %d", n, maxPairName)
		}
		all[name] = o.needText(name)
		if n := utf8.RuneCountInString(all[name]); n > maxPairValue {
			fail(o.path+name, "%d characters, at most %d", n, maxPairValue)
		}
	}
	return all
}

// messages reads a conversation in OpenAI's words.
func messages(f *fields) (all []karat.Message) {
	list := f.objects("messages", maxMessages)
	if len(list) == 0 {
		fail("messages", "it is missing or empty, want an array of messages")
	}
	names := map[string]string{} // of tools, by the ids of calls
	for _, m := range list {
		all = append(all, message(m, names))
		if m.echo {
			m.hintRest()
		}
		m.done()
	}
	return all
}

func message(m *fields, names map[string]string) karat.Message {
	role, speaker := m.needOneOf("role", "developer", "system", "user", "assistant", "tool", "function"), m.text("name")
	m.hint("id", "cache_control", "copilot_cache_control")
	switch role {
	case "developer", "system":
		return karat.Message{Role: karat.Role(role), Name: speaker, Parts: content(m, "content", true)}
	case "user":
		return karat.Message{Role: karat.RoleUser, Name: speaker, Parts: content(m, "content", true, pictureKinds...)}
	case "assistant":
		return karat.Message{Role: karat.RoleAssistant, Name: speaker, Parts: assistant(m, names)}
	case "function":
		return legacyResult(m, speaker, names)
	case "tool":
		id := calledID(m, "tool_call_id", "no message before has", names)
		name := names[id]
		if speaker != "" && speaker != name {
			fail(m.path+"name", "%q, but the call is of %q", speaker, name)
		}
		m.result = true
		return karat.Message{Role: karat.RoleTool, Parts: []karat.Part{toolResult(id, name,
			content(m, "content", true, pictureKinds...))}}
	}
	return karat.Message{}
}

// content reads a text, or its parts: texts, and parts of further kinds.
func content(m *fields, name string, needed bool, also ...string) (parts []karat.Part) {
	raw := m.values[name]
	if !m.has(name) {
		if m.ignore(name); needed {
			fail(m.path+name, "%s, want a string or an array of parts", kindOf(raw))
		}
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		m.ignore(name)
		return []karat.Part{karat.Text(text)}
	}
	for _, p := range m.objects(name, maxParts) {
		switch p.kind("Content", "", append(also, "text", "input_text", "output_text", "refusal")...) {
		case "refusal":
			parts = append(parts, karat.Text(p.text("refusal")))
		case "image_url", "input_image":
			if m.result && !m.sees {
				parts = append(parts, p.unseen("picture"))
				continue
			}
			parts = append(parts, readPicture(p))
		default:
			parts = append(parts, karat.Text(p.text("text")))
			p.ignore("annotations", "logprobs")
			p.hint("citations")
		}
		if p.hint("cache_control", "prompt_cache_breakpoint"); m.echo {
			p.hintRest()
		}
		p.done()
	}
	return parts
}

// join returns the text of the texts among parts.
func join(parts []karat.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(string(p.(karat.Text)))
	}
	return b.String()
}

// assistant reads the parts of an assistant's message: reasoning, text and calls.
func assistant(m *fields, names map[string]string) (parts []karat.Part) {
	m.echo = true
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if text := m.text(name); text != "" && parts == nil { // some clients send it under both names
			parts = append(parts, karat.Reasoning(text))
		}
	}
	calls := m.has("tool_calls") || m.has("function_call")
	said := content(m, "content", !calls && !m.has("refusal") && len(parts) == 0)
	parts = append(parts, said...)
	if text := m.text("refusal"); text != "" {
		parts = append(parts, karat.Text(text))
	}
	m.lacks("audio", "prefix")
	m.ignore("annotations")
	parts = append(parts, legacyCall(m, names)...)
	for _, c := range m.objects("tool_calls", maxTools) {
		id := c.text("id")
		c.ignore("index")
		kind := cmp.Or(c.oneOf("type", "function", "custom"), "function")
		o := c.needObject(kind)
		if names[id] = o.needText("name"); kind == "custom" {
			parts = append(parts, customCall(o, id, names[id]))
		} else {
			parts = append(parts, toolCall(o, "arguments", id, names[id], o.text("arguments")))
		}
		o.hintRest()
		c.hintRest()
	}
	return parts
}

// calledID returns the id of a result's call; none begins the words about a missing call.
func calledID(m *fields, field, none string, names map[string]string) string {
	id := m.needText(field)
	if _, ok := names[id]; !ok {
		fail(m.path+field, "%s a call of id %q", none, id)
	}
	return id
}

// toolCall returns a call whose arguments, of a field, are a text of JSON. Another text, as a model may have written,
// is an argument itself: a client has no other call to send.
func toolCall(f *fields, field, id, name, arguments string) karat.ToolCall {
	c := karat.ToolCall{ID: id, Name: name}
	if arguments != "" {
		f.hold(f.path+field, []byte(arguments))
		c.Arguments = json.RawMessage(arguments)
		if !json.Valid(c.Arguments) || c.Arguments[0] != '{' && strings.TrimSpace(arguments)[0] != '{' {
			f.hints.add(f.path + field)
			c.Arguments, _ = encode(map[string]string{"arguments": arguments}) // texts have JSON
		}
	}
	return c
}

// tokenText returns a token's text in log-probabilities, and its bytes.
func (m *served) tokenText(id int) (text string, bytes []int) {
	b := m.model.TokenBytes(id)
	bytes = make([]int, len(b))
	for i, c := range b {
		bytes[i] = int(c)
	}
	if utf8.Valid(b) {
		return string(b), bytes
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), bytes
}

// clampLogprob returns a log-probability for JSON, which has no infinity: OpenAI uses -9999 there.
func clampLogprob(x float64) float64 { return max(x, -9999) }

// openAIUsage is how OpenAI's API counts tokens.
type openAIUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Answer struct {
		Reasoning int `json:"reasoning_tokens"`
		Accepted  int `json:"accepted_prediction_tokens"` // of all drafts
		Rejected  int `json:"rejected_prediction_tokens"`
	} `json:"completion_tokens_details"`
}

func (u usage) openAI() *openAIUsage {
	o := &openAIUsage{Prompt: u.prompt, Completion: u.completion, Total: u.prompt + u.completion}
	o.Details.Cached, o.Answer.Reasoning = u.cached, u.reasoning
	for _, c := range u.drafts {
		o.Answer.Accepted, o.Answer.Rejected = o.Answer.Accepted+c.Accepted, o.Answer.Rejected+c.Rejected
	}
	return o
}

// readLimit reads the most tokens of an answer; -1 is no limit but the context.
func readLimit(f *fields, r *request, name string, least int64) {
	if string(f.values[name]) == "-1" {
		least = -1
	}
	integer(f, &r.max, name, least, maxTokens)
}

// likeliest is a token in the place of another.
type likeliest struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

type tokenLogprob struct {
	likeliest
	Top []likeliest `json:"top_logprobs"`
}

func (r *request) logprobsOf(tokens []karat.Token) any {
	if !r.logprobs {
		return nil
	}
	return map[string]any{"content": r.tokenLogprobs(tokens), "refusal": nil}
}

func (r *request) tokenLogprobs(tokens []karat.Token) []tokenLogprob {
	list := []tokenLogprob{}
	for _, t := range tokens {
		text, bytes := r.model.tokenText(t.ID)
		o := tokenLogprob{likeliest{text, clampLogprob(t.Logprob), bytes}, []likeliest{}}
		for _, x := range t.TopLogprobs {
			text, bytes := r.model.tokenText(x.ID)
			o.Top = append(o.Top, likeliest{text, clampLogprob(x.Logprob), bytes})
		}
		list = append(list, o)
	}
	return list
}

// head has the first fields of an answer and of all chunks of a stream.
type head struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
}

func (r *request) head(object string) head {
	return head{r.id, object, r.created, r.asked.tuned.nameOf(r.model), r.asked.tuned.printOf(r.model)}
}

// chunk returns an event of a stream. usage is present at the client's wish: null in all chunks except the last.
func (r *request) chunk(choices any, u *openAIUsage) any {
	h := r.head("chat.completion.chunk")
	if r.turn == nil {
		h.Object = "text_completion"
	}
	if r.reply.usage {
		return struct {
			head
			Choices any          `json:"choices"`
			Usage   *openAIUsage `json:"usage"`
		}{h, choices, u}
	}
	return struct {
		head
		Choices any `json:"choices"`
	}{h, choices}
}

// streamChunks sends see's chunks of events, and the end of OpenAI's streams.
func streamChunks(x *exchange, r *request, see func(e event, send func(choice any))) any {
	s := x.open(false)
	r.reply.sent = true
	send := func(choice any) { s.send("", r.chunk([]any{choice}, nil)) }
	u := r.answer(func(e event) { see(e, send) })
	if r.reply.usage {
		s.send("", r.chunk([]any{}, u.openAI()))
	}
	s.end("[DONE]")
	return nil
}

// maxArgs bounds the variables of a template, in bytes.
const maxArgs = 8 << 10

// templateArgs reads the variables of the chat template: chat_template_kwargs, from vLLM and llama-server.
func templateArgs(f *fields) map[string]any {
	args := map[string]any{}
	if raw := f.values["chat_template_kwargs"]; len(raw) > maxArgs {
		fail("chat_template_kwargs", "%d bytes, at most %d", len(raw), maxArgs)
	}
	o := f.object("chat_template_kwargs")
	if o == nil {
		return args
	}
	for _, name := range o.order {
		if chat.Reserved(name) {
			fail(o.path+name, "the server sets this variable itself")
		}
		var v any
		if raw := o.take(name); raw != nil && json.Unmarshal(raw, &v) == nil {
			args[name] = v
		}
	}
	return args
}

// effort is chat templates' variable for the amount of reasoning.
const effort = "reasoning_effort"

// efforts are the values of reasoning_effort.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh"}

// reasonSwitch is a chat template's variable that switches reasoning, with its values.
type reasonSwitch struct {
	name    string
	on, off any
}

var reasonSwitches = []reasonSwitch{{"enable_thinking", true, false}, {"thinking", true, false},
	{"thinking_mode", "enabled", "disabled"}, {effort, "high", "no_think"}}

// learnReasoning finds the variable of the chat template that switches reasoning: the variable with an effect. It also
// finds the amounts of reasoning that the template takes.
func (m *served) learnReasoning(ctx context.Context) {
	prompt := func(name string, value any) (text string, ok bool) {
		word, is := value.(string)
		if m.reads(name) && (!is || name == effort || m.reads(word)) {
			args := map[string]any{name: value}
			text, err := m.model.Render(ctx, []karat.Message{karat.TextMessage(karat.RoleUser, "Hello.")},
				karat.GenerateOptions{TemplateArgs: args})
			return text, err == nil
		}
		return "", false
	}
	m.think = reasonSwitches[0]
	for _, s := range reasonSwitches {
		off, ok := prompt(s.name, s.off)
		if on, also := prompt(s.name, s.on); ok && also && on != off && (s.name != effort || m.reads("no_think")) {
			m.think = s
			break
		}
	}
	for i, level := range efforts {
		if _, ok := prompt(effort, level); ok {
			m.levels = append(m.levels, i)
		}
	}
}

// setEffort sets the amount of reasoning, to the nearest amount that the template takes, and reports whether there is
// one. No reasoning is no amount.
func (m *served) setEffort(c *conversation, level string) bool {
	want := slices.Index(efforts, level)
	for far := range efforts {
		for _, i := range []int{want + far, want - far} {
			if slices.Contains(m.levels, i) && (i == 0) == (want == 0) {
				return m.set(c, effort, efforts[i])
			}
		}
	}
	return false
}

// setThink sets the switch of reasoning, and reports whether the template has one.
func (m *served) setThink(c *conversation, on bool) bool {
	if on {
		return m.set(c, m.think.name, m.think.on)
	}
	return m.set(c, m.think.name, m.think.off)
}

// reason reads the amount of reasoning, if a field has one of efforts. For a template with only a switch, every level
// except none switches it on. A level without a place in the template is a hint.
func (m *served) reason(f *fields, name string, c *conversation) {
	level := f.oneOf(name, append(efforts, "max")...)
	if level == "" {
		return
	}
	if c.level != "" && c.level != level {
		fail(f.path+name, "%s, and another field of the request says %s", level, c.level)
	}
	c.level = level
	if level != "none" && c.reasons[false] != "" { // a client's usual level beside a switch
		f.hints.add(f.path + name)
		return
	}
	c.wants(f.path+name, level != "none")
	if level == "max" {
		level = efforts[len(efforts)-1]
	}
	levels, switches := m.setEffort(c, level), m.setThink(c, level != "none")
	switch {
	case levels || switches:
	case level == "none":
		m.switchReason(f, f.path+name, false, c)
	default:
		f.hints.add(f.path + name)
	}
}

// wants notes that a field switches reasoning on or off. No other field may say the opposite.
func (c *conversation) wants(param string, on bool) {
	if other := c.reasons[!on]; other != "" {
		fail(param, "it switches reasoning %s, and %s says the opposite", map[bool]string{true: "on", false: "off"}[on],
			other)
	}
	if c.reasons == nil {
		c.reasons = map[bool]string{}
	}
	c.reasons[on] = param
}

// reasonOther reads the fields that clients of other services send in place of reasoning_effort: reasoning
// (OpenRouter), thinking (Z.ai, DeepSeek, Moonshot), and enable_thinking (DashScope).
func (m *served) reasonOther(f *fields, c *conversation) {
	on := func(o *fields, name string, yes bool) {
		c.wants(o.path+name, yes)
		if yes && m.syntax.Open == "" {
			o.hints.add(o.path + name)
			return
		}
		m.switchReason(o, o.path+name, yes, c)
	}
	boolean := func(o *fields, name string) {
		if !o.has(name) {
			o.take(name) // a null
			return
		}
		on(o, name, o.boolean(name, false))
	}
	if o := f.object("reasoning"); o != nil {
		boolean(o, "enabled")
		m.reason(o, "effort", c)
		if m.syntax.Open == "" {
			o.hint("max_tokens")
		}
		m.budget(o, "max_tokens", 0, maxTokens, c)
		o.hintRest()
	}
	if o := f.object("thinking"); o != nil {
		switch o.needOneOf("type", "enabled", "disabled", "adaptive", "auto") {
		case "enabled":
			on(o, "type", true)
		case "disabled":
			on(o, "type", false)
		}
		o.hintRest()
	}
	boolean(f, "enable_thinking")
}

// switchReason switches the answer's reasoning on or off. A model with only the wanted behaviour needs no switch. For a
// chat template without a switch, the budget of reasoning is 0.
func (m *served) switchReason(f *fields, param string, on bool, c *conversation) {
	reasons := m.syntax.Open != ""
	switch {
	case m.setThink(c, on) || on == reasons:
	case on:
		throw(unsupported(param, "This model does not reason"))
	default:
		c.budget = new(int)
	}
}

// budget reads the maximum tokens of reasoning in an answer. Of two budgets the smaller holds.
func (m *served) budget(f *fields, name string, least, most int64, c *conversation) {
	tokens := 0
	if !integer(f, &tokens, name, least, most) {
		return
	}
	if m.syntax.Open == "" {
		throw(unsupported(f.path+name, "This model does not reason"))
	}
	if c.budget == nil || tokens < *c.budget {
		c.budget = &tokens
	}
}

// set sets a variable of the chat template, and reports whether the template reads the variable.
func (m *served) set(c *conversation, variable string, value any) bool {
	if !m.reads(variable) {
		return false
	}
	if _, given := c.args[variable]; !given { // chat_template_kwargs is the nearer word
		c.args[variable] = value
	}
	return true
}

// reads reports whether the chat template has a word.
func (m *served) reads(word string) bool { return strings.Contains(m.info.Template, word) }
