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
	post := func(pattern string, v voice, handle func(*exchange) any) {
		s.handle("POST "+pattern, route{voice: v, handle: handle})
	}
	get := func(pattern string, v voice, handle func(*exchange) any) {
		s.handle("GET "+pattern, route{voice: v, handle: handle, while: true})
	}
	get("/health", openAI{}, showHealth)
	get("/ready", openAI{}, showReady)
	get("/metrics", openAI{}, showMetrics)
	get("/openapi.json", openAI{}, showOpenAPI)
	get("/v1/models", openAI{}, listModels)
	get("/v1/models/{id...}", openAI{}, showModel)
	post("/v1/chat/completions", openAI{}, completeChat)
	post("/v1/chat/completions/input_tokens", openAI{}, countChat)
	post("/v1/completions", openAI{}, completeText)
	post("/tokenize", openAI{}, tokenize)
	post("/detokenize", openAI{}, detokenize)
	post("/apply-template", openAI{}, applyTemplate)
	post("/v1/messages", anthropic{}, answerMessages)
	post("/v1/messages/count_tokens", anthropic{}, countMessages)
	post("/v1/responses", openAI{}, respond)
	post("/v1/responses/input_tokens", openAI{}, countResponse)
	get("/api/tags", ollama{}, listOllama)
	get("/api/ps", ollama{}, listRunning)
	get("/api/version", ollama{}, showVersion)
	post("/api/show", ollama{}, showOllama)
	post("/api/chat", ollama{}, chatOllama)
	post("/api/generate", ollama{}, generateOllama)
	for _, r := range ollamaLacks {
		s.handle(r.pattern, route{voice: ollama{}, handle: func(x *exchange) any {
			return refuseOllama(x, r.pattern, r.instead)
		}})
	}
	post("/api/embed", ollama{}, embedOllama)
	post("/api/embeddings", ollama{}, embedOllamaText)
	post("/v1/embeddings", openAI{}, embedTexts)
	for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"} {
		post(path, openAI{}, rerank)
	}
	for path, page := range s.o.Pages {
		if path == "/" {
			path = "/{$}"
		}
		get(path, openAI{}, func(x *exchange) any {
			x.w.Header().Del("Cache-Control") // the page has its own
			page.ServeHTTP(x.w, x.r)
			return nil
		})
	}
	get("/v1/responses/{id}", openAI{}, showResponse)
	s.handle("DELETE /v1/responses/{id}", route{voice: openAI{}, handle: deleteResponse})
	s.storeRoutes()
}

// storeRoutes registers the routes of files and batches. Without a store they say so.
func (s *Server) storeRoutes() {
	for _, r := range []struct {
		pattern string
		while   bool
		handle  func(*exchange) any
	}{
		{"POST /v1/files", false, uploadFile},
		{"GET /v1/files", true, listFiles},
		{"GET /v1/files/{id}", true, showFile},
		{"GET /v1/files/{id}/content", true, sendFile},
		{"DELETE /v1/files/{id}", false, deleteFile},
		{"POST /v1/batches", false, createBatch},
		{"GET /v1/batches", true, listBatches},
		{"GET /v1/batches/{id}", true, showBatch},
		{"DELETE /v1/batches/{id}", false, deleteBatch},
		{"POST /v1/batches/{id}/cancel", false, cancelBatch},
	} {
		if s.store == nil {
			r.handle = refuseStore
		}
		s.handle(r.pattern, route{voice: openAI{}, handle: r.handle, while: r.while})
	}
}

// refuseStore answers the routes of files and batches where the server keeps none.
func refuseStore(x *exchange) any {
	return notStored("This server keeps no files and batches: it was started without --store FOLDER")
}

// voiceOf returns how the API of a path writes errors.
func (s *Server) voiceOf(path string) voice {
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		return anthropic{}
	case strings.HasPrefix(path, "/api/"):
		return ollama{}
	}
	return openAI{}
}

// body returns a request's JSON.
func (x *exchange) body() *fields {
	body := x.readBody()
	if x.placed { // not before, since a body may come slowly
		x.after = append(x.after, x.s.enter(x.who, 1, 0))
	}
	x.hints.header = x.w.Header()
	return parse(body, &x.hints)
}

