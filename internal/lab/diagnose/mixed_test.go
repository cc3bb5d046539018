package diagnose_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
)

// TestMixedSums: a port in NumPy, whose first products are sums of float32 and whose others, behind a table of angles,
// of float64, is right.
func TestMixedSums(t *testing.T) {
	m := tiny(t, "tiny-qwen2")
	m.edits = reference.Edits{}
	for _, name := range []string{"attn_q", "attn_k", "attn_v"} {
		n := m.graph.Node("blk.0." + name)
		m.edits[n] = []reference.Edit{func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				x, err := e.Value(s.In[0], rows)
				if err != nil {
					return nil, err
				}
				w, err := reference.Vector(s.W[0])
				var y []float64
				for k, out := len(x)/len(rows), n.Shape.Size(); len(y) < len(rows)*out; {
					row, sum := len(y)/out*k, float32(0)
					for j := range k {
						sum += float32(w[len(y)%out*k+j]) * float32(x[row+j])
					}
					y = append(y, float64(sum))
				}
				return y, err
			}
		}}
	}
	dump, _ := m.record(t, "", "", m.texts(t, "The color of the sky is", mixed))
	if d := m.diagnose(t, dump, nil); !good(d.Verdict) {
		t.Error(say(d))
	}
}
