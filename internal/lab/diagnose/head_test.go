package diagnose_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	. "github.com/karat-run/karat/internal/lab/diagnose"
)

// headOf is a family's head for drafts.
func headOf(t *testing.T, name string) *model {
	t.Helper()
	c, err := checkpoint.Open(golden.WithHead(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	m := &model{name: name, edits: reference.Edits{}}
	if m.graph, _, err = arch.Drafter(c, 0); err != nil {
		t.Fatal(err)
	}
	tok, err := c.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	m.asked = &Asked{Tokenizer: tok}
	return m
}

// TestHeads wants a right head cleared, and each mistake of heads named alone, at its place.
func TestHeads(t *testing.T) {
	for at, name := range golden.Sample(golden.Headed) {
		m := headOf(t, name)
		n := 0 // the head's layer
		for _, x := range m.graph.Nodes {
			n = max(n, x.Layer)
		}
		for _, c := range []struct {
			fault, cause string
			layers       []int
		}{
			{"", "", nil},
			{"draft_state", "draft_state", []int{}},
			{"draft_state=twice", "draft_state", []int{}},
			{"draft_state=own", "draft_state", []int{}},
			{"draft_state=both", "draft_state", []int{}},
			{"draft_state=kept", "draft_state", []int{}},
			{"draft_state=shift", "draft_state", []int{}},
			{"parts_swapped@%d", "parts_swapped", []int{n}},
			{"norm_wrong_weight:nextn.enorm@%d", "norm_wrong_weight", []int{n}},
			{"norm_wrong_weight:nextn.shared_head_norm@%d", "norm_wrong_weight", []int{n}},
			{"rope_position:attn_k_rope=-1@%d", "rope_position", []int{n}},
			{"kv_cache_position@%d", "kv_cache_position", []int{n}},
		} {
			if at > 0 && !golden.Slow() && strings.HasPrefix(c.fault, "draft_state=") {
				continue // the other forms are not of the family
			}
			t.Run(name+"/"+c.fault, func(t *testing.T) {
				fault := c.fault
				if len(c.layers) > 0 {
					fault = fmt.Sprintf(c.fault, n)
				}
				prompts := m.texts(t, "The color of the sky is: blue")
				for _, p := range prompts {
					p.Decode = 3
				}
				dump, _ := m.record(t, "", fault, prompts)
				d := m.diagnose(t, dump, nil)
				if c.cause == "" {
					if d.Verdict != Clean {
						t.Error(say(d))
					}
					return
				}
				named(t, d, map[string][]int{c.cause: c.layers})
			})
		}
	}
}
