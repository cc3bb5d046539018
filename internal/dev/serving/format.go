package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteJSON writes all of r as one object, with every request.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteCSV writes a line for each server and level.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	head := []string{"server", "clients", "rate", "complete", "aborted", "failed", "verified", "differ",
		"prompt_tokens", "cached_tokens", "completion_tokens", "seconds", "requests_per_s", "goodput_per_s",
		"tokens_per_s"}
	for _, name := range []string{"ttft", "itl", "tpot", "e2e"} {
		for _, at := range []string{"mean", "p50", "p90", "p99"} {
			head = append(head, name+"_"+at+"_s")
		}
	}
	rows := [][]string{append(head, "ratio_tokens_per_s", "ratio_ttft_mean", "ratio_itl_p99")}
	real := func(x float64) string { return strconv.FormatFloat(x, 'f', 6, 64) }
	for _, t := range r.Rows {
		row := []string{t.Server, strconv.Itoa(t.Level.Clients), real(t.Level.Rate)}
		for _, n := range []int{t.Complete, t.Aborted, t.Failed, t.Verified, t.Differ, t.Prompt, t.Cached, t.Answer} {
			row = append(row, strconv.Itoa(n))
		}
		row = append(row, real(t.Seconds), real(t.Requests), real(t.Goodput), real(t.Tokens))
		for _, s := range []Spread{t.TTFT, t.ITL, t.TPOT, t.E2E} {
			row = append(row, real(s.Mean), real(s.P50), real(s.P90), real(s.P99))
		}
		if q := t.Ratios; q != nil {
			row = append(row, real(q.Tokens.Median), real(q.TTFT.Median), real(q.ITL.Median))
		} else {
			row = append(row, "", "", "")
		}
		rows = append(rows, row)
	}
	return c.WriteAll(rows)
}

// WriteMarkdown writes a table, and below it the ratios and what went wrong.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| server | load | answers | requests/s | goodput/s | tokens/s | TTFT ms p50 | p99 | ITL ms p50 | " +
		"p99 | TPOT ms p50 | p99 | E2E ms p50 | p99 |\n")
	b.WriteString("|---|---|" + strings.Repeat("--:|", 12) + "\n")
	for _, t := range r.Rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %.2f | %.2f | %.1f |", t.Server, t.Level, t.Complete, t.Requests,
			t.Goodput, t.Tokens)
		for _, s := range []Spread{t.TTFT, t.ITL, t.TPOT, t.E2E} {
			fmt.Fprintf(&b, " %.1f | %.1f |", 1e3*s.P50, 1e3*s.P99)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, t := range r.Rows {
		if q := t.Ratios; q != nil {
			fmt.Fprintf(&b, "%s, %s to %s: tokens/s %s, mean TTFT %s, p99 ITL %s (median and range of %d rounds)\n",
				t.Level, r.Servers[0].URL, r.Servers[1].URL, q.Tokens, q.TTFT, q.ITL, q.Rounds)
		}
	}
	for _, t := range r.Rows {
		if t.Verified > 0 {
			fmt.Fprintf(&b, "%s, %s: %d of %d answers are the same when asked again alone\n", t.Server, t.Level,
				t.Verified-t.Differ, t.Verified)
		}
		if t.Cached > 0 {
			fmt.Fprintf(&b, "%s, %s: %d of %d prompt tokens came from earlier requests\n", t.Server, t.Level,
				t.Cached, t.Prompt)
		}
		if t.Aborted > 0 {
			fmt.Fprintf(&b, "%s, %s: %d clients left, as asked\n", t.Server, t.Level, t.Aborted)
		}
		if t.Failed > 0 {
			fmt.Fprintf(&b, "%s, %s: %d requests failed, the first: %s\n", t.Server, t.Level, t.Failed, t.Error)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (q Ratio) String() string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", q.Median, q.Min, q.Max)
}
