package graph

import (
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// weight is one that a file holds, as bind makes it.
func weight(name string, shape ...int) *Weight {
	return &Weight{Tensor: tensor.Tensor{Name: name, Shape: shape, Data: []byte{1}}, GGUF: name, HF: "model." + name}
}

// record is one small layer with every operation that the Builder has.
func record() (*Graph, error) {
	b := New()
	h := b.Embed(weight("token_embd", 16, 8), 16, 8, 2)
	l := b.Layer(0)
	x := l.RMSNorm(weight("blk.0.attn_norm", 8), h, 1e-6, 1)
	kv := &KV{Layer: 0, Heads: 1, Dim: 4, Window: 32}
	q := l.Heads(l.Bias(weight("blk.0.attn_q.bias", 8), l.Linear(weight("blk.0.attn_q", 8, 8), x, 8)), 4)
	k := l.Heads(l.Linear(weight("blk.0.attn_k", 4, 8), x, 4), 4)
	l.StoreKV(kv, l.RoPE("k", k, RoPEAttr{Freqs: []float64{1, 0.01}}), l.Normalize(k, 1e-6))
	x = l.Attention(l.RoPE("q", q, RoPEAttr{Freqs: []float64{1, 0.01}}), kv, 0.5)
	h = l.Add(h, x)
	route := l.Route(l.Linear(weight("blk.0.router", 4, 8), h, 4), weight("blk.0.expert_scale", 4), 2)
	x = l.Experts(GELUTanh, weight("blk.0.gate_up", 4, 6, 8), weight("blk.0.down", 4, 8, 3), h, route, 4, 3)
	x = l.GLU(SiLU, x, l.Head(l.Heads(h, 8), 0))
	h = l.Name(l.MulWeight(weight("blk.0.scalar", 1), l.Add(h, x), 1), "out", "out")
	h = b.Scale(b.Outputs(h), 0.125)
	b.Softcap(b.Name(b.Linear(weight("token_embd", 16, 8), h, 16), "output", "lm_head.out"), 30)
	return b.Graph()
}

const printed = `token_embd = embed(token_embd[16 8]) [8] scale=2 ; model.token_embd.out
blk.0.attn_norm = rms_norm(token_embd, blk.0.attn_norm[8]) [8] eps=1e-06 offset=1 ; model.blk.0.attn_norm.out
blk.0.attn_q = linear(blk.0.attn_norm, blk.0.attn_q[8 8]) [8]
blk.0.attn_q.bias = add(blk.0.attn_q, blk.0.attn_q.bias[8]) [8] ; model.blk.0.attn_q.out
blk.0.view = view(blk.0.attn_q.bias) [2 4]
blk.0.attn_k = linear(blk.0.attn_norm, blk.0.attn_k[4 8]) [4] ; model.blk.0.attn_k.out
blk.0.view#1 = view(blk.0.attn_k) [1 4]
blk.0.attn_k_rope = rope(blk.0.view#1) [1 4] freqs=2:1..0.01 ; model.layers.0.self_attn.k_rope.out
blk.0.rms_norm = rms_norm(blk.0.view#1) [1 4] eps=1e-06 offset=0
blk.0.store_kv = store_kv(blk.0.attn_k_rope, blk.0.rms_norm) [1 4] kv=0:1x4 window=32
blk.0.attn_q_rope = rope(blk.0.view) [2 4] freqs=2:1..0.01 ; model.layers.0.self_attn.q_rope.out
blk.0.attention = attention(blk.0.attn_q_rope) [8] kv=0:1x4 window=32 scale=0.5
blk.0.add = add(token_embd, blk.0.attention) [8]
blk.0.router = linear(blk.0.add, blk.0.router[4 8]) [4] ; model.blk.0.router.out
blk.0.ffn_route = route(blk.0.router, blk.0.expert_scale[4]) [2 2]
blk.0.gate_up = experts(blk.0.add, blk.0.ffn_route, blk.0.gate_up[4 6 8], blk.0.down[4 8 3]) [8] act=gelu_tanh ; model.blk.0.gate_up.out
blk.0.view#2 = view(blk.0.add) [1 8]
blk.0.view#3 = view(blk.0.view#2) [8]
blk.0.glu = glu(blk.0.gate_up, blk.0.view#3) [8] act=silu
blk.0.add#1 = add(blk.0.add, blk.0.glu) [8]
blk.0.out = mul(blk.0.add#1, blk.0.scalar[1]) [8] ; model.layers.0.out
rows = rows(blk.0.out) [8]
scale = scale(rows) [8] by=0.125
output = linear(scale, token_embd[16 8]) [16] ; lm_head.out
softcap = softcap(output) [16] by=30
`

func TestPrint(t *testing.T) {
	g, err := record()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Print(&b, g); err != nil {
		t.Fatal(err)
	}
	if b.String() != printed {
		t.Errorf("got\n%s\nwant\n%s", b.String(), printed)
	}
}

// TestNodes holds the facts that backends and taps rely on.
func TestNodes(t *testing.T) {
	g, err := record()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, n := range g.Nodes {
		if n.ID != i || seen[n.Name] {
			t.Errorf("node %d has ID %d and name %s", i, n.ID, n.Name)
		}
		seen[n.Name] = true
		for _, in := range n.In {
			if in.ID >= i {
				t.Errorf("%s reads %s, which comes later", n.Name, in.Name)
			}
		}
		if !strings.HasPrefix(n.Pos, "graph_test.go:") {
			t.Errorf("%s was recorded at %s", n.Name, n.Pos)
		}
		if want := strings.HasPrefix(n.Name, "blk.0."); (n.Layer == 0) != want {
			t.Errorf("%s is in layer %d", n.Name, n.Layer)
		}
	}
	if g.Result().Op != Softcap {
		t.Errorf("the result is %v", g.Result())
	}
	if kvs := g.KVs(); len(kvs) != 1 || kvs[0].Window != 32 {
		t.Errorf("stores %v", kvs)
	}
	for _, name := range []string{"blk.0.attn_q.bias", "model.blk.0.attn_q.out"} {
		if n := g.Node(name); n == nil || n.Op != Add {
			t.Errorf("Node(%q) = %v", name, n)
		}
	}
	if n := g.Node(""); n != nil {
		t.Errorf("Node of no name is %v", n)
	}
}

// TestErrors wants each disagreement with the configuration, all in one error.
func TestErrors(t *testing.T) {
	b := New()
	lacked, reported := &Weight{GGUF: "blk.0.b"}, &Weight{GGUF: "blk.0.c"}
	lacked.Name = "own.name"
	l := b.Layer(0)
	x := l.Linear(weight("blk.0.a", 8, 7), l.Embed(weight("e", 16, 8), 16, 8, 1), 8)
	l.Linear(lacked, x, 4)
	l.Linear(reported, x, 4)
	l.Refuse(weight("blk.0.d", 1), "d is false")
	l.Refuse(lacked, "e is false")
	l.Heads(x, 3)
	l.Heads(x, 0)
	q := l.Heads(x, 4)
	l.RoPE("q", q, RoPEAttr{Freqs: make([]float64, 3)})
	l.StoreKV(&KV{Heads: 1, Dim: 4}, q, q)
	l.Attention(q, nil, 1)
	l.Attention(q, &KV{Heads: 3, Dim: 4}, 1)
	l.Attention(q, &KV{Heads: 0, Dim: 4}, 1)
	l.Add(x, l.Head(q, 0))
	l.Route(x, weight("s", 8), 9)
	l.Experts(SiLU, weight("gu", 2, 6, 8), weight("down", 2, 8, 4), x, x, 2, 3)
	_, err := b.Graph()
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"tensor blk.0.a: shape [8 7], the configuration says [8 8]",
		"tensor own.name: missing, the configuration says that it has shape [4 8]",
		"tensor blk.0.d: the file holds it, but the configuration says that d is false",
		"8 features are no multiple of the head size 3",
		"8 features are no multiple of the head size 0",
		"3 frequencies for heads of 4",
		"keys [2 4] and values [2 4], the configuration says [1 4]",
		"blk.0: no earlier layer stores the keys and values that this one shares",
		"query heads [2 4] against 3 key and value heads of 4",
		"query heads [2 4] against 0 key and value heads of 4",
		"shapes [8] and [4]",
		"9 of 8 experts",
		"tensor down: shape [2 8 4], the configuration says [2 8 3]",
	}
	lines := strings.Split(err.Error(), "\n")
	for i, w := range want {
		if i >= len(lines) || !strings.HasSuffix(lines[i], w) {
			t.Fatalf("problem %d: got %q\nwant … %s", i, lines[min(i, len(lines)-1)], w)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d problems, want %d: %q", len(lines), len(want), lines[len(want):])
	}
}

func TestActivation(t *testing.T) {
	for name, want := range map[string]Activation{"silu": SiLU, "swish": SiLU, "gelu_pytorch_tanh": GELUTanh, "gelu_tanh": GELUTanh, "gelu_new": GELUTanh,
		"gelu": GELUErf, "relu2": ReLUSquared, "sigmoid": Sigmoid, "tanh": Tanh} {
		var a Activation
		if err := a.UnmarshalText([]byte(name)); err != nil || a != want {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	for _, name := range []string{"quick_gelu", "relu", ""} {
		var a Activation
		if err := a.UnmarshalText([]byte(name)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
