package reference_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

func load(t *testing.T, name string) *graph.Graph {
	t.Helper()
	m, err := checkpoint.Open(golden.Model(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, _, err := arch.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// tokens is a prompt of n different tokens.
func tokens(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(300 + 7*i%900)
	}
	return list
}

// values are a reference's values of one node.
type values struct {
	width int
	data  []float64
}

func (v values) Rows() (first, n int)        { return 0, len(v.data) / v.width }
func (v values) Read(dst []float64, row int) { copy(dst, v.data[row*v.width:]) }

// recorded runs a prompt through the backend, and returns all values as they are
// before a tap narrows them.
func recorded(t *testing.T, g *graph.Graph, ids []int32, c round.Class) map[*graph.Node]reference.Known {
	t.Helper()
	return recordedAt(t, g, ids, nil, c)
}

// recordedAt is recorded at positions of three parts.
func recordedAt(t *testing.T, g *graph.Graph, ids []int32, parts [][3]int32, c round.Class) map[*graph.Node]reference.Known {
	t.Helper()
	all := map[*graph.Node]reference.Known{}
	see := func(n *graph.Node, y []float64) {
		v, _ := all[n].(values) // of the chunks before
		all[n] = values{n.Shape.Size(), append(v.data, y...)}
	}
	e, err := engine.New(g, reference.Backend{Class: c, See: see}, engine.Options{Context: len(ids), Chunk: len(ids)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	if _, err := s.Mix(ids, engine.Mixed{Parts: parts}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Feed(context.Background(), ids, len(ids)); err != nil {
		t.Fatal(err)
	}
	return all
}

func rows(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func value(t *testing.T, e *reference.Eval, n *graph.Node) []float64 {
	t.Helper()
	y, err := e.Value(n, rows(e.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return y
}

func compute(t *testing.T, e *reference.Eval, n *graph.Node) []float64 {
	t.Helper()
	y, err := e.Compute(n, rows(e.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// distance is the relative L2 distance of y from x.
func distance(x, y []float64) float64 {
	if len(x) != len(y) {
		return math.Inf(1)
	}
	var d, s float64
	for i := range x {
		d, s = d+(y[i]-x[i])*(y[i]-x[i]), s+x[i]*x[i]
	}
	return math.Sqrt(d / (s + 1e-300))
}

func known(all map[*graph.Node]reference.Known, n *graph.Node) []float64 { return all[n].(values).data }

// TestReference wants what the backend computes, of each node: from nothing but the
// ids, and from the values before it. The prompts of the Gemma models are longer than
// their window.
func TestReference(t *testing.T) {
	for _, name := range golden.Models(t) {
		t.Run(name, func(t *testing.T) {
			g := load(t, name)
			ids := tokens(7)
			if name == "tiny-gemma3" || name == "tiny-gemma4" && !testing.Short() {
				ids = tokens(70)
			}
			want := recorded(t, g, ids, round.Class{})
			free, pull := reference.Of(g).Eval(ids, nil, nil), reference.Of(g).Eval(ids, want, nil)
			seen := 0
			for _, n := range g.Nodes {
				if n.Op == graph.StoreKV {
					if _, err := free.Compute(n, []int{0}); err == nil {
						t.Errorf("%v has a value", n)
					}
					continue
				}
				seen++
				if d := distance(known(want, n), value(t, free, n)); !(d < 1e-12) {
					t.Errorf("%v lies %.2g from the reference", n, d)
				}
				if d := distance(known(want, n), compute(t, pull, n)); !(d < 1e-13) {
					t.Errorf("%v from the reference's values lies %.2g off", n, d)
				}
			}
			if seen < 20 {
				t.Errorf("%d nodes", seen)
			}
		})
	}
}

// TestKnown wants known values to be taken as they are, and what follows to be
// computed from them.
func TestKnown(t *testing.T) {
	g := load(t, "tiny-qwen3")
	ids := tokens(6)
	right := recorded(t, g, ids, round.Class{})
	q, norm := g.Node("blk.1.attn_q"), g.Node("blk.1.attn_norm")
	bent := values{norm.Shape.Size(), slices.Clone(known(right, norm))}
	for i := range bent.data {
		bent.data[i] *= 3
	}
	e := reference.Of(g).Eval(ids, map[*graph.Node]reference.Known{norm: bent}, nil)
	if got := value(t, e, norm); !slices.Equal(got, bent.data) {
		t.Error("a known value is not taken as it is")
	}
	if d := distance(known(right, norm), compute(t, e, norm)); !(d < 1e-12) {
		t.Errorf("computed where it is known, it lies %.2g off", d)
	}
	want := slices.Clone(known(right, q))
	for i := range want {
		want[i] *= 3
	}
	if d := distance(want, value(t, e, q)); !(d < 1e-12) {
		t.Errorf("what follows lies %.2g off", d)
	}
	if d := distance(known(right, q), value(t, e.Without(norm), q)); !(d < 1e-12) {
		t.Errorf("without the known value it lies %.2g off", d)
	}
	if !e.Known(norm, 5) || e.Known(norm, 6) || e.Known(q, 0) || e.Without(norm).Known(norm, 0) {
		t.Error("Known says something else")
	}
	e.Forget(q.Layer + 1)
	if d := distance(want, value(t, e, q)); !(d < 1e-12) {
		t.Errorf("forgotten and computed again it lies %.2g off", d)
	}
}

// TestKnownRows knows the last rows alone of a value: the others are computed.
func TestKnownRows(t *testing.T) {
	g := load(t, "tiny-qwen3")
	ids := tokens(6)
	n := g.Node("blk.0.attn_norm")
	e := reference.Of(g).Eval(ids, map[*graph.Node]reference.Known{n: lastRow{n.Shape.Size(), 5}}, nil)
	right := compute(t, reference.Of(g).Eval(ids, nil, nil), n)
	got := value(t, e, n)
	w := n.Shape.Size()
	if !slices.Equal(got[:5*w], right[:5*w]) || slices.ContainsFunc(got[5*w:], func(v float64) bool { return v != 1 }) {
		t.Error("not the known row behind the computed ones")
	}
	if span, sources := e.Span(g.Node("blk.0.attn_q")); slices.Contains(span, n) || !slices.Equal(sources, []*graph.Node{n}) {
		t.Errorf("a value whose last row is known is no source: %v from %v", span, sources)
	}
	span, _ := e.Span(g.Node("blk.0.attn_output"))
	if behind := e.Behind(span); !behind[n] || !behind[g.Node("token_embd")] || behind[g.Node("blk.0.attn_k")] {
		t.Errorf("attention reads earlier rows: behind %v is %v", span, behind)
	}
}

type lastRow struct{ width, row int }

func (l lastRow) Rows() (first, n int) { return l.row, 1 }
func (l lastRow) Read(dst []float64, row int) {
	for i := range dst {
		dst[i] = 1
	}
}

// TestSpan wants what lies between taps, through the stores of attention, too.
func TestSpan(t *testing.T) {
	g := load(t, "tiny-qwen3")
	ids := tokens(3)
	right := recorded(t, g, ids, round.Class{})
	have := map[*graph.Node]reference.Known{}
	for _, name := range []string{"blk.0.attn_norm", "blk.0.attn_q_rope"} {
		have[g.Node(name)] = right[g.Node(name)]
	}
	o := g.Node("blk.0.attn_output")
	if o == nil {
		t.Fatal("no attn_output")
	}
	span, sources := reference.Of(g).Eval(ids, have, nil).Span(o)
	name := func(list []*graph.Node) (names []string) {
		for _, n := range list {
			if n.Op != graph.View && n.Op != graph.StoreKV {
				names = append(names, n.Name)
			}
		}
		return names
	}
	if got := name(sources); !slices.Equal(got, []string{"blk.0.attn_norm", "blk.0.attn_q_rope"}) {
		t.Errorf("sources %v", got)
	}
	got := name(span)
	for _, want := range []string{"blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_k_norm", "blk.0.attn_k_rope", "blk.0.attn_output"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in the span %v", want, got)
		}
	}
	if slices.Contains(got, "blk.0.attn_q") || slices.Contains(got, "token_embd") {
		t.Errorf("the span is %v", got)
	}
	if !slices.IsSortedFunc(span, func(a, b *graph.Node) int { return a.ID - b.ID }) {
		t.Error("the span is not in the graph's order")
	}
}

// TestEdit wants an edit to give what the backend gives for a graph that says so,
// and nothing before it to be computed again.
func TestEdit(t *testing.T) {
	ids := tokens(7)
	g, h := load(t, "tiny-gemma4"), load(t, "tiny-gemma4")
	changed := h.Node("blk.1.attn_q_rope")
	a := changed.Attr.(graph.RoPEAttr)
	a.Freqs = slices.Clone(a.Freqs)
	for i := range a.Freqs {
		a.Freqs[i] /= 2
	}
	changed.Attr = a
	want := recorded(t, h, ids, round.Class{})
	free := reference.Of(g).Eval(ids, nil, nil)
	plain := value(t, free, g.Result())
	e := free.With(reference.Edits{g.Nodes[changed.ID]: {func(s *reference.Spec) {
		s.Rope.Freqs = slices.Clone(s.Rope.Freqs)
		for i := range s.Rope.Freqs {
			s.Rope.Freqs[i] /= 2
		}
	}}})
	for _, n := range h.Nodes {
		if n.Op != graph.StoreKV {
			if d := distance(known(want, n), value(t, e, g.Nodes[n.ID])); !(d < 1e-12) {
				t.Errorf("%v lies %.2g off", n, d)
			}
		}
	}
	if again := value(t, free, g.Result()); !slices.Equal(again, plain) {
		t.Error("the edit changed what it was made from")
	}
	if distance(plain, value(t, e, g.Result())) < 1e-6 {
		t.Error("the edit changes nothing")
	}
}

// TestEdits adds edits up: those of a node run one after another; the edit of a store
// reaches the attention of a layer that shares it.
func TestEdits(t *testing.T) {
	ids := tokens(5)
	g := load(t, "tiny-gemma4")
	e := reference.Of(g).Eval(ids, nil, nil)
	final := g.Node("output_norm")
	twice := func(s *reference.Spec) { s.Times *= 2 }
	both := reference.Edits{final: {twice}}.And(reference.Edits{final: {twice}})
	want := slices.Clone(value(t, e, final))
	for i := range want {
		want[i] *= 4
	}
	if got := value(t, e.With(both), final); distance(want, got) > 1e-15 {
		t.Error("two edits of a node are not both made")
	}
	if got := value(t, e.With(reference.Edits{final: {twice}}).With(reference.Edits{final: {twice}}), final); distance(want, got) > 1e-15 {
		t.Error("edits on edits are not both made")
	}
	if reference.Edits(nil).And(both)[final] == nil {
		t.Error("edits on none are none")
	}
	var shared, store *graph.Node
	for _, n := range g.Nodes {
		if n.Op == graph.Attention && e.Spec(n).Attention.Store.Layer != n.Layer {
			shared, store = n, e.Spec(n).Attention.Store
			break
		}
	}
	if shared == nil {
		t.Fatal("no layer shares keys and values")
	}
	// The edited store takes values for keys; the values before the sharing layer are known.
	have := map[*graph.Node]reference.Known{}
	for _, n := range g.Nodes[:shared.ID] {
		if n.Op != graph.StoreKV {
			have[n] = values{n.Shape.Size(), value(t, e, n)}
		}
	}
	pull := reference.Of(g).Eval(ids, have, nil)
	before := slices.Clone(compute(t, pull, shared))
	edited := pull.With(reference.Edits{store: {func(s *reference.Spec) { s.In = []*graph.Node{s.In[1], s.In[1]} }}})
	if distance(before, compute(t, edited, shared)) < 1e-6 {
		t.Error("the edit of a store does not reach the layer that shares it")
	}
	if !slices.Equal(before, compute(t, pull, shared)) {
		t.Error("the edit of a store reaches those that do not have it")
	}
}

// TestClasses wants the emulation of a class nearer to the backend's than to float64,
// given the same values before each node.
func TestClasses(t *testing.T) {
	g := load(t, "tiny-gemma3")
	ids := tokens(6)
	for class, num := range map[string]*reference.Numerics{
		"activations=bf16":  {Store: round.BF16.Round, KV: round.BF16},
		"activations=f16":   {Store: round.F16.Round, KV: round.F16},
		"kv=f16":            {KV: round.F16},
		"gelu=f16-table":    {GELU: round.F16Table.At},
		"activations=q8_32": {Input: func(row []float64, w tensor.DType) { round.Q8_32.Input(w).Round(row) }},
	} {
		c, err := round.Parse(class)
		if err != nil {
			t.Fatal(err)
		}
		engine := recorded(t, g, ids, c)
		center, exact := reference.Of(g).Eval(ids, engine, num), reference.Of(g).Eval(ids, engine, nil)
		var near, far float64
		for _, n := range g.Nodes {
			if n.Op == graph.StoreKV {
				continue
			}
			near, far = near+distance(known(engine, n), compute(t, center, n)), far+distance(known(engine, n), compute(t, exact, n))
		}
		if !(near < far/40) {
			t.Errorf("%s: its emulation lies %.3g from it, float64 %.3g", class, near, far)
		}
	}
}

// TestArms wants the orders of sums and the jitter to be as large as float32's
// rounding, and what they give to be the same each time.
func TestArms(t *testing.T) {
	g := load(t, "tiny-qwen3")
	ids := tokens(6)
	right := recorded(t, g, ids, round.Class{})
	q := g.Node("blk.1.attn_q")
	arm := func(o reference.Order, jitter float64) []float64 {
		n := &reference.Numerics{Order: o, Jitter: jitter, Random: rand.NewPCG(1, 2)}
		return compute(t, reference.Of(g).Eval(ids, right, n), q)
	}
	var seen [][]float64
	for _, o := range []reference.Order{reference.Exact, reference.Forward, reference.Backward, reference.Lanes} {
		y := arm(o, 0)
		d := distance(known(right, q), y)
		if o == reference.Exact && d > 1e-14 || o != reference.Exact && !(d > 1e-9 && d < 1e-6) {
			t.Errorf("order %d lies %.2g off", o, d)
		}
		for _, x := range seen {
			if slices.Equal(x, y) {
				t.Errorf("order %d is another's", o)
			}
		}
		seen = append(seen, y)
	}
	y := arm(reference.Exact, 0x1p-24)
	if d := distance(known(right, q), y); !(d > 0x1p-26 && d < 0x1p-23) {
		t.Errorf("jitter of 2^-24 makes %.2g", d)
	}
	if !slices.Equal(y, arm(reference.Exact, 0x1p-24)) {
		t.Error("the same seed gives other numbers")
	}
}

// TestAngles wants the error of turned queries to grow with the position: an angle in
// float32 is off by a share of itself.
func TestAngles(t *testing.T) {
	g := load(t, "tiny-qwen3")
	ids := tokens(400)
	q, in := g.Node("blk.0.attn_q_rope"), g.Node("blk.0.attn_q_norm")
	one := values{in.Shape.Size(), make([]float64, len(ids)*in.Shape.Size())}
	for i := range one.data {
		one.data[i] = 1 + float64(i%5)
	}
	have := map[*graph.Node]reference.Known{in: one}
	num := &reference.Numerics{Jitter: 0x1p-24, Random: rand.NewPCG(1, 2)}
	want, got := compute(t, reference.Of(g).Eval(ids, have, nil), q), compute(t, reference.Of(g).Eval(ids, have, num), q)
	w := q.Shape.Size()
	near, far := distance(want[:10*w], got[:10*w]), distance(want[390*w:], got[390*w:])
	if !(near < 1e-6 && far > 1e-6 && far < 1e-3) {
		t.Errorf("%.2g at the first positions, %.2g at the 400th", near, far)
	}
}

// TestRefused wants errors, and no panic, for what cannot be computed.
func TestRefused(t *testing.T) {
	g := load(t, "tiny-qwen3")
	q := g.Node("blk.0.attn_q")
	for what, e := range map[string]*reference.Eval{
		"an id outside the vocabulary": reference.Of(g).Eval([]int32{1 << 30}, nil, nil),
		"a negative id":                reference.Of(g).Eval([]int32{-1}, nil, nil),
		"a weight of another shape":    reference.Of(g).Eval([]int32{1}, nil, nil).With(reference.Edits{q: {func(s *reference.Spec) { s.W = g.Node("blk.0.attn_k").W }}}),
		"a circle":                     reference.Of(g).Eval([]int32{1}, nil, nil).With(reference.Edits{q: {func(s *reference.Spec) { s.In = []*graph.Node{g.Node("blk.0.attn_q_norm")} }}}),
		"attention without a store": reference.Of(g).Eval([]int32{1}, nil, nil).With(reference.Edits{g.Node("blk.0.attn_q_rope"): nil,
			attention(g): {func(s *reference.Spec) { s.Attention.Store = nil }}}),
	} {
		if _, err := e.Value(g.Result(), []int{0}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func attention(g *graph.Graph) *graph.Node {
	return g.Nodes[slices.IndexFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == graph.Attention })]
}
