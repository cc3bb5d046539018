package arch_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/tensor"
)

// spellings lists, for a model, other ways to write the same configuration or
// to store the same weights.
var spellings = map[string]map[string]func(*model){
	"llama": {
		"rope_parameters": func(m *model) { m.ropeParameters(map[string]any{"rope_theta": 10000, "rope_type": "default"}) },
		"rope_parameters by kind": func(m *model) {
			m.ropeParameters(map[string]any{"full_attention": map[string]any{"rope_theta": 10000}})
		},
		"rope_parameters by kinds":    func(m *model) { m.ropeParameters(bothKinds(map[string]any{"rope_theta": 10000})) },
		"rope_parameters beside base": func(m *model) { m.config["rope_parameters"] = map[string]any{"rope_type": "default"} },
		"both, alike": func(m *model) {
			maps.Copy(m.config, config{"rope_scaling": map[string]any{"type": "default"}, "rope_parameters": map[string]any{"rope_theta": 10000, "rope_type": "default"}})
		},
		"null rope_scaling":   func(m *model) { m.config["rope_scaling"] = nil },
		"the default base":    func(m *model) { delete(m.config, "rope_theta") },
		"default type":        func(m *model) { m.config["rope_scaling"] = map[string]any{"type": "default"} },
		"no head_dim":         func(m *model) { delete(m.config, "head_dim") },
		"null head_dim":       func(m *model) { m.config["head_dim"] = nil },
		"hidden_act":          func(m *model) { m.config["hidden_act"] = "silu" },
		"no biases":           func(m *model) { maps.Copy(m.config, config{"attention_bias": false, "mlp_bias": nil}) },
		"layer_types":         func(m *model) { m.config["layer_types"] = slices.Repeat([]any{"full_attention"}, 3) },
		"a head that repeats": func(m *model) { m.copy("model.embed_tokens", "lm_head.weight") },
		"old inv_freq": func(m *model) {
			m.vector("model.layers.0.self_attn.rotary_emb.inv_freq.weight", 4)
			m.lastName("model.layers.0.self_attn.rotary_emb.inv_freq")
		},
	},
	"mistral": {
		"nested in a multimodal model": func(m *model) { m.nest("mistral3", "language_model."); m.vector("multi_modal_projector.norm", 4) },
		"layer_types":                  func(m *model) { m.config["layer_types"] = slices.Repeat([]any{"sliding_attention"}, 3) },
	},
	"qwen2": {
		"window switched off": func(m *model) {
			maps.Copy(m.config, config{"use_sliding_window": false, "sliding_window": 4, "max_window_layers": 1})
		},
		"window from a later one": func(m *model) {
			maps.Copy(m.config, config{"use_sliding_window": true, "sliding_window": 4, "max_window_layers": 3})
		},
		"window from the 28th": func(m *model) { maps.Copy(m.config, config{"use_sliding_window": true, "sliding_window": 4}) },
		"window null": func(m *model) {
			maps.Copy(m.config, config{"use_sliding_window": true, "sliding_window": nil, "max_window_layers": 0})
		},
		"no window, null layers": func(m *model) { m.config["max_window_layers"] = nil },
		"layer_types":            func(m *model) { m.config["layer_types"] = slices.Repeat([]any{"full_attention"}, 3) },
	},
	"qwen3": {"no biases": func(m *model) { m.config["attention_bias"] = false }},
	"gemma3": {
		"sliding_window_pattern":      func(m *model) { delete(m.config, "layer_types"); m.config["sliding_window_pattern"] = 3 },
		"_sliding_window_pattern":     func(m *model) { delete(m.config, "layer_types"); m.config["_sliding_window_pattern"] = 3 },
		"pattern against layer_types": func(m *model) { m.config["_sliding_window_pattern"] = 6 }, // as the library saves it
		"hidden_act": func(m *model) {
			m.config["hidden_act"] = m.config["hidden_activation"]
			delete(m.config, "hidden_activation")
		},
		"no activation":   func(m *model) { delete(m.config, "hidden_activation") },
		"default bases":   func(m *model) { delete(m.config, "rope_theta"); delete(m.config, "rope_local_base_freq") },
		"rope_parameters": func(m *model) { m.ropeParameters(map[string]any{"rope_theta": 1000000}) },
		"rope_parameters by kind": func(m *model) {
			m.ropeParameters(map[string]any{"full_attention": map[string]any{"rope_theta": 1000000}, "sliding_attention": map[string]any{"rope_theta": 10000, "rope_type": "default"}})
			delete(m.config, "rope_local_base_freq")
		},
		"softcap null":      func(m *model) { m.config["final_logit_softcapping"] = nil },
		"tying by default":  func(m *model) { delete(m.config, "tie_word_embeddings") },
		"nested, new names": func(m *model) { m.nest("gemma3", "model.language_model."); m.vector("model.vision_tower.x", 4) },
		"nested, old names": func(m *model) {
			m.nest("gemma3", "language_model.")
			m.vector("vision_tower.x", 4)
			m.vector("multi_modal_projector.y", 4)
		},
		"tied beside the nested model": func(m *model) {
			delete(m.config, "tie_word_embeddings")
			m.nest("gemma3", "language_model.")
			m.config["tie_word_embeddings"] = true
		},
	},
	"gemma4-e2b": {
		"per_layer_config": func(m *model) { m.perLayer(map[string]any{"head_dim": fullDim}) },
		"nested": func(m *model) {
			m.nest("gemma4", "model.language_model.")
			m.vector("model.vision_tower.x", 4)
			m.vector("model.audio_tower.x", 4)
			m.vector("model.embed_vision.x", 4)
		},
		"default rope": func(m *model) { delete(m.config, "rope_parameters") },
		"K and V that are not read": func(m *model) {
			m.unusedKeys()
		},
	},
	"gemma4-31b": {
		"per_layer_config":  func(m *model) { m.perLayer(map[string]any{"head_dim": fullDim, "num_key_value_heads": 1}) },
		"vision sees ahead": func(m *model) { m.config["use_bidirectional_attention"] = "vision" },
		"mixed rope": func(m *model) {
			maps.Copy(m.config["rope_parameters"].(map[string]any), map[string]any{"rope_type": "default", "rope_theta": nil})
		},
		"the last one slides": func(m *model) { m.config["layer_types"].([]any)[3] = "sliding_attention" }, // the library makes it full
	},
	"gemma4-26b": {"per_layer_config": func(m *model) { m.perLayer(map[string]any{"head_dim": fullDim, "num_key_value_heads": 1}) }},
}

