package server

import (
	"context"
	"net/http"
	"strings"
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
	post("/api/embed", ollama{}, (*exchange).ollamaEmbed)
	post("/api/embeddings", ollama{}, (*exchange).ollamaEmbedding)
	post("/v1/embeddings", openAI{}, (*exchange).embeddings)
	for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"} {
		post(path, openAI{}, (*exchange).rerank)
	}
}

// voiceOf is how the API of a path says what is wrong.
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
	if p != nil {
		return nil, p
	}
	return parse(body)
}

// named is the model that a request asks for by its field "model".
func (x *exchange) named(f *fields) (*served, *problem) {
	name := f.needText("model")
	if *f.err != nil {
		return nil, *f.err
	}
	x.model = name[:min(len(name), 128)]
	m := x.s.find(name)
	if m == nil {
		return nil, noModel(name)
	}
	return m, nil
}

// only is the model that a request names, or the first where it names none: for routes whose API has no such field.
func (x *exchange) only(f *fields) (*served, *problem) {
	if !f.has("model") {
		f.ignore("model")
		return x.s.models[0], nil
	}
	return x.named(f)
}

// open begins a stream, and the context that ends when its client does.
func (x *exchange) open(lines bool) *stream {
	ctx, cancel := context.WithCancelCause(x.ctx)
	x.ctx = ctx
	x.stream = &stream{w: x.w, lines: lines, cancel: cancel, limit: writeLimit}
	return x.stream
}

func (x *exchange) reply(v any) *problem {
	writeJSON(x.w, http.StatusOK, v)
	return nil
}

// modelObject is a model as OpenAI's API lists it.
type modelObject struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	OwnedBy     string   `json:"owned_by"`
	Aliases     []string `json:"aliases,omitempty"`
	MaxModelLen int      `json:"max_model_len"`
	Fingerprint string   `json:"system_fingerprint"`
}

func (m *served) object() modelObject {
	return modelObject{m.name, "model", m.since, "karat", m.aliases, m.room, m.print}
}

func (x *exchange) listModels() *problem {
	list := []modelObject{}
	for _, m := range x.s.models {
		list = append(list, m.object())
	}
	return x.reply(map[string]any{"object": "list", "data": list})
}

func (x *exchange) showModel() *problem {
	id := strings.TrimSuffix(x.r.PathValue("id"), "/")
	m := x.s.find(id)
	if m == nil {
		return noModel(id)
	}
	return x.reply(m.object())
}
