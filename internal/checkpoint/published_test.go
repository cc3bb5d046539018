package checkpoint

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tokenizer"
)

// TestPublishedConfigs reads spellings of settings that publishers ship, and refuses what would change an answer.
func TestPublishedConfigs(t *testing.T) {
	for _, x := range []struct{ more, fault string }{
		{`"head_dim": null, "num_key_value_heads": null, "rope_scaling": null, "layer_types": null`, ""},
		{`"rope_scaling": {"type": null}`, ""},
		{`"rope_scaling": {"type": "default"}`, ""},
		{`"rope_scaling": {"rope_type": "default"}, "rope_theta": 1e6`, ""},
		{`"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rope_scaling": {"rope_type": "default"}`, ""},
		{`"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rope_theta": 500000`, ""},
		{`"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rope_theta": 10000`, "rope_theta"},
		{`"rope_scaling": {"factor": 2.0}`, "rope_type"},
		{`"vocab_size": 100.0, "num_hidden_layers": 1.0`, ""},
		{`"hidden_size": "8"`, "hidden_size"},
		{`"rope_theta": "1e6"`, "rope_theta"},
		{`"pad_token_id": -1, "torch_dtype": "bfloat16", "dtype": "float32"`, ""},
		{`"bos_token_id": null, "eos_token_id": [9, 8.0]`, ""},
		{`"architectures": ["LlamaForSequenceClassification"], "problem_type": null, "id2label": {"0": "a"}`, ""},
		{`"is_causal": true`, ""}, {`"is_causal": false`, "is_causal"},
		{`"architectures": ["LlamaBidirectionalModel"]`, "architectures"},
		{`"architectures": null, "time_step_limit": [0.0, Infinity]`, ""},
		{`"architectures": ["Qwen2ForCausalLM"]`, "architectures"},
		{`"tie_word_embeddings": null, "use_sliding_window": false, "sliding_window": 4096`, ""},
	} {
		_, err := open(t, map[string]string{"config.json": strings.TrimSuffix(smallConfig, "}") + ", " + x.more + "}"})
		if (err == nil) != (x.fault == "") || err != nil && !strings.Contains(err.Error(), x.fault) {
			t.Errorf("%s: %v, want an error about %q", x.more, err, x.fault)
		}
	}
}

// TestPublishedRepeats has nothing to say of settings that publishers write beside the ones of the library, and refuses
// a contradiction.
func TestPublishedRepeats(t *testing.T) {
	const sizes = `"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2,
		"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, `
	for _, x := range []struct{ config, fault string }{
		{`"model_type": "nemotron_h", "layer_norm_epsilon": 1e-5, "norm_eps": 1e-5, "rope_theta": 1e4,
			"partial_rotary_factor": 1.0, "hybrid_override_pattern": "M*"`, ""},
		{`"model_type": "nemotron_h", "layer_norm_epsilon": 1e-5, "norm_eps": 1e-6,
			"hybrid_override_pattern": "M*"`, "norm_eps"},
		{`"model_type": "gemma2", "sliding_window": 4, "sliding_window_size": 4`, ""},
		{`"model_type": "gemma2", "sliding_window": 4, "sliding_window_size": 8`, "sliding_window_size"},
		{`"model_type": "qwen3_moe", "norm_topk_prob": true, "use_qk_norm": true`, ""},
		{`"model_type": "qwen3_moe", "norm_topk_prob": true, "use_qk_norm": false`, "use_qk_norm"},
		{`"model_type": "starcoder2", "norm_epsilon": 1e-5, "rms_norm_eps": 1e-6, "norm_type": "layer_norm",
			"mlp_type": "default"`, ""},
		{`"model_type": "starcoder2", "norm_type": "rms_norm"`, "norm_type"},
		{`"model_type": "nemotron_h", "hybrid_override_pattern": "M-", "attention_head_dim": 4, "time_step_rank": 512`, ""},
		{`"model_type": "nemotron_h", "hybrid_override_pattern": "ME"`, `"E" for layer 1`},
		{`"model_type": "qwen2_vl", "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}`, ""},
		{`"model_type": "qwen2_5_vl", "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [1, 1, 2]}`, ""},
		{`"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", ` + sizes + `"rope_scaling":
			{"mrope_interleaved": true, "mrope_section": [1, 1, 2], "rope_type": "default"}}`, ""},
		{`"model_type": "gemma4_unified", "text_config": {"model_type": "gemma4_unified_text", ` + sizes + `"global_head_dim": 8,
			"use_bidirectional_attention": "vision", "moe_intermediate_size": null, "num_experts": null, "num_kv_shared_layers": 0}`, ""},
		{`"model_type": "kimi_k25", "architectures": ["DeepseekV3ForCausalLM"], "text_config": {"model_type": "kimi_k2", ` +
			strings.Replace(sizes, `"head_dim": 4,`, `"q_lora_rank": 4, "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
			"v_head_dim": 4, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 4,`, 1) + `"rope_theta": 5e4}`, ""},
	} {
		c, err := Configured([]byte("{" + sizes + x.config + "}"))
		if (err == nil) != (x.fault == "") || err != nil && !strings.Contains(err.Error(), x.fault) {
			t.Errorf("%s: %v, want an error about %q", x.config, err, x.fault)
		}
		if err != nil {
			continue
		}
		if notes, err := c.Config(c.Family.Model.Config()); err != nil || len(notes) > 0 {
			t.Errorf("%s: notes %q, %v", x.config, notes, err)
		}
	}
}

// TestTextGeneration takes the end of a turn from the part of a multimodal model that writes, where nothing else has it.
func TestTextGeneration(t *testing.T) {
	text := `"text_config": ` + strings.Replace(smallConfig, `"top_k": 5`, `"top_k": 7`, 1)
	for config, want := range map[string]int{`{` + text + `}`: 9, `{"eos_token_id": 4, ` + text + `}`: 4} {
		c, err := open(t, map[string]string{"config.json": config})
		if err != nil {
			t.Fatal(err)
		}
		if g := c.Generation(); len(g.End) != 1 || g.End[0] != want || g.TopK != 7 {
			t.Errorf("%s: %+v, want %d", config, g, want)
		}
	}
}

// TestPointer tells of a file that a clone did not fetch.
func TestPointer(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		c, err := open(t, map[string]string{name: pointer})
		if err == nil {
			_, err = c.Tokenizer()
		}
		if err == nil || !strings.Contains(err.Error(), name+": a Git LFS pointer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTiktokenAlone reads a folder with tiktoken's list alone, where the class of its tokenizer is known.
func TestTiktokenAlone(t *testing.T) {
	list := ""
	for c := range 256 {
		list += fmt.Sprintf("%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(c)}), c)
	}
	for config, fault := range map[string]string{
		`{"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"257": {"content": "!!"}}}`:                     "tiktoken.model: token 257",
		`{"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"257": {"content": "[BOS]", "special": true}}}`: "",
		`{"tokenizer_class": "OtherTokenizer"}`: `tokenizer_class "OtherTokenizer"`,
	} {
		c, err := open(t, map[string]string{"config.json": strings.Replace(smallConfig, "100", "513", 1), "tiktoken.model": list + "ISE= 256\n", "tokenizer_config.json": config})
		if err != nil {
			t.Fatal(err)
		}
		tok, err := c.Tokenizer()
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v", config, err)
		}
		if err == nil && !slices.Equal(tok.Encode("!!![BOS]", tokenizer.Options{ParseSpecial: true}), []int{256, 33, 257}) {
			t.Errorf("%s: %v", config, tok.Encode("!!![BOS]", tokenizer.Options{ParseSpecial: true}))
		}
	}
}
