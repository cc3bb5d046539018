package diagnose_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tensor"
)

// modules takes off the taps that PyTorch's modules do not give: queries and keys behind rope.
func modules(dump *lab.Record) *lab.Record {
	for _, p := range dump.Prompts {
		p.Hidden = nil
		maps.DeleteFunc(p.Taps, func(name string, _ *tensor.Tensor) bool { return strings.HasSuffix(name, "_rope.out") })
	}
	return dump
}

// TestJuneModules is that engine through PyTorch's modules alone: a scale, a norm of values, a
// source of keys and speeds of rope are all seen at the input of the output projection, and nowhere else. The factors of rope
// are used on sliding layers, or multiply: 1e30 among them, so that only the rounding of each engine is left of an angle.
func TestJuneModules(t *testing.T) {
	all, sliding, full := []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 1, 2, 4, 5, 6}, []int{3, 7}
	m := tiny(t, "tiny-gemma4")
	for _, c := range []struct {
		class, factors string
		layers         []int
		quick          bool
	}{
		{"activations=f32", "@sliding", sliding, false},
		{"activations=bf16", "@sliding", sliding, false},
		{"activations=q8_32", "@sliding", sliding, false},
		{"activations=f32", "=multiplied@all", all, true},
		{"activations=f32", "=chained@all", all, false},
		{"activations=f32", "=vanish@all", all, false},
		{"activations=bf16", "=multiplied@full", full, false},
		{"", "=chained@full", full, false},
	} {
		if !golden.Slow() && !c.quick {
			continue
		}
		t.Run(c.class+c.factors, func(t *testing.T) {
			dump, _ := m.record(t, c.class, "attention_scale@all; v_norm_missing@all; rope_factors"+c.factors+"; kv_share_source@shared; weight_transposed:per_layer_model_proj", m.texts(t, mixed))
			d := m.diagnose(t, modules(dump), nil)
			named(t, d, map[string][]int{"attention_scale": all, "v_norm_missing": {0, 1, 2, 3}, "rope_factors": c.layers,
				"kv_share_source": {4, 5, 6}, "weight_transposed": nil})
			closed(t, d)
			t.Log(d.Seconds, say(d))
		})
	}
}

// TestWithin wants causes named of which several are seen at one tap alone.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		model, class, faults string
		want                 map[string][]int
		quick                bool
	}{
		{"tiny-qwen2", "", "weight_permuted:attn_k@1; bias_missing:attn_k.bias@1", map[string][]int{"weight_permuted": {1}, "bias_missing": {1}}, false},
		{"tiny-qwen2", "", "rope_style@all; kv_cache_position=fresh@all", map[string][]int{"rope_style": {0, 1, 2, 3}, "kv_cache_position": {0, 1, 2, 3}}, true},
		{"tiny-gemma4", "", "attention_scale@sliding; rope_theta=root@all", map[string][]int{"attention_scale": {0, 1, 2, 4, 5, 6}, "rope_theta": {0, 1, 2, 3, 4, 5, 6, 7}}, false},
		{"tiny-gemma4", "", "rope_partial@shared; attention_scale@all; rope_theta:attn_k_rope@all", map[string][]int{"rope_partial": {4, 5, 6, 7}, "attention_scale": {0, 1, 2, 3, 4, 5, 6, 7}, "rope_theta": {0, 1, 2, 3}}, false},
		{"tiny-gemma4", "", "mask=self@all; rope_factors:attn_k_rope@all", map[string][]int{"mask": {0, 1, 2, 3, 4, 5, 6, 7}, "rope_factors": {0, 1, 2}}, true}, // layer 4 alone shows the keys of layer 2 first
		{"tiny-gemma4", "", "rope_partial@all; kv_cache_position=fresh@all", map[string][]int{"rope_partial": {0, 1, 2, 3, 4, 5, 6, 7}, "kv_cache_position": {0, 1, 2, 3, 4, 5, 6, 7}}, true},
		{"tiny-gemma3", "", "norm_missing=untapped@3; weight_permuted@3", map[string][]int{"norm_missing": {3}, "weight_permuted": {3}}, false},
		{"granite", "", "kv_cache_position=fresh@2; rope_position:attn_q_rope@all; rope_theta:attn_k_rope@all", map[string][]int{"kv_cache_position": {2}, "rope_position": {0, 1, 2}, "rope_theta": {0, 1, 2}}, true},
	} {
		if !golden.Slow() && !c.quick {
			continue
		}
		t.Run(c.model+"/"+c.faults, func(t *testing.T) {
			m := tiny(t, c.model)
			p := m.texts(t, mixed)
			p[0].Decode = 4
			dump, _ := m.record(t, c.class, c.faults, p)
			d := m.diagnose(t, modules(dump), nil)
			named(t, d, c.want)
			closed(t, d)
		})
	}
}

// TestSharedUnknown wants a fault without a name in all layers' attention called one, though layers share keys and values:
// the keys of the layer that computes them are not to blame.
func TestSharedUnknown(t *testing.T) {
	m := tiny(t, "gemma3n")
	dump, done := m.record(t, "activations=f32", "x_value_signs@all", m.texts(t, "The color of the sky is"))
	d := m.diagnose(t, modules(dump), nil)
	if f := suspicions(d); len(f) != 1 || f[0].Cause != "unknown" || f[0].Op != "Attention" || !slices.Equal(f[0].Layers, done[0].Layers) {
		t.Errorf("want %v, got %s", done[0].Layers, say(d))
	}
}
