package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/karat-run/karat"
)

// telemetry has the numbers of GET /metrics. Beside the server's own names there are names of vLLM, the default of
// Kubernetes' endpoint picker, and the usual names of a process: memory, goroutines and open files.
type telemetry struct {
	set     *metrics.Set
	refused *metrics.Counter
}

// counts are the numbers of a model.
type counts struct {
	draft                                                    func(kind, result string) *metrics.Counter
	prompt, cached, answer                                   *metrics.Counter             // tokens
	firstToken, betweenTokens, whole, queue, prefill, decode *metrics.PrometheusHistogram // seconds
}

func newTelemetry() *telemetry {
	metrics.ExposeMetadata(true)
	t := &telemetry{set: metrics.NewSet()}
	t.refused = t.set.NewCounter("karat_requests_refused_total")
	return t
}

// labels returns pairs of names and values in the form of a metric.
func labels(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		value := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(pairs[i+1])
		fmt.Fprintf(&b, `,%s="%s"`, pairs[i], value)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// ofModel is the label of a number's model.
const ofModel = "model_name"

// counts returns the numbers of a model, initially 0.
func (t *telemetry) counts(model string) *counts {
	of := labels(ofModel, model)
	tokens := func(name string) *metrics.Counter {
		return t.set.GetOrCreateCounter("karat_" + name + "_tokens_total" + of)
	}
	seconds := func(name string, from float64) *metrics.PrometheusHistogram {
		return t.set.GetOrCreatePrometheusHistogramExt("karat_"+name+"_seconds"+of,
			metrics.ExponentialBuckets(from, 2, 16))
	}
	return &counts{
		draft: func(kind, result string) *metrics.Counter {
			return t.set.GetOrCreateCounter("karat_draft_tokens_total" +
				labels(ofModel, model, "kind", kind, "result", result))
		},
		prompt: tokens("prompt"), cached: tokens("prefix_cache_hit"), answer: tokens("generation"),
		firstToken:    seconds("time_to_first_token", 0.001),
		betweenTokens: seconds("inter_token_latency", 0.0005),
		whole:         seconds("e2e_request_latency", 0.005), // from the beginning of a request to its last token
		queue:         seconds("request_queue_time", 0.0001), // from there to the first step
		prefill:       seconds("request_prefill_time", 0.001),
		decode:        seconds("request_decode_time", 0.001), // from the first token to the last
	}
}

// request counts a request. A path without a route is left out: strangers make no names.
func (t *telemetry) request(route string, status int) {
	t.set.GetOrCreateCounter("karat_http_requests_total" + labels("route", route, "status", strconv.Itoa(status))).Inc()
}

// add adds the tokens of a request.
func (c *counts) add(u usage) {
	c.prompt.Add(u.prompt)
	c.cached.Add(u.cached)
	c.answer.Add(u.completion)
	for kind, n := range u.drafts {
		c.draft(kind, "accepted").Add(n.Accepted)
		c.draft(kind, "rejected").Add(n.Rejected)
	}
}

// observe adds a time.
func observe(h *metrics.PrometheusHistogram, from, to time.Time) { h.Update(to.Sub(from).Seconds()) }

// showMetrics answers GET /metrics: of the models visible to the caller.
func showMetrics(x *exchange) any {
	var own, all bytes.Buffer
	x.s.telemetry.set.WritePrometheus(&own)
	head := ""
	for line := range strings.Lines(own.String()) {
		switch {
		case strings.HasPrefix(line, "# HELP "):
			head = line
		case strings.HasPrefix(line, "# TYPE "):
			head += line
		case x.seesLine(line):
			all.WriteString(head + line)
			head = ""
		}
	}
	x.engines(&all)
	metrics.WriteProcessMetrics(&all)
	metrics.WriteFDMetrics(&all)
	x.w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	x.w.WriteHeader(http.StatusOK)
	x.w.Write(all.Bytes()) // an error is the client's, already gone
	return nil
}

// seesLine reports whether a line is of no model, or of a model visible to the caller.
func (x *exchange) seesLine(line string) bool {
	_, of, found := strings.Cut(line, "{"+ofModel+"=")
	if !found {
		return true
	}
	for _, e := range x.s.pool.list {
		if strings.HasPrefix("{"+ofModel+"="+of, strings.TrimSuffix(labels(ofModel, e.Name), "}")) && x.who.sees(e) {
			return true
		}
	}
	return false
}

// engines writes the counts of the engines of the models visible to the caller.
func (x *exchange) engines(to *bytes.Buffer) {
	type engine struct {
		name string
		now  karat.Stats
	}
	var all []engine
	x.s.pool.loaded(func(e *entry, m *served) {
		if x.who.sees(e) {
			all = append(all, engine{m.name, m.model.Stats()})
		}
	})
	write := func(name, kind string, value func(e engine) float64, more func(e engine) []string) {
		for i, e := range all {
			if i == 0 {
				metrics.WriteMetadataIfNeeded(to, name, kind)
			}
			pairs := []string{ofModel, e.name}
			if more != nil {
				pairs = append(pairs, more(e)...)
			}
			fmt.Fprintf(to, "%s%s %v\n", name, labels(pairs...), value(e))
		}
	}
	write("vllm:num_requests_waiting", "gauge", func(e engine) float64 { return float64(e.now.Queued) }, nil)
	write("vllm:num_requests_running", "gauge", func(e engine) float64 { return float64(e.now.Running) }, nil)
	write("vllm:kv_cache_usage_perc", "gauge", func(e engine) float64 {
		return float64(e.now.KVUsed) / float64(max(1, e.now.KVBudget))
	}, nil)
	write("karat_prefix_cache_bytes", "gauge", func(e engine) float64 { return float64(e.now.KVCached) }, nil)
	write("vllm:cache_config_info", "gauge", func(engine) float64 { return 1 }, func(e engine) []string {
		return []string{"block_size", strconv.Itoa(e.now.PageSize), "num_gpu_blocks", strconv.Itoa(e.now.Pages)}
	})
	write("karat_engine_steps_total", "counter", func(e engine) float64 { return float64(e.now.Steps) }, nil)
	var running, waiting []string
	for _, t := range x.s.pool.adaptersOf(nil) {
		if x.who.sees(t.of) && t.running.Load() > 0 {
			running = append(running, t.name)
		}
		if x.who.sees(t.of) && t.waiting.Load() > 0 {
			waiting = append(waiting, t.name)
		}
	}
	most := 0
	if len(x.s.o.AdapterFolders) > 0 {
		most = maxAdapters
	}
	lora := "vllm:lora_requests_info" + labels("max_lora", strconv.Itoa(most), "running_lora_adapters",
		strings.Join(running, ","), "waiting_lora_adapters", strings.Join(waiting, ","))
	metrics.WriteGaugeUint64(to, lora, uint64(time.Now().Unix())) // readers take the newest of several
}

// Span is a part of the time of a request, for traces, without prompts and answers.
type Span struct {
	Trace      [16]byte // the client's, if sent (the header traceparent)
	ID, Parent [8]byte  // Parent is zero for the outermost span
	Name       string
	Request    bool // a whole request, not a part
	Failed     bool // by a fault of the server
	Start, End time.Time
	Attributes []slog.Attr // texts and whole numbers, with OpenTelemetry's names
}

// trace is a traced request.
type trace struct {
	tell  func(Span)
	whole Span

	mu    sync.Mutex
	usage usage
}

type traceKey struct{}

// traceOf returns the trace of a request, or nil.
func traceOf(ctx context.Context) *trace {
	t, _ := ctx.Value(traceKey{}).(*trace)
	return t
}

// newTrace begins the trace of a request, nil if unwanted, perhaps by the client, in traceparent.
func (s *Server) newTrace(r *http.Request, began time.Time) *trace {
	if s.o.Trace == nil {
		return nil
	}
	t := &trace{tell: s.o.Trace, whole: Span{ID: spanID(), Request: true, Start: began}}
	given, parent, sampled, ok := traceParent(r.Header.Get("Traceparent"))
	switch {
	case !ok:
		rand.Read(t.whole.Trace[:]) // never fails
	case !sampled:
		return nil
	default:
		t.whole.Trace, t.whole.Parent = given, parent
	}
	return t
}

func spanID() (id [8]byte) {
	rand.Read(id[:]) // never fails
	return id
}

// traceParent reads a header of W3C's Trace Context: "00-TRACE-PARENT-FLAGS" in small hexadecimal digits. Later
// versions may have more behind.
func traceParent(header string) (trace [16]byte, parent [8]byte, sampled, ok bool) {
	parts := strings.Split(header, "-")
	if len(parts) < 4 || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 {
		return trace, parent, false, false
	}
	var version, flags [1]byte
	for i, to := range [][]byte{version[:], trace[:], parent[:], flags[:]} {
		if n, err := hex.Decode(to, []byte(parts[i][:min(len(parts[i]), 2*len(to))])); err != nil || n != len(to) ||
			len(parts[i]) != 2*n || strings.ToLower(parts[i]) != parts[i] {
			return [16]byte{}, [8]byte{}, false, false
		}
	}
	return trace, parent, flags[0]&1 != 0, trace != [16]byte{} && parent != [8]byte{}
}

// add adds the tokens of answers.
func (t *trace) add(u usage) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.usage.prompt += u.prompt
	t.usage.completion += u.completion
	t.usage.cached += u.cached
}

