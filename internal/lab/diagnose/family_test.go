package diagnose_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	. "github.com/karat-run/karat/internal/lab/diagnose"
)

// long is a text that is longer than the windows and chunks of the families' tiny models.
var long = strings.Repeat(mixed+" ", 3)

// TestFamilies wants faults of what few families have named, with the operation and the layers.
func TestFamilies(t *testing.T) {
	for i, c := range []struct {
		model, fault, cause, op string
		layers                  []int
	}{
		{"deepseek2", "kv_cache_position@2", "kv_cache_position", "Attention", []int{2}},
		{"deepseek2", "softmax_axis@2", "softmax_axis", "Attention", []int{2}},
		{"deepseek2", "rope_factors@2", "rope_factors", "RoPE", []int{2}},
		{"ministral3", "rope_scaling@2", "rope_scaling", "RoPE", []int{2}},
		{"llama4", "router_topk@all", "router_topk", "Route", []int{1, 3}},
		{"llama4", "weight_scale:ffn_experts@1", "weight_scale", "Experts", []int{1}},
		{"granite", "scale_factor@1", "scale_factor", "Scale", []int{1}},
		{"falconh1", "scale_factor=twice@1", "scale_factor", "Scale", []int{1}},
		{"gpt-oss", "activation_limit=alpha@2", "activation_limit", "Experts", []int{2}},
		{"gpt2", "norm_order@1", "norm_order", "LayerNorm", []int{1}},
		{"bert", "norm_missing@all", "norm_missing", "LayerNorm", []int{0, 1, 2}},
		{"modernbert", "mask=none@2", "mask", "Attention", []int{2}},
		{"embeddinggemma", "mask=none@2", "mask", "Attention", []int{2}},
		{"deepseek32", "index_missing@1", "index_missing", "Attention", []int{1}},
		{"glmdsa", "index_topk@3", "index_topk", "Choose", []int{3}},
		{"deepseek32", "index_score@1", "index_score", "Choose", []int{1}},
		{"deepseek32", "index_score=even@2", "index_score", "Choose", []int{2}},
		{"deepseek32", "rope_missing:attn_index_k_rope@1", "rope_missing", "RoPE", []int{1}},
	} {
		if !golden.Slow() && i%4 != 0 {
			continue
		}
		t.Run(c.model+"/"+c.fault, func(t *testing.T) {
			m := tiny(t, c.model)
			dump, _ := m.record(t, "", c.fault, m.texts(t, "The color of the sky is", long))
			d := m.diagnose(t, dump, nil)
			named(t, d, map[string][]int{c.cause: c.layers})
			if f := suspicions(d); len(f) == 0 || slices.ContainsFunc(f, func(f Finding) bool { return f.Op != c.op }) {
				t.Errorf("want %s: %s", c.op, say(d))
			}
		})
	}
}

// TestEveryPlace wants mistakes named at operations that other families have them at: the magnitude of a scaling that
// lies in the scale of scores, a mean that an RMSNorm subtracts, and steps that the model has in the other order.
func TestEveryPlace(t *testing.T) {
	for _, c := range []struct{ model, fault, cause, op string }{
		{"deepseek2", "rope_magnitude@2", "rope_magnitude", "RoPE"},
		{"tiny-qwen3", "norm_mean:attn_norm@2", "norm_mean", "RMSNorm"},
		{"hunyuan-dense", "qk_norm_after_rope@2", "qk_norm_after_rope", "RMSNorm"}, // which turns first
		{"olmo3", "qk_norm_after_rope@2", "qk_norm_after_rope", "RMSNorm"},         // whose norms have all heads
		{"olmo3", "norm_order@2", "norm_order", "RMSNorm"},                         // whose norms are behind
		{"bert", "residual_missing@2", "residual_missing", "Add"},                  // whose stream comes second
	} {
		t.Run(c.model+"/"+c.fault, func(t *testing.T) {
			m := tiny(t, c.model)
			dump, _ := m.record(t, "", c.fault, m.texts(t, "The color of the sky is"))
			d := m.diagnose(t, dump, nil)
			named(t, d, map[string][]int{c.cause: {2}})
			if f := suspicions(d); len(f) == 0 || f[0].Op != c.op {
				t.Errorf("want %s: %s", c.op, say(d))
			}
		})
	}
}

// own are names that no module of PyTorch's has.
var own = regexp.MustCompile(`_rope\.out$|self_attn\.[kv]_b_proj\.out$|mlp\.router\.out$`)

// TestModulesAlone diagnoses dumps that have the values of PyTorch's modules and no others, as hooks see them.
func TestModulesAlone(t *testing.T) {
	for model, faults := range map[string]map[string]map[string][]int{
		"qwen3moe":  {"": nil, "router_norm@all": {"router_norm": {0, 1, 2, 3}}},
		"gpt-oss":   {"": nil, "attention_sink@1": {"attention_sink": {1}}},
		"deepseek2": {"": nil, "router_factor@2": {"router_factor": {2}}},
	} {
		for faults, want := range faults {
			if !golden.Slow() && faults == "" && model != "gpt-oss" {
				continue
			}
			t.Run(model+"/"+faults, func(t *testing.T) {
				m := tiny(t, model)
				dump, _ := m.record(t, "activations=f32", faults, m.texts(t, "The color of the sky is", mixed))
				left := 0
				for _, p := range dump.Prompts {
					p.Hidden = nil
					for name := range p.Taps {
						if own.MatchString(name) {
							delete(p.Taps, name)
						}
					}
					left += len(p.Taps)
				}
				d := m.diagnose(t, dump, nil)
				if want != nil {
					named(t, d, want)
				} else if left < 40 || d.Verdict != Clean && d.Verdict != Numeric {
					t.Errorf("%d taps: %s", left, say(d))
				}
			})
		}
	}
}

// TestRightLatent: products of heads round their inputs in blocks as other products do.
func TestRightLatent(t *testing.T) {
	m := tiny(t, "deepseek2-lite")
	dump, _ := m.record(t, "activations=q8_32", "", m.texts(t, "The color of the sky is", long))
	if d := m.diagnose(t, dump, nil); d.Verdict != Clean && d.Verdict != Numeric {
		t.Error(say(d))
	}
}
