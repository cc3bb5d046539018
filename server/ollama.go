package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
)

// ollama is the voice of Ollama's API.
type ollama struct{}

func (ollama) problem(p *problem) any { return map[string]string{"error": p.message} }

func (o ollama) broken(p *problem) (string, any) { return "", o.problem(p) }

// ollamaTags is GET /api/tags: all models, loaded or not.
func (x *exchange) ollamaTags() *problem {
	list := []any{}
	for _, m := range x.states() {
		list = append(list, x.ollamaObject(m))
	}
	return x.reply(map[string]any{"models": list})
}

func (x *exchange) ollamaObject(m state) map[string]any {
	d := ollamaDetails{Families: []string{}}
	o := map[string]any{"name": m.Name, "model": m.Name, "size": m.Bytes, "digest": m.digest(), "details": &d}
	changed := m.Changed
	if changed.IsZero() {
		changed = time.Unix(x.s.since, 0)
	}
	o["modified_at"] = changed.UTC().Format(time.RFC3339)
	if m.now != nil {
		i := m.now.info
		o["size"] = i.Bytes
		d = ollamaDetails{Format: strings.ToLower(i.Format), Family: i.Architecture, Families: []string{i.Architecture}, Parameters: shortCount(i.Parameters), Quantization: i.Type}
	}
	return o
}

// ollamaDetails are facts of a model, empty where it is not loaded.
type ollamaDetails struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Parameters   string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

// digest names the model and the state of its files, loaded or not: another time or size of them is another digest.
func (m *state) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d", m.Name, m.Bytes, m.Changed.UnixNano()))
	return hex.EncodeToString(sum[:])
}

