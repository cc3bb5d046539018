package diagnose_test

import (
	"testing"

	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/lab"
)

// TestHybrid wants faults named in the operations that few families have.
func TestHybrid(t *testing.T) {
	g := backendtest.Hybrid(t, 5)
	for _, n := range g.Nodes {
		n.HF = n.Name + ".out"
	}
	m := &model{name: "hybrid", graph: g, asked: tiny(t, "tiny-llama").asked} // whose tokenizer spells the ids
	for fault, want := range map[string]map[string][]int{
		"norm_mean@1":              {"norm_mean": {1}},
		"position_embedding":       {"position_embedding": nil},
		"position_scale@4":         {"position_scale": {4}},
		"position_scale=missing@4": {"position_scale": {4}},
		"heads_exchanged@4":        {"heads_exchanged": {4}},
		"slice_part:slice#1@4":     {"slice_part": {4}},
		"norm_length@1":            {"norm_length": {1}},
		"conv_order@0":             {"conv_order": {0}},
		"scan_decay@0":             {"scan_decay": {0}},
		"scan_decay=log@1":         {"scan_decay": {1}},
		"scan_skip@0":              {"scan_skip": {0}},
		"scan_share@3":             {"scan_share": {3}},
		"scan_groups@all":          {"scan_groups": {0, 1}},
		"state_lost@all":           {"state_lost": {0, 1, 2, 3}},
	} {
		t.Run(fault, func(t *testing.T) {
			p := &lab.Prompt{IDs: make([]int32, 21), Decode: 4}
			for i := range p.IDs {
				p.IDs[i] = int32(i*i*7%89 + 2)
			}
			dump, _ := m.record(t, "activations=f32", fault, []*lab.Prompt{p})
			named(t, m.diagnose(t, dump, nil), want)
		})
	}
}
