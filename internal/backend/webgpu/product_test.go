package webgpu

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// TestForms: a large product of one row has the same bits in workgroups of 512 invocations and of 256, and in a step
// of a few rows.
func TestForms(t *testing.T) {
	d := device(t)
	if d.Adapter().Limits.Invocations < 512 {
		t.Skip("this GPU allows fewer invocations")
	}
	type form struct {
		of     tensor.DType
		halves []int
	}
	for _, c := range golden.First(1, []form{{tensor.Q4_0, []int{0}}, {tensor.Q4_K, []int{0, 2}}, {tensor.Q6_K, []int{208}}}) {
		g := made(t, large, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
			linear := func(x *graph.Node, n int) *graph.Node {
				return b.Linear(weightOf(r, c.of, half, c.halves, n, x.Shape.Size()), x, n)
			}
			if c.of == tensor.Q4_K {
				x = b.GLU(graph.SiLU, linear(x, large), linear(x, large))
			}
			return b.Add(x, linear(x, large))
		})
		forms := func(d *Device) int {
			return strings.Count(strings.Join(slices.Collect(maps.Keys(d.pipes)), " "), "Lanes:16")
		}
		small := newDevice(limited{d.gpu, 65535, 256})
		was := forms(d)
		r := start(t, New(d, Options{}), g, 4, nil)
		got, want := r.run(1), start(t, New(small, Options{}), g, 4, nil).run(1)
		if n := forms(d) - was; n == 0 || forms(small) > 0 {
			t.Errorf("%v: %d large forms, and %d where the GPU is small", c.of, n, forms(small))
		}
		r.seq = r.pool.NewSequence()
		if !same(got, want) || !same(got, r.run(1, 2)[:large]) {
			t.Errorf("%v: other bits", c.of)
		}
	}
}
