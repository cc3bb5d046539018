package mistake

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tensor"
)

// recorded is two prompts with taps, and one without.
func recorded(t *testing.T, g *graph.Graph) []*lab.Prompt {
	t.Helper()
	r, err := lab.NewRecorder(t.Context(), g, reference.Backend{Threads: 1}, 16, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	prompts := []*lab.Prompt{{Index: 0, IDs: ids(5)}, {Index: 1, IDs: ids(9)[2:]}, {Index: 2, IDs: ids(3)}}
	for i, p := range prompts {
		if err := r.Record(context.Background(), p, i < 2); err != nil {
			t.Fatal(err)
		}
	}
	return prompts
}

// TestProbe breaks the probe in each way. The taps that the key names change, and
// no others.
func TestProbe(t *testing.T) {
	g := load(t, "tiny-qwen3")
	right := recorded(t, g)
	for _, text := range []string{"probe_dtype@1", "probe_dtype:attn_v+attn_q@0-1", "probe_prefix", "probe_prefix=100", "probe_prefix:mlp@1", "probe_stale:ffn_down@2",
		"probe_duplicate", "probe_duplicate=last", "probe_rows", "probe_rows=reverse@1", "probe_rows:output"} {
		faults, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		prompts := make([]*lab.Prompt, len(right))
		for i, p := range right {
			q := *p
			q.Taps = map[string]*tensor.Tensor{}
			for name, tap := range p.Taps {
				q.Taps[name] = tap
			}
			prompts[i] = &q
		}
		in, err := Probe(g, prompts, faults)
		if text == "probe_prefix:mlp@1" {
			if err == nil || !strings.Contains(err.Error(), "no operation") {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil || len(in) != 1 {
			t.Fatalf("%s: %v, %v", text, in, err)
		}
		changed := map[string]bool{}
		for i, p := range prompts {
			for name, tap := range p.Taps {
				was := right[i].Taps[name]
				if len(tap.Data) != len(was.Data) || !slices.Equal(tap.Shape, was.Shape) {
					t.Errorf("%s: %s has another size", text, name)
				}
				if !slices.Equal(tap.Data, was.Data) {
					changed[name] = true
				}
			}
		}
		for _, name := range in[0].Nodes {
			if !changed[g.Node(name).HF] {
				t.Errorf("%s: %s did not change", text, name)
			}
			delete(changed, g.Node(name).HF)
		}
		for name := range changed { // the module that ends in this projection
			if !strings.HasSuffix(name, ".mlp.out") && !strings.HasSuffix(name, ".self_attn.out") {
				t.Errorf("%s: %s changed", text, name)
			}
		}
	}
	for text, want := range map[string]string{"probe_stale@0": "two prompts", "probe_rows=odd": "not possible", "probe_prefix=0": "how many values",
		"probe_prefix=9999": "taps would be equal"} {
		faults, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Probe(g, recorded(t, g)[:1], faults); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestHalfAsSingle: two halves make a single, the second half of the bytes is none.
func TestHalfAsSingle(t *testing.T) {
	g := load(t, "tiny-qwen3")
	prompts := recorded(t, g)
	if _, err := Probe(g, prompts, []Fault{{ID: "probe_dtype", Layers: "0"}}); err != nil {
		t.Fatal(err)
	}
	data := prompts[0].Taps["model.layers.0.out"].Data
	if slices.ContainsFunc(data[len(data)/2:], func(b byte) bool { return b != 0 }) || !slices.ContainsFunc(data[:len(data)/2], func(b byte) bool { return b != 0 }) {
		t.Error("not the bytes of float16")
	}
}

func TestInputs(t *testing.T) {
	text := "ab cd"
	tokens := Tokens{BOS: 2,
		Encode: func(s string) ([]int32, error) { return append([]int32{2}, []rune(s)...), nil },
		Render: func(chat []lab.Message) ([]int32, error) {
			return append([]int32{2, 7}, []rune(chat[0].Content)...), nil
		}}
	prompts := func() []*lab.Prompt {
		return []*lab.Prompt{{Input: lab.Input{Text: &text}, IDs: []int32{2, 500, 501}},
			{Index: 1, Input: lab.Input{Chat: lab.Chat{{Role: "user", Content: "x"}}}, IDs: []int32{2, 7, 'x'}}, {Index: 2, Input: lab.Input{IDs: []int32{5}}, IDs: []int32{5}}}
	}
	for fault, want := range map[string][][]int32{
		"input_bos":        {{500, 501}, {7, 'x'}, {5}},
		"input_bos=double": {{2, 2, 500, 501}, {2, 2, 7, 'x'}, {2, 5}},
		"input_template":   {{2, 7, 'a', 'b', ' ', 'c', 'd'}, {2, 'x'}, {5}},
		"input_ids":        {{2, 'a', 'b', ' ', 'c', 'd'}, {2, 7, 'x'}, {5}},
		"input_ids=lost":   {{2, 501}, {2, 'x'}, {5}},
	} {
		faults, err := Parse(fault)
		if err != nil {
			t.Fatal(err)
		}
		got := prompts()
		in, err := Inputs(got, faults, tokens)
		if err != nil || len(in) != 1 {
			t.Errorf("%s: %v, %v", fault, in, err)
			continue
		}
		for i, p := range got {
			if !slices.Equal(p.IDs, want[i]) {
				t.Errorf("%s: prompt %d has %v, want %v", fault, i, p.IDs, want[i])
			}
		}
	}
	for fault, want := range map[string]string{"input_bos@1": "no layers", "input_bos=x": "not possible", "input_bos=double": "no BOS", "input_bos": "no prompt"} {
		faults, err := Parse(fault)
		if err != nil {
			t.Fatal(err)
		}
		none := tokens
		none.BOS = -1
		if _, err := Inputs(prompts(), faults, none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", fault, err, want)
		}
	}
}
