package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
)

// What a name, a sentence and a list may take.
const (
	maxName     = 120
	maxSentence = 1000
	maxList     = 50
)

// clip returns s on a single line, without characters a terminal or a page might obey, cut to n characters.
func clip(s string, n int) string {
	cut := s[:min(len(s), 4*n+4)]
	s = lab.Printable(strings.NewReplacer("\r\n", "⏎", "\n", "⏎", "\t", " ").Replace(cut))
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func name(s string) string     { return clip(s, maxName) }
func sentence(s string) string { return clip(s, maxSentence) }

// base returns the last part of a path: reports are mailed, and folders are nobody's business.
func base(path string) string {
	if path == "" {
		return ""
	}
	return name(filepath.Base(path))
}

// sentences cleans a list of sentences; the last one counts the sentences that were cut off.
func sentences(list []string) []string {
	out := make([]string, 0, min(len(list), maxList)+1)
	for _, s := range list[:min(len(list), maxList)] {
		out = append(out, sentence(s))
	}
	if over := len(list) - maxList; over > 0 {
		out = append(out, fmt.Sprintf("and %d more", over))
	}
	return out
}

// others says how many of n things of a name are behind a list's end, "" for none.
func others(n int, name string) string {
	if n <= maxList {
		return ""
	}
	return fmt.Sprintf("and %s; the JSON has them.", count(n-maxList, "more "+name))
}

// names joins the first most of a list of names.
func names(list []string, most int) string {
	out := make([]string, 0, most+1)
	for _, s := range list[:min(len(list), most)] {
		out = append(out, name(s))
	}
	if over := len(list) - most; over > 0 {
		out = append(out, fmt.Sprintf("and %d more", over))
	}
	return strings.Join(out, ", ")
}

// numbered matches what tells taps of several layers apart.
var numbered = regexp.MustCompile(`(\blayers?\.|\bblk\.|\bh\.|-)\d+\b`)

// alike joins names that differ only in their layer: the first name, and the number of the rest.
func alike(list []string) []string {
	var out []string
	at, times := map[string]int{}, []int{}
	for _, s := range list {
		key := numbered.ReplaceAllString(s, "$1*")
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out, times = append(out, s), append(times, 0)
		}
		times[i]++
	}
	for i, n := range times {
		if n > 1 {
			out[i] = clip(out[i], maxName-20) + fmt.Sprintf(" (and %d alike)", n-1)
		}
	}
	return out
}

// number prints a measured value with two digits.
func number[T ~float32 | ~float64](v T) string { return lab.Digits(float64(v)) }

// percent prints a share of 1.
func percent[T ~float32 | ~float64](v T) string {
	x := 100 * float64(v)
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return number(x)
	case 0 < x && x < 0.1:
		return "< 0.1 %"
	case 99.9 < x && x < 100:
		return "> 99.9 %"
	}
	return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64) + " %"
}

// ratio returns how many times v exceeds its floor; NaN and infinite values exceed any floor infinitely.
func ratio[T ~float32 | ~float64](v, floor T) float64 {
	switch x, f := float64(v), float64(floor); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return math.Inf(1)
	case x <= 0:
		return 0
	case f > 0: // also if it is infinite; NaN is no floor
		return x / f
	default:
		return math.Inf(1)
	}
}

// count returns n and a noun in its number.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// ranges prints sorted numbers: 0–3, 5, 7–9.
func ranges(list []int) string { return runs(list, func(i int) int { return i }) }

// runs prints the values of sorted numbers; numbers in a row are a run. Of many runs it prints the first runs and
// the last.
func runs(list []int, of func(i int) int) string {
	const most = 8
	var out []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			out = append(out, strconv.Itoa(of(list[i])))
		case 1:
			out = append(out, strconv.Itoa(of(list[i])), strconv.Itoa(of(list[j])))
		default:
			out = append(out, fmt.Sprintf("%d–%d", of(list[i]), of(list[j])))
		}
		i = j + 1
	}
	if len(out) > most {
		out = append(out[:most-1], "…", fmt.Sprintf("%s (%d in all)", out[len(out)-1], len(list)))
	}
	return strings.Join(out, ", ")
}

