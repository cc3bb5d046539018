package parity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
)

// unknown is the name of what no cause of the catalogue explains.
const unknown = "unknown"

// Place is a cause, the operation and the layers: sorted, empty outside the layers.
type Place struct {
	Cause  string `json:"cause"`
	Op     string `json:"op"`
	Layers []int  `json:"layers"`

	Tower bool `json:"tower,omitempty"` // whether the place is in the part that sees

	// Span is the operations among which no tap tells, where a fault in one of them has no name.
	Span []string `json:"span,omitempty"`
}

// in reports whether p is of q's operation, or of a span without a name that has it.
func (p Place) in(q Place) bool {
	if p.Tower != q.Tower {
		return false
	}
	return p.Op == q.Op || p.Cause == unknown && slices.Contains(p.Span, q.Op)
}

func (p Place) String() string {
	where := "outside"
	if len(p.Layers) > 0 {
		where = strings.ReplaceAll(fmt.Sprint(p.Layers), " ", ",")
	}
	if p.Tower {
		where += " of the tower"
	}
	return fmt.Sprintf("%s %s %s", p.Cause, p.Op, where)
}

// touches reports whether both are of one operation and have a layer in common.
func (p Place) touches(q Place) bool {
	return q.in(p) && (len(p.Layers)+len(q.Layers) == 0 || slices.ContainsFunc(p.Layers, func(l int) bool {
		return slices.Contains(q.Layers, l)
	}))
}

// found reports whether findings of p's cause are in p's operation and in exactly its layers.
func (p Place) found(got []Place) bool {
	var layers []int
	some := false
	for _, g := range got {
		if g.is(p) {
			layers, some = append(layers, g.Layers...), true
		}
	}
	slices.Sort(layers)
	return some && slices.Equal(slices.Compact(layers), p.Layers)
}

// is reports whether p, a finding, is of q's cause, and of its operation.
func (p Place) is(q Place) bool {
	return p.Cause == q.Cause && p.in(q) && (len(p.Layers) == 0) == (len(q.Layers) == 0)
}

// join makes one place of those of one cause and operation: that two layers have it
// with other numbers makes no difference.
func join(all []Place) []Place {
	joined := []Place{}
	for _, p := range all {
		i := slices.IndexFunc(joined, func(q Place) bool {
			return q.Cause == p.Cause && q.Op == p.Op && q.Tower == p.Tower &&
				(len(q.Layers) == 0) == (len(p.Layers) == 0) &&
				slices.Equal(q.Span, p.Span)
		})
		if i < 0 {
			joined = append(joined, p)
			continue
		}
		layers := append(slices.Clone(joined[i].Layers), p.Layers...)
		slices.Sort(layers)
		joined[i].Layers = slices.Compact(layers)
	}
	return joined
}

// listed reports whether a fault has a hypothesis: its cause is in the catalogue.
func listed(id string) bool {
	_, ok := mistake.Find(id)
	return ok && id != unknown
}

// wanted is what the answer key says that findings should be.
func wanted(key []mistake.Injected) []Place {
	var all []Place
	for _, in := range key {
		p := Place{Cause: in.Cause, Op: in.Op, Layers: in.Layers, Tower: strings.HasPrefix(in.Fault, "tower.")}
		if !listed(p.Cause) {
			p.Cause = unknown
		}
		all = append(all, p)
	}
	return join(all)
}

// found is the rest of a diagnosis without rounding, nobody's mistake.
func found(d *diagnose.Diagnosis) []Place {
	var all []Place
	for _, f := range d.Findings {
		if c, _ := mistake.Find(f.Cause); c.Kind != mistake.Numeric {
			p := Place{Cause: f.Cause, Op: f.Op, Layers: f.Layers, Tower: f.Tower > 0}
			if f.Cause == unknown && len(f.Span) > 1 {
				p.Span = f.Span
			}
			all = append(all, p)
		}
	}
	return join(all)
}

// Count is how many of how many.
type Count struct {
	Hit int `json:"hit"`
	Of  int `json:"of"`
}

func (c Count) String() string {
	if c.Of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", c.Hit, c.Of)
}

// Share is Hit / Of in percent.
func (c Count) Share() float64 {
	if c.Of == 0 {
		return 0
	}
	return 100 * float64(c.Hit) / float64(c.Of)
}

// Scores are those of one case, or of many. Of the last four less is better.
type Scores struct {
	Detected  Count `json:"detected"`  // faulty dumps with a verdict that says so
	Operation Count `json:"operation"` // faults with a finding in their operation
	Layers    Count `json:"layers"`    // ... and in exactly their layers
	Named     Count `json:"named"`     // of the faults that have a hypothesis: the first finding there has the name
	// faulty dumps whose findings are the faults: causes, operations, layers, no other
	Exact     Count   `json:"exact"`
	Class     Count   `json:"class"`     // clean dumps that do not tell their rounding, where it was found
	Right     Count   `json:"right"`     // findings that are a fault, of all findings in faulty dumps
	Recalled  Count   `json:"recalled"`  // faults that are a finding, of all faults
	Misnamed  Count   `json:"misnamed"`  // of the faults without a hypothesis: a finding there has a name
	Sensitive Count   `json:"sensitive"` // faulty dumps called sensitivity
	False     Count   `json:"false"`     // clean dumps with a finding, or a verdict that says something is wrong
	Errors    Count   `json:"errors"`    // diagnoses that failed
	Seconds   float64 `json:"seconds"`   // of diagnoses
}

