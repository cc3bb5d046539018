package graph

import (
	"math"
	"strings"
	"testing"
)

// rare is the operations that few families have.
func rare() (*Graph, error) {
	b := New()
	h := b.Embed(weight("token_embd", 16, 8), 16, 8, 1)
	h = b.Add(h, b.EmbedPos(weight("position_embd", 32, 8), 32, 8))
	l := b.LayerAs("transformer.h", 0)
	x := l.LayerNorm(weight("norm", 8), weight("norm.bias", 8), h, 1e-5)
	x = l.LayerNorm(nil, nil, x, 1e-5)
	x = l.Act(SiLU, l.Conv(weight("conv", 8, 4), weight("conv.bias", 8), x, 4))
	q := l.L2Norm(l.Heads(l.Slice(x, 0, 4), 2), 1e-6)
	q = l.HeadLinear(weight("k_b", 2, 3, 2), q, 3)
	q = l.ScalePos(l.Concat(q, l.Heads(l.Slice(x, 4, 4), 2)), ScalePosAttr{Beta: 0.1, Every: 8192, Shift: 1})
	one := func(name string) *Weight { return weight(name, 2) }
	dt, bc := l.Linear(weight("dt", 2, 8), x, 2), l.Heads(l.Slice(x, 2, 3), 3)
	y := l.SSMScan(one("a"), one("dt.bias"), one("d"), q, dt, bc, bc)
	y = l.DeltaScan(one("a2"), one("dt2"), bc, bc, y, dt, dt)
	h = l.Name(l.Linear(weight("out", 8, 10), y, 8), "out", "out")
	b.Linear(weight("output", 16, 8), b.Pool(Mean, h), 16)
	return b.Graph()
}

const printedRare = `token_embd = embed(token_embd[16 8]) [8] scale=1 ; model.token_embd.out
position_embd = embed_pos(position_embd[32 8]) [8] ; model.position_embd.out
add = add(token_embd, position_embd) [8]
norm = layer_norm(add, norm[8], norm.bias[8]) [8] eps=1e-05 offset=0 ; model.norm.out
blk.0.layer_norm = layer_norm(norm) [8] eps=1e-05 offset=0
blk.0.conv = conv(blk.0.layer_norm, conv[8 4], conv.bias[8]) [8] state=0:conv:24
blk.0.act = act(blk.0.conv) [8] act=silu
blk.0.slice = slice(blk.0.act) [4] offset=0
blk.0.view = view(blk.0.slice) [2 2]
blk.0.l2_norm = l2_norm(blk.0.view) [2 2] eps=1e-06 offset=0
k_b = head_linear(blk.0.l2_norm, k_b[2 3 2]) [2 3] ; model.k_b.out
blk.0.slice#1 = slice(blk.0.act) [4] offset=4
blk.0.view#1 = view(blk.0.slice#1) [2 2]
blk.0.concat = concat(k_b, blk.0.view#1) [2 5]
blk.0.scale_pos = scale_pos(blk.0.concat) [2 5] beta=0.1 every=8192 shift=1
dt = linear(blk.0.act, dt[2 8]) [2] ; model.dt.out
blk.0.slice#2 = slice(blk.0.act) [3] offset=2
blk.0.view#2 = view(blk.0.slice#2) [1 3]
blk.0.ssm_scan = ssm_scan(blk.0.scale_pos, dt, blk.0.view#2, blk.0.view#2, a[2], dt.bias[2], d[2]) [2 5] state=0:scan:30
blk.0.delta_scan = delta_scan(blk.0.view#2, blk.0.view#2, blk.0.ssm_scan, dt, dt, a2[2], dt2[2]) [2 5] state=0:scan:30
blk.0.out = linear(blk.0.delta_scan, out[8 10]) [8] ; transformer.h.0.out
pool = pool(blk.0.out) [8] pooling=mean
output = linear(pool, output[16 8]) [16] ; model.output.out
`

