package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/karat-run/karat"
)

// ollama is the voice of Ollama's API.
type ollama struct{}

func (ollama) problem(p *problem) any { return map[string]string{"error": p.message} }

func (o ollama) streamProblem(p *problem) (string, any) { return "", o.problem(p) }

// chatOllama answers POST /api/chat, generateOllama POST /api/generate.
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
	o := map[string]any{"model": r.asked.tuned.nameOf(r.model),
		"created_at": time.Now().UTC().Format(time.RFC3339Nano), "done": false}
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

// listOllama answers GET /api/tags: all models, loaded or not.
func listOllama(x *exchange) any {
	list := []any{}
	for _, m := range x.states() {
		list = append(list, ollamaObject(x, m))
	}
	return map[string]any{"models": list}
}

func ollamaObject(x *exchange, m state) map[string]any {
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
		d = ollamaDetails{Format: strings.ToLower(i.Format), Family: i.Architecture, Families: []string{i.Architecture},
			Parameters: shortCount(i.Parameters), Quantization: i.Type}
	}
	return o
}

// ollamaDetails are facts of a model, empty for a model not loaded.
type ollamaDetails struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Parameters   string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

// digest names the model and the state of its files, loaded or not: files of another time or size have another digest.
func (m *state) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d", m.Name, m.Bytes, m.Changed.UnixNano()))
	return hex.EncodeToString(sum[:])
}

// shortCount returns a number for people, as 596M or 7.6B.
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

// never is the expiry of a model without an end.
const never = "9999-12-31T23:59:59Z"

// listRunning answers GET /api/ps: the loaded models, and their end without further requests.
func listRunning(x *exchange) any {
	list := []any{}
	for _, m := range x.states() {
		if m.now == nil {
			continue
		}
		o := ollamaObject(x, m)
		delete(o, "modified_at")
		takes := m.now.info.Bytes + m.now.model.Stats().KVUsed // weights, and the keys and values present
		o["size"], o["size_vram"], o["context_length"], o["expires_at"] = takes, int64(0), m.now.room, never
		if m.Device != "" {
			o["size_vram"] = takes
		}
		if !m.expires.IsZero() {
			o["expires_at"] = m.expires.UTC().Format(time.RFC3339)
		}
		list = append(list, o)
	}
	return map[string]any{"models": list}
}

// ollamaAPI is the version of Ollama whose API the routes follow: clients refuse servers of older ones.
const ollamaAPI = "0.17.4"

// showVersion answers GET /api/version.
func showVersion(x *exchange) any {
	return map[string]string{"version": ollamaAPI, "karat": karat.Version()}
}

// showOllama answers POST /api/show.
func showOllama(x *exchange) any {
	f := x.body()
	if f.has("name") && !f.has("model") {
		f.values["model"] = f.take("name")
	}
	m := x.ollamaModel(f)
	f.ignore("name")
	f.hintRest()
	o := ollamaObject(x, state{entry: x.s.pool.find(m.name), now: m})
	about := map[string]any{"general.architecture": m.info.Architecture, "general.basename": m.name,
		"general.parameter_count": m.info.Parameters, m.info.Architecture + ".context_length": m.room}
	if n, err := m.model.EmbedSize(x.ctx, karat.EmbedOptions{Pooling: karat.PoolMean}); err == nil {
		about[m.info.Architecture+".embedding_length"] = n
	}
	return map[string]any{"details": o["details"], "modified_at": o["modified_at"], "template": m.info.Template,
		"capabilities": ollamaAbilities(x, m), "model_info": about}
}

// ollamaAbilities returns the abilities of a model.
func ollamaAbilities(x *exchange, m *served) (able []string) {
	if !m.info.Encoder {
		able = append(able, "completion")
		if (len(m.syntax.Calls) > 0 || m.syntax.Bare) && !(m.syntax.General && x.s.o.NoToolFallback) {
			able = append(able, "tools")
		}
		if m.syntax.Open != "" {
			able = append(able, "thinking")
		}
	}
	if m.model.Sees() {
		able = append(able, "vision")
	}
	if _, err := m.model.EmbedSize(x.ctx, karat.EmbedOptions{}); err == nil {
		able = append(able, "embedding")
	}
	return able
}

// ollamaLacks are the routes of Ollama's API for changing models, with a command to type instead.
var ollamaLacks = []struct{ pattern, instead string }{
	{"POST /api/pull", "Karat pulls models on the command line. Type: karat pull %s. Then start the server with the " +
		"name that it prints"},
	{"POST /api/push", "Karat pushes no models. To send %s elsewhere, copy its file: karat list names it"},
	{"POST /api/create", "Karat makes models on the command line: karat convert, karat quantize and karat edit"},
	{"POST /api/copy", "Karat gives a model another name at its start. Type: karat serve --alias NAME=%s"},
	{"DELETE /api/delete", "Karat removes models on the command line. Type: karat rm %s"},
	{"POST /api/blobs/{digest}", "Karat takes no files over HTTP: karat serve FILE serves one"},
}

// refuseOllama answers a route for changing models. A served model need not be pulled.
func refuseOllama(x *exchange, pattern, instead string) any {
	name := "MODEL"
	var f *fields
	if p := catch(func() { f = x.body() }); p == nil && !strings.Contains(pattern, "blobs") {
		for _, field := range []string{"model", "name", "source"} {
			if text, ok := decodeAs[string](f.values[field]); ok && text != "" {
				name = text[:min(len(text), 128)]
			}
		}
		if e := x.s.pool.find(strings.TrimSuffix(name, ":latest")); strings.HasSuffix(pattern, "/pull") && e != nil &&
			x.who.sees(e) {
			if string(f.values["stream"]) != "false" {
				x.open(true).send("", map[string]string{"status": "success"})
				return nil
			}
			return map[string]string{"status": "success"}
		}
	}
	if strings.HasSuffix(pattern, "/pull") && name != "MODEL" && !strings.Contains(name, "/") {
		name = "oci://registry.ollama.ai/library/" + name
	}
	if strings.Contains(instead, "%s") {
		instead = fmt.Sprintf(instead, name)
	}
	return refuse(http.StatusNotImplemented, "unsupported", "", "%s", instead)
}

// ollamaModel returns the model of a name, even with :latest at its end.
func (x *exchange) ollamaModel(f *fields) *served {
	if name, ok := decodeAs[string](f.values["model"]); ok && x.s.pool.find(name) == nil {
		if short, ok := strings.CutSuffix(name, ":latest"); ok {
			f.values["model"], _ = json.Marshal(short) // a string has JSON
		}
	}
	return x.readModel(f)
}
