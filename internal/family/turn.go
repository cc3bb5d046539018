package family

import (
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Turn returns how heads of dim features turn. The magnitude has the precision of GGUF and of the graph.
func Turn(dim int, p rope.Params) (graph.RoPEAttr, error) {
	r, err := rope.Resolve(dim, p)
	return graph.RoPEAttr{Freqs: r.Freqs, Dim: r.Dim, Magnitude: float64(float32(r.Magnitude))}, err
}

// TurnBoth returns how heads of dim features turn in full layers, and in sliding ones.
func TurnBoth(dim int, k rope.Kinds) (full, sliding graph.RoPEAttr, err error) {
	if full, err = Turn(dim, k.Full); err == nil {
		sliding, err = Turn(dim, k.Sliding)
	}
	return full, sliding, err
}
