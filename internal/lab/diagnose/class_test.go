package diagnose

import (
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// TestCenter wants rows rounded for the types of weights that each class says.
func TestCenter(t *testing.T) {
	row := make([]float64, 256)
	for i := range row {
		row[i] = 1 / float64(3+i)
	}
	for _, c := range []struct {
		class   string
		rounded []tensor.DType
	}{
		{"q8", []tensor.DType{tensor.BF16, tensor.F16, tensor.Q8_0, tensor.Q4_K}},
		{"q8~", []tensor.DType{tensor.BF16, tensor.F16}},
		{"q8_32", []tensor.DType{tensor.BF16, tensor.F16, tensor.Q8_0, tensor.Q4_K, tensor.F32}},
		{"i16_32", []tensor.DType{tensor.Q8_0, tensor.Q4_K}},
		{"i16_32!", []tensor.DType{tensor.BF16, tensor.F16, tensor.Q8_0, tensor.Q4_K, tensor.F32}},
	} {
		for _, w := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8_0, tensor.Q4_K} {
			x := slices.Clone(row)
			class{activations: c.class}.center().Input(x, w)
			worst := 0.0
			for i, v := range x {
				worst = max(worst, (v-row[i])/row[0], (row[i]-v)/row[0])
			}
			if coarse := worst > 1e-6; coarse != slices.Contains(c.rounded, w) {
				t.Errorf("%s with weights in %v: off by %.2g", c.class, w, worst)
			}
		}
	}
	if s := (class{"q8~", "f64", ""}).String(); strings.Contains(s, "q8") || !strings.Contains(s, "16 bits where weights have 16") {
		t.Error(s)
	}
}

// TestLikeliest: what comes nearest, of equals the one in the fewest layers and then the cheapest; and all of those are told.
func TestLikeliest(t *testing.T) {
	at := func(layer int, score, cost float64, more int) *attempt {
		a := &attempt{score: score, cost: cost}
		for range more + 1 {
			a.hs = append(a.hs, &hypothesis{Node: &graph.Node{Layer: layer}, Computed: "sees less"})
		}
		return a
	}
	for _, c := range []struct {
		all   []*attempt
		want  int
		equal string
	}{
		{[]*attempt{at(1, 8, 0, 3), at(2, 3, 1, 0)}, 1, ""},
		{[]*attempt{at(1, 0.1, 0, 3), at(2, 0.9, 0.4, 0)}, 1, ""},
		{[]*attempt{at(1, 0.1, 0.4, 0), at(2, 0.9, 0, 0)}, 1, ""},
		{[]*attempt{at(1, 0.1, 0, 0), at(2, 0.9, 0, 0), at(3, 2, 0, 0)}, 0, "; as near if layer 2 sees less"},
	} {
		if best, equal := likeliest(c.all, 1); best != c.all[c.want] || equal != c.equal {
			t.Errorf("%v, %q; want %d, %q", best, equal, c.want, c.equal)
		}
	}
}
