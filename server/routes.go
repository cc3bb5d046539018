package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat"
)

// routes registers all that the server answers.
func (s *Server) routes() {
	post := func(pattern string, v voice, handle func(*exchange) *problem) {
		s.handle("POST "+pattern, route{voice: v, handle: handle})
	}
	get := func(pattern string, v voice, handle func(*exchange) *problem) {
		s.handle("GET "+pattern, route{voice: v, handle: handle, while: true})
	}
	get("/health", openAI{}, (*exchange).health)
	get("/ready", openAI{}, (*exchange).ready)
	get("/metrics", openAI{}, (*exchange).metricsText)
	get("/openapi.json", openAI{}, (*exchange).openAPI)
	get("/v1/models", openAI{}, (*exchange).listModels)
	get("/v1/models/{id...}", openAI{}, (*exchange).showModel)
	post("/v1/chat/completions", openAI{}, (*exchange).chat)
	post("/v1/chat/completions/input_tokens", openAI{}, (*exchange).chatTokens)
	post("/v1/completions", openAI{}, (*exchange).completions)
	post("/tokenize", openAI{}, (*exchange).tokenize)
	post("/detokenize", openAI{}, (*exchange).detokenize)
	post("/apply-template", openAI{}, (*exchange).applyTemplate)
	post("/v1/messages", anthropic{}, (*exchange).messages)
	post("/v1/messages/count_tokens", anthropic{}, (*exchange).countTokens)
	post("/v1/responses", openAI{}, (*exchange).responses)
	post("/v1/responses/input_tokens", openAI{}, (*exchange).responseTokens)
	get("/api/tags", ollama{}, (*exchange).ollamaTags)
	get("/api/ps", ollama{}, (*exchange).ollamaRunning)
	get("/api/version", ollama{}, (*exchange).ollamaVersion)
	post("/api/show", ollama{}, (*exchange).ollamaShow)
	post("/api/chat", ollama{}, (*exchange).ollamaChat)
	post("/api/generate", ollama{}, (*exchange).ollamaGenerate)
	for _, r := range ollamaLacks {
		s.handle(r.pattern, route{voice: ollama{}, handle: func(x *exchange) *problem { return x.ollamaLack(r.pattern, r.instead) }})
	}
	post("/api/embed", ollama{}, (*exchange).ollamaEmbed)
	post("/api/embeddings", ollama{}, (*exchange).ollamaEmbedding)
	post("/v1/embeddings", openAI{}, (*exchange).embeddings)
	for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"} {
		post(path, openAI{}, (*exchange).rerank)
	}
	for path, page := range s.o.Pages {
		if path == "/" {
			path = "/{$}"
		}
		get(path, openAI{}, func(x *exchange) *problem {
			x.w.Header().Del("Cache-Control") // the page has its own
			page.ServeHTTP(x.w, x.r)
			return nil
		})
	}
	get("/v1/responses/{id}", openAI{}, (*exchange).showResponse)
	s.handle("DELETE /v1/responses/{id}", route{voice: openAI{}, handle: (*exchange).deleteResponse})
	s.storeRoutes()
}

// storeRoutes registers the routes of files and batches. Without a store they say so.
func (s *Server) storeRoutes() {
	for _, r := range []struct {
		pattern string
		while   bool
		handle  func(*exchange) *problem
	}{
		{"POST /v1/files", false, (*exchange).upload},
		{"GET /v1/files", true, (*exchange).listFiles},
		{"GET /v1/files/{id}", true, (*exchange).showFile},
		{"GET /v1/files/{id}/content", true, (*exchange).fileContent},
		{"DELETE /v1/files/{id}", false, (*exchange).deleteFile},
		{"POST /v1/batches", false, (*exchange).createBatch},
		{"GET /v1/batches", true, (*exchange).listBatches},
		{"GET /v1/batches/{id}", true, (*exchange).showBatch},
		{"DELETE /v1/batches/{id}", false, (*exchange).deleteBatch},
		{"POST /v1/batches/{id}/cancel", false, (*exchange).cancelBatch},
	} {
		if s.store == nil {
			r.handle = (*exchange).noStore
		}
		s.handle(r.pattern, route{voice: openAI{}, handle: r.handle, while: r.while})
	}
}

// noStore answers the routes of files and batches where the server keeps none.
func (x *exchange) noStore() *problem {
	return notStored("This server keeps no files and batches: it was started without --store FOLDER")
}

// voiceOf is how the API of a path writes errors.
func (s *Server) voiceOf(path string) voice {
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		return anthropic{}
	case strings.HasPrefix(path, "/api/"):
		return ollama{}
	}
	return openAI{}
}

// body reads a request's JSON.
func (x *exchange) body() (*fields, *problem) {
	body, p := x.readBody()
	if p == nil && x.placed { // not before, since a body may come slowly
		done, full := x.s.enter(x.who, 1, 0)
		if full == nil {
			x.after = append(x.after, done)
		}
		p = full
	}
	if p != nil {
		return nil, p
	}
	f, p := parse(body)
	if f != nil {
		x.hints.header, f.hints = x.w.Header(), &x.hints
	}
	return f, p
}

