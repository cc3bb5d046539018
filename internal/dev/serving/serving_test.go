package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A fake answers as a server does: the first token after first, and the others every gap. Its tokens are "a".
type fake struct {
	first, gap time.Duration
	change     bool // no two answers are the same
	broken     string

	asked, left, running, most atomic.Int64
	mu                         sync.Mutex
	prompts                    []string
	arrived                    []time.Time
}

// memory listens without a network, so that time stands still while all wait.
type memory struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}
func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }
func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	own, other := net.Pipe()
	select {
	case m.conns <- other:
		return own, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve runs a handler until the test's end.
func serve(t *testing.T, h http.Handler) *Target {
	l := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 100}
	t.Cleanup(func() { transport.CloseIdleConnections(); s.Close() })
	return &Target{URL: "http://fake", Client: &http.Client{Transport: transport}}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		io.WriteString(w, `{"data":[{"id":"fake"}]}`)
		return
	case "/metrics":
		fmt.Fprintf(w, "# HELP go_goroutines x\ngo_goroutines 7\nprocess_open_fds 5\nprocess_resident_memory_bytes 1e6\nvllm:num_requests_running{model_name=\"a b\"} %d\nkarat_prefix_cache_bytes{model_name=\"a\"} 2e6\nvllm:kv_cache_usage_perc{model_name=\"a\"} 0.25\n", f.running.Load())
		return
	}
	var q struct {
		Prompt   string
		Messages []struct{ Content string }
		Max      int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	if len(q.Messages) > 0 {
		q.Prompt = q.Messages[0].Content
	}
	n := f.asked.Add(1)
	f.mu.Lock()
	f.prompts, f.arrived = append(f.prompts, q.Prompt), append(f.arrived, time.Now())
	f.mu.Unlock()
	now := f.running.Add(1)
	defer f.running.Add(-1)
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); most = f.most.Load() {
	}
	f.stream(w, r, q.Prompt, q.Max, n)
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request, prompt string, most int, n int64) {
	flush := func() { http.NewResponseController(w).Flush() }
	for i := range most {
		wait := f.gap
		if i == 0 {
			wait = f.first
		}
		select {
		case <-r.Context().Done():
			f.left.Add(1)
			return
		case <-time.After(wait):
		}
		text := "a"
		if f.change && i == 0 {
			text = fmt.Sprint(n)
		}
		if strings.HasPrefix(r.URL.Path, "/v1/chat") {
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", text)
		} else {
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":%q}]}\n\n", text)
		}
		flush()
	}
	if f.broken != "" {
		io.WriteString(w, f.broken)
		return
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", 2*len(strings.Fields(prompt)), most)
}

func options(levels ...Level) Options {
	return Options{Workload: Workload{Seed: 1, Prompt: Range{20, 40}, Answer: Range{5, 5}}, Levels: levels, Requests: 12, Rounds: 1, Verify: 2}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestLatencies checks the formulas against a server whose times are known.
func TestLatencies(t *testing.T) {
	for _, chat := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{first: 300 * time.Millisecond, gap: 50 * time.Millisecond}
			o := options(Level{Clients: 3})
			o.Chat, o.Limits = chat, Limits{TTFT: .2}
			r, err := Measure(t.Context(), []*Target{serve(t, f)}, o)
			if err != nil {
				t.Fatal(err)
			}
			row := r.Rows[0]
			for _, x := range []struct {
				name      string
				got, want float64
			}{{"TTFT", row.TTFT.P99, .3}, {"ITL", row.ITL.P50, .05}, {"TPOT", row.TPOT.Mean, .05}, {"E2E", row.E2E.P90, .5}, {"seconds", row.Seconds, 2}, {"requests/s", row.Requests, 6}, {"tokens/s", row.Tokens, 30}, {"goodput", row.Goodput, 0}} {
				if !near(x.got, x.want) {
					t.Errorf("chat %v: %s is %g, want %g", chat, x.name, x.got, x.want)
				}
			}
			if row.Complete != 12 || row.Failed+row.Aborted+row.Differ != 0 || row.Verified != 2 || f.most.Load() != 3 || len(row.Samples[0].ITL) != 4 {
				t.Errorf("chat %v: %+v, %d at a time", chat, row, f.most.Load())
			}
		})
	}
}

