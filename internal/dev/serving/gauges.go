package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// settle waits until a server computes nothing, and returns what it holds then.
func settle(ctx context.Context, t *Target) (g Gauges, err error) {
	for range 60 {
		t.Client.CloseIdleConnections()
		select {
		case <-ctx.Done():
			return g, ctx.Err()
		case <-time.After(time.Second):
		}
		b, err := t.get(ctx, "/metrics")
		if err != nil {
			return g, err
		}
		values := gauges(b)
		if values["vllm:num_requests_running"]+values["vllm:num_requests_waiting"] > 0 {
			continue
		}
		of := func(name string) float64 {
			if x, ok := values[name]; ok {
				return x
			}
			return -1
		}
		return Gauges{of("process_resident_memory_bytes"), of("go_goroutines"), of("process_open_fds"),
			of("vllm:kv_cache_usage_perc"), of("karat_prefix_cache_bytes")}, nil
	}
	return g, errors.New("the server still computes a minute after the last client left")
}

// gauges are the values of a text for Prometheus by name. Those of several labels are added up.
func gauges(text []byte) map[string]float64 {
	values := map[string]float64{}
	for line := range bytes.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		if at := strings.IndexByte(string(line), '{'); at >= 0 { // labels may have spaces
			name = string(line[:at])
			end := bytes.LastIndexByte(line, '}')
			ok = end > at
			if ok {
				rest = strings.TrimSpace(string(line[end+1:]))
			}
		}
		value, _, _ := strings.Cut(rest, " ") // without a time
		if x, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			values[name] += x
		}
	}
	return values
}

// Growth says what grew more than noise: memory by a tenth and 64 MiB, goroutines and files by 16.
func (r *Soaked) Growth() (grown []string) {
	for _, x := range []struct {
		what            string
		from, to, slack float64
	}{
		{"memory", r.Start.Memory, r.End.Memory, r.Start.Memory/10 + 64<<20},
		{"goroutines", r.Start.Goroutines, r.End.Goroutines, 16},
		{"open files", r.Start.Files, r.End.Files, 16},
	} {
		if x.to > x.from+x.slack {
			grown = append(grown, fmt.Sprintf("%s from %.0f to %.0f", x.what, x.from, x.to))
		}
	}
	if r.End.Pages > 1 {
		grown = append(grown, fmt.Sprintf("keys and values to %.0f %% of their room", 100*r.End.Pages))
	}
	return grown
}

func (g Gauges) String() string {
	return fmt.Sprintf("%.1f MiB, %.0f goroutines, %.0f open files, %.1f %% of the room for keys and values in use, "+
		"%.1f MiB kept", g.Memory/(1<<20), g.Goroutines, g.Files, 100*g.Pages, g.Kept/(1<<20))
}

// WriteMarkdown writes what the server held, and what became of the requests.
func (r *Soaked) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| | memory, MiB | goroutines | open files | keys and values in use, % | kept, MiB " +
		"|\n|---|--:|--:|--:|--:|--:|\n")
	for _, x := range []struct {
		when string
		Gauges
	}{{"start", r.Start}, {"middle", r.Middle}, {"end", r.End}} {
		fmt.Fprintf(&b, "| %s | %.1f | %.0f | %.0f | %.1f | %.1f |\n", x.when, x.Memory/(1<<20), x.Goroutines, x.Files,
			100*x.Pages, x.Kept/(1<<20))
	}
	fmt.Fprintf(&b, "\n%.0f s: %d answers complete (%d read slowly), %d clients left, %d left while they sent, %d "+
		"requests failed\n", r.Seconds, r.Complete, r.Slow, r.Left, r.Uploads, r.Failed)
	if r.Failed > 0 {
		fmt.Fprintf(&b, "the first failure: %s\n", r.Error)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
