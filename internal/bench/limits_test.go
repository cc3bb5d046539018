package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

func TestLimits(t *testing.T) {
	o := Options{Prompts: []int{8}, Tokens: []int{4}, Depths: []int{0}, Threads: []int{1, 2}, Parallel: []int{1}, Repeat: 2, Limits: true, Free: 64 << 20,
		Numerics: numerics.Numerics{Precision: "fast", KV: "f16"}}
	r, err := Run(t.Context(), open(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range r.Limits {
		if l.Threads != i+1 || len(l.Read) != 8 || len(l.Ints) != 8 || len(l.Floats) != 8 {
			t.Errorf("%+v", l)
		}
	}
	for _, x := range r.Results {
		if x.Share <= 0 || x.Bound == "" {
			t.Errorf("%+v", x)
		}
	}
	if m := r.Memory; m.Resident < 0 || m.Peak < m.Resident || m.Resident > 0 && (m.Heap <= 0 || m.KV <= 0 || m.Weights <= 0 || m.Files <= 0 || m.Files+m.Weights+m.KV+m.Heap != m.Resident) {
		t.Errorf("%+v", m)
	}
	var b strings.Builder
	if err := r.WriteMarkdown(&b); err != nil || len(r.Limits) != 2 || !strings.Contains(b.String(), "| of limit |") || !strings.Contains(b.String(), "\nlimits, threads 2: read ") || r.Resident > 0 && !strings.Contains(b.String(), "\nof that: repacked weights ") {
		t.Errorf("%s, %v", b.String(), err)
	}
}

// TestLimitsCanceled: Ctrl-C ends what comes before the first test, too.
func TestLimitsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newLimits(ctx, 64<<20, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestLimitsMemory: the loops read as much as the weights are, and no more than a
// quarter of the free memory.
func TestLimitsMemory(t *testing.T) {
	for _, x := range []struct{ size, free, want int64 }{{5 << 20, 0, 5 << 20}, {5 << 20, 1 << 30, 5 << 20}, {5 << 20, 8 << 20, 2 << 20}, {5, 0, 1 << 20}} {
		l, err := newLimits(t.Context(), x.size, x.free)
		if err != nil {
			t.Fatal(err)
		}
		defer l.memory.Close()
		if l.bytes() != x.want {
			t.Errorf("%d bytes, %d free: %d, want %d", x.size, x.free, l.bytes(), x.want)
		}
	}
}

// TestCost counts by hand what a small graph takes.
func TestCost(t *testing.T) {
	weight := func(d tensor.DType, bytes int, shape ...int) *graph.Weight {
		return &graph.Weight{Tensor: tensor.Tensor{DType: d, Shape: shape, Data: make([]byte, bytes)}}
	}
	kv := &graph.KV{Heads: 2, Dim: 8, Window: 3}
	route := &graph.Node{Op: graph.Route, Shape: tensor.Shape{2, 2}}
	g := &graph.Graph{Nodes: []*graph.Node{
		{Op: graph.Embed, W: []*graph.Weight{weight(tensor.Q8_0, 34*100, 100, 32)}},
		{Op: graph.RMSNorm, W: []*graph.Weight{weight(tensor.F32, 128, 32)}},
		{Op: graph.Linear, W: []*graph.Weight{weight(tensor.Q8_0, 340, 10, 32)}},
		{Op: graph.Attention, Attr: graph.AttentionAttr{KV: kv}},
		route,
		{Op: graph.Experts, In: []*graph.Node{nil, route}, W: []*graph.Weight{weight(tensor.F16, 8*64*4, 8, 4, 32)}},
		{Op: graph.Rows},
		{Op: graph.Linear, W: []*graph.Weight{weight(tensor.Q8_0, 3400, 100, 32)}},
	}}
	c := costOf(g, numerics.Numerics{Precision: "fast", KV: "f16"})
	if c.weights != 128+340+8*64*4/4+3400 || c.all != 128+340+8*64*4+3400 || c.row != (operations{640, 2 * 8 * 4 * 32 / 4}) || c.output != (operations{6400, 0}) {
		t.Errorf("%+v", c)
	}
	for _, x := range []struct {
		test            Result
		memory, compute float64
	}{
		{Result{Prompt: 5, Parallel: 2}, 4380, 2 * (5*(640+512.0/2) + 6400)},
		{Result{Tokens: 3, Parallel: 1}, 3*4380 + 64*(1+2+3), 3 * (640 + 512.0/2 + 6400)},
		{Result{Tokens: 1, Parallel: 1, Depth: 9}, 4380 + 64*3, 640 + 512.0/2 + 6400},
		{Result{Tokens: 1, Parallel: 2}, 0, 0},
	} {
		if m, p := c.seconds(&x.test, 1, 1, 2); m != x.memory || math.Abs(p-x.compute) > 1e-9 {
			t.Errorf("%+v: %g, %g, want %g, %g", x.test, m, p, x.memory, x.compute)
		}
	}
	if c := costOf(g, numerics.Numerics{Precision: "f32", KV: "f32"}); c.row.ints != 0 || c.element != 4 {
		t.Errorf("%+v", c)
	}
}

// TestCostOfNarrow counts older positions in 8 bits: in a full layer of 1,000 all except the first page and the newest
// two pages and a half.
func TestCostOfNarrow(t *testing.T) {
	b := graph.New()
	s := &graph.KV{Heads: 2, Dim: 32}
	x := b.Embed(&graph.Weight{}, 4, 64, 1)
	b.StoreKV(s, b.Heads(x, 32), b.Heads(x, 32))
	b.Attention(b.Heads(x, 32), s, 1)
	g, _ := b.Graph()
	c := costOf(g, numerics.Numerics{Precision: "fast", KV: "q8_0"})
	const wide, narrow = 2 * 64 * 2, 2 * 64 * 17 / 16
	for n, want := range map[int]int64{
		100:  100 * wide,
		200:  200 * wide,
		1000: (13-1)*64*narrow + (1000-12*64)*wide,
	} {
		if got := c.stored(n); got != want {
			t.Errorf("%d bytes of %d positions, want %d", got, n, want)
		}
	}
}

// TestCostOfModel checks that a token reads all of the demo: its output is its
// embedding.
func TestCostOfModel(t *testing.T) {
	c, err := open()()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	if n := costOf(g, numerics.Numerics{Precision: "fast", KV: "f16"}).weights; n > c.Bytes() || n < c.Bytes()*98/100 {
		t.Errorf("%d bytes of %d", n, c.Bytes())
	}
}