// TestArrivals checks that requests of an open loop arrive whether or not the server answers.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{first: 1000 * time.Second}
		o := options(Level{Rate: 2})
		o.Requests, o.Verify = 200, 0
		r, err := Measure(t.Context(), []*Target{serve(t, f)}, o)
		if err != nil {
			t.Fatal(err)
		}
		f.arrived = f.arrived[2:] // without those that calibrate
		mean := f.arrived[199].Sub(f.arrived[0]).Seconds() / 199
		var squares float64
		for i := 1; i < 200; i++ {
			gap := f.arrived[i].Sub(f.arrived[i-1]).Seconds()
			squares += (gap - mean) * (gap - mean) / 198
		}
		if mean < .4 || mean > .6 || math.Sqrt(squares)/mean < .75 || math.Sqrt(squares)/mean > 1.25 {
			t.Errorf("gaps are %.3f s ± %.3f, want 0.5 ± 0.5", mean, math.Sqrt(squares))
		}
		if f.most.Load() != 200 || r.Rows[0].Complete != 200 {
			t.Errorf("%d at a time, %d complete", f.most.Load(), r.Rows[0].Complete)
		}
	})
}

// TestAnotherAnswer checks that a server is found out whose answers change.
func TestAnotherAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Measure(t.Context(), []*Target{serve(t, &fake{change: true})}, options(Level{Clients: 2}))
		if err != nil || r.Differ() != 2 {
			t.Errorf("%d differ, %v", r.Differ(), err)
		}
	})
}

// TestPeer checks turns, ratios, and that both servers get the same requests.
func TestPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, peer := &fake{first: 100 * time.Millisecond, gap: 50 * time.Millisecond}, &fake{first: 400 * time.Millisecond, gap: 100 * time.Millisecond, change: true}
		other := serve(t, peer)
		other.URL = "http://peer"
		o := options(Level{Clients: 1}, Level{Clients: 4})
		o.Rounds, o.Verify = 3, 0
		r, err := Measure(t.Context(), []*Target{serve(t, f), other}, o)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(f.prompts)
		slices.Sort(peer.prompts)
		if !slices.Equal(f.prompts, peer.prompts) || len(slices.Compact(f.prompts)) != 2+2*3*12 {
			t.Error("the requests are not the same, or one was sent twice")
		}
		for i := 0; i < 4; i += 2 {
			q := r.Rows[i].Ratios
			if q == nil || r.Rows[i+1].Ratios != nil || !near(q.TTFT.Median, .25) || !near(q.ITL.Max, .5) || !near(q.Tokens.Min, 8./3) {
				t.Errorf("ratios %+v", q)
			}
		}
		if r.Differ() != 0 {
			t.Error("what the peer answers is held against the server")
		}
		checkFormats(t, r)
	})
}

// TestInterrupted ends a measurement in its second round: what was whole is reported.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		own, peer := serve(t, &fake{}), serve(t, &fake{})
		peer.URL = "http://peer"
		o := options(Level{Clients: 2}, Level{Clients: 4})
		o.Rounds, o.Verify = 3, 0
		o.Progress = func(text string) {
			if text == "http://fake: 2 clients, round 2 of 3" {
				cancel()
			}
		}
		r, err := Measure(ctx, []*Target{own, peer}, o)
		if !errors.Is(err, context.Canceled) || r == nil || len(r.Rows) != 2 || r.Rows[0].Complete != 12 || r.Rows[1].Complete != 24 || r.Rows[0].Ratios.Rounds != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

func checkFormats(t *testing.T, r *Report) {
	var table, picture, rows, all bytes.Buffer
	if err := errors.Join(r.WriteMarkdown(&table), r.WriteSVG(&picture), r.WriteCSV(&rows), r.WriteJSON(&all)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "4 clients, http://fake to http://peer: tokens/s 2.67 (2.67 to 2.67), mean TTFT 0.25") {
		t.Error(table.String())
	}
	if list, err := csv.NewReader(&rows).ReadAll(); err != nil || len(list) != 5 {
		t.Errorf("CSV: %v, %v", list, err)
	}
	if !json.Valid(all.Bytes()) {
		t.Error("the JSON is none")
	}
	paths := 0
	for d := xml.NewDecoder(&picture); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" && !strings.Contains(fmt.Sprint(e.Attr), "grid") {
			paths++
		}
	}
	if paths != 2*2*2+2 { // median and p99 of each server in two panels, and the legend
		t.Errorf("%d lines", paths)
	}
}

