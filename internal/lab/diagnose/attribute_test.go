package diagnose_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// TestAttributes wants what a porter gets wrong of rare attributes named, in its layers, and
// no fault found in an engine that has them right.
func TestAttributes(t *testing.T) {
	m := &model{name: "attributes", graph: backendtest.Attributes(t, 2)}
	prompt := func() []*lab.Prompt {
		ids := make([]int32, 19)
		for i := range ids {
			ids[i] = int32((7*i + 3) % backendtest.Vocab)
		}
		parts := make([][3]int32, len(ids)) // an image of 3 rows of 5 behind two tokens
		for i := range parts {
			at := int32(i)
			if parts[i] = [3]int32{at, at, at}; i >= 2 && i < 17 {
				parts[i] = [3]int32{2, 2 + (at-2)/5, 2 + (at-2)%5}
			}
		}
		return []*lab.Prompt{{Input: lab.Input{IDs: ids}, IDs: ids, Parts: parts}}
	}
	dump, _ := m.record(t, "", "", prompt())
	if d := m.diagnose(t, dump, nil); !good(d.Verdict) || len(suspicions(d)) > 0 {
		t.Error(say(d))
	}
	for i, c := range []struct {
		fault  string
		layers []int
	}{
		{"attention_sink@0", []int{0}}, {"attention_cap@0", []int{0}}, {"chunk_missing@1", []int{1}}, {"chunk_missing=window@1", []int{1}},
		{"rope_style@0", []int{0}}, {"rope_partial@0", []int{0}}, {"rope_magnitude@1", []int{1}},
		{"rope_sections@1", []int{1}}, {"rope_sections=order@1", []int{1}}, {"rope_sections=swapped@1", []int{1}}, {"rope_sections=text@1", []int{1}},
		{"activation_limit@0", []int{0}}, {"activation_limit=limit@1", []int{1}}, {"activation_limit=plus@1", []int{1}}, {"gate_up_layout@1", []int{1}},
		{"expert_input@2", []int{2}}, {"router_factor@1", []int{1}}, {"router_eps@1", []int{1}}, {"router_groups@1", []int{1}}, {"router_groups=best@1", []int{1}}, {"latent_part@3", []int{3}}, {"bias_missing@1", []int{1}}, {"router_bias@1", []int{1}}, {"router_bias=none@1", []int{1}},
		{"router_norm@1", []int{1}}, {"router_norm@3", []int{3}}, {"attention_sink@2", []int{2}},
	} {
		if !golden.Slow() && i%3 != 0 {
			continue
		}
		t.Run(c.fault, func(t *testing.T) {
			dump, _ := m.record(t, "activations=f32", c.fault, prompt())
			f, err := mistake.Parse(c.fault)
			if err != nil {
				t.Fatal(err)
			}
			d := m.diagnose(t, dump, nil)
			if !has(d, f[0].ID) || !slices.Equal(layers(d, f[0].ID), c.layers) || len(suspicions(d)) != 1 {
				t.Errorf("want %s in %v, got %s", f[0].ID, c.layers, say(d))
			}
		})
	}
}

// TestEncoder wants faults named in a model whose rows see all others and are pooled.
func TestEncoder(t *testing.T) {
	g := backendtest.Encoder(t, 3)
	for _, n := range g.Nodes {
		n.HF = n.Name + ".out"
	}
	m := &model{name: "encoder", graph: g}
	for _, c := range []struct {
		fault  string
		layers []int
	}{{"", nil}, {"mask@0", []int{0}}, {"pooling", nil}, {"parts_swapped@0", []int{0}}, {"norm_missing@0", []int{0}}} {
		t.Run(c.fault, func(t *testing.T) {
			ids := make([]int32, 13)
			for i := range ids {
				ids[i] = int32((5*i + 2) % backendtest.Vocab)
			}
			dump, _ := m.record(t, "activations=f32", c.fault, []*lab.Prompt{{Input: lab.Input{IDs: ids}, IDs: ids}})
			d := m.diagnose(t, dump, nil)
			id, _, _ := strings.Cut(c.fault, "@")
			if c.fault == "" {
				if !good(d.Verdict) || len(suspicions(d)) > 0 {
					t.Error(say(d))
				}
			} else if !has(d, id) || !slices.Equal(layers(d, id), c.layers) || len(suspicions(d)) != 1 {
				t.Errorf("want %s in %v, got %s", id, c.layers, say(d))
			}
		})
	}
}
