package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// maxTaps is the number of taps printed by WriteText.
const maxTaps = 20

// WriteText prints the comparison for a person: a line a prompt, the worst taps
// of all prompts, and whether all prompts are inside.
func (c *Comparison) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, strings.TrimSpace("golden "+Printable(c.Golden)+" "+Printable(numerics(c.GoldenNumerics))))
	fmt.Fprintln(&b, strings.TrimSpace("record "+Printable(c.Record)+" "+Printable(numerics(c.RecordNumerics))))
	fmt.Fprintln(&b)
	c.writePrompts(&b)
	writeIndices(&b, "only in golden", c.OnlyGolden)
	writeIndices(&b, "only in record", c.OnlyRecord)
	c.writeTaps(&b)
	c.writeVerdict(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// numerics returns the record's words on its engine, without the hashes, which serve programs more than people.
func numerics(b json.RawMessage) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil || all["hashes"] == nil {
		return string(b)
	}
	delete(all, "hashes")
	b, _ = json.Marshal(all)
	return string(b)
}

// Printable returns s with replacements for characters a terminal might obey.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// table starts a table with aligned columns.
func table(w io.Writer, head ...string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row(t, head...)
	return t
}

func row(t *tabwriter.Writer, cells ...string) {
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// small prints a distance, share a part of 1.
func small(n Number) string { return fmt.Sprintf("%.2g", float64(n)) }
func share(n Number) string { return fmt.Sprintf("%.1f%%", 100*float64(n)) }

func optional(n *Number) string {
	if n == nil {
		return "-"
	}
	return small(*n)
}

// distanceRow prints a line of writePrompts' table; beside are the limits and floors.
func distanceRow(t *tabwriter.Writer, prompt, verdict, ids string, d *Distance, beside [4]string, rest ...string) {
	row(t, append([]string{prompt, verdict, ids, fmt.Sprint(d.Positions),
		small(d.MaxAbsDiff), beside[0], beside[1], small(d.LastMaxAbsDiff), small(d.MeanAbsDiff),
		fmt.Sprintf("%.7f", float64(d.CosineMin)), small(d.KLMean), beside[2], beside[3],
		share(d.Top1), share(d.Top5), share(d.Top10)}, rest...)...)
}

func (c *Comparison) writePrompts(w io.Writer) {
	t := table(w, "prompt", "", "ids", "rows", "max|Δ|", "limit", "float32", "last", "mean|Δ|", "cosine", "KL", "limit",
		"float32",
		"top-1", "top-5", "top-10", "entropy", "text")
	for i := range c.Prompts {
		p := &c.Prompts[i]
		floorDiff, floorKL := "-", "-"
		if f := p.Float32; f != nil {
			floorDiff, floorKL = small(f.MaxAbsDiff), small(f.KLMean)
		}
		verdict := "inside"
		switch {
		case !p.limited():
			verdict = "no limit"
		case !p.Inside:
			verdict = "OUTSIDE"
		}
		entropy := fmt.Sprintf("%.4f %.4f", float64(p.GoldenEntropy), float64(p.RecordEntropy))
		distanceRow(t, fmt.Sprint(p.Index), verdict, p.IDs, &p.Distance,
			[4]string{optional(p.MaxDiffLimit), floorDiff, optional(p.MaxKLLimit), floorKL}, entropy, excerpt(p.Text))
	}
	distanceRow(t, "all", "", "", &c.All, [4]string{})
	t.Flush() // to a strings.Builder, which takes everything
	fmt.Fprintln(w, "Distances are of logits; KL is in nats, a mean over the rows (positions); float32 is the golden "+
		"record's own noise; entropy is golden's and record's, at the last position.")
}

// excerpt returns the beginning of a prompt's text on a single line.
func excerpt(text string) string {
	const most = 32
	if r := []rune(text[:min(len(text), 4*most+4)]); len(r) > most {
		text = string(r[:most-1]) + "…"
	}
	return Printable(strings.ReplaceAll(text, "\n", "⏎"))
}

func writeIndices(w io.Writer, what string, indices []int) {
	if len(indices) > 0 {
		fmt.Fprintf(w, "prompts %s: %v\n", what, indices)
	}
}

// writeTaps prints the worst taps of all prompts.
func (c *Comparison) writeTaps(w io.Writer) {
	type tap struct {
		TapComparison
		prompt int
	}
	var all []tap
	onlyGolden, onlyRecord := 0, 0
	for i := range c.Prompts {
		p := &c.Prompts[i]
		onlyGolden += p.TapsOnlyGolden
		onlyRecord += p.TapsOnlyRecord
		for _, x := range p.Taps {
			all = append(all, tap{x, p.Index})
		}
	}
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b tap) int { return worstFirst(a.TapComparison, b.TapComparison) })
	fmt.Fprintf(w, "\nTaps, relative L2 error, worst first: %d compared, %d only in golden, %d only in record\n",
		len(all), onlyGolden, onlyRecord)
	t := table(w, "worst row", "at", "all rows", "rows", "prompt", "tap")
	for _, x := range all[:min(len(all), maxTaps)] {
		name := x.Name
		if x.NeedNotMatch {
			name += " (need not match)"
		}
		if x.Problem != "" {
			row(t, "-", "-", "-", "-", fmt.Sprint(x.prompt), name+": "+x.Problem)
			continue
		}
		row(t, small(x.Worst), fmt.Sprint(x.WorstRow), small(x.Whole), fmt.Sprint(x.Rows), fmt.Sprint(x.prompt), name)
	}
	t.Flush()
	if rest := len(all) - maxTaps; rest > 0 {
		fmt.Fprintf(w, "and %d more\n", rest)
	}
}

func (c *Comparison) writeVerdict(w io.Writer) {
	inside, limited := 0, 0
	for i := range c.Prompts {
		if c.Prompts[i].limited() {
			limited++
		}
		if c.Prompts[i].Inside {
			inside++
		}
	}
	verdict := "inside"
	if !c.Inside() {
		verdict = "OUTSIDE"
	}
	if open := len(c.Prompts) - limited; open > 0 {
		fmt.Fprintf(w, "\nnot judged: %d of %d prompts have no limit\n", open, len(c.Prompts))
	} else {
		fmt.Fprintf(w, "\n%s: %d of %d prompts are inside their limits\n", verdict, inside, len(c.Prompts))
	}
	if c.lacking() {
		fmt.Fprintf(w, "The record lacks %d of the golden record's prompts; --partial allows that.\n",
			len(c.OnlyGolden))
	}
}
