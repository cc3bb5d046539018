package parity

import (
	"cmp"
	"maps"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// leave removes the parts of a prompt that are not shown.
func (t Taps) leave(p *lab.Prompt) {
	if t != States && t != AllTaps {
		p.Hidden = nil
	}
	maps.DeleteFunc(p.Taps, func(name string, _ *tensor.Tensor) bool {
		switch t {
		case Modules:
			return strings.HasSuffix(name, "_rope.out")
		case Outputs:
			return !layerOutput(name)
		}
		return false
	})
}

// layerOutput reports whether a tap is model.layers.N.out.
func layerOutput(name string) bool {
	middle, ok := strings.CutPrefix(name, "model.layers.")
	return ok && strings.HasSuffix(middle, ".out") && strings.Count(middle, ".") == 1
}

// backend is what computes the case.
func (c *example) backend(edits reference.Edits) (backend.Backend, error) {
	if c.own == (own{}) {
		return reference.Backend{Threads: 1, Class: c.class, Edits: edits}, nil
	}
	n, err := numerics.Parse(c.own.precision, c.own.kv)
	if err != nil {
		return nil, err
	}
	return n.Backend(1)
}

// declared is what a dump of the engine says of its rounding.
func (c *example) declared() round.Class {
	stored := cmp.Or(c.class.Activations.Stored(), round.F64)
	return round.Class{Activations: cmp.Or(c.class.Activations, round.F64), KV: cmp.Or(c.class.KV, stored),
		GELU: cmp.Or(c.class.GELU, round.Exact)}
}

// right are engines in which nothing is wrong: every class with every precision of keys and
// values, and Karat's own, seen through taps of every coarseness, told and not told.
func (m *Model) right() (list []*example) {
	quantized, _ := m.has()
	for _, taps := range Coarseness {
		for _, said := range []bool{false, true} {
			for _, class := range m.every() {
				list = append(list, &example{model: m, condition: Right, class: class, said: said, taps: taps})
			}
			for _, o := range []own{{"fast", "f16"}, {"fast", "f32"}, {"f32", "f16"}, {"f32", "f32"}} {
				class := round.Class{Activations: round.F32}
				if o.precision == "fast" && quantized {
					class.Activations = round.I16_32
				}
				if o.kv == "f16" {
					class.KV = round.F16
				}
				list = append(list, &example{model: m, condition: Right, class: class, said: said, taps: taps, own: o})
			}
		}
	}
	return list
}

// every is all classes, without duplicates.
func (m *Model) every() (list []round.Class) {
	quantized, gelu := m.has()
	for _, a := range round.Activations {
		if a == round.I16_32 && !quantized {
			continue // which is float32
		}
		for _, kv := range []round.Format{"", round.F16, round.BF16} {
			if kv == a.Stored() {
				continue // which "" says
			}
			list = append(list, round.Class{Activations: a, KV: kv})
			if gelu && (a == round.F32 || a == round.Q8) {
				list = append(list, round.Class{Activations: a, KV: kv, GELU: round.F16Table})
			}
		}
	}
	return list
}

// has reports whether a weight of the model is quantized, and whether it has GELU.
func (m *Model) has() (quantized, gelu bool) {
	for _, n := range m.Graph.Nodes {
		a, ok := n.Activates()
		gelu = gelu || ok && a.Act == graph.GELUTanh
		for _, w := range n.W {
			quantized = quantized || w.CodeType().Quantized()
		}
	}
	return quantized, gelu
}
