package experiment

import (
	"slices"
	"testing"

	"github.com/karat-run/karat"
)

// TestPositions: every form, and what is none.
func TestPositions(t *testing.T) {
	p := &Prompt{IDs: []int{2, 5, 6, 7, 8}, Tokens: []string{"", "The", " sk", "y", " is"}}
	for said, want := range map[string][]int{
		"": {0, 1, 2, 3, 4}, "all": {0, 1, 2, 3, 4}, "prompt": {0, 1, 2, 3, 4}, "last": {4}, "root": {0}, "-2": {3}, "1-2,last": {1, 2, 4},
		"text:sky": {2, 3}, "0,text:i|T": {0, 1, 4}, "generated": nil,
	} {
		x, err := ParsePositions(said)
		if err != nil {
			t.Fatal(err)
		}
		got, generated, err := x.Of(p)
		if err != nil || !slices.Equal(got, want) || generated != slices.Contains([]string{"", "all", "generated"}, said) {
			t.Errorf("%q: %v, %v, %v; want %v", said, got, generated, err, want)
		}
	}
	for _, said := range []string{"x", "1-", "3-1", "text:", "text:(", "1,,2", "99999999999"} {
		if _, err := ParsePositions(said); err == nil {
			t.Errorf("%q: no error", said)
		}
	}
	for _, said := range []string{"5", "-6", "3-5", "text:moon"} {
		x, err := ParsePositions(said)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := x.Of(p); err == nil {
			t.Errorf("%q of 5 tokens: no error", said)
		}
	}
}

// TestPlace: heads and channels are the elements that they should be, of the attention behind a product.
func TestPlace(t *testing.T) {
	nodes := []karat.Node{
		{Name: "blk.0.attention", Layer: 0, Shape: []int{8}, Heads: 2},
		{Name: "blk.0.attn_output", Layer: 0, Shape: []int{6}, In: []string{"blk.0.attention"}},
		{Name: "blk.1.attention", Layer: 1, Shape: []int{8}, Heads: 2},
		{Name: "blk.1.attn_output", HF: "model.layers.1.self_attn.o_proj.out", Layer: 1, Shape: []int{6}, In: []string{"blk.1.attention"}},
	}
	place := func(node, layers, heads, channels string) Place {
		p := Place{Node: node}
		for _, x := range []struct {
			said string
			to   *Set
		}{{layers, &p.Layers}, {heads, &p.Heads}, {channels, &p.Channels}} {
			var err error
			if *x.to, err = ParseSet(x.said); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	p := place("attn_output", "1", "1", "0,2-3")
	sites, err := p.find(nodes)
	if err != nil || len(sites) != 1 || sites[0].node.Name != "blk.1.attention" || !slices.Equal(sites[0].runs, []span{{4, 4}, {6, 7}}) || sites[0].size != 3 {
		t.Errorf("%+v, %v", sites, err)
	}
	for _, name := range []string{"blk.*.attn_output", "attn_output", "*output"} {
		p := place(name, "", "", "")
		if sites, err := p.find(nodes); err != nil || len(sites) != 2 || sites[0].size != 6 {
			t.Errorf("%s: %+v, %v", name, sites, err)
		}
	}
	p = place("model.layers.1.self_attn.o_proj", "", "", "")
	if sites, err := p.find(nodes); err != nil || len(sites) != 1 {
		t.Errorf("PyTorch's name: %+v, %v", sites, err)
	}
	for _, p := range []Place{place("none", "", "", ""), place("attention", "7", "", ""), place("attention", "", "2", ""), place("attention", "", "0", "4"), place("", "", "", "")} {
		if sites, err := p.find(nodes); err == nil {
			t.Errorf("%+v: %+v", p, sites)
		}
	}
}
