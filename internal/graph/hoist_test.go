package graph

import (
	"slices"
	"strings"
	"testing"
)

const hoisted = `token_embd = embed(token_embd[16 8]) [8] scale=2 ; model.token_embd.out
blk.0.attn_norm = rms_norm(token_embd, blk.0.attn_norm[8]) [8] eps=1e-06 offset=1 ; model.blk.0.attn_norm.out
blk.0.attn_norm.rows = rows(blk.0.attn_norm) [8]
blk.0.attn_q = linear(blk.0.attn_norm.rows, blk.0.attn_q[8 8]) [8]
`

// TestHoist: what no key or value needs reads rows, which are cut where it begins.
func TestHoist(t *testing.T) {
	g, err := record()
	if err != nil {
		t.Fatal(err)
	}
	h := g.Hoist(nil, nil)
	var b strings.Builder
	if err := Print(&b, h); err != nil || !strings.HasPrefix(b.String(), hoisted) {
		t.Errorf("%v\n%s", err, b.String())
	}
	after, names := h.Live().After, map[string]bool{}
	var cut []string
	for i, n := range h.Nodes {
		if n.ID != i || names[n.Name] {
			t.Errorf("node %d has ID %d and name %s", i, n.ID, n.Name)
		}
		if names[n.Name] = true; n.Op == Rows {
			cut = append(cut, n.In[0].Name)
		}
		for _, in := range n.In {
			if in != h.Nodes[in.ID] || in.ID >= i || n.Op != Rows && after[in] != after[n] {
				t.Errorf("%s reads %s", n.Name, in.Name)
			}
		}
	}
	if want := []string{"blk.0.attn_norm", "token_embd"}; !slices.Equal(cut, want) {
		t.Errorf("rows of %v, want %v", cut, want)
	}
	if h.Result().Name != g.Result().Name || len(h.Nodes) != len(g.Nodes)+1 || g.Nodes[2].In[0] != g.Nodes[1] {
		t.Errorf("%d nodes of %d, the last one %v", len(h.Nodes), len(g.Nodes), h.Result())
	}
}

// TestHoistTogether: nodes computed together with keys are computed for all rows.
func TestHoistTogether(t *testing.T) {
	g, err := record()
	if err != nil {
		t.Fatal(err)
	}
	q := g.Node("blk.0.attn_q")
	h := g.Hoist(func(n *Node) []*Node {
		if n.Op == Linear && n.In[0] == q.In[0] {
			return []*Node{q}
		}
		return nil
	}, nil)
	if n := h.Node("blk.0.attn_q"); n.In[0].Op == Rows || h.Node("blk.0.attn_q.rows") == nil {
		t.Errorf("%s reads %v", n.Name, n.In[0])
	}
}

// TestHoistNothing: a graph whose logits are all rows', or whose Rows node is its end, is left.
func TestHoistNothing(t *testing.T) {
	every, last := New(), New()
	every.Linear(weight("output", 16, 8), every.Embed(weight("token_embd", 16, 8), 16, 8, 1), 16)
	last.Outputs(last.Embed(weight("token_embd", 16, 8), 16, 8, 1))
	for _, b := range []Builder{every, last} {
		if g, err := b.Graph(); err != nil || g.Hoist(nil, nil) != g {
			t.Errorf("hoisted, or %v", err)
		}
	}
}

// TestHoistState: a node with a state sees every row, and is what every row's inputs are for.
func TestHoistState(t *testing.T) {
	b := New()
	x := b.Embed(weight("token_embd", 16, 8), 16, 8, 1)
	scan := b.Scale(b.Linear(weight("in", 8, 8), x, 8), 2) // stands for a scan
	scan.State = &State{Layer: 3, Name: "scan", Size: 8}
	b.Linear(weight("output", 16, 8), b.Outputs(b.Linear(weight("out", 8, 8), scan, 8)), 16)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	h := g.Hoist(nil, nil)
	after := h.Live().After
	if n := h.Node("scale"); after[n] || n.State != scan.State || !after[h.Node("model.out.out")] {
		t.Errorf("%v", h.Nodes)
	}
	if s := h.States(); len(s) != 1 || s[0] != scan.State {
		t.Errorf("states %v", s)
	}
	var out strings.Builder
	if err := Print(&out, g); err != nil || !strings.Contains(out.String(), "scale(in) [8] by=2 state=3:scan:8\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
