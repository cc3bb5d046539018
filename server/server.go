// Package server serves models over HTTP, to clients of OpenAI's API and of others. Each API is a translation, in a
// file of its own, to a common request inside.
//
//	s, err := server.New(ctx, server.Options{Models: []server.Model{{Name: "demo", Model: m}}})
//	if err != nil { ... }
//	http.ListenAndServe("127.0.0.1:8080", s)
//
// Everything in a request is done, or refused by an error with the field's name. An answer has the same bits alone and
// beside others, streamed or not. docs/serving.md lists the routes.
//
// Files: server.go (Options, routes); the APIs: render.go, openai_chat.go, openai_completions.go, responses.go,
// anthropic.go, embeddings.go, ollama.go, ollama_request.go, models.go, tokens.go, batches.go, store.go; health.go;
// common to the APIs: openai.go, pictures.go, fetch.go, turn.go (conversations), tools.go, metrics.go, request.go (the
// request inside, and its answers); exchange.go (a request on its way), grammar.go; adapters.go, pool.go (models);
// rights and bounds of callers: guard.go, keys.go, body.go; fields.go (JSON of requests), json.go, problem.go.
package server

import (
	"cmp"
	"context"
	"crypto/ed25519"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
	"github.com/karat-run/karat/internal/sysinfo"
)

// Options say what to serve, and to whom. Models is required.
type Options struct {
	Models []Model // the first is the default of routes without names
	// Memory is the maximum bytes of loaded models together in this machine's memory; 0 is the memory free at first.
	Memory int64
	Loaded int      // maximum of models loaded at a time on a device; 0 is any number
	Keys   []Key    // nil needs none
	Hosts  []string // allowed names in the Host header, "*" for all; nil is this machine's loopback
	// Origins are the origins of pages allowed to call the server, as http://localhost:3000, https://*.example.com or
	// "*"; nil is the origins of this machine.
	Origins []string
	// NoToolFallback refuses tools without a place in the chat template. By default a text tells the model about them.
	NoToolFallback bool
	// ImageHosts are the hosts whose pictures are fetched by http and https addresses in requests: HOST, HOST:PORT or
	// *.DOMAIN; nil fetches none. An address that is not public must be listed itself.
	ImageHosts []string
	// AdapterFolders are the folders from which clients may load adapters; nil loads none.
	AdapterFolders []string
	MaxBody        int64              // most bytes of a request; 0 is 32 MiB
	Requests       int                // maximum of answers computed or waiting, else 429; 0 is 256
	ReceiptKey     ed25519.PrivateKey // signs receipts of answers; nil makes none
	Store          string             // folder of files and batches; "" has none
	// Cache is told of coming and going pages of models' KV caches, as by karat.Model.WatchCache; nil is none.
	Cache func(model string, page karat.CachePage)
	Trace func(Span)              // is told of requests and of their parts, by many goroutines; nil is none
	Pages map[string]http.Handler // by paths, including /, for readers without a key
	Log   *slog.Logger            // of requests, without their texts; nil is none
}

// New makes a server. New reads the models' files, for their fingerprints, until the end of ctx.
func New(ctx context.Context, o Options) (*Server, error) {
	o.MaxBody, o.Requests = cmp.Or(o.MaxBody, 32<<20), cmp.Or(o.Requests, 256)
	s := &Server{o: o, log: o.Log, mux: http.NewServeMux(), now: time.Now, since: time.Now().Unix(),
		grammars: newGrammars(grammarBytes)}
	s.kept.recent = recent{now: func() time.Time { return s.now() }, of: map[string]*keptResponses{}}
	s.generate = func(ctx context.Context, from *karat.Session, ids []int,
		o karat.GenerateOptions) iter.Seq2[karat.Token, error] {
		return from.GenerateIDs(ctx, ids, o)
	}
	s.stats = (*karat.Model).Stats
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if len(o.Models) == 0 {
		return nil, errors.New("Options.Models is empty")
	}
	if o.MaxBody < 0 || o.Requests < 0 || o.Memory < 0 || o.Loaded < 0 {
		return nil, errors.New("MaxBody, Requests, Memory or Loaded of Options is negative")
	}
	var err error
	if s.gate.keys, err = newKeyring(o.Keys); err != nil {
		return nil, err
	}
	if s.gate.origins, err = newOrigins(o.Origins); err != nil {
		return nil, err
	}
	if len(o.ImageHosts) > 0 {
		if s.gate.pictures, err = newFetcher(o.ImageHosts); err != nil {
			return nil, err
		}
	}
	s.telemetry = newTelemetry()
	s.pool, s.ranker = newPool(s, o), rankers{s}
	for _, m := range o.Models {
		if err := s.pool.add(ctx, m); err != nil {
			return nil, err
		}
	}
	if o.Store != "" {
		if s.store, err = openStore(o.Store, s.gate.keys, s.log); err != nil {
			return nil, err
		}
	}
	s.rooms = rooms{places: newShares(int64(o.Requests), s.gate.keys), small: newShares(smallBodies, s.gate.keys),
		bodies: newShares(max(allBodies, 2*o.MaxBody), s.gate.keys)} // half of them for a single key
	s.routes()
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go s.watchAll(s.ctx)
	if s.store != nil {
		s.store.expire(s.now())
		s.startBatches()
	}
	return s, nil
}