// F1 is the harmonic mean of Right's and Recalled's shares, 0..1.
func (s *Scores) F1() float64 {
	if s.Right.Hit == 0 {
		return 0
	}
	return 2 / (float64(s.Right.Of)/float64(s.Right.Hit) + float64(s.Recalled.Of)/float64(s.Recalled.Hit))
}

// score is one column or row of tables.
type score struct {
	Name  string
	Less  bool // is better
	Count func(s *Scores) *Count
}

const exactSet = "exact set"

var scores = []score{
	{"detected", false, func(s *Scores) *Count { return &s.Detected }},
	{"operation", false, func(s *Scores) *Count { return &s.Operation }},
	{"operation and layers", false, func(s *Scores) *Count { return &s.Layers }},
	{"name", false, func(s *Scores) *Count { return &s.Named }},
	{exactSet, false, func(s *Scores) *Count { return &s.Exact }},
	{"class of rounding", false, func(s *Scores) *Count { return &s.Class }},
	{"findings that are right", false, func(s *Scores) *Count { return &s.Right }},
	{"faults that are found", false, func(s *Scores) *Count { return &s.Recalled }},
	{"misnamed", true, func(s *Scores) *Count { return &s.Misnamed }},
	{"false sensitivity", true, func(s *Scores) *Count { return &s.Sensitive }},
	{"false findings", true, func(s *Scores) *Count { return &s.False }},
	{"errors", true, func(s *Scores) *Count { return &s.Errors }},
}

func (s *Scores) add(t *Scores) {
	for _, x := range scores {
		c, d := x.Count(s), x.Count(t)
		c.Hit += d.Hit
		c.Of += d.Of
	}
	s.Seconds += t.Seconds
}

func (c *Count) count(hit bool) {
	c.Of++
	if hit {
		c.Hit++
	}
}

// fine are the verdicts that say of an engine that it is right.
func fine(v diagnose.Verdict) bool {
	return v == diagnose.Clean || v == diagnose.Numeric || v == diagnose.Sensitivity
}

// score compares a diagnosis with the answer key, x.Want.
func (x *Result) score(c *example, d *diagnose.Diagnosis) {
	x.Verdict, x.Got = d.Verdict, found(d)
	x.Rounding = strings.TrimSpace(d.Floors.Activations + " " + d.Floors.KV + " " + d.Floors.GELU)
	x.Scores, x.Failed = Scores{}, nil
	s := &x.Scores
	s.Seconds = d.Seconds
	s.Errors.count(x.Error != "")
	if len(x.Want) > 0 {
		s.faulty(x.Want, x.Got, d.Verdict)
	} else {
		s.False.count(len(x.Got) > 0 || !fine(d.Verdict))
		if !c.said && len(c.faults) == 0 && c.taps != NoTaps { // logits do not tell it
			s.Class.count(sameClass(c, d.Floors))
		}
	}
	for _, k := range scores {
		if n := k.Count(s); n.Hit < n.Of && !k.Less || n.Hit > 0 && k.Less {
			x.Failed = append(x.Failed, k.Name)
		}
	}
}

// faulty scores the findings in a faulty dump.
func (s *Scores) faulty(key []mistake.Injected, got []Place, v diagnose.Verdict) {
	want := wanted(key)
	s.Detected.count(v != "" && !fine(v))
	s.Sensitive.count(v == diagnose.Sensitivity)
	hits := 0
	for _, w := range want {
		there := slices.IndexFunc(got, func(g Place) bool { return w.touches(g) && !another(g, w, want) })
		s.Operation.count(slices.ContainsFunc(got, func(g Place) bool { return g.in(w) }))
		s.Layers.count(slices.ContainsFunc(got, func(g Place) bool {
			return g.in(w) && slices.Equal(g.Layers, w.Layers)
		}) || w.found(got))
		if w.Cause != unknown {
			s.Named.count(len(got) > 0 && got[max(there, 0)].Cause == w.Cause)
		} else {
			s.Misnamed.count(slices.ContainsFunc(got, func(g Place) bool { return misnames(g, w, want) }))
		}
		hit := w.found(got)
		s.Recalled.count(hit)
		if hit {
			hits++
		}
	}
	right := slices.DeleteFunc(slices.Clone(got), func(g Place) bool {
		return !slices.ContainsFunc(want, func(w Place) bool { return g.is(w) && w.found(got) })
	})
	s.Right.Hit, s.Right.Of = len(right), len(got)
	s.Exact.count(hits == len(want) && len(right) == len(got))
}

// another reports whether a finding is not w, but another fault that was wanted there.
func another(g, w Place, want []Place) bool {
	return g.Cause != w.Cause && slices.ContainsFunc(want, func(o Place) bool {
		return o.Cause == g.Cause && o.touches(g)
	})
}

// misnames reports whether a finding gives w, a fault without a hypothesis, a name:
// where w is the only fault any name is wrong.
func misnames(g, w Place, want []Place) bool {
	if g.Cause == unknown {
		return false
	}
	return len(want) == 1 || w.touches(g) && !another(g, w, want)
}

// sameClass reports whether a clean engine's rounding was found.
func sameClass(c *example, f diagnose.Floors) bool {
	want := c.class
	if want.Activations == "" {
		want.Activations = "f64"
	}
	kv := want.KV == "" || f.KV == string(want.KV) ||
		want.Activations == round.BF16 && want.KV == round.F16 // which loses nothing of bfloat16
	gelu := string(want.GELU) == f.GELU
	return kv && gelu && f.Activations == string(want.Activations)
}
