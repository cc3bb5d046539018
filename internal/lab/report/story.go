package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// Passed reports whether a diagnosis leaves nothing to mend in the engine or its dump.
func Passed(d *diagnose.Diagnosis) bool { return len(d.Errors) == 0 && isRight(d.Verdict) }

// isRight reports whether a verdict leaves nothing to mend, as far as the dump's values were looked at.
func isRight(v diagnose.Verdict) bool {
	return v == diagnose.Clean || v == diagnose.Numeric || v == diagnose.Sensitivity
}

// meanings say what a verdict means.
var meanings = map[diagnose.Verdict]string{
	diagnose.Instrument: "The probe is broken, and what it shows is not what the engine computed. Mend it before " +
		"you look for a bug in the engine.",
	diagnose.Input:      "The engine was given other tokens than the model's tokenizer and template make of the text.",
	diagnose.Weights:    "The engine read a weight wrongly.",
	diagnose.Structural: "The engine computes something else than the model says.",
	diagnose.Reference: "The golden record and the reference disagree by more than rounding, so one of the two is " +
		"wrong, and the engine may be right.",
	diagnose.Unexplained: "Every equation that these taps allow holds, but the logits do not follow: something lies " +
		"between the taps, in state that is kept, or in a race. This is not sensitivity.",
	diagnose.Sensitivity: "Every equation holds to the engine's rounding. The logits differ because the model " +
		"amplifies that rounding as much as it was measured to.",
	diagnose.Numeric: "Every equation holds, up to the rounding that is named.",
	diagnose.Clean:   "Every equation holds to rounding, and the logits follow.",
}

func meaning(v diagnose.Verdict) string {
	return cmp.Or(meanings[v], "This verdict is not one that reports know.")
}

// verdict returns the meaning of a verdict.
func verdict(d *diagnose.Diagnosis) string {
	if d.Verdict == diagnose.Clean && lacksLogits(d) {
		return "Every equation holds to rounding. The dump has no logits."
	}
	return meaning(d.Verdict)
}

// lacksLogits reports whether the dump has no logits.
func lacksLogits(d *diagnose.Diagnosis) bool { return d.Closure.Prompts == 0 && len(d.Logits) == 0 }

