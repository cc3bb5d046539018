package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
)

func open() func() (*checkpoint.Checkpoint, error) {
	path := filepath.Join("..", "..", "cmd", "karat", "demo.gguf")
	return func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(path) }
}

func TestRun(t *testing.T) {
	o := Options{Prompts: []int{8}, Tokens: []int{4}, Depths: []int{0, 5}, Threads: []int{1}, Parallel: []int{1, 2}, Repeat: 2, Numerics: numerics.Numerics{Precision: "fast", KV: "f16"}}
	r, err := Run(t.Context(), open(), o)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range r.Results {
		names = append(names, x.Test)
		if len(x.Samples) != 2 || x.Median <= 0 || (x.GBs > 0) != (x.Tokens > 0 && x.Parallel == 1) {
			t.Errorf("%+v", x)
		}
	}
	if got := strings.Join(names, ","); got != "pp8,tg4,pp8,tg4,pp8 @ d5,tg4 @ d5,pp8 @ d5,tg4 @ d5" {
		t.Errorf("tests %s", got)
	}
	if len(r.Loads) != 1 || r.Loads[0].First < r.Loads[0].Seconds || r.Params != 6298624 {
		t.Errorf("%+v", r)
	}
	formats(t, r)
}

func formats(t *testing.T, r *Report) {
	var b bytes.Buffer
	if err := r.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	if rows, err := csv.NewReader(&b).ReadAll(); err != nil || len(rows) != 9 || rows[1][6] != "8" || r.PeerName != "" && rows[1][21] == "" {
		t.Errorf("CSV %v, %v", rows, err)
	}
	b.Reset()
	var back Report
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Results[3].Median != r.Results[3].Median {
		t.Errorf("JSON %+v, %v", back, err)
	}
	b.Reset()
	r.Results[3].Step = &Step{Dispatches: 7, Device: 0.003, Host: 0.001}
	const step = "tg4, threads 1, parallel 2: a step has 7 dispatches and takes the GPU 3.000 ms, and the host 1.000 ms more (25 %)"
	if err := r.WriteMarkdown(&b); err != nil || !strings.Contains(b.String(), "| tg4 @ d5 |") || !strings.Contains(b.String(), step) {
		t.Errorf("Markdown %s, %v", &b, err)
	}
}

// TestArrive: each sequence that decodes has tokens while a prompt of several steps is computed.
func TestArrive(t *testing.T) {
	o := Options{Arrive: []int{600}, Depths: []int{0, 3}, Threads: []int{2}, Parallel: []int{3}, Repeat: 1, Numerics: numerics.Numerics{Precision: "fast", KV: "f16"}}
	r, err := Run(t.Context(), open(), o)
	if err != nil || len(r.Results) != 2 || r.Results[1].Test != "arrive600 @ d3" {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, x := range r.Results {
		if a := x.Arrival; a == nil || a.Tokens != 600 || a.Steps < 2 || a.Fewest > a.Steps || a.Slowest > a.Longest || !(a.Alone > 0 && a.Mixed > 0 && a.Longest >= a.Mixed) || len(x.Samples) != 1 {
			t.Errorf("%+v", x)
		}
	}
}

// TestApart: sequences of the same tokens keep keys and values of their own (one leaves a page more
// behind than it needs), which a budget bounds.
func TestApart(t *testing.T) {
	o := Options{Prompts: []int{100}, Depths: []int{200}, Threads: []int{1}, Parallel: []int{1}, Repeat: 1, Numerics: numerics.Numerics{Precision: "fast", KV: "f16"}}
	one, err := Run(t.Context(), open(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Parallel = []int{3}
	three, err := Run(t.Context(), open(), o)
	if err != nil || 2*three.KV < 5*one.KV || three.Results[0].Holds != 0 {
		t.Errorf("three sequences keep %d bytes, one %d; %v", three.KV, one.KV, err)
	}
	o.Budget = one.KV
	tight, err := Run(t.Context(), open(), o)
	if err != nil || tight.KV > one.KV || tight.Results[0].Holds != 1 {
		t.Errorf("a budget of %d bytes: %d are kept, %v", o.Budget, tight.KV, err)
	}
}

func TestSpread(t *testing.T) {
	if m, d := spread([]float64{4, 1, 1}); m != 1 || d < 1.732 || d > 1.733 {
		t.Errorf("median %g ± %g, want 1 ± 1.732", m, d)
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := Options{Tokens: []int{4}, Depths: []int{0}, Threads: []int{1}, Parallel: []int{1}, Repeat: 1, Numerics: numerics.Numerics{Precision: "fast", KV: "f16"}}
	if _, err := Run(ctx, open(), o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestOthers(t *testing.T) {
	before := otherTime()
	if after := otherTime(); before < 0 || after < before-0.1 || runtime.GOOS == "linux" && after == 0 {
		t.Errorf("others took %g s, and later %g s", before, after)
	}
}
