package experiment

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// loaded returns a model with a pair of prompts, closed when the test ends.
func loaded(t *testing.T, path string) (m *karat.Model, clean, corrupted *Prompt) {
	t.Helper()
	m, err := karat.Load(t.Context(), path, karat.Options{Threads: 2, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	ids, err := m.Tokenize(t.Context(), "The color of the sky is", karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(ids)
	other[len(ids)-2] = ids[1] // another word, of as many tokens with every tokenizer
	return m, NewPrompt(m, "clean", ids), NewPrompt(m, "corrupted", other)
}

// pathOf returns the outcome of a path: the clean run's values of a node at a position, as far as they reach receivers.
func pathOf(t *testing.T, m *karat.Model, clean, corrupted *Prompt, from, at string, to ...string) (*Outcome, error) {
	t.Helper()
	var receivers []site
	for _, name := range to {
		sites, err := (&Place{Node: name}).find(m.Nodes())
		if err != nil {
			t.Fatal(err)
		}
		receivers = append(receivers, sites...)
	}
	x, err := newPaths(t.Context(), m, corrupted, receivers)
	if err != nil {
		t.Fatal(err)
	}
	e := Edit{Kind: Replace, Place: Place{Node: from}}
	if e.At, err = ParsePositions(at); err != nil {
		t.Fatal(err)
	}
	if e.Rows, err = Capture(t.Context(), m, clean, e.Place, e.At); err != nil {
		t.Fatal(err)
	}
	return x.run(t.Context(), e)
}

var demoPath = filepath.Join("..", "..", "cmd", "karat", "demo.gguf")

// TestPathByHand: what a receiver on the stream gets is the sum that a person makes: the corrupted run's values, and in
// the sender's place its branch of a run with the edit. With it as the only receiver, that is also the whole path.
func TestPathByHand(t *testing.T) {
	m, clean, corrupted := loaded(t, demoPath)
	last, _ := ParsePositions("last")
	rows := func(p *Prompt, node string) []float32 {
		all, err := Capture(t.Context(), m, p, Place{Node: node}, last)
		if err != nil {
			t.Fatal(err)
		}
		return all[node][0]
	}
	// The branch is made of the attention of its position alone, so that it is the clean run's.
	branch, token, ffn := rows(clean, "blk.0.post_attention_norm"), rows(corrupted, "token_embd"), rows(corrupted, "blk.0.post_ffw_norm")
	sum := make([]float32, len(token))
	for i := range sum {
		sum[i] = float32(token[i]+branch[i]) + ffn[i]
	}
	want, err := Run(t.Context(), m, corrupted, []Edit{{Kind: Replace, Place: Place{Node: "blk.0.out"}, At: last, Rows: map[string][][]float32{"blk.0.out": {sum}}}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pathOf(t, m, clean, corrupted, "blk.0.attention", "last", "blk.0.out")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Logits, want.Logits) {
		t.Error("the path to the stream behind layer 0 is not the sum made by hand")
	}
	// Not frozen, the feed-forward network reads the new sum: that is a trace, and other logits.
	trace, err := Run(t.Context(), m, corrupted, []Edit{{Kind: Replace, Place: Place{Node: "blk.0.attention"}, At: last, Rows: map[string][][]float32{"blk.0.attention": {rows(clean, "blk.0.attention")}}}}, 0)
	if err != nil || slices.Equal(trace.Logits, want.Logits) {
		t.Error("nothing was frozen", err)
	}
}

// TestPathOfNothing: a path from a run to itself changes no bit, of a family with parallel branches, experts and scaled
// layers, too. An end that the sender reaches is changed. Others are errors that name the node.
func TestPathOfNothing(t *testing.T) {
	for _, path := range []string{demoPath, golden.Model(t, "tiny-gemma4-moe"), golden.Model(t, "tiny-llama")} {
		m, clean, corrupted := loaded(t, path)
		start, err := run(t.Context(), m, corrupted, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			from    *Prompt
			sender  string
			to      []string
			changes bool
		}{
			{corrupted, "blk.0.attention", []string{"blk.2.attn_q"}, false},
			{clean, "blk.0.attention", []string{"blk.2.attn_q"}, true},
			{clean, "blk.0.ffn_down", []string{"blk.1.attn_k", "blk.2.attn_v"}, true},
			{clean, "blk.1.ffn_down", []string{"output_norm"}, true},
		} {
			got, err := pathOf(t, m, x.from, corrupted, x.sender, "prompt", x.to...)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Equal(got.Logits, start.Logits) == x.changes {
				t.Errorf("%s: from %s of %q to %v: changes %v, want %v", path, x.sender, x.from.Text, x.to, !x.changes, x.changes)
			}
		}
		for _, x := range []struct{ sender, to, want string }{
			{"blk.0.attn_v", "blk.2.attn_q", "node blk.0.attn_v: nothing adds it to the residual stream"},
			{"blk.0.out", "output_norm", "node blk.0.out: it is the residual stream itself"},
			{"token_embd", "output_norm", "node token_embd: it is the residual stream itself"},
			{"blk.2.attention", "blk.1.attn_q", "node blk.2.attention: no receiver reads it"},
			{"blk.1.attention", "blk.1.attention", "node blk.1.attention: no receiver reads it"},
		} {
			if _, err := pathOf(t, m, clean, corrupted, x.sender, "last", x.to); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: from %s to %s: %v, want %q", path, x.sender, x.to, err, x.want)
			}
		}
	}
}

// TestNormedStream: layers that add to a norm of the stream have no paths.
func TestNormedStream(t *testing.T) {
	node := func(name, op string, in ...string) karat.Node { return karat.Node{Name: name, Op: op, In: in} }
	begin := []karat.Node{node("token_embd", "embed"), node("token_embd_norm", "layer_norm", "token_embd"), node("attn", "linear", "token_embd_norm")}
	if _, err := newStream(append(begin, node("sum", "add", "token_embd", "attn"), node("out", "rms_norm", "sum"))); err != nil {
		t.Error(err)
	}
	for _, in := range []string{"token_embd_norm", "scaled"} {
		_, err := newStream(append(begin, node("scaled", "scale", "token_embd_norm"), node("sum", "add", in, "attn")))
		if err == nil || !strings.Contains(err.Error(), "node token_embd_norm is a norm on the residual stream, to which sum adds") {
			t.Error(in, err)
		}
	}
	if _, err := newStream(begin); err == nil || !strings.Contains(err.Error(), "no residual stream") {
		t.Error(err)
	}
}

// TestStream: every layer of every kind adds at least once.
func TestStream(t *testing.T) {
	for _, name := range []string{"tiny-gemma4-moe", "tiny-llama", "tiny-qwen3"} {
		m, _, _ := loaded(t, golden.Model(t, name))
		s, err := newStream(m.Nodes())
		if err != nil {
			t.Fatal(err)
		}
		layers, adds := map[int]bool{}, map[int]int{}
		for _, n := range m.Nodes() {
			layers[n.Layer] = true
			if s.branch[n.Name] {
				adds[n.Layer]++
			}
		}
		delete(layers, -1)
		for layer := range layers {
			if adds[layer] < 2 {
				t.Errorf("%s: layer %d adds %d times, want attention and feed-forward network", name, layer, adds[layer])
			}
		}
	}
}
