package diagnose_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	. "github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/tokenizer"
)

var addSpecial, parseSpecial = tokenizer.Options{AddSpecial: true}, tokenizer.Options{ParseSpecial: true}

// named wants a diagnosis with exactly these causes, in these layers.
func named(t *testing.T, d *Diagnosis, want map[string][]int) {
	t.Helper()
	ok := d.Verdict == Structural || d.Verdict == Weights || d.Verdict == Instrument
	for _, f := range suspicions(d) {
		_, expected := want[f.Cause]
		ok = ok && expected
	}
	for cause, in := range want {
		ok = ok && has(d, cause) && slices.Equal(layers(d, cause), in)
	}
	if !ok {
		t.Errorf("want %v, got %s", want, say(d))
	}
}

// closed wants the rest of the logits' distance to be rounding.
func closed(t *testing.T, d *Diagnosis) {
	t.Helper()
	if c := d.Closure; !(c.After <= 9*max(c.Floor, 1e-13) && c.Before > 100*c.After && c.Unexplained == 0) {
		t.Errorf("not explained: %s", say(d))
	}
}

// TestJune is an engine of Gemma 4 with five faults at once, that took its makers weeks.
func TestJune(t *testing.T) {
	m := tiny(t, "tiny-gemma4")
	dump, _ := m.record(t, "activations=f32", "attention_scale@all; v_norm_missing@all; rope_factors@sliding; kv_share_source@shared; weight_transposed:per_layer_model_proj", m.texts(t, mixed))
	d := m.diagnose(t, dump, nil)
	named(t, d, map[string][]int{"attention_scale": {0, 1, 2, 3, 4, 5, 6, 7}, "v_norm_missing": {0, 1, 2, 3}, "rope_factors": {0, 1, 2, 4, 5, 6},
		"kv_share_source": {4, 5, 6}, "weight_transposed": nil})
	closed(t, d)
}