// shortCount is a number for people, as 596M or 7.6B.
func shortCount(n int64) string {
	switch x := float64(n); {
	case n >= 1e9:
		return fmt.Sprintf("%.1fB", x/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0fM", x/1e6)
	default:
		return fmt.Sprintf("%.0fK", x/1e3)
	}
}

// never is when a model goes that stays.
const never = "9999-12-31T23:59:59Z"

// ollamaRunning is GET /api/ps: the models that are loaded, and until when they stay if nobody asks for them.
func (x *exchange) ollamaRunning() *problem {
	list := []any{}
	for _, m := range x.states() {
		if m.now == nil {
			continue
		}
		o := x.ollamaObject(m)
		delete(o, "modified_at")
		takes := m.now.info.Bytes + m.now.model.Stats().KVUsed // weights, and the keys and values that there are now
		o["size"], o["size_vram"], o["context_length"], o["expires_at"] = takes, int64(0), m.now.room, never
		if m.Device != "" {
			o["size_vram"] = takes
		}
		if !m.expires.IsZero() {
			o["expires_at"] = m.expires.UTC().Format(time.RFC3339)
		}
		list = append(list, o)
	}
	return x.reply(map[string]any{"models": list})
}

func (x *exchange) ollamaVersion() *problem {
	return x.reply(map[string]string{"version": karat.Version()})
}

// ollamaShow is POST /api/show.
func (x *exchange) ollamaShow() *problem {
	f, p := x.body()
	if p != nil {
		return p
	}
	if f.has("name") && !f.has("model") {
		f.values["model"] = f.take("name")
	}
	m, p := x.ollamaModel(f)
	if p != nil {
		return p
	}
	f.ignore("verbose", "name")
	if f.done(); *f.err != nil {
		return *f.err
	}
	able := []string{"completion"}
	if len(m.syntax.Calls) > 0 || m.syntax.Bare {
		able = append(able, "tools")
	}
	if m.syntax.Open != "" {
		able = append(able, "thinking")
	}
	o := x.ollamaObject(state{entry: x.s.pool.find(m.name), now: m})
	return x.reply(map[string]any{"details": o["details"], "modified_at": o["modified_at"], "template": m.info.Template, "capabilities": able,
		"model_info": map[string]any{"general.architecture": m.info.Architecture, m.info.Architecture + ".context_length": m.room}})
}

// ollamaModel is the model of a name, which may end in :latest.
func (x *exchange) ollamaModel(f *fields) (*served, *problem) {
	if name, ok := as[string](f.values["model"]); ok && x.s.pool.find(name) == nil {
		if short, ok := strings.CutSuffix(name, ":latest"); ok {
			f.values["model"], _ = json.Marshal(short) // a string has JSON
		}
	}
	return x.named(f)
}

// ollamaChat is POST /api/chat, ollamaGenerate POST /api/generate.
func (x *exchange) ollamaChat() *problem     { return x.ollamaAnswer(true) }
func (x *exchange) ollamaGenerate() *problem { return x.ollamaAnswer(false) }

func (x *exchange) ollamaAnswer(chat bool) *problem {
	began := time.Now()
	r, p := x.ollamaRequest(chat)
	if p != nil {
		return p
	}
	if r.prompts == nil {
		return x.reply(r.ollamaLoaded(x, chat))
	}
	var text, thinking strings.Builder
	var calls []any
	finish := ""
	s := x.open(true)
	u, p := x.s.answer(x.ctx, r, func(e event) {
		var called []any
		if e.call != nil {
			called = []any{map[string]any{"function": map[string]any{"name": e.call.name, "arguments": json.RawMessage(e.call.arguments)}}}
		}
		if finish = e.finish; finish == finishCalls {
			finish = finishStop
		}
		if r.stream && (e.text != "" || e.reasoning != "" || called != nil) {
			s.send("", r.ollamaPiece(chat, e.text, e.reasoning, called))
		}
		text.WriteString(e.text)
		thinking.WriteString(e.reasoning)
		calls = append(calls, called...)
	})
	if p != nil {
		return p
	}
	last := r.ollamaPiece(chat, "", "", nil)
	if !r.stream {
		last = r.ollamaPiece(chat, text.String(), thinking.String(), calls)
	}
	last["done"], last["done_reason"], last["total_duration"] = true, finish, time.Since(began).Nanoseconds()
	last["prompt_eval_count"], last["eval_count"] = u.prompt, u.completion
	if !r.stream {
		return x.reply(last)
	}
	s.send("", last)
	return nil
}

// ollamaLoaded answers a request without a prompt, which loads the model, or with keep_alive 0 has it closed.
func (r *request) ollamaLoaded(x *exchange, chat bool) map[string]any {
	o := r.ollamaPiece(chat, "", "", nil)
	o["done"], o["done_reason"] = true, "load"
	for _, m := range x.states() {
		if m.now == r.model && m.keep == 0 && m.Load != nil {
			o["done_reason"] = "unload"
		}
	}
	return o
}

// ollamaPiece is a line of an answer.
func (r *request) ollamaPiece(chat bool, text, thinking string, calls []any) map[string]any {
	o := map[string]any{"model": r.model.name, "created_at": time.Now().UTC().Format(time.RFC3339Nano), "done": false}
	to, name := o, "response"
	if chat {
		to, name = map[string]any{"role": "assistant"}, "content"
		o["message"] = to
	}
	to[name] = text
	if thinking != "" {
		to["thinking"] = thinking
	}
	if calls != nil {
		to["tool_calls"] = calls
	}
	return o
}

func (x *exchange) ollamaRequest(chat bool) (*request, *problem) {
	f, m, p := x.asked(x.ollamaModel)
	if p != nil {
		return nil, p
	}
	r := x.newRequest(m)
	r.stream, r.form = f.boolean("stream", true), ollamaFormat(f)
	x.ollamaCommon(f, m)
	r.ollamaOptions(f)
	c := conversation{args: map[string]any{}}
	m.ollamaThink(f, &c)
	prompt, raw := "", false
	if name := map[bool]string{true: "messages", false: "prompt"}[chat]; !f.has(name) || slices.Contains([]string{`""`, "[]"}, string(f.values[name])) {
		f.ignore(name, "system", "template", "raw", "tools", "suffix", "images", "context")
		f.done()
		return r, *f.err
	}
	if chat {
		c.messages = ollamaMessages(f)
		chatTools(f, &c, "function")
	} else {
		prompt, raw = f.text("prompt"), f.boolean("raw", false)
		for _, name := range []string{"suffix", "template", "context", "images"} {
			if v := f.take(name); v != nil && string(v) != `""` && string(v) != "[]" {
				f.reject(refused(name, name))
			}
		}
		if system := f.text("system"); system != "" {
			c.messages = append(c.messages, karat.TextMessage(karat.RoleSystem, system))
			c.placed("system")
		}
		c.messages = append(c.messages, karat.TextMessage(karat.RoleUser, prompt))
		c.placed("prompt")
	}
	if f.done(); *f.err != nil {
		return nil, *f.err
	}
	if raw {
		r.param = "prompt"
		ids, p := x.tokens(m, r.param, prompt)
		if p != nil {
			return nil, p
		}
		r.prompts, r.texts = [][]int{ids}, []string{prompt}
		return r, r.constrainText(x.ctx)
	}
	param := "prompt"
	if chat {
		param = "messages"
	}
	return r, r.converse(x.ctx, &c, param)
}

// ollamaThink reads whether the answer is to begin with reasoning, or how much it is to reason.
func (m *served) ollamaThink(f *fields, c *conversation) {
	if !f.has("think") {
		f.take("think") // a null
		return
	}
	if level, ok := as[string](f.values["think"]); ok {
		if level != "none" && slices.Contains(efforts, level) {
			m.switchReason(f, "think", true, c)
		}
		m.reason(f, "think", c)
		return
	}
	on := false
	f.decode("think", "a boolean or a level", &on)
	m.switchReason(f, "think", on, c)
}

// ollamaCommon reads what all requests may have that load a model.
func (x *exchange) ollamaCommon(f *fields, m *served) {
	raw := f.take("keep_alive")
	if raw == nil {
		return
	}
	keep, ok := keepAlive(raw)
	if !ok {
		f.fail("keep_alive", "%s, want seconds, or a time as \"5m\"; below 0 is for ever", kindOf(raw))
		return
	}
	x.s.pool.stay(x.s.pool.find(m.name), x.who.name, keep)
}

// keepAlive reads seconds, or a time as "5m".
func keepAlive(raw json.RawMessage) (time.Duration, bool) {
	if text, ok := as[string](raw); ok {
		if d, err := time.ParseDuration(text); err == nil {
			return d, true
		}
		raw = json.RawMessage(text)
	}
	n, ok := as[float64](raw)
	if !ok || math.Abs(n) > 1e9 { // some thirty years
		return -1, ok && n < 0
	}
	return time.Duration(n * float64(time.Second)), true
}

// ollamaOptions reads the options of a request. Options that set up a model change nothing, since it is loaded by the server's own
// settings; a num_ctx beyond the context is refused.
func (r *request) ollamaOptions(f *fields) {
	o := f.object("options")
	if o == nil {
		return
	}
	s := &r.sampling
	set := func(to *float64, name string, least, most float64) {
		if v := o.number(name, least, most); v != nil {
			*to = *v
		}
	}
	r.heat(o, 2)
	set(&s.MinP, "min_p", 0, 1)
	set(&s.RepeatPenalty, "repeat_penalty", 0.01, 100)
	set(&s.PresencePenalty, "presence_penalty", -2, 2)
	set(&s.FrequencyPenalty, "frequency_penalty", -2, 2)
	if v := o.integer("top_k", 0, 1<<20); v != nil {
		s.TopK = int(*v)
	}
	if v := o.integer("repeat_last_n", -1, 1<<20); v != nil {
		s.RepeatLast = int(*v)
	}
	if v := o.integer("seed", math.MinInt64, math.MaxInt64); v != nil {
		s.Seed = new(uint64(*v))
	}
	if v := o.integer("num_predict", -2, maxTokens); v != nil && *v >= 0 {
		r.max = int(*v)
	}
	if v := o.integer("num_ctx", 1, maxTokens); v != nil && int(*v) > r.model.room {
		o.fail(o.path+"num_ctx", "%d: the model was loaded with a context of %d tokens", *v, r.model.room)
	}
	r.stop = o.texts("stop", maxStops)
	o.ignore("num_keep", "num_batch", "num_thread", "num_gpu", "main_gpu", "low_vram", "numa", "use_mmap", "use_mlock", "f16_kv", "logits_all", "mirostat_tau", "mirostat_eta")
	for _, x := range ollamaOff {
		if v := o.take(x.name); v != nil && !x.off(v) {
			o.reject(refused(o.path+x.name, x.name))
		}
	}
	o.done()
}

// ollamaOff are options of Ollama that this server has only switched off. Clients send them so.
var ollamaOff = []struct {
	name string
	off  func(json.RawMessage) bool
}{
	{"mirostat", is("0")}, {"typical_p", is("1")}, {"tfs_z", is("1")}, {"penalize_newline", is("true")}, {"vocab_only", is("false")}, {"embedding_only", is("false")},
}

// is finds a value, however its number is written.
func is(want string) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		n, ok := whole(raw)
		return ok && strconv.FormatInt(n, 10) == want || string(raw) == want
	}
}