// placed describes the layers of a finding.
func placed(d *diagnose.Diagnosis, f *diagnose.Finding) string {
	if f.Tower > 0 {
		return layers(f.Layers, f.Tower) + " of the tower"
	}
	return layers(f.Layers, d.Layers)
}

// layers describes layers of a model with so many layers.
func layers(list []int, of int) string {
	switch {
	case len(list) == 0:
		return "outside the layers"
	case len(list) == 1:
		return fmt.Sprintf("layer %d", list[0])
	case len(list) == of:
		return fmt.Sprintf("all %d layers", of)
	}
	return "layers " + ranges(list)
}

// outside is how many times its floor a residual is that is not rounding.
const outside = 3

// beyond reports whether a residual exceeds rounding; NaN does.
func beyond[T ~float32 | ~float64](v, floor T) bool { return ratio(v, floor) > outside }

// curve returns the equation of a finding's tap, nil if there is none.
func curve(d *diagnose.Diagnosis, f *diagnose.Finding) *diagnose.Curve {
	i := slices.IndexFunc(d.Curves, func(c diagnose.Curve) bool { return c.Tap == f.Tap })
	if i < 0 {
		return nil
	}
	return &d.Curves[i]
}

// positions describes where in the longest tapped prompt a finding's equation is broken, "" if the equation holds
// or was not measured.
func positions(d *diagnose.Diagnosis, f *diagnose.Finding) string {
	c := curve(d, f)
	if c == nil || len(c.Rows) == 0 || !c.Flagged {
		return ""
	}
	var bad []int
	for i, v := range c.Rows {
		if !beyond(float64(v), float64(c.Floor)) {
			continue
		}
		bad = append(bad, i)
	}
	at := func(i int) int {
		if i < len(c.Positions) {
			return c.Positions[i]
		}
		return i
	}
	n := len(c.Rows)
	of := fmt.Sprint(n)
	if n < d.Coverage.Positions {
		of += " looked at"
	}
	switch {
	case len(bad) == 0:
		return "not in the longest tapped prompt"
	case len(bad) == n && n < d.Coverage.Positions:
		return fmt.Sprintf("all %s, of %d", of, d.Coverage.Positions)
	case len(bad) == n:
		return "all " + count(n, "position")
	case len(bad) == n-bad[0]:
		return fmt.Sprintf("from %d on, of %s", at(bad[0]), of)
	}
	return fmt.Sprintf("%s: %d of %s", runs(bad, at), len(bad), of)
}

// detail lists a finding's details, sorted by name.
func detail(f *diagnose.Finding) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(f.Detail)) {
		var value string
		switch x := f.Detail[key].(type) {
		case string:
			value = x
		case float64:
			value = strconv.FormatFloat(x, 'g', 6, 64)
		default:
			value = fmt.Sprint(x)
			if b, err := json.Marshal(x); err == nil {
				value = string(b)
			}
		}
		out = append(out, clip(key, 40)+" "+clip(value, 100))
	}
	return clip(strings.Join(out, ", "), 400)
}

// hashes names the files of a diagnosis, "" if the diagnosis has no hashes.
func hashes(d *diagnose.Diagnosis) string {
	if d.Hashes == nil {
		return ""
	}
	var said []string
	for _, x := range [][2]string{{"weights", d.Hashes.Weights}, {"tokenizer", d.Hashes.Tokenizer},
		{"chat template", d.Hashes.Template}, {"program", d.Hashes.Program}} {
		if x[1] != "" {
			said = append(said, x[0]+" "+x[1])
		}
	}
	return "SHA-256: " + strings.Join(said, ", ")
}