// TestNamed wants causes named in their layers, alone and together.
func TestNamed(t *testing.T) {
	for _, c := range []struct {
		model, class, faults string
		want                 map[string][]int
		quick                bool
	}{
		{"tiny-gemma3", "activations=f32", "weight_layout:attn_q@1", map[string][]int{"weight_layout": {1}}, true},
		{"tiny-gemma3", "activations=f32", "norm_offset:attn_q_norm+attn_k_norm@all", map[string][]int{"norm_offset": {0, 1, 2, 3, 4, 5}}, false},
		{"tiny-gemma3", "activations=f32", "norm_missing:post_ffw_norm@all", map[string][]int{"norm_missing": {0, 1, 2, 3, 4, 5}}, true},
		{"tiny-qwen3", "activations=bf16", "rope_style@all", map[string][]int{"rope_style": {0, 1, 2, 3}}, false},
		{"tiny-llama", "activations=q8_32", "rope_scaling@all; attention_scale@2", map[string][]int{"rope_scaling": {0, 1, 2, 3}, "attention_scale": {2}}, true},
		{"tiny-qwen2", "", "bias_missing:attn_k.bias@1", map[string][]int{"bias_missing": {1}}, false},
		{"tiny-gemma4-moe", "kv=f16", "router_norm@all; softcap_missing", map[string][]int{"router_norm": {0, 1, 2, 3}, "softcap_missing": nil}, false},
		{"tiny-gemma4", "", "layer_scalar@2; ple_missing@5; window_missing@0", map[string][]int{"layer_scalar": {2}, "ple_missing": {5}}, false}, // too short for a window
		{"tiny-llama", "activations=f32", "weight_scale:attn_q=packing@1", map[string][]int{"weight_scale": {1}}, true},
		{"tiny-qwen2", "", "weight_permuted:attn_q@1", map[string][]int{"weight_permuted": {1}}, false},
		{"tiny-qwen3", "", "weight_wrong_layer:ffn_norm@2", map[string][]int{"weight_wrong_layer": {2}}, false},
		{"tiny-qwen3", "", "mask@1", map[string][]int{"mask": {1}}, false},
		{"tiny-gemma3", "activations=f32", "mask@sliding; attention_scale@full", map[string][]int{"mask": {0, 1, 3, 4}, "attention_scale": {2, 5}}, false},
		{"tiny-qwen3", "activations=f32", "norm_width:attn_q_norm@all; rows_missing:ffn_up=last@1", map[string][]int{"norm_width": {0, 1, 2, 3}, "rows_missing": {1}}, true},
		{"tiny-gemma4", "", "mask=none@shared", map[string][]int{"mask": {4, 5, 6, 7}}, false},
		{"tiny-llama", "", "rope_theta:attn_k_rope@all", map[string][]int{"rope_theta": {0, 1, 2, 3}}, false},
		{"tiny-llama", "", "norm_extra:attn_k_rope@1; norm_extra:out@2", map[string][]int{"norm_extra": {1, 2}}, true},
		{"tiny-gemma4", "", "k_as_v@4", map[string][]int{"k_as_v": {4}}, false},
		{"tiny-gemma4-moe", "", "weight_scale:ffn_experts=packing@1", map[string][]int{"weight_scale": {1}}, false},
		{"tiny-gemma4-moe", "", "weight_wrong_layer:ffn_experts@2", map[string][]int{"weight_wrong_layer": {2}}, false},
		{"tiny-llama", "", "head_wrong=tail", map[string][]int{"head_wrong": nil}, false},
		{"tiny-gemma4", "", "norm_eps:per_layer_proj_norm", map[string][]int{"norm_eps": nil}, false},
		{"tiny-gemma3", "activations=f32", "embed_scale=12.625", map[string][]int{"embed_scale": nil}, true}, // rounded to bfloat16
		{"tiny-qwen3", "", "rope_partial:attn_q_rope@3", map[string][]int{"rope_partial": {3}}, false},
		{"tiny-gemma4-moe", "", "norm_order:ffn_norm@1; residual_order:add@1", map[string][]int{"norm_order": {1}, "residual_order": {1}}, true}, // before one branch of two
	} {
		if !golden.Slow() && !c.quick {
			continue
		}
		t.Run(c.model+"/"+c.faults, func(t *testing.T) {
			m := tiny(t, c.model)
			dump, done := m.record(t, c.class, c.faults, m.texts(t, mixed))
			d := m.diagnose(t, dump, nil)
			if len(c.want) == 0 {
				t.Fatalf("%v", done)
			}
			named(t, d, c.want)
			closed(t, d)
		})
	}
}

// TestPastTheEnd reads rows as if they were padded: what lies behind the last one nobody knows, so those features count for nothing.
func TestPastTheEnd(t *testing.T) {
	for model, fault := range map[string]string{"tiny-gemma3": "weight_layout:attn_q=beyond@1", "tiny-gemma4": "weight_layout:proj=beyond@1"} { // of proj an eighth is left
		m := tiny(t, model)
		dump, _ := m.record(t, "activations=f32", fault, m.texts(t, "The color of the sky is"))
		named(t, m.diagnose(t, dump, nil), map[string][]int{"weight_layout": {1}})
	}
}

// TestProbe wants broken probes told from broken engines.
func TestProbe(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	for cause, f := range map[string]string{"probe_dtype": "probe_dtype@1", "probe_prefix": "probe_prefix@all", "probe_rows": "probe_rows:attn_q@2", "probe_duplicate": "probe_duplicate@2-3"} {
		if !golden.Slow() && (cause == "probe_prefix" || cause == "probe_duplicate") {
			continue
		}
		t.Run(f, func(t *testing.T) {
			dump, _ := m.record(t, "activations=f32", f, m.texts(t, mixed))
			d := m.diagnose(t, dump, nil)
			if d.Verdict != Instrument || !has(d, cause) || slices.ContainsFunc(suspicions(d), func(f Finding) bool { return f.Cause != cause }) {
				t.Error(say(d))
			}
		})
	}
	if !golden.Slow() {
		return
	}
	// A stale buffer, and a fault of the engine beside it.
	p := m.texts(t, mixed, "The color of the sky is")
	dump, _ := m.record(t, "", "attention_scale=0.5@4", p)
	stale := dump.Prompt(0).Taps["model.layers.1.mlp.down_proj.out"]
	rows := dump.Prompt(1).Taps["model.layers.1.mlp.down_proj.out"].Shape[0]
	x := *stale
	x.Shape, x.Data = slices.Clone(x.Shape), slices.Clone(x.Data[:rows*len(x.Data)/x.Shape[0]])
	x.Shape[0] = rows
	dump.Prompt(1).Taps["model.layers.1.mlp.down_proj.out"] = &x
	dump.Prompt(1).Taps["model.layers.1.mlp.out"] = &x
	if d := m.diagnose(t, dump, nil); d.Verdict != Instrument || !has(d, "probe_stale") || !slices.Equal(layers(d, "attention_scale"), []int{4}) {
		t.Error(say(d))
	}
}

