package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
)

// Server is an http.Handler.
type Server struct {
	o         Options
	pool      *pool
	since     int64
	gate      gate
	log       *slog.Logger
	mux       *http.ServeMux
	patterns  []string
	grammars  *grammars
	kept      keptAnswers // answers for later requests
	rooms     rooms
	telemetry *telemetry
	door      door
	ctx       context.Context // ends with the server
	stop      context.CancelFunc
	store     *store // of files and batches; nil if there is none
	batches   sync.WaitGroup
	ranker    ranker
	now       func() time.Time
	// generate is the model's; tests replace it.
	generate func(context.Context, *karat.Session, []int, karat.GenerateOptions) iter.Seq2[karat.Token, error]
	// stats is the model's; tests replace it.
	stats func(*karat.Model) karat.Stats
}

// served is a loaded model with its often needed facts.
type served struct {
	name    string
	model   *karat.Model
	info    karat.Info
	room    int // tokens of prompt and answer
	print   string
	syntax  syntax.Syntax
	special []string // marks of the syntax made of special tokens
	ends    []int    // tokens at the end of an answer in the chat template
	think   reasonSwitch
	levels  []int // amounts of reasoning that the chat template takes, of efforts
	watch   watch
	counts  *counts
	tuned   []*tuned // until the end of the load
}

// gate knows the callers of the server, and the hosts that it calls.
type gate struct {
	pictures *fetcher // nil fetches none
	keys     keyring
	tries    tries
	origins  origins
}

// rooms bound the memory of all requests together.
type rooms struct {
	places *shares // of answers
	bodies *shares // of bytes of requests
	small  *shares // of the first bytes of each request, firstBody at most
}

// exchange is a request with the state of its answer.
type exchange struct {
	s          *Server
	w          *writer
	r          *http.Request
	ctx        context.Context
	who        *caller
	stream     *stream
	hints      hints
	from       *steady
	model      string   // requested
	tuned      *tuned   // likewise, or nil
	held       held     // bytes of the body
	takesPlace bool     // takes a place after its body has arrived
	counts     bool     // asks for the tokens, or their number, alone
	given      []byte   // the body of a batch's line; nil where the body comes over a connection
	failed     bool     // a fault of the server ended the answer, whatever its status
	after      []func() // run at the request's end
	receipts   string   // name of the answers' receipts

	loading time.Duration // of the model, for this request
}

// writer knows whether an answer has begun.
type writer struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *writer) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// route is the meaning of a pattern of the mux.
type route struct {
	voice  voice
	handle func(x *exchange) any // returns the answer, a problem, or nil after answering
	while  bool                  // answered even while the server drains
}

type exchangeKey struct{}

// answer calls the route's handler. A panic is an error of this request alone.
func (x *exchange) answer(r route) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *problem:
			x.fail(p, r.voice)
		default:
			x.s.log.Error("panic", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			x.fail(internal("The server failed"), r.voice)
		}
		for _, end := range x.after {
			end()
		}
		x.held.end()
	}()
	switch v := r.handle(x).(type) {
	case nil:
	case *problem:
		throw(v)
	default:
		writeJSON(x.w, http.StatusOK, v)
	}
}

// fail reports an error: as an answer, or inside a stream already begun.
func (x *exchange) fail(p *problem, v voice) {
	x.failed = p.status >= http.StatusInternalServerError
	if x.w.status == 0 {
		p.write(x.w, v)
		return
	}
	if x.stream != nil {
		x.stream.send(v.streamProblem(p))
	}
}

// body returns a request's JSON.
func (x *exchange) body() *fields {
	body := x.readBody()
	if x.takesPlace { // not before, since a body may come slowly
		x.after = append(x.after, x.s.enter(x.who, 1, 0))
	}
	x.hints.header = x.w.Header()
	return parse(body, &x.hints)
}

// readRequest returns a request's JSON, and the model found by find.
func (x *exchange) readRequest(find func(*fields) *served) (*fields, *served) {
	f := x.body()
	m := find(f)
	if f.sees = m.model.Sees(); x.s.gate.pictures != nil {
		f.fetch = (&fetching{x: x}).fetch
	}
	return f, m
}

// readModel returns the model of a request's field "model". A caller with a single model may leave the field out.
func (x *exchange) readModel(f *fields) *served {
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
	if t := x.s.pool.borrow(name); e == nil && t != nil {
		x.after = append(x.after, func() { x.s.pool.repay(t) })
		e, x.tuned = t.of, t
	}
	if e == nil || !x.who.sees(e) {
		throw(noModel(name))
	}
	return x.use(e)
}

// readOptionalModel returns the named model of a request, or the first model: for routes without such a field in their
// API.
func (x *exchange) readOptionalModel(f *fields) *served {
	if f.has("model") {
		return x.readModel(f)
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

// use returns a model, loaded until the request's end.
func (x *exchange) use(e *entry) *served {
	began := time.Now()
	m, err := x.s.pool.take(x.ctx, e, x.who.name)
	x.loading = time.Since(began)
	name := cmp.Or(x.model, e.Name) // in the client's spelling
	switch {
	case err == nil:
		x.after = append(x.after, func() { x.s.pool.give(e) })
	case errors.Is(err, errBusy):
		throw(unavailable("The model %q is not loaded: %v", name, err))
	case errors.Is(err, karat.ErrMemory):
		throw(internal("The model %q does not fit the memory of this server", name))
	case x.ctx.Err() != nil || errors.Is(err, karat.ErrClosed) || errors.Is(err, context.Canceled):
		throw(x.s.explain(x.ctx, karat.ErrClosed))
	default:
		throw(internal("The model %q could not be loaded; the server's log says why", name))
	}
	return m
}

// states returns the models visible to the caller.
func (x *exchange) states() []state {
	return slices.DeleteFunc(x.s.pool.states(), func(m state) bool { return !x.who.sees(m.entry) })
}

// open begins a stream, and its context, ended by the client's end.
func (x *exchange) open(lines bool) *stream {
	ctx, cancel := context.WithCancelCause(x.ctx)
	x.ctx = ctx
	x.stream = &stream{w: x.w, lines: lines, cancel: cancel, limit: writeLimit, left: waitedLimit, now: time.Now}
	return x.stream
}

// replyLarge replies with an answer perhaps much larger than the request. The answer counts among the bodies while a
// client reads.
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

func noRoute(r *http.Request) *problem {
	return refuse(http.StatusNotFound, "", "", "Invalid URL (%s %s)", r.Method, r.URL.Path)
}

// isAnthropic reports whether a client of Anthropic's API asks, on a path shared with other APIs.
func (x *exchange) isAnthropic() bool { return x.r.Header.Get("Anthropic-Version") != "" }