func bothKinds(p map[string]any) map[string]any {
	return map[string]any{"full_attention": p, "sliding_attention": maps.Clone(p)}
}

// ropeParameters replaces rope_theta.
func (m *model) ropeParameters(p map[string]any) {
	delete(m.config, "rope_theta")
	m.config["rope_parameters"] = p
}

// nest turns the model into the text part of a multimodal one, whose tensors
// have the prefix.
func (m *model) nest(kind, prefix string) {
	m.config = config{"model_type": kind, "text_config": m.config, "vision_config": map[string]any{"hidden_size": 7}}
	for i := range m.tensors {
		name := m.tensors[i].Name
		if strings.HasPrefix(prefix, "model.") {
			name = strings.TrimPrefix(name, "model.")
		}
		m.tensors[i].Name = prefix + name
	}
}

// perLayer replaces the global_ settings.
func (m *model) perLayer(own map[string]any) {
	delete(m.config, "global_head_dim")
	delete(m.config, "num_global_key_value_heads")
	m.config["per_layer_config"] = map[string]any{"1": own, "3": own}
}

// copy adds a tensor again under another name.
func (m *model) copy(from, to string) {
	t := *m.tensor(from)
	t.Name = to
	m.tensors = append(m.tensors, t)
}

func (m *model) lastName(name string) { m.tensors[len(m.tensors)-1].Name = name }

