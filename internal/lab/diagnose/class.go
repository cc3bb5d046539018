package diagnose

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// class is an engine's way of rounding, in the words of a dump's numerics.
type class struct {
	activations string // one of round.Activations, and perhaps everywhere or halves behind it
	kv          string // one of round.KV; f64 means unrounded
	gelu        string // "" or f16-table
}

func (c class) String() string {
	s := fmt.Sprintf("activations %s, keys and values %s", c.words(), c.kv)
	if c.gelu != "" {
		s += ", GELU by " + c.gelu
	}
	return s
}

// name returns the class's activations in a dump's words.
func (c class) name() string { return strings.TrimRight(c.activations, everywhere+halves) }

// words returns the name of the activations, or describes activations without a name.
func (c class) words() string {
	if strings.HasSuffix(c.activations, halves) {
		return "16 bits where weights have 16, else f32"
	}
	return c.name()
}

// everywhere marks activations rounded for float weights as well; halves marks activations
// for weights in 16 bits alone, by an engine that dequantizes the others.
const everywhere, halves = "!", "~"

// center returns the numerics of c without chance: an engine of the class computes these numbers, up to the order
// of its sums.
func (c class) center() *reference.Numerics {
	n := &reference.Numerics{Name: c.activations + " " + c.gelu}
	switch c.activations {
	case "f64", "f32":
	case "f16", "bf16":
		n.Store = round.Format(c.activations).Round
	default:
		f := round.Format(c.name())
		n.Input = func(row []float64, w tensor.DType) {
			switch {
			case strings.HasSuffix(c.activations, everywhere):
				f.Round(row)
			case !strings.HasSuffix(c.activations, halves) || !w.Quantized():
				f.Input(w).Round(row)
			}
		}
	}
	if c.roundsKV() {
		n.KV = round.Format(c.kv)
	}
	if c.gelu == string(round.F16Table) {
		n.GELU = round.F16Table.At
	}
	return n
}

// arms returns numerics whose roundings fall otherwise, as they may in engines of the class.
func (c class) arms() []*reference.Numerics { return append(c.sumArms(), c.looserArms()...) }

// sumArms returns the arms that round as the class says, with other orders of sums.
func (c class) sumArms() []*reference.Numerics {
	var arms []*reference.Numerics
	arm := func(order reference.Order, jitter float64) {
		n := c.center()
		n.Order, n.Jitter, n.Random = order, jitter, rand.NewPCG(uint64(len(arms)), 7)
		arms = append(arms, n)
	}
	arm(reference.Exact, 0x1p-24)
	if c.activations == "f64" {
		arm(reference.Exact, 0x1p-24)
	} else {
		arm(reference.Forward, 0x1p-23)
		arm(reference.Backward, 0x1p-24)
		arm(reference.Lanes, 0x1p-23)
	}
	return arms
}

// extraArms returns arms with other accidents of rounding than sumArms.
func (c class) extraArms() []*reference.Numerics {
	var arms []*reference.Numerics
	for seed := range uint64(6) {
		n := c.center()
		n.Order, n.Jitter, n.Random = reference.Exact, 0x1p-24, rand.NewPCG(seed, 9)
		arms = append(arms, n)
	}
	return arms
}

// looserArms returns arms without one of the class's roundings: engines of a class differ in where exactly they
// round.
func (c class) looserArms() []*reference.Numerics {
	var arms []*reference.Numerics
	if c.gelu != "" {
		arms = append(arms, class{c.activations, c.kv, ""}.center())
	}
	if c.roundsKV() {
		arms = append(arms, class{c.activations, "f64", c.gelu}.center())
	}
	if c.isCoarse() {
		arms = append(arms, class{activations: "f64", kv: c.kv, gelu: c.gelu}.center())
		n := c.center()
		n.Jitter, n.Random, n.Store = c.step(), rand.NewPCG(uint64(len(c.sumArms())+len(arms)), 7), nil
		arms = append(arms, n)
	}
	return arms
}

// isCoarse reports whether the class rounds more than float32 does.
func (c class) isCoarse() bool { return c.activations != "f64" && c.activations != "f32" }

// isRounding reports whether the class's center rounds anything.
func (c class) isRounding() bool { return c.isCoarse() || c.gelu != "" || c.roundsKV() }

// roundsKV reports whether keys and values are rounded more than float32 does.
func (c class) roundsKV() bool { return c.kv != "" && c.kv != "f32" && c.kv != "f64" }

// step returns the largest relative error of one rounding.
func (c class) step() float64 {
	switch c.name() {
	case "bf16":
		return 0x1p-8
	case "f16":
		return 0x1p-11
	}
	return 0x1p-24
}