// TestRequests checks lengths, prefixes and leavers of a workload, and that the same one makes the same requests.
func TestRequests(t *testing.T) {
	w := Workload{Seed: 5, Prompt: Range{40, 80}, Answer: Range{3, 9}, Shared: 100, Abort: .3, perWord: 2}
	list := w.requests(7, 1000)
	if !slices.Equal(list, w.requests(7, 1000)) || slices.Equal(list, w.requests(8, 1000)) {
		t.Error("requests do not follow from seed and part")
	}
	prefix, left := strings.Join(strings.Fields(list[0].Prompt)[:50], " "), 0
	for _, r := range append(list, w.requests(8, 10)...) {
		if n := len(strings.Fields(r.Prompt)) - 50; n < 20 || n > 40 || !strings.HasPrefix(r.Prompt, prefix) || r.Answer < 3 || r.Answer > 9 || r.Leave >= r.Answer {
			t.Fatalf("%+v", r)
		}
		if r.Leave > 0 {
			left++
		}
	}
	if left < 250 || left > 350 {
		t.Errorf("%d of 1000 leave, want about 300", left)
	}
}

// TestBrokenAnswers checks that no answer counts that is not whole.
func TestBrokenAnswers(t *testing.T) {
	for _, x := range []struct{ broken, want string }{
		{"\n", "without [DONE]"},
		{"data: [DONE]\n\n", "no usage"},
		{"data: {\"error\":{\"message\":\"out of memory\"}}\n\n", "out of memory"},
		{"data: {\n\n", "no JSON"},
		{"data: " + strings.Repeat("x", maxLine) + "\n\n", "token too long"},
	} {
		synctest.Test(t, func(t *testing.T) {
			to := serve(t, &fake{broken: x.broken})
			s := to.ask(t.Context(), &Workload{}, Request{Prompt: "a", Answer: 2}, nil)
			if !strings.Contains(s.Error, x.want) || s.complete() || s.Hash != "" {
				t.Errorf("%.20q: %+v, want %q", x.broken, s, x.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		to := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "queue is full", http.StatusTooManyRequests)
		}))
		if s := to.ask(t.Context(), &Workload{}, Request{Answer: 1}, nil); !strings.Contains(s.Error, "429 Too Many Requests: queue is full") {
			t.Error(s.Error)
		}
	})
}

// TestSoak checks that clients leave and are counted, and what is said of growth.
func TestSoak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{first: 100 * time.Millisecond, gap: 20 * time.Millisecond}
		s := Soak{Workload: options().Workload, Clients: 16, Time: time.Minute, Slow: .1, Uploads: .1}
		s.Abort = .3
		r, err := s.Run(t.Context(), serve(t, f))
		if err != nil || r.Failed > 0 {
			t.Fatal(r, err)
		}
		if r.Complete < 500 || r.Left < 100 || r.Uploads < 50 || r.Slow < 20 || int64(r.Complete+r.Left)+2 != f.asked.Load() || f.left.Load() == 0 {
			t.Errorf("%+v; %d asked, %d left", r, f.asked.Load(), f.left.Load())
		}
		if want := (Gauges{1e6, 7, 5, .25, 2e6}); r.Start != want || r.Middle != want || r.End != want || len(r.Growth()) > 0 {
			t.Errorf("%+v: %v", r, r.Growth())
		}
		r.End = Gauges{1e9, 100, 100, 1.5, 0}
		if got := r.Growth(); len(got) != 4 {
			t.Error(got)
		}
	})
}

// TestSpread checks percentiles against numpy.percentile([1, 2, 4, 8], [50, 90, 99]).
func TestSpread(t *testing.T) {
	s := spread([]float64{8, 1, 4, 2})
	if !near(s.Mean, 3.75) || !near(s.P50, 3) || !near(s.P90, 6.8) || !near(s.P99, 7.88) || spread(nil) != (Spread{}) {
		t.Errorf("%+v", s)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"))
	f.Add([]byte(": comment\n\ndata: {\"error\":{}}\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Sample
		err := new(Target).read(bytes.NewReader(b), time.Now(), &s, func(int) bool { return true })
		if (err == nil) != (s.Hash != "") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func FuzzGauges(f *testing.F) {
	f.Add([]byte("# HELP a b\na{b=\"c d}\"} 1 1700000000\na 2\nb NaN\n"))
	f.Fuzz(func(t *testing.T, b []byte) { gauges(b) })
}
