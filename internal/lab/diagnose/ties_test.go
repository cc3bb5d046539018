package diagnose_test

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/round"
)

// roundedChoice chooses experts by probabilities rounded to bfloat16, as PyTorch's routers in bfloat16 do: near ties go to
// the lower index.
func roundedChoice(n *graph.Node) reference.Edit {
	if n.Op != graph.Route {
		return nil
	}
	return func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			x, err := e.Value(s.In[0], rows)
			if err != nil {
				return nil, err
			}
			count := n.In[0].Shape.Size()
			for r := 0; r < len(x); r += count {
				p := slices.Clone(x[r : r+count])
				reference.Softmax(p)
				round.BF16.Round(p)
				order := make([]int, count)
				for i := range order {
					order[i] = i
				}
				slices.SortStableFunc(order, func(i, j int) int {
					switch {
					case p[i] > p[j]:
						return -1
					case p[i] < p[j]:
						return 1
					}
					return 0
				})
				for _, i := range order[n.Shape[0]:] {
					x[r+i] = -1e9
				}
			}
			return s.RouteBy(e, x)
		}
	}
}

// TestTies accuses no right engine in bfloat16 whose router's near ties fall otherwise.
func TestTies(t *testing.T) {
	for i, name := range []string{"mixtral", "qwen3moe", "tiny-gemma4-moe"} {
		if i > 0 && !golden.Slow() {
			continue
		}
		m := tiny(t, name)
		dump := m.edited(t, "activations=bf16", roundedChoice, m.texts(t, mixed, "The color of the sky is", "a b c d e f g h i j k l m n o p"))
		for _, taps := range []func(*lab.Record) *lab.Record{func(r *lab.Record) *lab.Record { return r }, modules} {
			if d := m.diagnose(t, taps(dump), nil); !good(d.Verdict) || len(suspicions(d)) > 0 {
				t.Errorf("%s: %s", name, say(d))
			}
		}
	}
}

// TestExchanged accuses no right engine with 8-bit activations, of whose layers alone the outputs are known, where two
// experts whose scores rounding moves past each other change places.
func TestExchanged(t *testing.T) {
	m := tiny(t, "tiny-gemma4-moe")
	exchanges := 0
	dump := m.edited(t, "activations=q8_256", func(n *graph.Node) reference.Edit {
		if n.Op != graph.Route {
			return nil
		}
		return func(s *reference.Spec) {
			s.Route.Leans = func(row int, order []int, scores []float64) {
				last, next := order[n.Shape[0]-1], order[n.Shape[0]]
				if gap := scores[last] - scores[next]; gap < 1e-4 {
					scores[last], scores[next] = scores[next], scores[last]
					exchanges++
				}
			}
		}
	}, m.texts(t, "a b c d e f g h i j k l m n o p"))
	if exchanges == 0 {
		t.Fatal("no experts change places")
	}
	if d := m.diagnose(t, outputs(dump), nil); !good(d.Verdict) || len(suspicions(d)) > 0 {
		t.Errorf("%d exchanges: %s", exchanges, say(d))
	}
}
