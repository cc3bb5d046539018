package parity

import (
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// finding is one as a diagnosis has it.
func finding(cause, op string, layers ...int) diagnose.Finding {
	return diagnose.Finding{Cause: cause, Op: op, Layers: append([]int{}, layers...)}
}

func injected(cause, op string, layers ...int) mistake.Injected {
	return mistake.Injected{Cause: cause, Op: op, Layers: append([]int{}, layers...)}
}

// TestScore scores made-up diagnoses: right, blind, vague and wrong ones.
func TestScore(t *testing.T) {
	scale := injected("attention_scale", "Attention", 0, 1, 2)
	strange := injected("x_norm_abs", "RMSNorm", 1)
	cap := injected("softcap_missing", "Softcap")
	bf16 := finding("numeric_activations", "Linear", 0, 1, 2)
	for _, c := range []struct {
		name     string
		want     []mistake.Injected
		verdict  diagnose.Verdict
		findings []diagnose.Finding
		failed   string
	}{
		{"perfect", []mistake.Injected{scale}, diagnose.Structural, []diagnose.Finding{finding("attention_scale", "Attention", 0, 1, 2)}, ""},
		{"with rounding", []mistake.Injected{scale}, diagnose.Structural, []diagnose.Finding{finding("attention_scale", "Attention", 0, 1, 2), bf16}, ""},
		{"in two parts", []mistake.Injected{scale}, diagnose.Structural, []diagnose.Finding{finding("attention_scale", "Attention", 1), finding("attention_scale", "Attention", 0, 2)}, ""},
		{"blind", []mistake.Injected{scale}, diagnose.Clean, nil, "detected, operation, operation and layers, name, exact set, faults that are found"},
		{"sensitivity", []mistake.Injected{scale}, diagnose.Sensitivity, []diagnose.Finding{bf16}, "detected, operation, operation and layers, name, exact set, faults that are found, false sensitivity"},
		{"a layer too few", []mistake.Injected{scale}, diagnose.Structural, []diagnose.Finding{finding("attention_scale", "Attention", 0, 1)}, "operation and layers, exact set, findings that are right, faults that are found"},
		{"other name", []mistake.Injected{scale}, diagnose.Structural, []diagnose.Finding{finding("mask", "Attention", 0, 1, 2)}, "name, exact set, findings that are right, faults that are found"},
		{"other place", []mistake.Injected{scale}, diagnose.Structural, []diagnose.Finding{finding("attention_scale", "RoPE", 0, 1, 2)}, "operation, operation and layers, exact set, findings that are right, faults that are found"},
		{"one too many", []mistake.Injected{scale}, diagnose.Structural, []diagnose.Finding{finding("attention_scale", "Attention", 0, 1, 2), finding("mask", "Attention", 0)}, "exact set, findings that are right"},
		{"no name", []mistake.Injected{strange}, diagnose.Structural, []diagnose.Finding{finding("unknown", "RMSNorm", 1)}, ""},
		{"misnamed", []mistake.Injected{strange}, diagnose.Structural, []diagnose.Finding{finding("norm_eps", "RMSNorm", 1)}, "exact set, findings that are right, faults that are found, misnamed"},
		{"two", []mistake.Injected{strange, cap}, diagnose.Structural, []diagnose.Finding{finding("softcap_missing", "Softcap"), finding("unknown", "RMSNorm", 1)}, ""},
		{"two norms", []mistake.Injected{injected("norm_eps", "RMSNorm", 1), injected("norm_offset", "RMSNorm", 1)}, diagnose.Structural, []diagnose.Finding{finding("norm_offset", "RMSNorm", 1), finding("norm_eps", "RMSNorm", 1)}, ""},
		{"one of two norms", []mistake.Injected{injected("norm_eps", "RMSNorm", 1), injected("norm_offset", "RMSNorm", 1)}, diagnose.Structural, []diagnose.Finding{finding("norm_offset", "RMSNorm", 1)}, "name, exact set, faults that are found"},
		{"one of two", []mistake.Injected{strange, cap}, diagnose.Structural, []diagnose.Finding{finding("unknown", "RMSNorm", 1)}, "operation, operation and layers, name, exact set, faults that are found"},
		{"clean", nil, diagnose.Numeric, []diagnose.Finding{bf16}, ""},
		{"false alarm", nil, diagnose.Structural, []diagnose.Finding{finding("unknown", "Linear", 0)}, "false findings"},
		{"unexplained", nil, diagnose.Unexplained, nil, "false findings"},
	} {
		x := &Result{Want: c.want}
		x.score(&example{said: true}, &diagnose.Diagnosis{Verdict: c.verdict, Findings: c.findings})
		if got := strings.Join(x.Failed, ", "); got != c.failed {
			t.Errorf("%s: %q are missing, want %q", c.name, got, c.failed)
		}
	}
}

func TestF1(t *testing.T) {
	s := Scores{Right: Count{1, 2}, Recalled: Count{1, 1}}
	s.add(&Scores{Right: Count{1, 2}, Recalled: Count{1, 3}})
	if got := s.F1(); got != 0.5 { // half of the findings are right, half of the faults are found
		t.Errorf("F1 %v", got)
	}
	if none := (&Scores{Recalled: Count{0, 3}}); none.F1() != 0 {
		t.Errorf("F1 of nothing found is %v", none.F1())
	}
}
