package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/rogpeppe/go-internal/testscript"
)

// e2b is a script's command: e2b FOLDER writes a model with the attention of Gemma 4
// E2B (its published config.json: 35 layers, every fifth full, the last 20 without
// keys and values of their own, 1 key head of 256 features or 512, window 512) and
// with next to nothing of everything else. All weights are zero.
func e2b(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: e2b FOLDER")
	}
	const layers, owned, vocab, hidden, ple = 35, 15, 2048, 8, 4
	const heads, slidingDim, fullDim = 8, 256, 512
	var tensors []tensor.Tensor
	add := func(name string, shape ...int) {
		data := make([]byte, tensor.BF16.RowBytes(tensor.Shape(shape).Size()))
		tensors = append(tensors, tensor.Tensor{Name: "model." + name + ".weight", DType: tensor.BF16, Shape: shape, Data: data})
	}
	add("embed_tokens", vocab, hidden)
	add("embed_tokens_per_layer", vocab, layers*ple)
	add("per_layer_model_projection", layers*ple, hidden)
	add("per_layer_projection_norm", ple)
	add("norm", hidden)
	var types []string
	for i := range layers {
		kind, dim, width := "sliding_attention", slidingDim, hidden
		if i%5 == 4 {
			kind, dim = "full_attention", fullDim
		}
		if i >= owned {
			width = 2 * hidden
		}
		types = append(types, kind)
		layer := fmt.Sprintf("layers.%d.", i)
		for _, norm := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "post_per_layer_input_norm"} {
			add(layer+norm, hidden)
		}
		add(layer+"per_layer_input_gate", ple, hidden)
		add(layer+"per_layer_projection", hidden, ple)
		add(layer+"mlp.gate_proj", width, hidden)
		add(layer+"mlp.up_proj", width, hidden)
		add(layer+"mlp.down_proj", hidden, width)
		add(layer+"self_attn.q_proj", heads*dim, hidden)
		add(layer+"self_attn.o_proj", hidden, heads*dim)
		add(layer+"self_attn.q_norm", dim)
		if i < owned {
			add(layer+"self_attn.k_proj", dim, hidden)
			add(layer+"self_attn.v_proj", dim, hidden)
			add(layer+"self_attn.k_norm", dim)
		}
		tensors = append(tensors, tensor.Tensor{Name: "model." + layer + "layer_scalar", DType: tensor.BF16, Shape: tensor.Shape{1}, Data: make([]byte, 2)})
	}
	config := map[string]any{
		"architectures": []string{"Gemma4ForCausalLM"}, "model_type": "gemma4_text", "vocab_size": vocab, "vocab_size_per_layer_input": vocab,
		"hidden_size": hidden, "hidden_size_per_layer_input": ple, "intermediate_size": hidden, "use_double_wide_mlp": true,
		"num_hidden_layers": layers, "num_kv_shared_layers": layers - owned, "layer_types": types, "sliding_window": 512,
		"num_attention_heads": heads, "num_key_value_heads": 1, "head_dim": slidingDim, "global_head_dim": fullDim,
		"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": 30, "tie_word_embeddings": true, "max_position_embeddings": 131072,
		"rope_parameters": map[string]any{
			"full_attention":    map[string]any{"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4},
		},
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.Mkdir(dir, 0o777))
	b, err := json.Marshal(config)
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666))
	ts.Check(safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), tensors, nil))
}
