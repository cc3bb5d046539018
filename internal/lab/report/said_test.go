package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
)

// TestRoundingIsNoCause: how an engine rounds is not counted among the causes of what is wrong, and not red.
func TestRoundingIsNoCause(t *testing.T) {
	numeric := diagnose.Finding{Cause: "numeric_kv", Op: "StoreKV", Layers: []int{0, 1}}
	d := &diagnose.Diagnosis{Verdict: diagnose.Structural, Layers: 2, Findings: []diagnose.Finding{
		{Cause: "attention_scale", Op: "Attention", Layers: []int{1}}, numeric, {Cause: "numeric_activations", Op: "Linear", Layers: []int{0, 1}}}}
	if got := headline(d); got != "attention_scale (layer 1)" {
		t.Errorf("%q", got)
	}
	colored := write(t, text(Terminal{Color: true}), d)
	if !strings.Contains(colored, "\x1b[1;31mattention_scale") || !strings.Contains(colored, "\x1b[1;32mnumeric_kv") {
		t.Errorf("%q", colored)
	}
	d = &diagnose.Diagnosis{Verdict: diagnose.Unexplained, Findings: []diagnose.Finding{numeric}}
	if got := headline(d); got != meaning(diagnose.Unexplained) {
		t.Errorf("%q", got)
	}
	d.Verdict = diagnose.Numeric
	if got := headline(d); !strings.HasPrefix(got, "numeric_kv") {
		t.Errorf("%q", got)
	}
}

// TestHeadlineOfNoLogits: of logits that a dump lacks nothing is said to follow.
func TestHeadlineOfNoLogits(t *testing.T) {
	d := &diagnose.Diagnosis{Verdict: diagnose.Clean}
	if got := headline(d); got != "Every equation holds to rounding. The dump has no logits." {
		t.Errorf("%q", got)
	}
	d.Closure.Prompts = 1
	if got := headline(d); got != meaning(diagnose.Clean) {
		t.Errorf("%q", got)
	}
}

// TestHeadlineOfUnknown: the first line says of what has no known cause that it differs, and where.
func TestHeadlineOfUnknown(t *testing.T) {
	d := &diagnose.Diagnosis{Verdict: diagnose.Structural, Layers: 4, Findings: []diagnose.Finding{
		{Cause: "unknown", Op: "Attention", Layers: []int{0, 1, 2}}, {Cause: "norm_missing", Op: "RMSNorm", Layers: []int{3}}}}
	if got := headline(d); got != "Attention differs, cause not known (layers 0–2) and norm_missing (layer 3)" {
		t.Errorf("%q", got)
	}
}

// TestBetween: a finding between taps names the operations among which it lies, in the first line and where it is.
func TestBetween(t *testing.T) {
	d := &diagnose.Diagnosis{Verdict: diagnose.Structural, Layers: 2, Coverage: diagnose.Coverage{Equations: 4, Nodes: 1, Spanning: 3, Longest: 7}, Findings: []diagnose.Finding{
		{Cause: "unknown", Op: "Linear", Layers: []int{0, 1}, Among: []string{"RMSNorm ffn_norm", "GLU glu", "Linear ffn_down"}}}}
	const among = "one of 3 operations, from RMSNorm ffn_norm to Linear ffn_down"
	if got := headline(d); got != among+" differs, cause not known (all 2 layers)" {
		t.Errorf("%q", got)
	}
	if got := where(d, &d.Findings[0]); got != among+", all 2 layers" {
		t.Errorf("%q", got)
	}
	if got := equations(d); !strings.HasSuffix(got, " 3 of them span several operations, up to 7: which of these is wrong no tap tells.") {
		t.Errorf("%q", got)
	}
}

// TestManyPositions: rows that were looked at one after another are one run, and of many runs the last is told, too.
func TestManyPositions(t *testing.T) {
	f := diagnose.Finding{Tap: "x"}
	d := &diagnose.Diagnosis{Coverage: diagnose.Coverage{Positions: 400}}
	look := func(bad func(position int) bool) string {
		c := diagnose.Curve{Tap: "x", Flagged: true, Floor: 1e-6}
		for p := 0; p < 400; p += 3 {
			residual := lab.Number(1e-7)
			if bad(p) {
				residual = 1
			}
			c.Rows, c.Positions = append(c.Rows, residual), append(c.Positions, p)
		}
		d.Curves = []diagnose.Curve{c}
		return positions(d, &f)
	}
	for want, bad := range map[string]func(position int) bool{
		"from 66 on, of 134 looked at":                                           func(p int) bool { return p > 64 },
		"66–93, 99–126: 20 of 134 looked at":                                     func(p int) bool { return 64 < p && p < 96 || 96 < p && p < 128 },
		"66, 75, 84, 93, 102, 111, 120, …, 399 (38 in all): 38 of 134 looked at": func(p int) bool { return p > 64 && p%9 == 3 },
	} {
		if got := look(bad); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestUnbuilt: what findings without a known cause make of the logits is open, not unexplained.
func TestUnbuilt(t *testing.T) {
	d := &diagnose.Diagnosis{Findings: []diagnose.Finding{{Cause: "unknown"}, {Cause: "numeric_kv"}},
		Closure: diagnose.Closure{Before: 1, After: 1, Floor: 1e-9, Unexplained: 1, Unbuilt: 1, Prompts: 1}}
	for _, want := range []string{"One finding has no known cause, so it cannot be built into the reference", "is open."} {
		if got := closure(d); !strings.Contains(got, want) || strings.Contains(got, "unexplained") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	d.Findings = append(d.Findings, diagnose.Finding{Cause: "attention_scale"})
	d.Closure.After = 0.25
	if got := closure(d); !strings.Contains(got, "With the other findings built into the reference 0.25 are left; one finding has no known cause") {
		t.Errorf("%q", got)
	}
	d.Closure.Unbuilt = 0
	if got := closure(d); !strings.Contains(got, "unexplained") {
		t.Errorf("%q", got)
	}
}

// TestExplained: the rest may be called rounding only up to the floor that was measured.
func TestExplained(t *testing.T) {
	d := &diagnose.Diagnosis{Findings: []diagnose.Finding{{Cause: "attention_scale"}}, Closure: diagnose.Closure{Before: 1, After: 3e-4, Floor: 4e-4, Prompts: 1}}
	for after, want := range map[lab.Number]string{3e-4: "which is rounding: they explain all of it", 5e-4: "it may be rounding, or something that stays below it", 1e-2: "unexplained"} {
		if d.Closure.After = after; !strings.Contains(closure(d), want) {
			t.Errorf("%v: %q, want %q", after, closure(d), want)
		}
	}
}

// TestUnplacedTogether: taps without a place that differ in their layer alone are told once.
func TestUnplacedTogether(t *testing.T) {
	d := &diagnose.Diagnosis{}
	for i := range 24 {
		d.Coverage.Unplaced = append(d.Coverage.Unplaced, fmt.Sprintf("model.layers.%d.self_attn.rotary.out: no such module", i), fmt.Sprintf("blk.%d.x: no such node", i), fmt.Sprintf("kq-%d: scores are not taken", i))
	}
	d.Coverage.Unplaced = append(d.Coverage.Unplaced, "odd: no such node")
	want := "; 73 without a place: model.layers.0.self_attn.rotary.out: no such module (and 23 alike), blk.0.x: no such node (and 23 alike), kq-0: scores are not taken (and 23 alike), odd: no such node."
	if got := seen(d)[0]; !strings.HasSuffix(got, want) {
		t.Errorf("%q", got)
	}
}
