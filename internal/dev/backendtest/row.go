package backendtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// layerNorms are norms about a mean, and norms to a length.
func layerNorms() (list []operation) {
	add := func(name string, build func(k *sketch) *graph.Node) {
		list = append(list, operation{name: name, bound: float, build: build})
	}
	for _, n := range []int{2, 3, 37, 160, 1100} {
		add(fmt.Sprintf("layer norm/%d", n), func(k *sketch) *graph.Node {
			return k.LayerNorm(k.weight(tensor.F32, n), k.weight(tensor.BF16, n), k.input(n), 1e-5)
		})
		add(fmt.Sprintf("layer norm/no bias/%d", n), func(k *sketch) *graph.Node {
			return k.LayerNorm(k.weight(tensor.F16, n), nil, k.input(2, n), 1e-5)
		})
		add(fmt.Sprintf("layer norm/no weight/%d", n), func(k *sketch) *graph.Node {
			return k.LayerNorm(nil, nil, k.input(n), 1e-2)
		})
		add(fmt.Sprintf("l2 norm/%d", n), func(k *sketch) *graph.Node { return k.L2Norm(k.input(2, n), 1e-6) })
	}
	return list
}

// parts put vectors together and take them apart.
func parts() (list []operation) {
	add := func(name string, build func(k *sketch) *graph.Node) {
		list = append(list, operation{name: name, bound: float, build: build})
	}
	add("concat", func(k *sketch) *graph.Node { return k.Concat(k.input(7), k.input(30)) })
	add("concat/heads", func(k *sketch) *graph.Node { return k.Concat(k.input(3, 5), k.input(3, 8)) })
	add("concat/itself", func(k *sketch) *graph.Node { x := k.input(2, 9); return k.Concat(x, x) })
	add("slice/first", func(k *sketch) *graph.Node { return k.Slice(k.input(4, 11), 0, 3) })
	add("slice/last", func(k *sketch) *graph.Node { return k.Slice(k.input(70), 69, 1) })
	add("slice/all", func(k *sketch) *graph.Node { return k.Slice(k.input(2, 6), 0, 6) })
	add("slice/and back", func(k *sketch) *graph.Node {
		x := k.input(3, 20)
		return k.Concat(k.Slice(x, 12, 8), k.Scale(k.Slice(x, 0, 12), 2))
	})
	return list
}

// streams are operations on several vectors of a row.
func streams() (list []operation) {
	add := func(name string, build func(k *sketch) *graph.Node) {
		list = append(list, operation{name: name, bound: float, build: build})
	}
	for _, x := range []struct{ m, n, d int }{{1, 1, 1}, {4, 4, 37}, {4, 1, 64}, {3, 5, 150}} {
		add(fmt.Sprintf("mix/%d of %dx%d", x.m, x.n, x.d), func(k *sketch) *graph.Node {
			return k.Mix(k.input(x.m*x.n), k.input(x.n, x.d), x.m, float64(x.m-1))
		})
		add(fmt.Sprintf("match/%dx%d", x.n, x.d), func(k *sketch) *graph.Node {
			return k.Match(k.input(x.n, x.d), k.input(x.d), 1e-5)
		})
		add(fmt.Sprintf("above/%dx%d", x.n, x.d+1), func(k *sketch) *graph.Node {
			return k.Above(k.input(x.n, x.d+1), float64(x.m)/2-0.5)
		})
	}
	return list
}

// positions are the operations that read a row's position.
func positions() (list []operation) {
	for _, d := range append([]tensor.DType{tensor.F32, tensor.BF16}, blocks[0]) {
		list = append(list, operation{name: fmt.Sprintf("embed pos/%v", d), bound: float,
			build: func(k *sketch) *graph.Node {
				return k.Add(k.input(64), k.EmbedPos(k.weight(d, 700, 64), 700, 64))
			}})
	}
	for _, a := range []graph.ScalePosAttr{{Beta: 0.1, Every: 8}, {Beta: 0.5, Every: 1, Shift: 1},
		{Beta: 0, Every: 3}} {
		list = append(list, operation{name: fmt.Sprintf("scale pos/%v", a), bound: float,
			build: func(k *sketch) *graph.Node {
				return k.ScalePos(k.input(3, 10), a)
			}})
	}
	return list
}

// pastTable: a position that a table of positions does not have is refused, and the
// positions before it are not.
func (s *suite) pastTable(t *testing.T) {
	k := newSketch(19)
	g := k.end(t, k.Add(k.input(8), k.EmbedPos(k.weight(tensor.F32, 5, 8), 5, 8)))
	m := start(t, s.open(), g, 8, nil)
	m.forward(part{0, make([]int32, 5)})
	step := m.step(part{0, make([]int32, 1)})
	if _, err := m.plan.Run(context.Background(), step, nil); err == nil ||
		!strings.Contains(err.Error(), "position 5") {
		t.Errorf("position 5 of 5: %v", err)
	}
	m.forward(part{1, make([]int32, 5)})
}