// ollamaMessages reads a conversation, whose calls have objects as arguments and no ids.
func ollamaMessages(f *fields) (all []karat.Message) {
	for _, m := range f.objects("messages", maxMessages) {
		role := m.needOne("role", "system", "user", "assistant", "tool")
		text := m.text("content")
		if v := m.take("images"); v != nil && string(v) != "[]" {
			m.reject(refused(m.path+"images", "images"))
		}
		if role == "tool" {
			name := m.text("tool_name")
			all = append(all, karat.Message{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{Name: name, Content: text}}})
			m.done()
			continue
		}
		var parts []karat.Part
		if thinking := m.text("thinking"); thinking != "" {
			parts = append(parts, karat.Reasoning(thinking))
		}
		if text != "" || role != "assistant" {
			parts = append(parts, karat.Text(text))
		}
		for _, c := range m.objects("tool_calls", maxTools) {
			c.ignore("id", "type")
			if o := c.object("function"); o != nil {
				o.ignore("index")
				parts = append(parts, toolCall(c, "", o.needText("name"), string(o.take("arguments"))))
				o.done()
			}
			c.done()
		}
		all = append(all, karat.Message{Role: karat.Role(role), Parts: parts})
		m.done()
	}
	if len(all) == 0 {
		f.fail("messages", "it is missing or empty, want an array of messages")
	}
	return all
}
