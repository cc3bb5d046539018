package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tensor"
)

// picture is the patches of a picture, in blocks of two rows and two columns.
type picture struct{ height, width int }

func (p picture) patches() int { return p.height * p.width }

// place returns the row and the column of the i-th patch.
func (p picture) place(i int) (row, col int) {
	block, in := i/4, i%4
	return block/(p.width/2)*2 + in/2, block%(p.width/2)*2 + in%2
}

// tower records two layers that share a store, between patches and rows made of four patches each.
func tower(t *testing.T, a graph.PlaceAttr, form graph.Pooling) *graph.Graph {
	k := newSketch(31)
	x := k.Add(k.linear(tensor.BF16, k.Patches(30), 32), k.Interpolate(k.weight(tensor.BF16, a.Rows(), 32), a, 32))
	freqs := rope.New(100, 8)
	turn := graph.RoPEAttr{Freqs: slices.Concat(freqs, freqs), Sections: [3]int{0, 4, 4}}
	kv := &graph.KV{Heads: 2, Dim: 16}
	for range 2 {
		in := k.Normalize(x, 1e-6)
		head := func() *graph.Node { return k.Heads(k.linear(tensor.F32, in, 32), 16) }
		q, v := k.RoPE("q", head(), turn), head()
		k.StoreKV(kv, k.RoPE("k", head(), turn), v)
		y := k.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 0.01, Bidirectional: true}, nil)
		low, high := ofValues(k.name("low"), [][]float32{{-0.5}}), ofValues(k.name("high"), [][]float32{{0.75}})
		x = k.Add(x, k.Clamp(low, high, k.linear(tensor.BF16, y, 32)))
	}
	y := k.Fold(form, 4, x)
	k.linear(tensor.F32, k.Concat(k.Scale(y, 0.5), k.Fold(graph.Mean, 4, k.Scale(x, 2))), 10)
	return k.graph(t)
}

// show is a step of pictures, the numbers of a patch following from its number among all.
func (m *machine) show(pictures ...picture) *backend.Step {
	m.t.Helper()
	s := &backend.Step{Cache: m.cache}
	for _, p := range pictures {
		seq := m.pool.NewSequence()
		m.t.Cleanup(seq.Free)
		if err := seq.Grow(p.patches()); err != nil {
			m.t.Fatal(err)
		}
		for i := range p.patches() {
			row := make([]float32, 30)
			for j := range row {
				row[j] = float32((7*i+13*j+i*j)%31)/16 - 1
			}
			at, col := p.place(i)
			if s.Tokens, s.Pos = append(s.Tokens, 0), append(s.Pos, int32(i)); i%4 == 3 {
				s.Outputs = append(s.Outputs, int32(len(s.Tokens)-1))
			}
			s.Seqs, s.Embeddings = append(s.Seqs, seq), append(s.Embeddings, row)
			s.Parts = append(s.Parts, [3]int32{0, int32(at), int32(col)})
		}
	}
	return s
}

// pictures: towers over pictures of several shapes, together and alone.
func (s *suite) pictures(t *testing.T) {
	all := []picture{{4, 6}, {2, 2}, {10, 2}}
	for i, rule := range []graph.Rule{graph.Lookup, graph.Corners, graph.Area, graph.Axes, graph.Area} {
		a := graph.PlaceAttr{Rule: rule, Height: 10, Width: 6 - i%2}
		if i == 4 {
			a.Height = 3
		}
		if rule == graph.Axes {
			a.Width = 8
		}
		form := graph.Mean + graph.Pooling(i)%4
		t.Run(fmt.Sprintf("%v %v", a, form), func(t *testing.T) {
			g := tower(t, a, form)
			m := start(t, s.open(), g, 64, nil)
			got, ref := m.run(m.show(all...)), wanted(t, g, 64)
			want := ref.run(ref.show(all...))
			(&worst{}).compare(t, "rows", got, want, s.tol.Layer)
			if y := m.run(m.show(all[2])); s.tol.SameBits && !sameBits(y, got[70:]) {
				t.Error("a picture alone has other bits")
			}
			for what, spoil := range map[string]func(*backend.Step){
				"embeddings": func(s *backend.Step) { s.Embeddings = nil },
				"elements":   func(s *backend.Step) { s.Embeddings[1] = nil },
				"places":     func(s *backend.Step) { s.Parts = nil },
				"pooled":     func(s *backend.Step) { s.Outputs[0]-- },
			} {
				step := m.show(all[1])
				if spoil(step); what == "pooled" {
					what = "row 2 is wanted"
				}
				if _, err := m.plan.Run(context.Background(), step, nil); err == nil ||
					!strings.Contains(err.Error(), what) {
					t.Errorf("without %s: %v", what, err)
				}
			}
		})
	}
}