// TestUnknown wants faults that are on no list called unknown, with the operation and
// the layers: a wrong name is worse than none.
func TestUnknown(t *testing.T) {
	for i, c := range []struct{ model, fault string }{
		{"tiny-qwen3", "x_norm_abs:attn_norm@1"}, {"tiny-qwen3", "x_heads_exchanged@2"}, {"tiny-gemma3", "x_row_stuck:ffn_up@0-1"},
		{"tiny-gemma3", "x_clipped@3"}, {"tiny-llama", "x_rope_reversed:attn_q_rope@0"}, {"tiny-gemma4", "x_norm_abs:post_attention_norm@6"},
		{"tiny-gemma4-moe", "x_value_signs@3"}, {"tiny-llama", "x_embed_neighbour"}, {"tiny-gemma4-moe", "x_router_noise@1"}, {"tiny-gemma4", "x_clipped:glu#1@3"}, {"tiny-gemma4", "x_residual_scaled:add#2@1"}, {"tiny-llama", "x_softmax_sink@3"}, {"tiny-qwen2", "x_tail_zero:attn_v@1"},
	} {
		if !golden.Slow() && i%3 != 0 {
			continue
		}
		t.Run(c.fault, func(t *testing.T) {
			m := tiny(t, c.model)
			dump, done := m.record(t, "activations=f32", c.fault, m.texts(t, mixed))
			d := m.diagnose(t, dump, nil)
			ok := d.Verdict == Structural
			for _, f := range suspicions(d) {
				ok = ok && f.Cause == "unknown" && f.Op == done[0].Op && f.Evidence != "" && strings.Contains(f.Computed, "position")
			}
			if !ok || !slices.Equal(layers(d, "unknown"), done[0].Layers) {
				t.Errorf("%s in layers %v: %s", done[0].Op, done[0].Layers, say(d))
			}
			if c.fault == "x_heads_exchanged@2" && d.Findings[0].Detail["heads"] == nil {
				t.Errorf("no heads: %s", say(d))
			}
		})
	}
}

// TestPacked names the misreadings of packed weights.
func TestPacked(t *testing.T) {
	for _, c := range []struct{ packing, fault, want string }{
		{"fp8-small-block-bf16", "packed_scale:attn_q@1", "packed_scale"},
		{"fp8-small-block-bf16", "packed_one_scale:ffn_up@2", "packed_one_scale"},
		{"ct-nvfp4", "packed_turned:attn_k@1", "packed_turned"},
		{"gptq", "packed_zero:attn_v@1", "packed_zero"},
		{"awq", "packed_order:ffn_down@0", "packed_order"},
		{"mlx-4-bits", "packed_order:ffn_gate@3", "packed_order"},
	} {
		t.Run(c.packing+"/"+c.fault, func(t *testing.T) {
			dir := t.TempDir()
			p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == c.packing })]
			if err := packed.Folders(golden.Model(t, "smollm3"), dir+"/packed", dir+"/plain", p, nil); err != nil {
				t.Fatal(err)
			}
			m := load(t, dir+"/packed")
			dump, done := m.record(t, "activations=f32", c.fault, m.texts(t, mixed))
			d := m.diagnose(t, dump, nil)
			layer := int(c.fault[len(c.fault)-1] - '0')
			if len(done) != 1 {
				t.Fatal(done)
			}
			named(t, d, map[string][]int{c.want: {layer}})
			closed(t, d)
		})
	}
}
