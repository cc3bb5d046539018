package arch_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestRefused: settings of families that would change every logit, and that nobody computes.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		model string
		hf    config
		gguf  func(*file)
		want  string
	}{
		{model: "gpt2", hf: config{"scale_attn_weights": false}, want: "key scale_attn_weights is false"},
		{model: "gpt2", hf: config{"scale_attn_by_inverse_layer_idx": true}, want: "scale_attn_by_inverse_layer_idx true"},
		{model: "qwen3moe", hf: config{"use_sliding_window": true, "sliding_window": 4, "max_window_layers": 0}, want: "sliding_window 4"},
		{model: "gemma2", hf: config{"query_pre_attn_scalar": nil}, want: "query_pre_attn_scalar is missing"},
		{model: "tiny-gemma3", hf: config{"query_pre_attn_scalar": nil}, want: "query_pre_attn_scalar is missing"},
		{model: "deepseek2-lite", hf: config{"mlp_bias": true}, want: "key mlp_bias is true"},
		{model: "deepseek2-lite", hf: config{"n_group": 0}, want: "key n_group is 0"},
		{model: "deepseek2-lite", hf: config{"topk_group": 3}, want: "key topk_group is 3, more than n_group, 1"},
		{model: "deepseek2", hf: config{"n_group": 3}, want: "key n_group is 3, no divisor of n_routed_experts, 8"},
		{model: "deepseek2", hf: config{"head_dim": 40}, want: "key head_dim is 40, but 16 follows from the other settings"},
		{model: "deepseek2", hf: config{"qk_head_dim": 41}, want: "key qk_head_dim is 41, but 40 follows"},
		{model: "deepseek32", hf: config{"index_topk": 0}, want: "key index_topk is 0"},
		{model: "deepseek32", hf: config{"index_topk": -1}, want: "key index_topk is -1"},
		{model: "deepseek32", hf: config{"index_topk": 1 << 20}, want: "key index_topk is 1048576"},
		{model: "deepseek32", hf: config{"index_topk": 1.5}, want: "key index_topk is 1.5"},
		{model: "deepseek32", hf: config{"index_topk": "24"}, want: "key index_topk is"},
		{model: "deepseek32", hf: config{"index_n_heads": 0}, want: "key index_n_heads is 0"},
		{model: "deepseek32", hf: config{"index_n_heads": -8}, want: "key index_n_heads is -8"},
		{model: "deepseek32", hf: config{"index_n_heads": 1 << 24}, want: "key index_n_heads is 16777216"},
		{model: "deepseek32", hf: config{"index_n_heads": 16}, want: "indexer.wq_b.weight"},
		{model: "deepseek32", hf: config{"index_head_dim": 0}, want: "key index_head_dim is 0"},
		{model: "deepseek32", hf: config{"index_head_dim": -32}, want: "key index_head_dim is -32"},
		{model: "deepseek32", hf: config{"q_lora_rank": nil}, want: "q_lora_rank"},
		{model: "deepseek32", hf: config{"indexer_rope_interleave": true}, want: "key indexer_rope_interleave is true"},
		{model: "glmdsa", hf: config{"indexer_types": []any{"shared", "full", "full", "full"}}, want: "layer 0 has an indexer that is"},
		{model: "glmdsa", hf: config{"indexer_types": []any{"full", "full", "half", "full"}}, want: "layer 2 has an indexer that is"},
		{model: "glmdsa", hf: config{"indexer_types": []any{"full"}}, want: "indexer_types"},
		{model: "glmdsa", hf: config{"indexer_types": []any{1, 1, 0, 1}}, want: "indexer_types"},
		{model: "glmdsa", hf: config{"indexer_types": nil, "index_topk_freq": -1}, want: "key index_topk_freq is -1"},
		{model: "glmdsa", hf: config{"indexer_types": nil, "index_topk_freq": 4, "index_skip_topk_offset": 1e300}, want: "key index_skip_topk_offset is"},
		{model: "glmdsa", hf: config{"indexer_types": nil, "index_topk_pattern": "FFSSF"}, want: "indexer_types"},
		{model: "glmdsa", hf: config{"indexer_types": nil, "index_topk_pattern": "FFXF"}, want: "indexer_types"},
		{model: "glmdsa", hf: config{"indexer_types": nil, "index_topk_pattern": "FSSF"}, want: "model.layers.1.self_attn.indexer"},
		{model: "glm4moe", hf: config{"n_group": 0}, want: "key n_group is 0"},
		{model: "glm4moe", hf: config{"routed_scaling_factor": 0}, want: "key routed_scaling_factor is 0"},
		{model: "glm4moelite", hf: config{"qk_nope_head_dim": "24"}, want: `key qk_nope_head_dim is "24", expected a whole number`},
		{model: "glm4moelite", hf: config{"num_attention_heads": -4}, want: "key num_attention_heads is -4, expected a whole number"},
		{model: "ernie45moe", hf: config{"moe_num_shared_experts": 0}, want: "mlp.shared_experts"},
		{model: "minimax-m2", hf: config{"rotary_dim": "24"}, want: `key rotary_dim is "24"`},
		{model: "minimax-m2", hf: config{"rotary_dim": 4096}, want: "key rotary_dim is 4096, expected a whole number from 1 to head_dim"},
		{model: "jamba", hf: config{"attn_layer_offset": 2.5}, want: "key attn_layer_offset is 2.5, expected a whole number"},
		{model: "jamba", hf: config{"attn_layer_period": "4"}, want: `key attn_layer_period is "4", expected a whole number`},
		{model: "afmoe", hf: config{"layer_types": nil, "global_attn_every_n_layers": 1.5}, want: "key global_attn_every_n_layers is 1.5, expected"},
		{model: "gpt-oss", hf: config{"rope_parameters": map[string]any{"rope_type": "yarn", "factor": 2, "rope_theta": 1.5e5, "original_max_position_embeddings": 128.5}},
			want: "key rope_parameters.original_max_position_embeddings is 128.5, expected a whole number"},
		{model: "minimax-m2", hf: config{"rotary_dim": 24.5}, want: "key rotary_dim is 24.5"},
		{model: "mimo2", hf: config{"layer_types": slices.Repeat([]any{"full_attention"}, 4)}, want: "key hybrid_layer_pattern is"},
		{model: "mimo2", hf: config{"hybrid_layer_pattern": 1}, want: "key hybrid_layer_pattern is 1, expected 0 or 1 for each layer"},
		{model: "gemma", hf: config{"hidden_act": "relu"}, want: `key hidden_act is "relu"`},
		{model: "apertus", hf: config{"hidden_act": "silu"}, want: `key hidden_act is "silu"`},
		{model: "falcon", hf: config{"new_decoder_architecture": "true"}, want: `key new_decoder_architecture is "true", expected true or false`},
		{model: "falconh1", hf: config{"key_multiplier": 0}, want: "key key_multiplier is 0, expected"},
		{model: "falconh1", hf: config{"ssm_multipliers": []any{0.8, 1, -1, 1, 1}}, want: "key ssm_multipliers is [0.8,1,-1,1,1], expected 5 numbers from 1e-06 to 1000000"},
		{model: "falconh1", hf: config{"mlp_multipliers": []any{0.8}}, want: "key mlp_multipliers is [0.8], expected 2 numbers"},
		{model: "falconh1", hf: config{"mlp_multipliers": []any{0.8, nil}}, want: "key mlp_multipliers is [0.8,null], expected no null"},
		{model: "phi3", hf: config{"rope_parameters": map[string]any{"rope_type": "", "rope_theta": 1e4}}, want: `key rope_parameters.rope_type is ""`},
		{model: "olmohybrid", hf: config{"rope_parameters": []any{map[string]any{"rope_theta": 1e4}}}, want: "key rope_parameters is [{"},
		{model: "glm4moe", hf: config{"partial_rotary_factor": 0.25}, want: "key partial_rotary_factor is 0.25, but rope_parameters.partial_rotary_factor is 0.5"},
		{model: "phi3", hf: config{"original_max_position_embeddings": 2048}, want: "key original_max_position_embeddings is 2048, but rope_parameters.original_max_position_embeddings is 1024"},
		{model: "llama4", hf: config{"moe_layers": []any{}}, want: "key moe_layers is [], but [1,3] follows"},
		{model: "falconh1", hf: config{"mamba_d_ssm": 0}, want: "key mamba_d_ssm is 0"},
		{model: "nemotronh", hf: config{"hybrid_override_pattern": "MEEME"}, want: `key hybrid_override_pattern is "MEEME", but layers_block_type is`},
		{model: "nemotronh", hf: config{"mamba_d_conv": 3}, want: "key mamba_d_conv is 3, but conv_kernel is 4"},
		{model: "lfm2", hf: config{"full_attn_idxs": []any{1}}, want: "key full_attn_idxs is [1], but layer_types is"},
		{model: "lfm2", hf: config{"full_attn_idxs": []any{5}}, want: "key full_attn_idxs is [5], expected the numbers of layers"},
		{model: "granite", hf: config{"max_position_embeddings": 0}, want: "key max_position_embeddings is 0"},
		{model: "granite", hf: config{"architectures": []any{"LlamaForCausalLM"}}, want: `key architectures is ["LlamaForCausalLM"], a class of architecture llama, but model_type "granite" is one of granite`},
		{model: "granite", hf: config{"architectures": "GraniteForCausalLM"}, want: "key architectures is \"GraniteForCausalLM\", expected a list of classes"},
		{model: "granite", hf: config{"lm_head_bias": true}, want: "key lm_head_bias is true, which architecture granite does not support"},
		{model: "bert", hf: config{"is_decoder": true}, want: "key is_decoder is true"},
		{model: "smollm3", hf: config{"use_sliding_window": true, "sliding_window": 8}, want: "key use_sliding_window is true"},
		{model: "smollm3", hf: config{"no_rope_layers": []any{}}, want: "no_rope_layers has 0 layers"},
		{model: "gpt-oss", hf: config{"rope_parameters": map[string]any{"rope_type": "yarn", "factor": 0, "rope_theta": 1.5e5}}, want: "key rope_parameters.factor is 0"},
		{model: "phi3", hf: config{"rope_parameters": map[string]any{"rope_type": "longrope", "rope_theta": 1e4, "short_factor": slices.Repeat([]any{1}, 12), "long_factor": []any{1}}},
			want: "1 numbers in long_factor for 12 pairs"},
		{model: "granite", gguf: key("rope.scaling.type", ""), want: `key granite.rope.scaling.type is "", supported are none, linear, yarn and longrope`},
		{model: "granite", gguf: key("rope.scaling.finetuned", false), want: "key granite.rope.scaling.finetuned is false"},
	} {
		t.Run(c.model+" "+c.want, func(t *testing.T) {
			path := t.TempDir() // golden folders may be shared: they are not written to
			if err := os.CopyFS(path, os.DirFS(golden.Model(t, c.model))); err != nil {
				t.Fatal(err)
			}
			if c.gguf != nil {
				fails(t, toGGUF(t, path, c.gguf), c.want)
				return
			}
			all := readConfig(t, path)
			maps.Copy(all, c.hf)
			text, err := json.Marshal(all)
			if name := filepath.Join(path, "config.json"); err == nil {
				err = errors.Join(os.Remove(name), os.WriteFile(name, text, 0o666))
			}
			if err != nil {
				t.Fatal(err)
			}
			fails(t, path, c.want)
		})
	}
}
