package webgpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// activation is the WGSL of an activation of %s.
var activation = map[graph.Activation]string{graph.SiLU: "silu(%s)", graph.GELUTanh: "gelu_tanh(%s)",
	graph.GELUErf:     "gelu_erf(%s)",
	graph.ReLUSquared: "relu_squared(%s)", graph.Sigmoid: "sigmoid(%s)", graph.Tanh: "tanh_f(%s)",
	graph.ExpLess: "exp_less(%s)"}

// activated returns the WGSL of attr's activation of a: act(alpha·min(a, limit))/alpha. A NaN stays NaN, which WGSL's
// min does not promise.
func activated(attr graph.ActAttr) string {
	x := "a"
	if attr.Limit > 0 {
		x = fmt.Sprintf("select(a, %[1]s, a > %[1]s)", literal(attr.Limit))
	}
	if attr.Alpha == 0 {
		return fmt.Sprintf(activation[attr.Act], x)
	}
	alpha := literal(attr.Alpha)
	return fmt.Sprintf(activation[attr.Act], alpha+" * "+x) + " / " + alpha
}

// gated returns the WGSL of a GLU of a gate a and an up b: attr's activation of a, times max(-limit, min(b, limit)) +
// plus.
func gated(attr graph.ActAttr) string {
	x := "b"
	if attr.Limit > 0 {
		x = fmt.Sprintf("select(select(b, %[1]s, b > %[1]s), -%[1]s, b < -%[1]s)", literal(attr.Limit))
	}
	if attr.Plus != 0 {
		x = fmt.Sprintf("(%s + %s)", x, literal(attr.Plus))
	}
	return activated(attr) + " * " + x
}

// literal returns a number of WGSL, rounded to float32.
func literal(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 32)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	if v < 0 {
		return "(" + s + ")"
	}
	return s
}
