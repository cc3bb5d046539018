package diagnose_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/tensor"
)

// activate adds the taps of activations to a dump: f of what a module of each layer gives.
func activate(dump *lab.Record, of func(layer int) (module string, f func(float64) float64)) {
	for _, p := range dump.Prompts {
		for l := 0; p.Taps[fmt.Sprintf("model.layers.%d.mlp.gate_proj.out", l)] != nil; l++ {
			module, f := of(l)
			x := p.Taps[fmt.Sprintf("model.layers.%d.mlp.%s.out", l, module)]
			y := &tensor.Tensor{DType: x.DType, Shape: x.Shape, Data: slices.Clone(x.Data)}
			for i := 0; i < len(y.Data); i += 4 {
				v := float64(math.Float32frombits(binary.LittleEndian.Uint32(y.Data[i:])))
				binary.LittleEndian.PutUint32(y.Data[i:], math.Float32bits(float32(f(v))))
			}
			p.Taps[fmt.Sprintf("model.layers.%d.mlp.act_fn.out", l)] = y
		}
	}
}

// TestActivationTap: with taps of activations a wrong one is told from a wrong product behind it.
func TestActivationTap(t *testing.T) {
	m := tiny(t, "smollm3")
	for _, c := range []struct {
		faults, cause, op, tap string
		module                 string
		f                      func(float64) float64 // of layer 1
	}{
		{"", "", "", "", "gate_proj", reference.SiLU},
		{"activation=relu@1", "activation", "Act", "model.layers.1.mlp.act_fn.out", "gate_proj", func(x float64) float64 { return max(x, 0) }},
		{"x_exp_rational@1", "unknown", "Act", "model.layers.1.mlp.act_fn.out", "gate_proj", func(x float64) float64 { return x / 2 * (1 + x/2/(1+math.Abs(x/2))) }},
		{"x_up_plus_one@1", "unknown", "Mul", "model.layers.1.mlp.down_proj.in", "gate_proj", reference.SiLU},
		{"gate_up_swapped@1", "gate_up_swapped", "Act", "model.layers.1.mlp.act_fn.out", "up_proj", reference.SiLU},
	} {
		t.Run(c.faults, func(t *testing.T) {
			dump, _ := m.record(t, "", c.faults, m.texts(t, mixed))
			activate(dump, func(layer int) (string, func(float64) float64) {
				if layer == 1 {
					return c.module, c.f
				}
				return "gate_proj", reference.SiLU
			})
			d := m.diagnose(t, dump, nil)
			if c.cause == "" {
				if !good(d.Verdict) || len(suspicions(d)) > 0 || len(d.Coverage.Unplaced) > 0 {
					t.Error(say(d), d.Coverage.Unplaced)
				}
				return
			}
			named(t, d, map[string][]int{c.cause: {1}})
			if f := suspicions(d); len(f) != 1 || f[0].Op != c.op || f[0].Tap != c.tap {
				t.Errorf("want %s at %s: %s", c.op, c.tap, say(d))
			}
		})
	}
}

// TestGELUConstant: a wrong constant in GELU is named with the right one, where a tap shows it and where logits alone do; it is
// no table of half precision. So is GELU by erf.
func TestGELUConstant(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	all := func(r *lab.Record) *lab.Record { return r }
	logits := func(r *lab.Record) *lab.Record {
		for _, p := range r.Prompts {
			p.Hidden, p.Taps = nil, nil
		}
		return r
	}
	for _, c := range []struct {
		fault, computed string
		taps            func(*lab.Record) *lab.Record
		quick           bool
	}{
		{"gelu_constant", "computes GELU with the constant 0.047415, not 0.044715", all, true},
		{"gelu_constant=0.04", "computes GELU with the constant 0.04, not 0.044715", outputs, false},
		{"gelu_constant", "computes GELU with the constant 0.047415, not 0.044715", logits, false},
		{"activation=gelu_erf", "activates by gelu_erf, not by gelu_tanh", logits, false},
	} {
		if !golden.Slow() && !c.quick {
			continue
		}
		dump, _ := m.record(t, "activations=f32", c.fault+"@all", m.texts(t, mixed))
		d := m.diagnose(t, c.taps(dump), nil)
		cause, _, _ := strings.Cut(c.fault, "=")
		named(t, d, map[string][]int{cause: {0, 1, 2, 3, 4, 5}})
		closed(t, d)
		if d.Findings[0].Computed != c.computed || slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Cause == "numeric_gelu" || f.Cause == "numeric_activations" }) {
			t.Errorf("%s: %s", c.fault, say(d))
		}
	}
}