// asked is a request's JSON, and the model that find finds in it.
func (x *exchange) asked(find func(*fields) (*served, *problem)) (*fields, *served, *problem) {
	f, p := x.body()
	if p != nil {
		return nil, nil, p
	}
	m, p := find(f)
	return f, m, p
}

// named is the model that a request asks for by its field "model". Where the caller sees one model alone, that is it without the field.
func (x *exchange) named(f *fields) (*served, *problem) {
	if !f.has("model") || string(f.values["model"]) == `""` {
		f.ignore("model")
		all := x.states()
		if len(all) != 1 {
			return nil, bad("model", "Missing required parameter: 'model'. GET /v1/models lists the %d models of this server", len(all))
		}
		x.model = all[0].Name
		return x.use(all[0].entry)
	}
	name := f.text("model")
	if *f.err != nil {
		return nil, *f.err
	}
	x.model = name[:min(len(name), 128)]
	e := x.s.pool.find(name)
	if e == nil || !x.who.sees(e) {
		return nil, noModel(name)
	}
	return x.use(e)
}

// use is a model that stays loaded until the request ends.
func (x *exchange) use(e *entry) (*served, *problem) {
	began := time.Now()
	m, err := x.s.pool.take(x.ctx, e, x.who.name)
	x.loading = time.Since(began)
	name := cmp.Or(x.model, e.Name) // as the client has it
	switch {
	case err == nil:
		x.after = append(x.after, func() { x.s.pool.give(e) })
		return m, nil
	case errors.Is(err, errBusy):
		return nil, unavailable(fmt.Sprintf("The model %q is not loaded: %v", name, err))
	case errors.Is(err, karat.ErrMemory):
		return nil, internal(fmt.Sprintf("The model %q does not fit the memory of this server", name))
	case x.ctx.Err() != nil || errors.Is(err, karat.ErrClosed) || errors.Is(err, context.Canceled):
		return nil, x.s.explain(x.ctx, karat.ErrClosed)
	}
	return nil, internal(fmt.Sprintf("The model %q could not be loaded; the server's log says why", name))
}

// only is the model that a request names, or the first where it names none: for routes whose API has no such field.
func (x *exchange) only(f *fields) (*served, *problem) {
	if !f.has("model") {
		f.ignore("model")
		e := x.s.pool.list[0]
		if !x.who.sees(e) {
			p := noModel("")
			p.message = "The request names no model, and the key does not see the server's first one. GET /v1/models lists the models that it sees."
			return nil, p
		}
		return x.use(e)
	}
	return x.named(f)
}

// open begins a stream, and the context that ends when its client does.
func (x *exchange) open(lines bool) *stream {
	ctx, cancel := context.WithCancelCause(x.ctx)
	x.ctx = ctx
	x.stream = &stream{w: x.w, lines: lines, cancel: cancel, limit: writeLimit, left: waitedLimit, now: time.Now}
	return x.stream
}

func (x *exchange) reply(v any) *problem {
	writeJSON(x.w, http.StatusOK, v)
	return nil
}

// replyLarge is reply of what may be much larger than the request. It counts among the bodies while a client reads it.
func (x *exchange) replyLarge(v any) *problem {
	body, err := encode(v)
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	room := &held{s: x.s, who: x.who.name}
	if !room.grow(int64(len(body))) {
		return full("The answers that are being sent are too large together")
	}
	defer room.end()
	return x.reply(json.RawMessage(body))
}

// modelObject is a model as OpenAI's API lists it. What only a loaded model tells is left out of the others.
type modelObject struct {
	ID          string   `json:"id"`
	Root        string   `json:"root,omitempty"` // of an alias, the model's name
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	OwnedBy     string   `json:"owned_by"`
	Aliases     []string `json:"aliases,omitempty"`
	Loaded      bool     `json:"loaded"`
	MaxModelLen int      `json:"max_model_len,omitempty"`
	Fingerprint string   `json:"system_fingerprint,omitempty"`
}

// modelObject is a model by one of its names.
func (x *exchange) modelObject(m state, name string) modelObject {
	o := modelObject{ID: name, Object: "model", Created: x.s.since, OwnedBy: "karat", Aliases: m.Aliases}
	if name != m.Name {
		o.Root, o.Aliases = m.Name, nil
	}
	if !m.Changed.IsZero() {
		o.Created = m.Changed.Unix()
	}
	if m.now != nil {
		o.Loaded, o.MaxModelLen, o.Fingerprint = true, m.now.room, m.now.print
	}
	return o
}

// states are the models that the caller may see.
func (x *exchange) states() []state {
	return slices.DeleteFunc(x.s.pool.states(), func(m state) bool { return !x.who.sees(m.entry) })
}

func (x *exchange) listModels() *problem {
	list := []modelObject{}
	for _, m := range x.states() {
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			list = append(list, x.modelObject(m, name))
		}
	}
	if x.isAnthropic() {
		return x.anthropicModels(list)
	}
	return x.reply(map[string]any{"object": "list", "data": list})
}

func (x *exchange) showModel() *problem {
	id := strings.TrimSuffix(x.r.PathValue("id"), "/")
	e := x.s.pool.find(id)
	for _, m := range x.states() {
		if m.entry == e {
			if o := x.modelObject(m, id); x.isAnthropic() {
				return x.reply(o.anthropic())
			} else {
				return x.reply(o)
			}
		}
	}
	return noModel(id)
}