// asked returns a request's JSON, and the model that find finds in it.
func (x *exchange) asked(find func(*fields) *served) (*fields, *served) {
	f := x.body()
	return f, find(f)
}

// named returns the model that a request asks for by its field "model". Where the caller sees one model alone, the
// request need not have the field.
func (x *exchange) named(f *fields) *served {
	if !f.has("model") || string(f.values["model"]) == `""` {
		f.ignore("model")
		all := x.states()
		if len(all) != 1 {
			throw(bad("model", "Missing required parameter: 'model'. GET /v1/models lists the %d models of this server",
				len(all)))
		}
		x.model = all[0].Name
		return x.use(all[0].entry)
	}
	name := f.text("model")
	x.model = name[:min(len(name), 128)]
	e := x.s.pool.find(name)
	if e == nil || !x.who.sees(e) {
		throw(noModel(name))
	}
	return x.use(e)
}

// use returns a model that stays loaded until the request ends.
func (x *exchange) use(e *entry) *served {
	began := time.Now()
	m, err := x.s.pool.take(x.ctx, e, x.who.name)
	x.loading = time.Since(began)
	name := cmp.Or(x.model, e.Name) // as the client has it
	switch {
	case err == nil:
		x.after = append(x.after, func() { x.s.pool.give(e) })
	case errors.Is(err, errBusy):
		throw(unavailable(fmt.Sprintf("The model %q is not loaded: %v", name, err)))
	case errors.Is(err, karat.ErrMemory):
		throw(internal(fmt.Sprintf("The model %q does not fit the memory of this server", name)))
	case x.ctx.Err() != nil || errors.Is(err, karat.ErrClosed) || errors.Is(err, context.Canceled):
		throw(x.s.explain(x.ctx, karat.ErrClosed))
	default:
		throw(internal(fmt.Sprintf("The model %q could not be loaded; the server's log says why", name)))
	}
	return m
}

// only returns the model that a request names, or the first where it names none: for routes whose API has no such
// field.
func (x *exchange) only(f *fields) *served {
	if f.has("model") {
		return x.named(f)
	}
	f.ignore("model")
	e := x.s.pool.list[0]
	if !x.who.sees(e) {
		p := noModel("")
		p.message = "The request names no model, and the key does not see the server's first one. " +
			"GET /v1/models lists the models that it sees."
		throw(p)
	}
	return x.use(e)
}

// open begins a stream, and the context that ends when its client does.
func (x *exchange) open(lines bool) *stream {
	ctx, cancel := context.WithCancelCause(x.ctx)
	x.ctx = ctx
	x.stream = &stream{w: x.w, lines: lines, cancel: cancel, limit: writeLimit, left: waitedLimit, now: time.Now}
	return x.stream
}

// replyLarge is reply of what may be much larger than the request. It counts among the bodies while a client reads it.
func (x *exchange) replyLarge(v any) any {
	body, err := encode(v)
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	room := &held{s: x.s, who: x.who.name}
	if !room.grow(int64(len(body))) {
		return full("The answers that are being sent are too large together")
	}
	defer room.end()
	writeJSON(x.w, http.StatusOK, json.RawMessage(body))
	return nil
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

// modelObject returns a model by one of its names.
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

// states returns the models that the caller may see.
func (x *exchange) states() []state {
	return slices.DeleteFunc(x.s.pool.states(), func(m state) bool { return !x.who.sees(m.entry) })
}

func listModels(x *exchange) any {
	list := []modelObject{}
	for _, m := range x.states() {
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			list = append(list, x.modelObject(m, name))
		}
	}
	if x.isAnthropic() {
		return pageModels(x, list)
	}
	return map[string]any{"object": "list", "data": list}
}

func showModel(x *exchange) any {
	id := strings.TrimSuffix(x.r.PathValue("id"), "/")
	e := x.s.pool.find(id)
	for _, m := range x.states() {
		if m.entry == e {
			o := x.modelObject(m, id)
			if x.isAnthropic() {
				return o.anthropic()
			}
			return o
		}
	}
	return noModel(id)
}
