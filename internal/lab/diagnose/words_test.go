package diagnose_test

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/round"
)

// edited records prompts of an engine with edits of this test, which the table of mistakes does not have.
func (m *model) edited(t testing.TB, class string, edit func(n *graph.Node) reference.Edit, prompts []*lab.Prompt) *lab.Record {
	t.Helper()
	edits, longest := reference.Edits{}, 0
	for _, n := range m.graph.Nodes {
		if e := edit(n); e != nil {
			edits[n] = []reference.Edit{e}
		}
	}
	for _, p := range prompts {
		longest = max(longest, len(p.IDs))
	}
	b := reference.Backend{Edits: edits}
	var err error
	if b.Class, err = round.Parse(cmp.Or(class, "activations=f64")); err != nil {
		t.Fatal(err)
	}
	r, err := lab.NewRecorder(context.Background(), m.graph, b, longest, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, p := range prompts {
		if err := r.Record(context.Background(), p, true); err != nil {
			t.Fatal(err)
		}
	}
	return &lab.Record{Path: "dump.safetensors", Names: lab.NamesHF, Prompts: prompts}
}

// untransposed gives attention's results [heads, T, d] as rows of heads·d.
func untransposed(n *graph.Node) reference.Edit {
	if n.Op != graph.Attention {
		return nil
	}
	return func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			var all []int
			for i := range e.Len() {
				all = append(all, i)
			}
			y, err := s.Plain(e, all)
			heads, w := n.In[0].Shape[0], n.Shape.Size()
			var turned, out []float64
			for h := range heads {
				for _, i := range all {
					turned = append(turned, y[i*w+h*w/heads:][:w/heads]...)
				}
			}
			for _, row := range rows {
				out = append(out, turned[row*w:(row+1)*w]...)
			}
			return out, err
		}
	}
}

// fromBefore takes the MLP's residual from before attention.
func fromBefore(n *graph.Node) reference.Edit {
	if n.Op != graph.Add || len(n.In) != 2 || n.In[0].Op != graph.Add || n.In[0].Layer != n.Layer {
		return nil
	}
	return func(s *reference.Spec) { s.In = []*graph.Node{n.In[0].In[0], n.In[1]} }
}

// TestWords: places without a name get words.
func TestWords(t *testing.T) {
	m := tiny(t, "smollm3")
	for words, edit := range map[string]func(n *graph.Node) reference.Edit{
		"; the values are the right ones in other places: [heads, T, d] read as [T, heads·d]":                              untransposed,
		"; it gives 1·model.embed_tokens.out + 0·model.layers.0.self_attn.o_proj.out + 1·model.layers.0.mlp.down_proj.out": fromBefore,
		"; the values of each position are the right ones in another order": func(n *graph.Node) reference.Edit {
			if n.Op != graph.GLU {
				return nil
			}
			return func(s *reference.Spec) {
				s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
					y, err := s.Plain(e, rows)
					for w := n.Shape.Size(); len(rows) > 0; rows = rows[1:] {
						slices.Reverse(y[(len(rows)-1)*w : len(rows)*w])
					}
					return y, err
				}
			}
		},
	} {
		d := m.diagnose(t, m.edited(t, "", edit, m.texts(t, mixed)), nil)
		if f := suspicions(d); len(f) != 1 || f[0].Cause != "unknown" || !strings.HasSuffix(f[0].Computed, words) || len(f[0].Layers) != 4 {
			t.Errorf("want %q, got %s", words, say(d))
		}
	}
}

// TestMoreTaps: more taps say no less. Speeds on no list are read off attention, and off rope where it has a tap; queries
// and keys are one finding.
func TestMoreTaps(t *testing.T) {
	golden.SkipFast(t, "it takes more than five seconds")
	m := tiny(t, "tiny-qwen3")
	for _, all := range []bool{false, true} {
		dump, _ := m.record(t, "activations=f32", "x_rope_odd_pairs@all", m.texts(t, mixed))
		if !all {
			dump = modules(dump)
		}
		d := m.diagnose(t, dump, nil)
		if f := suspicions(d); len(f) != 1 || !strings.HasPrefix(f[0].Computed, "turns the pairs of queries and keys by other angles a position: 1, 0.3749") ||
			len(f[0].Layers) != 4 {
			t.Errorf("all taps %v: %s", all, say(d))
		}
	}
}

// TestChained: ggml's loop over pairs, written as it stands there, is one of the forms of factors that multiply.
func TestChained(t *testing.T) {
	m := tiny(t, "tiny-gemma4")
	dump := m.edited(t, "", func(n *graph.Node) reference.Edit {
		a, ok := n.Attr.(graph.RoPEAttr)
		if !ok || len(a.Freqs) == a.Turning(n.Shape.Last())/2 {
			return nil
		}
		return func(s *reference.Spec) {
			s.Rope.Rest = func(pos, i int) (cos, sin float64) {
				scale, theta := float32(math.Pow(1e6, float64(float32(-2)/float32(n.Shape.Last())))), float32(pos)
				for range i {
					theta *= scale
				}
				sin, cos = math.Sincos(float64(theta * 1e30))
				return float64(float32(cos)), float64(float32(sin))
			}
		}
	}, m.texts(t, mixed))
	d := m.diagnose(t, modules(dump), nil)
	named(t, d, map[string][]int{"rope_factors": {3, 7}})
	closed(t, d)
}

// TestDirection: a sine of the other sign is named.
func TestDirection(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	dump, _ := m.record(t, "activations=f32", "rope_direction@all", m.texts(t, mixed))
	named(t, m.diagnose(t, modules(dump), nil), map[string][]int{"rope_direction": {0, 1, 2, 3}})
}
