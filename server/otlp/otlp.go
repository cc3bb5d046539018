// Package otlp sends a server's spans to a collector of OpenTelemetry: OTLP over HTTP, in JSON.
//
//	e, err := otlp.New("http://127.0.0.1:4318", log)
//	if err != nil { ... }
//	defer e.Close()
//	s, err := server.New(ctx, server.Options{Trace: e.Add, ...})
//
// The package is small beside OpenTelemetry's own SDK, whose exporter links gRPC. Only an importing program links it.
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/server"
)

const (
	most  = 512             // spans of a message
	held  = 4096            // spans waiting; more are dropped
	every = 2 * time.Second // between two messages
	limit = 10 * time.Second
)

// Exporter sends spans, some at a time. An Exporter is safe for concurrent use.
type Exporter struct {
	url     string
	client  http.Client
	log     *slog.Logger
	spans   chan server.Span
	dropped atomic.Int64
	stop    func()
	over    chan struct{}
}

// New makes an exporter to a collector at an address, as http://127.0.0.1:4318; spans go to its /v1/traces. Failures
// lose their spans and are written to log; nil is no log.
func New(endpoint string, log *slog.Logger) (*Exporter, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of a collector, want one as http://127.0.0.1:4318", endpoint)
	}
	over := make(chan struct{})
	e := &Exporter{url: u.JoinPath("v1/traces").String(), log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		spans: make(chan server.Span, held), over: make(chan struct{}), stop: sync.OnceFunc(func() { close(over) })}
	e.client = http.Client{Timeout: limit, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	go e.run(over)
	return e, nil
}

// Add queues a span. Add never waits: with too many spans waiting the span is dropped.
func (e *Exporter) Add(s server.Span) {
	select {
	case e.spans <- s:
	default:
		e.dropped.Add(1)
	}
}

// Close sends the waiting spans, and ends the exporter. Later spans are lost.
func (e *Exporter) Close() {
	e.stop()
	<-e.over
}

func (e *Exporter) run(over <-chan struct{}) {
	defer close(e.over)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for closing := false; !closing; {
		select {
		case <-over:
			closing = true
		case <-tick.C:
		}
		for n := len(e.spans); n > 0; n = len(e.spans) {
			batch := make([]server.Span, 0, min(n, most))
			for range min(n, most) {
				batch = append(batch, <-e.spans)
			}
			if err := e.send(batch); err != nil {
				e.log.Warn("traces were not sent", "spans", len(batch), "error", err.Error())
				break // the collector may be back at the next tick
			}
		}
		if n := e.dropped.Swap(0); n > 0 {
			e.log.Warn("traces were dropped", "spans", n)
		}
	}
}

func (e *Exporter) send(batch []server.Span) error {
	body, err := json.Marshal(message(batch))
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(context.Background(), http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	a, err := e.client.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	io.Copy(io.Discard, io.LimitReader(a.Body, 1<<16)) // to keep the connection for the next request
	if a.StatusCode/100 != 2 {
		return fmt.Errorf("%s answers %s", e.url, a.Status)
	}
	return nil
}

type object = map[string]any

// message returns a request of OTLP (opentelemetry-proto, ExportTraceServiceRequest): ids in hexadecimal, numbers of 64
// bits as texts.
func message(batch []server.Span) object {
	spans := make([]object, len(batch))
	for i, s := range batch {
		o := object{"traceId": hex.EncodeToString(s.Trace[:]), "spanId": hex.EncodeToString(s.ID[:]), "name": s.Name,
			"kind":              1,
			"startTimeUnixNano": nanoseconds(s.Start), "endTimeUnixNano": nanoseconds(s.End),
			"attributes": attributes(s.Attributes)}
		if s.Request {
			o["kind"] = 2 // a server's
		}
		if s.Parent != [8]byte{} {
			o["parentSpanId"] = hex.EncodeToString(s.Parent[:])
		}
		if s.Failed {
			o["status"] = object{"code": 2}
		}
		spans[i] = o
	}
	scope := object{"name": "github.com/karat-run/karat/server", "version": karat.Version()}
	service := attributes([]slog.Attr{slog.String("service.name", "karat"), slog.String("service.version",
		karat.Version())})
	return object{"resourceSpans": []object{{"resource": object{"attributes": service},
		"scopeSpans": []object{{"scope": scope, "spans": spans}}}}}
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributes(list []slog.Attr) []object {
	all := make([]object, len(list))
	for i, a := range list {
		value := object{"stringValue": a.Value.String()}
		if a.Value.Kind() == slog.KindInt64 {
			value = object{"intValue": a.Value.String()}
		}
		all[i] = object{"key": a.Key, "value": value}
	}
	return all
}
