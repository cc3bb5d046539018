package webgpu_test

import (
	"math"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// TestHeadLogits: the head's logits on a GPU are those of float64, of the first draft, fed the model's state behind a
// prompt of more than a page, and of the next, fed the head's own.
func TestHeadLogits(t *testing.T) {
	d := open(t)
	for _, name := range golden.Sample(golden.Headed) {
		t.Run(name, func(t *testing.T) {
			c, err := checkpoint.Open(golden.WithHead(t, name))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			g, _, err := arch.LoadHead(c, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := draftLogits(t, g, reference.Backend{})
			got := draftLogits(t, g, webgpu.New(d, webgpu.Options{F32KV: true}))
			for i := range want {
				var off, most float64
				for j, v := range want[i] {
					off, most = max(off, math.Abs(float64(v)-float64(got[i][j]))), max(most, math.Abs(float64(v)))
				}
				if !(off <= 1e-4*most) {
					t.Errorf("draft %d: %.1e off, of %.1e", i, off, most)
				}
			}
		})
	}
}

// draftLogits returns the logits of two drafts behind a prompt.
func draftLogits(t *testing.T, g arch.Graphs, b backend.Backend) (all [][]float32) {
	t.Helper()
	defer b.Close()
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g.Fed, b), Context: 128, Chunk: 96})
	cache, err := b.NewCache(g.Fed, pool)
	if err != nil {
		t.Fatal(err)
	}
	seq := pool.NewSequence()
	const prompt = 70
	if err := seq.Grow(prompt + 2); err != nil {
		t.Fatal(err)
	}
	run := func(g *graph.Graph, s *backend.Step) (logits, state []float32) {
		t.Helper()
		n := g.Node(family.StateName)
		x, err := b.Compile(g, backend.Options{Rows: 96, Outputs: 96, Keep: func(x *graph.Node) bool { return x == n }})
		if err != nil {
			t.Fatal(err)
		}
		last := int32(len(s.Tokens) - 1)
		state = make([]float32, n.Shape.Size())
		s.Outputs, s.Cache, s.Values = []int32{last}, cache, []backend.Value{{Node: n, Row: last, Out: state}}
		for i := range s.Tokens {
			s.Seqs = append(s.Seqs, seq)
			s.Pos = append(s.Pos, s.Pos[0]+int32(i))
		}
		s.Pos = s.Pos[1:]
		if logits, err = x.Run(t.Context(), s, nil); err != nil {
			t.Fatal(err)
		}
		return logits, state
	}
	s := &backend.Step{Pos: []int32{0}}
	for i := range int32(prompt) {
		s.Tokens = append(s.Tokens, i*37%200)
	}
	_, state := run(g.Fed, s)
	for i := range int32(2) {
		s := &backend.Step{Tokens: []int32{7 + i}, Pos: []int32{prompt + i}, Embeddings: [][]float32{state}}
		var logits []float32
		logits, state = run(g.Draft, s)
		all = append(all, logits)
	}
	return all
}

// TestHeads: a model on a GPU has the same answers with drafts by its head as without, also behind the first page, in
// float32 and in binary16.
func TestHeads(t *testing.T) {
	open(t)
	for i, name := range golden.Sample(golden.Headed) {
		dir := golden.WithHead(t, name)
		for k, p := range []karat.Precision{karat.Float32, karat.Fast} {
			if i%2 != k && !golden.Slow() { // each model in one of the two
				continue
			}
			t.Run(name+"/"+string(p), func(t *testing.T) {
				var want string
				for _, d := range []karat.Draft{karat.DraftOff, karat.DraftMTP} {
					m, err := karat.Load(t.Context(), dir, karat.Options{Backend: "webgpu", Precision: p, Draft: d})
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					s := m.NewSession()
					defer s.Close()
					var text strings.Builder
					o := karat.GenerateOptions{MaxTokens: 24}
					for x, err := range s.Generate(t.Context(), strings.Repeat("a b ", 30), o) {
						if err != nil {
							t.Fatal(err)
						}
						text.WriteString(x.Text)
					}
					n := s.Drafts()["mtp"]
					switch {
					case d == karat.DraftOff:
						want = text.String()
					case text.String() != want:
						t.Errorf("%q, without drafts %q", text.String(), want)
					case n.Accepted+n.Rejected == 0:
						t.Error("the head drafted nothing")
					default:
						t.Logf("%+v", n)
					}
				}
			})
		}
	}
}