// headline returns the first causes of a diagnosis and their places, without the verdict.
func headline(d *diagnose.Diagnosis) string {
	const most = 2
	if len(d.Findings) == 0 {
		return verdict(d)
	}
	findings := d.Findings
	if !isRight(d.Verdict) { // how the engine rounds is no cause of the fault
		if wrong := slices.DeleteFunc(slices.Clone(findings), rounding); len(wrong) > 0 {
			findings = wrong
		} else {
			return verdict(d)
		}
	}
	var parts []string
	for i := range findings[:min(len(findings), most)] {
		f := &findings[i]
		parts = append(parts, what(f)+" ("+placed(d, f)+")")
	}
	if more := len(findings) - most; more > 0 {
		parts = append(parts, count(more, "more cause"))
	}
	last := len(parts) - 1
	if last == 0 {
		return parts[0]
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// rounding reports whether a finding tells how an engine rounds, without a fault.
func rounding(f diagnose.Finding) bool {
	known, ok := mistake.Find(f.Cause)
	return ok && known.Kind == mistake.Numeric
}

// what names a finding's cause, or its operation if the cause is unknown.
func what(f *diagnose.Finding) string {
	if f.Cause == "unknown" && f.Op != "" {
		return operation(f) + " differs, cause not known"
	}
	return name(f.Cause)
}

// line is a labelled fact of a finding.
type line struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

// facts returns the facts of a finding, in order. The catalogue of causes fills in facts the finding lacks.
func facts(d *diagnose.Diagnosis, f *diagnose.Finding) []line {
	known, _ := mistake.Find(f.Cause)
	if f.Computed != "" {
		known.Sentence = ""
	}
	all := []line{
		{"means", known.Sentence},
		{"where", where(d, f)},
		{"positions", positions(d, f)},
		{"tap", name(f.Tap)},
		{"from", names(f.From, 6)},
		{"the engine", sentence(f.Computed)},
		{"detail", detail(f)},
		{"residual", residual(f)},
		{"evidence", sentence(f.Evidence)},
		{"fix", sentence(cmp.Or(f.Fix, known.Fix))},
		{"or", names(f.Also, 6)},
	}
	return slices.DeleteFunc(all, func(l line) bool { return l.Text == "" })
}

// where says which operation a finding is about, and in which layers.
func where(d *diagnose.Diagnosis, f *diagnose.Finding) string {
	if f.Op == "" {
		return placed(d, f)
	}
	return operation(f) + ", " + placed(d, f)
}

// operation names the operation of a finding, or the operations between which the finding lies.
func operation(f *diagnose.Finding) string {
	if n := len(f.Among); n > 1 {
		return fmt.Sprintf("one of %d operations, from %s to %s", n, name(f.Among[0]), name(f.Among[n-1]))
	}
	return name(f.Op)
}

// residual sets a finding's error against its floor.
func residual(f *diagnose.Finding) string {
	r, floor := f.Residual, f.Floor
	if r == 0 && floor == 0 {
		return ""
	}
	text := fmt.Sprintf("%s; rounding makes %s", number(r), number(floor))
	if x := ratio(r, floor); x >= 2 && !math.IsInf(x, 0) {
		text += ", " + number(x) + " times less"
	}
	return text
}

// closure says whether the findings explain the logits.
func closure(d *diagnose.Diagnosis) string {
	c := &d.Closure
	if lacksLogits(d) {
		return "The dump has no logits, so whether the findings explain them is open."
	}
	text := fmt.Sprintf("The engine's logits lie %s nats from the reference's (KL, mean over the positions of %s); "+
		"rounding alone makes %s.",
		number(c.Before), count(c.Prompts, "prompt"), number(c.Floor))
	if !beyond(c.Before, c.Floor) {
		return text + " So they agree."
	}
	if len(d.Findings) == 0 {
		return text
	}
	if n := c.Unbuilt; n > 0 && beyond(c.After, c.Floor) {
		open := "one finding has no known cause, so it cannot be built into the reference, and what it makes " +
			"of this is open."
		if n > 1 {
			open = fmt.Sprintf("%d findings have no known cause, so they cannot be built into the reference, and "+
				"what they make of this is open.", n)
		}
		if n == len(slices.DeleteFunc(slices.Clone(d.Findings), rounding)) {
			return text + " " + strings.ToUpper(open[:1]) + open[1:]
		}
		return fmt.Sprintf("%s With the other findings built into the reference %s are left; "+
			"%s", text, number(c.After), open)
	}
	text += fmt.Sprintf(" With the findings built into the reference %s are left", number(c.After))
	switch {
	case math.IsNaN(float64(c.Unexplained)):
		return text + "."
	case c.After <= max(c.Floor, 1e-13):
		return text + ", which is rounding: they explain all of it."
	case !beyond(c.After, c.Floor):
		return text + ", more than what was measured of rounding, but not by much: it may be rounding, or something " +
			"that stays below it."
	}
	return fmt.Sprintf("%s: %s is unexplained.", text, percent(c.Unexplained))
}

// flagged counts the equations that do not hold.
func flagged(d *diagnose.Diagnosis) (n int) {
	for i := range d.Curves {
		if d.Curves[i].Flagged {
			n++
		}
	}
	return n
}

// equations says how many equations hold.
func equations(d *diagnose.Diagnosis) string {
	n := max(d.Coverage.Equations, len(d.Curves))
	if n == 0 {
		return "The dump has no taps from which an operation could be computed again, so only the logits " +
			"could be judged."
	}
	bad := flagged(d)
	text := "All of them hold to rounding."
	switch {
	case bad == n:
		text = "None of them holds to rounding."
	case bad == 1:
		text = "All but one of them hold to rounding."
	case bad > 0:
		text = fmt.Sprintf("%d hold to rounding; %d do not.", n-bad, bad)
	}
	if c := d.Coverage; c.Spanning > 0 {
		text += fmt.Sprintf(" %d of them span several operations, up to %d: which of these is wrong no tap tells.",
			c.Spanning, c.Longest)
	}
	return fmt.Sprintf("%s of the graph (%s of its nodes) could be computed again from the engine's own values "+
		"before them. %s",
		count(n, "equation"), percent(d.Coverage.Nodes), text)
}

// seen describes what there was to see, and the engine's rounding.
func seen(d *diagnose.Diagnosis) []string {
	c, f := &d.Coverage, &d.Floors
	text := fmt.Sprintf("%s with taps, the longest of %s; %s placed", count(c.Prompts, "prompt"),
		count(c.Positions, "position"), count(c.Taps, "tap"))
	if len(c.Unplaced) > 0 {
		text += fmt.Sprintf("; %d without a place: %s", len(c.Unplaced), names(alike(c.Unplaced), 4))
	}
	all := []string{text + "."}
	if f.Activations == "" && f.KV == "" {
		return all
	}
	how := "inferred"
	if f.Declared {
		how = "as the dump says"
	}
	text = fmt.Sprintf("Rounding, %s: activations %s, keys and values %s", how, name(f.Activations), name(f.KV))
	if f.GELU != "" {
		text += ", GELU " + name(f.GELU)
	}
	return append(all, text+".")
}

// story tells a diagnosis in paragraphs.
func story(d *diagnose.Diagnosis) []string {
	all := append([]string{verdict(d)}, sentences(d.Errors)...)
	all = append(all, equations(d))
	const most = 6
	for i := range d.Findings[:min(len(d.Findings), most)] {
		f := &d.Findings[i]
		text := fmt.Sprintf("%s, %s: %s.", ordinal(i), name(f.Cause), where(d, f))
		if f.Computed != "" {
			text += " The engine " + strings.TrimSuffix(sentence(f.Computed), ".") + "."
		} else if known, ok := mistake.Find(f.Cause); ok {
			text += " " + known.Sentence
		}
		if x := ratio(f.Residual, f.Floor); x > outside && !math.IsInf(x, 0) {
			text += fmt.Sprintf(" That is %s times as far from the model as rounding goes.", number(x))
		}
		all = append(all, text)
	}
	if over := len(d.Findings) - most; over > 0 {
		all = append(all, fmt.Sprintf("%s below.", count(over, "more finding")))
	}
	return append(all, closure(d))
}

// ordinal names the i-th finding.
func ordinal(i int) string {
	if words := []string{"First", "Second", "Third", "Fourth", "Fifth", "Sixth"}; i < len(words) {
		return words[i]
	}
	return fmt.Sprintf("Finding %d", i+1)
}

// prompts returns the logits of the prompts that are farthest from the reference.
func prompts(d *diagnose.Diagnosis, most int) []*diagnose.Logits {
	var all []*diagnose.Logits
	for i := range d.Logits {
		all = append(all, &d.Logits[i])
	}
	// NaN first
	slices.SortStableFunc(all, func(a, b *diagnose.Logits) int { return cmp.Compare(-a.KLBefore, -b.KLBefore) })
	return all[:min(len(all), most)]
}
