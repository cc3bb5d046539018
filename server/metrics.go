package server

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// metrics are what /metrics tells. Beside the server's own names there are those of vLLM that Kubernetes' endpoint
// picker reads by default, and the usual ones of a process: memory, goroutines and open files.
type metrics struct {
	all                              prometheus.Gatherer
	requests                         *prometheus.CounterVec
	refused                          prometheus.Counter
	firstToken, betweenTokens, whole *prometheus.HistogramVec // by model, as the rest
	queue, prefill, decode           *prometheus.HistogramVec
	prompt, cached, answer           *prometheus.CounterVec
}

func newMetrics(s *Server) *metrics {
	r := prometheus.NewRegistry()
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	seconds := func(name, help string, from float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(from, 2, 16)}, byModel)
		r.MustRegister(h)
		return h
	}
	m := &metrics{
		requests:      counter("karat_http_requests_total", "Requests by route and status.", "route", "status"),
		refused:       counter("karat_requests_refused_total", "Requests that were refused because too many were there.").WithLabelValues(),
		firstToken:    seconds("karat_time_to_first_token_seconds", "From the beginning of a request to its first token.", 0.001),
		betweenTokens: seconds("karat_inter_token_latency_seconds", "Between two tokens of an answer.", 0.0005),
		whole:         seconds("karat_e2e_request_latency_seconds", "From the beginning of a request to its last token.", 0.005),
		queue:         seconds("karat_request_queue_time_seconds", "From the beginning of a request to its first step.", 0.0001),
		prefill:       seconds("karat_request_prefill_time_seconds", "From the first step of a request to its first token.", 0.001),
		decode:        seconds("karat_request_decode_time_seconds", "From the first token of a request to its last.", 0.001),
		prompt:        counter("karat_prompt_tokens_total", "Tokens of prompts.", byModel...),
		cached:        counter("karat_prefix_cache_hit_tokens_total", "Tokens of prompts that earlier requests had computed.", byModel...),
		answer:        counter("karat_generation_tokens_total", "Tokens of answers.", byModel...),
	}
	r.MustRegister(engines{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.all = r
	return m
}

// request counts one; a path that is no route has none, so that strangers make no names.
func (m *metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// count adds the tokens of a request to those of its model.
func (m *metrics) count(model string, u usage) {
	m.prompt.WithLabelValues(model).Add(float64(u.prompt))
	m.cached.WithLabelValues(model).Add(float64(u.cached))
	m.answer.WithLabelValues(model).Add(float64(u.completion))
}

// observe adds a time to a model's.
func observe(h *prometheus.HistogramVec, model string, from, to time.Time) {
	h.WithLabelValues(model).Observe(to.Sub(from).Seconds())
}

// metricsText is GET /metrics: of the models that the caller sees.
func (x *exchange) metricsText() *problem {
	seen := prometheus.GathererFunc(func() (all []*dto.MetricFamily, err error) {
		all, err = x.s.metrics.all.Gather()
		for _, f := range all {
			f.Metric = slices.DeleteFunc(f.Metric, x.hides)
		}
		return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 }), err
	})
	promhttp.HandlerFor(seen, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(x.w, x.r)
	return nil
}

// hides reports whether a metric is of a model that the caller does not see.
func (x *exchange) hides(m *dto.Metric) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == byModel[0] {
			e := x.s.pool.find(l.GetValue())
			return e == nil || !x.who.sees(e)
		}
	}
	return false
}

// engines collects the counts of the models' engines when it is asked.
type engines struct{ s *Server }

var (
	byModel   = []string{"model_name"}
	waiting   = prometheus.NewDesc("vllm:num_requests_waiting", "Requests that wait to be computed.", byModel, nil)
	running   = prometheus.NewDesc("vllm:num_requests_running", "Requests that are computed.", byModel, nil)
	cacheUse  = prometheus.NewDesc("vllm:kv_cache_usage_perc", "The part of the room for keys and values that is in use, from 0 to 1.", byModel, nil)
	cacheKept = prometheus.NewDesc("karat_prefix_cache_bytes", "Bytes of keys and values that no request uses, kept for prompts that begin alike.", byModel, nil)
	cacheInfo = prometheus.NewDesc("vllm:cache_config_info", "The room for keys and values: tokens of a page, and pages.", []string{"model_name", "block_size", "num_gpu_blocks"}, nil)
	loraInfo  = prometheus.NewDesc("vllm:lora_requests_info", "Adapters of requests; requests cannot name any.", []string{"max_lora", "running_lora_adapters", "waiting_lora_adapters"}, nil)
	steps     = prometheus.NewDesc("karat_engine_steps_total", "Steps that the engine has begun.", byModel, nil)
)

func (e engines) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waiting, running, cacheUse, cacheKept, cacheInfo, loraInfo, steps} {
		c <- d
	}
}

func (e engines) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	e.s.pool.loaded(func(_ *entry, m *served) {
		now := m.model.Stats()
		gauge(waiting, float64(now.Queued), m.name)
		gauge(running, float64(now.Running), m.name)
		use := 0.0
		if now.KVBudget > 0 {
			use = float64(now.KVUsed) / float64(now.KVBudget)
		}
		gauge(cacheUse, use, m.name)
		gauge(cacheKept, float64(now.KVCached), m.name)
		gauge(cacheInfo, 1, m.name, strconv.Itoa(now.PageSize), strconv.Itoa(now.Pages))
		c <- prometheus.MustNewConstMetric(steps, prometheus.CounterValue, float64(now.Steps), m.name)
	})
	gauge(loraInfo, 0, "0", "", "")
}