// TestSpellings wants the same graph from every way to write a model.
func TestSpellings(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(spellings)) {
		base := printed(t, synthetic(name).write(t))
		check := func(spelling, path string) {
			if got := printed(t, path); got != base {
				t.Errorf("%s, %s: %s", name, spelling, difference(got, base))
			}
		}
		for _, spelling := range slices.Sorted(maps.Keys(spellings[name])) {
			t.Run(name+"/"+spelling, func(t *testing.T) {
				m := synthetic(name)
				spellings[name][spelling](m)
				check(spelling, m.decoded().write(t))
			})
		}
		t.Run(name+"/shards", func(t *testing.T) { check("shards", synthetic(name).writeShards(t)) })
		t.Run(name+"/GGUF", func(t *testing.T) { check("GGUF", toGGUF(t, synthetic(name).write(t), nil)) })
		for _, d := range []tensor.DType{tensor.F16, tensor.BF16} {
			t.Run(fmt.Sprintf("%s/%v", name, d), func(t *testing.T) {
				m := synthetic(name)
				m.narrow(d)
				check(d.String(), m.write(t))
			})
		}
	}
}

// TestScaledRope wants the same graph from the spellings of rope_scaling.
func TestScaledRope(t *testing.T) {
	llama3 := map[string]any{"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}
	linear := map[string]any{"factor": 8}
	for typ, p := range map[string]map[string]any{"llama3": llama3, "linear": linear} {
		with := func(key string, more map[string]any) map[string]any {
			q := maps.Clone(p)
			q[key] = typ
			maps.Copy(q, more)
			return q
		}
		old := synthetic("llama")
		old.config["rope_scaling"] = with("rope_type", nil)
		folder := old.decoded().write(t)
		want := printed(t, folder)
		if want == printed(t, synthetic("llama").write(t)) {
			t.Errorf("%s: the graph is that without it", typ)
		}
		older, flat, nested := synthetic("llama"), synthetic("llama"), synthetic("llama")
		older.config["rope_scaling"] = with("type", nil)
		flat.ropeParameters(with("rope_type", map[string]any{"rope_theta": 10000}))
		nested.ropeParameters(bothKinds(with("rope_type", map[string]any{"rope_theta": 10000})))
		for name, path := range map[string]string{"type": older.write(t), "flat": flat.write(t), "by kind": nested.write(t), "GGUF": toGGUF(t, folder, nil)} {
			if got := printed(t, path); got != want {
				t.Errorf("%s, %s: %s", typ, name, difference(got, want))
			}
		}
	}
}

// TestDefaults loads what published files of Gemma 3 leave out, down to the
// number of heads: the library's 8 on 4 of 256.
func TestDefaults(t *testing.T) {
	m := synthetic("gemma3")
	for _, k := range []string{"head_dim", "num_attention_heads", "num_key_value_heads", "query_pre_attn_scalar", "rms_norm_eps"} {
		delete(m.config, k)
	}
	for i := range 3 {
		p := fmt.Sprintf("model.layers.%d.self_attn.", i)
		for name, shape := range map[string][]int{"q_proj": {8 * 256, hidden}, "o_proj": {hidden, 8 * 256}, "k_proj": {4 * 256, hidden}, "v_proj": {4 * 256, hidden}} {
			m.drop(p + name)
			m.matrix(p+name, shape...)
		}
		for _, name := range []string{"q_norm", "k_norm"} {
			m.drop(p + name)
			m.vector(p+name, 256)
		}
	}
	got := printed(t, m.write(t))
	for _, part := range []string{"blk.0.view = view(blk.0.attn_q) [8 256]", "kv=2:4x256 scale=0.0625", "eps=1e-06"} {
		if !strings.Contains(got, part) {
			t.Errorf("the graph has no %q:\n%s", part, got)
		}
	}
	delete(m.config, "vocab_size")
	c, err := checkpoint.Open(m.write(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err = arch.Load(c); err == nil || !strings.Contains(err.Error(), "model.embed_tokens.weight: shape [48 32], the configuration says [262208 32]") {
		t.Errorf("without vocab_size: %v", err)
	}
}
