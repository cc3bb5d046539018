package bench

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteCSV writes the results, a line each, with runs separated by spaces.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"model_filename", "model_type", "model_size", "model_n_params", "backends", "n_threads",
		"n_prompt", "n_gen", "n_depth", "n_parallel", "median_ts", "stddev_ts", "weights_gb_s", "samples_ts", "bound",
		"limit_share", "others_processors", "peer", "peer_samples_ts", "peer_median_ts", "peer_limit_share", "ratio",
		"ratio_min", "ratio_max", "n_arrive", "arrive_steps", "fewest_steps", "gap_alone_s", "gap_mixed_s",
		"gap_slowest_s", "gap_longest_s"}}
	whole := func(x ...int) (cells []string) {
		for _, n := range x {
			cells = append(cells, strconv.Itoa(n))
		}
		return cells
	}
	real := func(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }
	all := func(x []float64) string {
		var cells []string
		for _, v := range x {
			cells = append(cells, real(v))
		}
		return strings.Join(cells, " ")
	}
	for _, t := range r.Results {
		row := []string{r.Model, r.Arch, strconv.FormatInt(r.Size, 10), strconv.FormatInt(r.Params, 10), r.Backend}
		row = append(row, whole(t.Threads, t.Prompt, t.Tokens, t.Depth, t.Parallel)...)
		row = append(row, real(t.Median), real(t.Stddev), real(t.GBs), all(t.Samples), t.Bound, real(t.Share),
			real(t.Others), r.PeerName, all(t.Peer), real(t.PeerRate), real(t.PeerShare))
		if t.Ratio == nil {
			row = append(row, "", "", "")
		} else {
			row = append(row, real(t.Ratio.Median), real(t.Ratio.Min), real(t.Ratio.Max))
		}
		rows = append(rows, append(row, t.Arrival.cells()...))
	}
	return c.WriteAll(rows)
}

// WriteMarkdown writes the results as llama-bench's table, and the rest below.
func (r *Report) WriteMarkdown(w io.Writer) (err error) {
	print := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	if len(r.Results) > 0 {
		print("%s\n", strings.Join(r.table(), "\n"))
	}
	for _, t := range r.Results {
		if s := t.Step; s != nil {
			print("%s: a step has %.0f dispatches and takes the GPU %.3f ms, and the host %.3f ms more (%.0f %%)",
				t.name(), s.Dispatches, 1e3*s.Device, 1e3*s.Host, 100*s.Host/(s.Host+s.Device))
			if s.Read > 0 {
				print("; it reads weights at %.0f %% of what this GPU reads at most", 100*s.Read)
			}
			print("\n")
		}
	}
	for _, t := range r.Results {
		if t.Draft != nil {
			print("%s", t.Draft.text(t.name()))
		}
		if t.Arrival != nil {
			print("%s", t.Arrival.text(t.name()))
		}
	}
	for _, t := range r.Results {
		if t.Holds > 0 {
			print("%s: the budget of keys and values holds %d of the sequences at a time; the others wait, and "+
				"what gives way is computed again\n", t.name(), t.Holds)
		}
	}
	for _, t := range r.Results {
		if t.Profile != nil {
			print("%s", profileText(&t))
		}
	}
	for _, l := range r.Loads {
		print("load, threads %d: %.3f s; first token after %.3f s\n", l.Threads, l.Seconds, l.First)
		if l.Ratio != nil {
			ours, _ := spread(l.Process)
			theirs, _ := spread(l.Peer)
			print("process until first token, threads %d: %.3f s; peer %.3f s; ratio %v\n", l.Threads, ours, theirs,
				l.Ratio)
		}
	}
	for _, l := range r.Limits {
		print("limits, threads %d: read %s GB/s; %s %s, float32 %s %s Gop/s\n", l.Threads, span(l.Read), l.Names[0],
			span(l.Ints), l.Names[1], span(l.Floats))
	}
	if r.Peak > 0 {
		mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
		print("resident: %s, at most %s; without keys and values %.2f times the weights of the file\n",
			mib(r.Resident), mib(r.Peak), float64(r.Resident-r.KV)/float64(r.Size))
		print("of that: repacked weights %s, mapped files %s, keys and values %s, all else %s\n", mib(r.Weights),
			mib(r.Files), mib(r.KV), mib(r.Heap))
	}
	if r.PeerName != "" {
		print("peer: %s; a ratio above 1 says that Karat is faster\n", r.PeerName)
	}
	return err
}

// span formats a median and its extremes.
func span(x []float64) string {
	median, _ := spread(x)
	return fmt.Sprintf("%.1f (%.1f..%.1f)", median, slices.Min(x), slices.Max(x))
}

// table returns the lines of the results, with columns for the measurements.
func (r *Report) table() []string {
	peer, limits := r.PeerName != "", r.Limits != nil
	type column struct {
		head, rule string
		shown      bool
		cell       func(t *Result) string
	}
	columns := []column{
		{"model", "---", true, func(*Result) string { return r.Arch }},
		{"size", "---:", true, func(*Result) string { return fmt.Sprintf("%.2f GiB", float64(r.Size)/(1<<30)) }},
		{"params", "---:", true, func(*Result) string { return fmt.Sprintf("%.2f B", float64(r.Params)/1e9) }},
		{"backend", "---", true, func(*Result) string { return r.Backend }},
		{"threads", "---:", true, func(t *Result) string { return strconv.Itoa(t.Threads) }},
		{"parallel", "---:", true, func(t *Result) string { return strconv.Itoa(t.Parallel) }},
		{"test", "---:", true, func(t *Result) string { return t.Test }},
		{"t/s", "---:", true, func(t *Result) string { return fmt.Sprintf("%.2f ± %.2f", t.Median, t.Stddev) }},
		{"GB/s", "---:", true, func(t *Result) string { return formatNumber("%.2f", t.GBs) }},
		{"of limit", "---:", limits, func(t *Result) string { return formatNumber("%.0f %% "+t.Bound, 100*t.Share) }},
		{"peer t/s", "---:", peer, func(t *Result) string { return formatNumber("%.2f", t.PeerRate) }},
		{"ratio (min..max)", "---:", peer, func(t *Result) string { return t.Ratio.String() }},
		{"peer of limit", "---:", limits && peer, func(t *Result) string {
			return formatNumber("%.0f %%", 100*t.PeerShare)
		}},
		{"scaling", "---:", slices.ContainsFunc(r.Results, func(t Result) bool { return t.Scaling > 0 }),
			func(t *Result) string { return formatNumber("%.2f", t.Scaling) }},
		{"others' processors", "---:", slices.ContainsFunc(r.Results, func(t Result) bool { return t.Others >= 0.1 }),
			func(t *Result) string { return fmt.Sprintf("%.1f", t.Others) }},
	}
	columns = slices.DeleteFunc(columns, func(c column) bool { return !c.shown })
	line := func(cell func(column) string) string {
		text := "|"
		for _, c := range columns {
			text += " " + cell(c) + " |"
		}
		return text
	}
	lines := []string{line(func(c column) string { return c.head }), line(func(c column) string { return c.rule })}
	for i := range r.Results {
		lines = append(lines, line(func(c column) string { return c.cell(&r.Results[i]) }))
	}
	return append(lines, "")
}

// formatNumber formats x, or returns "" for 0.
func formatNumber(format string, x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf(format, x)
}
