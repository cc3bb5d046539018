package reference

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// eval returns stored rows of the node.
func (s *Spec) eval(e *Eval, rows []int) ([]float64, error) {
	y, err := s.value(e, rows)
	if err != nil {
		return nil, err
	}
	if s.Times != 1 {
		for i := range y {
			y[i] *= s.Times
		}
		e.num.store(y)
	}
	return y, nil
}

func (s *Spec) value(e *Eval, rows []int) ([]float64, error) {
	if s.Func != nil {
		return s.Func(e, s, rows)
	}
	return s.Plain(e, rows)
}

// Plain returns rows of the node by the operation, without Func and Times.
func (s *Spec) Plain(e *Eval, rows []int) ([]float64, error) {
	switch s.Node.Op {
	case graph.Embed:
		ids := make([]int32, len(rows))
		for i, r := range rows {
			ids[i] = e.ids[r]
		}
		y, err := s.embed(e, ids)
		if err == nil && s.Node == backend.Input(e.g) {
			shown(e, s.Node, y, rows, 0)
		}
		return y, err
	case graph.EmbedPos:
		return s.positions(e, rows)
	case graph.StoreKV:
		return nil, errNoInput
	case graph.Patches:
		if e.rows == nil {
			return nil, errNoInput
		}
		return shown(e, s.Node, make([]float64, len(rows)*s.Node.Shape.Size()), rows, 0), nil
	case graph.Interpolate:
		return Interpolate(e, s, rows, s.Node.Attr.(graph.PlaceAttr).Shares)
	case graph.Deepstack:
		n := s.Node.Shape.Size()
		return shown(e, s.Node, make([]float64, len(rows)*n), rows, n*(1+s.Node.Attr.(graph.DeepstackAttr).Index)), nil
	case graph.Attention:
		return s.Attend(e, rows)
	case graph.Choose:
		return s.choose(e, rows)
	case graph.Pool:
		return s.pool(e, rows)
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		y, err := s.scan(e, rows)
		if err == nil && s.Sequence.Recycled != nil {
			err = recycle(s, e, rows, y)
		}
		return y, err
	}
	in, err := e.inputs(s.In, rows)
	if err == nil && s.Experts.Routes != nil {
		in[1], err = s.Experts.Routes(e, s, rows)
	}
	if err != nil || s.Node.Op == graph.Rows {
		return in[0], err
	}
	return s.rowwise(e, in, rows)
}

// shown puts rows in place of tokens' values of n, a part of each row from an element on.
func shown(e *Eval, n *graph.Node, y []float64, rows []int, from int) []float64 {
	d := n.Shape.Size()
	for i, r := range rows {
		if row := e.Row(r); len(row) >= from+d {
			widen(y[i*d:][:d], row[from:from+d])
			e.num.store(y[i*d : (i+1)*d])
		}
	}
	return y
}

// inputs returns rows of several nodes.
func (e *Eval) inputs(nodes []*graph.Node, rows []int) ([][]float64, error) {
	in := make([][]float64, max(len(nodes), 1))
	for i, x := range nodes {
		var err error
		if in[i], err = e.Value(x, rows); err != nil {
			return in, err
		}
	}
	return in, nil
}

// rowwise computes an operation row by row. The rows are positions.
func (s *Spec) rowwise(e *Eval, in [][]float64, rows []int) ([]float64, error) {
	x, n := in[0], s.Node
	switch n.Op {
	case graph.Linear:
		return s.linear(e, x)
	case graph.HeadLinear:
		return s.headLinear(e, x)
	case graph.RMSNorm:
		return s.Norm(e, x)
	case graph.LayerNorm:
		return s.LayerNorm(e, x)
	case graph.RoPE:
		return s.Rotate(e, x, rows), nil
	case graph.Route:
		if e.num != nil && e.num.Ties {
			return s.route(e, x, rows, e.num)
		}
		return s.route(e, x, rows, e.routing)
	case graph.Experts:
		return s.experts(e, x, in[1])
	case graph.View:
		return parts(x, n.In[0].Shape.Size(), n.Attr.(graph.ViewAttr).Offset, n.Shape.Size()), nil
	case graph.Slice:
		return parts(x, n.In[0].Shape.Last(), n.Attr.(graph.SliceAttr).Offset, n.Shape.Last()), nil
	case graph.Concat:
		return concat(n, x, in[1]), nil
	}
	y, err := s.elementwise(e, in, rows)
	e.num.store(y)
	return y, err
}

// elementwise computes an operation on single values.
func (s *Spec) elementwise(e *Eval, in [][]float64, rows []int) ([]float64, error) {
	x := in[0]
	switch s.Node.Op {
	case graph.Add, graph.Mul:
		return s.combine(e, in)
	case graph.GLU, graph.Act:
		return s.gated(e, in), nil
	case graph.ScalePos:
		return scalePos(s.Node, x, rows, s.Shift), nil
	case graph.Clamp:
		return clamp(e, x, s.W)
	case graph.L2Norm:
		return s.l2Norm(e, x), nil
	case graph.Mix:
		return Mix(e, s, x, in[1]), nil
	case graph.Match:
		return match(e, s, x, in[1]), nil
	case graph.Above:
		return above(e, s, x), nil
	case graph.Scale:
		return apply(x, func(v float64) float64 { return v * s.By }), nil
	case graph.Softcap:
		if s.By == 0 {
			return x, nil
		}
		return apply(x, func(v float64) float64 { return s.By * math.Tanh(v/s.By) }), nil
	}
	return nil, fmt.Errorf("operation %v has no meaning here", s.Node.Op)
}