// part reports a part of the request; a part without a beginning or an end is left out.
func (t *trace) part(name string, from, to time.Time) {
	if from.IsZero() || to.IsZero() {
		return
	}
	t.tell(Span{Trace: t.whole.Trace, ID: spanID(), Parent: t.whole.ID, Name: name, Start: from, End: to})
}

// answer reports the parts of an answer.
func (t *trace) answer(c *choice) {
	if t == nil {
		return
	}
	t.part("queue", c.began, c.started)
	t.part("prefill", c.started, c.answered)
	t.part("decode", c.answered, c.last)
}

// end reports the request. A request without a route has no name of its own: strangers make no names.
func (t *trace) end(x *exchange, route string) {
	if t == nil {
		return
	}
	s := &t.whole
	s.End, s.Failed, s.Name = time.Now(), x.w.status >= 500 || x.failed, cmp.Or(route, "no route")
	s.Attributes = []slog.Attr{slog.Int("http.response.status_code", x.w.status)}
	if method, path, ok := strings.Cut(route, " "); ok {
		s.Attributes = append(s.Attributes, slog.String("http.request.method", method), slog.String("http.route", path))
	}
	if x.model != "" {
		s.Attributes = append(s.Attributes, slog.String("gen_ai.request.model", x.model))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.usage; u.prompt > 0 {
		s.Attributes = append(s.Attributes, slog.Int("gen_ai.usage.input_tokens", u.prompt),
			slog.Int("gen_ai.usage.output_tokens", u.completion), slog.Int("gen_ai.usage.cache_read.input_tokens",
				u.cached))
	}
	t.tell(*s)
}