func newPool(s *Server, o Options) *pool {
	p := &pool{open: s.open, log: s.log, now: time.Now, memory: o.Memory, most: o.Loaded, turn: make(chan struct{}, 1),
		turns: map[string]chan struct{}{}}
	if p.memory == 0 {
		p.memory = sysinfo.Memory()
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// agentContext is how many tokens the first requests of coding agents need, with their tools and an answer.
const agentContext = 32768

// open returns a loaded model with its often needed facts, and reads the model's files for the fingerprint.
func (s *Server) open(ctx context.Context, e *entry, m *karat.Model) (*served, error) {
	x := &served{name: e.Name, model: m, info: m.Info(), counts: s.telemetry.counts(e.Name)}
	x.room = min(x.info.Context, m.Stats().MaxSequence)
	x.syntax = syntax.Of(x.info.Template)
	var err error
	if x.special, err = m.SpecialTokens(ctx); err != nil {
		return nil, err
	}
	if x.info.Template != "" { // a broken template is an error of each chat
		if x.ends, err = m.TurnEnds(ctx, karat.GenerateOptions{}); ctx.Err() != nil {
			return nil, err
		}
		x.learnReasoning(ctx)
	}
	if x.print, err = m.Fingerprint(ctx); err != nil {
		return nil, err
	}
	x.print = "karat_" + x.print
	x.tuned = s.pool.tune(ctx, e, m)
	if see := s.o.Cache; see != nil {
		m.WatchCache(func(p karat.CachePage) { see(e.Name, p) })
	}
	if most := x.info.MaxContext; !x.info.Encoder && x.room < agentContext && most >= agentContext {
		s.log.Info("small context", "model", e.Name, "tokens", x.room, "most", most, "hint",
			fmt.Sprintf("coding agents ask for %d tokens or more: --ctx", agentContext))
	}
	return x, nil
}

// Drain refuses new requests. Drain lets requests under way end, and closes the returned channel at the end of the
// last.
func (s *Server) Drain() <-chan struct{} { return s.door.shut() }

// Close ends the server's own work, and closes the models it has loaded.
func (s *Server) Close() error {
	s.Drain()
	s.stop()
	s.batches.Wait()
	s.pool.end()
	if s.store != nil {
		return s.store.close()
	}
	return nil
}

// routes registers all routes of the server.
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
	s.handle("GET /props", route{voice: openAI{}, handle: showProps})
	post("/v1/chat/completions", openAI{}, completeChat)
	post("/v1/chat/completions/input_tokens", openAI{}, countChat)
	post("/v1/chat/completions/render", openAI{}, renderChat)
	post("/v1/completions/render", openAI{}, renderText)
	post("/v1/load_lora_adapter", openAI{}, loadAdapter)
	post("/v1/unload_lora_adapter", openAI{}, unloadAdapter)
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
	get("/v1/receipts/{id}", openAI{}, showReceipt)
	post("/v1/receipts/verify", openAI{}, verifyReceipt)
	get("/v1/responses/{id}", openAI{}, showResponse)
	s.handle("DELETE /v1/responses/{id}", route{voice: openAI{}, handle: deleteResponse})
	s.storeRoutes()
}

// storeRoutes registers the routes of files and batches. Without a store they refuse.
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
	return refuse(http.StatusNotFound, "not_stored", "",
		"This server keeps no files and batches: it was started without "+"--store FOLDER")
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

//go:embed openapi.json
var openAPIDocument []byte

// showOpenAPI answers GET /openapi.json.
func showOpenAPI(x *exchange) any {
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusOK)
	x.w.Write(openAPIDocument) // an error is the client's, already gone
	return nil
}

// handle registers a route; all go through the same door.
func (s *Server) handle(pattern string, r route) {
	s.patterns = append(s.patterns, pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, q *http.Request) {
		x := q.Context().Value(exchangeKey{}).(*exchange)
		r := r // of this request
		if x.r = q; x.isAnthropic() {
			r.voice = anthropic{}
		}
		if !r.while && x.given == nil {
			if !s.door.enter() {
				q.Close = true
				w.Header().Set("Connection", "close")
				unavailable("The server is shutting down").write(w, r.voice)
				return
			}
			defer s.door.leave()
		}
		x.answer(r)
	})
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	body := s.steadyBody(w, r)
	defer body.end(w, r)
	x, t := &exchange{from: body, s: s, w: &writer{ResponseWriter: w}, who: &caller{}}, s.newTrace(r, began)
	id := newID("req_")
	h := w.Header()
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	pattern := ""
	who, p := s.guard(w, r)
	if who != nil {
		x.who = who
	}
	asks := p == nil && preflight(h, r)
	if p == nil && !asks {
		_, pattern = s.mux.Handler(r)
		if pattern == "" {
			p = s.routeProblem(w, r)
		}
	}
	switch {
	case p != nil:
		p.write(x.w, s.voiceOf(r.URL.Path))
	case asks:
		x.w.WriteHeader(http.StatusNoContent)
	default:
		x.ctx = context.WithValue(r.Context(), traceKey{}, t)
		s.mux.ServeHTTP(x.w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	}
	t.end(x, pattern)
	s.telemetry.request(pattern, x.w.status)
	s.log.Info("request", "id", id, "method", r.Method, "route", pattern, "status", x.w.status, "key", x.who.name,
		"model", x.model, "bytes", x.w.bytes, "ms", time.Since(began).Milliseconds(), "ignored", x.hints.text)
}

// routeProblem returns the problem of a request without a route. If only the request's method is wrong, the header
// Allow has the right methods.
func (s *Server) routeProblem(w http.ResponseWriter, r *http.Request) *problem {
	h, _ := s.mux.Handler(r)
	probe := &buffered{header: http.Header{}}
	h.ServeHTTP(probe, r)
	p := noRoute(r)
	if probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", probe.header.Get("Allow"))
		p.status, p.message = probe.status, fmt.Sprintf("Not allowed to %s on %s", r.Method, r.URL.Path)
	}
	return p
}