func TestPrintRare(t *testing.T) {
	g, err := rare()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Print(&b, g); err != nil {
		t.Fatal(err)
	}
	if b.String() != printedRare {
		t.Errorf("got\n%s\nwant\n%s", b.String(), printedRare)
	}
	// A pool needs all rows of what it reads, so that nothing before it is for some alone.
	h := g.Hoist(nil, nil)
	after := h.Live().After
	for _, n := range h.Nodes {
		if want := n.Name == "pool" || n.Name == "output"; after[n] != want || n.Op == Rows {
			t.Errorf("%v is behind the rows that are wanted: %v", n, after[n])
		}
	}
}

// TestRareErrors wants an error for each shape that does not fit.
func TestRareErrors(t *testing.T) {
	for want, build := range map[string]func(b Builder, x *Node){
		"a bias, and no weight":       func(b Builder, x *Node) { b.LayerNorm(nil, weight("b", 12), x, 1) },
		"shape [11]":                  func(b Builder, x *Node) { b.LayerNorm(weight("w", 11), nil, x, 1) },
		"shapes [12] and [3 4]":       func(b Builder, x *Node) { b.Concat(x, b.Heads(x, 4)) },
		"8 elements from 5 on, of 12": func(b Builder, x *Node) { b.Slice(x, 5, 8) },
		"0 elements from 0 on, of 12": func(b Builder, x *Node) { b.Slice(x, 0, 0) },
		"steps of 0 positions":        func(b Builder, x *Node) { b.ScalePos(x, ScalePosAttr{}) },
		"shape [3 5 3], the":          func(b Builder, x *Node) { b.HeadLinear(weight("w", 3, 5, 3), b.Heads(x, 4), 5) },
		"shape [12], want heads":      func(b Builder, x *Node) { b.HeadLinear(weight("w", 12, 5, 12), x, 5) },
		"a convolution of 1 inputs":   func(b Builder, x *Node) { b.Conv(weight("w", 12, 1), nil, x, 1) },
		"x [3 4], dt [12], b [6 2]": func(b Builder, x *Node) {
			w := weight("w", 3)
			b.SSMScan(w, w, w, b.Heads(x, 4), x, b.Heads(x, 2), b.Heads(x, 2))
		},
		"x [3 4] and b [1 12], want heads of 1": func(b Builder, x *Node) {
			w, one := weight("w", 3), b.Heads(x, 12)
			b.SSMScanEach(weight("a", 3, 12), w, w, b.Heads(x, 4), b.Slice(x, 0, 3), one, one)
		},
		"q [3 4], k [6 2], v [3 4], a ": func(b Builder, x *Node) {
			w := weight("w", 3)
			b.DeltaScan(w, w, b.Heads(x, 4), b.Heads(x, 2), b.Heads(x, 4), x, x)
		},
		"2 of -3 groups of 12 experts":  func(b Builder, x *Node) { b.RouteWith(x, 2, RouteAttr{Groups: -3, Kept: 2}, nil, nil) },
		"4 of 3 groups of 12 experts":   func(b Builder, x *Node) { b.RouteWith(x, 2, RouteAttr{Groups: 3, Kept: 4}, nil, nil) },
		"weights of experts times +Inf": func(b Builder, x *Node) { b.RouteWith(x, 2, RouteAttr{Factor: math.Inf(1)}, nil, nil) },
	} {
		b := New()
		build(b, b.Embed(weight("token_embd", 16, 12), 16, 12, 1))
		if _, err := b.Graph(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestOneGroup: a configuration that has one group of experts says nothing of groups.
func TestOneGroup(t *testing.T) {
	b := New()
	n := b.RouteWith(b.Embed(weight("token_embd", 16, 12), 16, 12, 1), 2, RouteAttr{Groups: 1, Kept: -1, Best: 1 << 60}, nil, nil)
	if _, err := b.Graph(); err != nil || n.Attr != (RouteAttr{}) {
		t.Errorf("%+v, %v", n.Attr, err)
	}
}
