package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// WriteJSON writes all of r as one object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteCSV writes the results, a line each.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"model_filename", "model_type", "model_size", "model_n_params", "backends", "n_threads", "n_prompt", "n_gen", "n_depth", "n_parallel", "median_ts", "stddev_ts", "weights_gb_s"}}
	real := func(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }
	for _, t := range r.Results {
		rows = append(rows, []string{r.Model, r.Arch, strconv.FormatInt(r.Size, 10), strconv.FormatInt(r.Params, 10), r.Backend, strconv.Itoa(t.Threads),
			strconv.Itoa(t.Prompt), strconv.Itoa(t.Tokens), strconv.Itoa(t.Depth), strconv.Itoa(t.Parallel), real(t.Median), real(t.Stddev), real(t.GBs)})
	}
	return c.WriteAll(rows)
}

// WriteMarkdown writes the results as llama-bench's table, and the rest below it.
func (r *Report) WriteMarkdown(w io.Writer) (err error) {
	print := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	print("| model | size | params | backend | threads | parallel | test | t/s | GB/s |\n| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, t := range r.Results {
		read := ""
		if t.GBs > 0 {
			read = fmt.Sprintf("%.2f", t.GBs)
		}
		print("| %s | %.2f GiB | %.2f B | %s | %d | %d | %s | %.2f ± %.2f | %s |\n", r.Arch, float64(r.Size)/(1<<30), float64(r.Params)/1e9, r.Backend,
			t.Threads, t.Parallel, t.Test, t.Median, t.Stddev, read)
	}
	print("\n")
	for _, l := range r.Loads {
		print("load, threads %d: %.3f s; first token after %.3f s\n", l.Threads, l.Seconds, l.First)
	}
	if r.Peak > 0 {
		print("resident: %.1f MiB, at most %.1f MiB\n", float64(r.Resident)/(1<<20), float64(r.Peak)/(1<<20))
	}
	return err
}
