package webgpu

import (
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// The Params of layernorm, concat and slice.
type (
	layerParams struct {
		vectors, size int
		eps           float32
	}
	joinedParams struct{ size, first, vectors int }
	sliceParams  struct{ size, vectors, width, offset int }
	factorParams struct{ size int }
)

// layerVariant is a form of layernorm.wgsl.
type layerVariant struct{ Mean, Weight, Bias bool }

// vector is all of n's weights, one behind the other.
func (p *planner) vector(n *graph.Node) (gpu.Range, error) {
	var key weights
	copy(key[:], n.W)
	w, err := p.e.b.vector(key)
	return gpu.Range{Buffer: w}, err
}

// layerNorm lowers a LayerNorm or an L2Norm.
func (p *planner) layerNorm(l *lowered) error {
	n := l.node
	v := layerVariant{n.Op == graph.LayerNorm, len(n.W) > 0, len(n.W) > 1}
	in := []gpu.Range{{Buffer: p.values[n.In[0]]}}
	if v.Weight {
		w, err := p.vector(n)
		if err != nil {
			return err
		}
		in = append(in, w)
	}
	size := n.Shape.Last()
	vectors := n.Shape.Size() / size
	params := layerParams{vectors, size, n.Attr.(graph.NormAttr).Eps}
	return p.add(l, "layernorm", v, params, groups(vectors), p.values[n], in...)
}

func (p *planner) concat(l *lowered) error {
	n := l.node
	params := joinedParams{n.Shape.Last(), n.In[0].Shape.Last(), n.Shape.Size() / n.Shape.Last()}
	return p.add(l, "concat", nil, params, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]}, gpu.Range{Buffer: p.values[n.In[1]]})
}

func (p *planner) slice(l *lowered) error {
	n := l.node
	d := n.Shape.Last()
	params := sliceParams{d, n.Shape.Size() / d, n.In[0].Shape.Last(), n.Attr.(graph.SliceAttr).Offset}
	return p.add(l, "slice", nil, params, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]})
}

// given is what the host writes before a node runs: a head, and then numbers for each
// row of the node.
type given struct {
	buffer      gpu.Buffer
	head, width int                                    // numbers: before the rows, and of a row
	of          extent                                 // the rows that fill is told
	fill        func(s *backend.Step, to []byte) error //
}

// embedPos lowers an EmbedPos: the host writes its rows.
func (p *planner) embedPos(l *lowered) error {
	n := l.node
	l.given = &given{p.values[n], 0, n.Shape.Size(), l.extent, func(s *backend.Step, to []byte) error {
		for _, pos := range s.Pos {
			if int(pos) >= n.W[0].Rows() {
				return fmt.Errorf("position %d, the model has %d", pos, n.W[0].Rows())
			}
		}
		return embeddings(to, n, s.Pos, 1)
	}}
	return p.checkEmbed(n)
}

// scalePos lowers a ScalePos: the host writes the factors of rows.
func (p *planner) scalePos(l *lowered) error {
	n := l.node
	by, err := p.e.b.empty("factors", 4*p.most(n))
	if err != nil {
		return err
	}
	a := n.Attr.(graph.ScalePosAttr)
	l.given = &given{by, 0, 1, l.extent, func(s *backend.Step, to []byte) error {
		for i, f := 0, floatsIn(to); i < len(f); i++ {
			f[i] = float32(rope.Temperature(int(s.Pos[i]), a.Beta, a.Every, a.Shift))
		}
		return nil
	}}
	return p.add(l, "factor", nil, factorParams{n.Shape.Size()}, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]}, gpu.Range{Buffer: by})
}
