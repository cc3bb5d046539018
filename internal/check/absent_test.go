package check

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/golden"
	"github.com/karat-run/karat/internal/graph"
)

// optional are keys that llama.cpp's readers do without (get_key with required = false), by
// the architecture's name. A file that lacks one loads, and computes what llama.cpp does. Those of "" all have.
var optional = map[string]string{
	"":                "rope.freq_base rope.scaling.type rope.scaling.factor rope.scaling.original_context_length vocab_size",
	"cohere2":         "rope.dimension_count",
	"deepseek2":       "rope.scaling.yarn_log_multiplier expert_weights_scale expert_weights_norm expert_gating_func vocab_size",
	"gemma2":          "attention.sliding_window attn_logit_softcapping final_logit_softcapping",
	"gemma-embedding": "attention.sliding_window_pattern rope.freq_base_swa",
	"glm4":            "rope.dimension_count",
	"glm4moe":         "rope.dimension_count expert_weights_scale expert_weights_norm expert_gating_func expert_group_count expert_group_used_count",
	"granite":         "attention.scale embedding_scale residual_scale",
	"granitehybrid":   "attention.scale embedding_scale residual_scale logit_scale rope.scaling.finetuned",
	"llama4":          "attention.sliding_window attention.temperature_length",
	"mistral3":        "rope.scaling.yarn_log_multiplier rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow attention.temperature_scale",
	"nemotron_h_moe":  "expert_weights_norm expert_weights_scale attention.layer_norm_epsilon",
	"phi3":            "rope.scaling.attn_factor",
	"starcoder2":      "attention.sliding_window", // which llama.cpp never reads
}

// TestAbsent takes each key of an architecture from a file of each family. Nothing may change
// in silence: the file is refused, or computes the same, or the key is an optional one that llama.cpp
// reads likewise, or the checker finds something. Optional keys are never an error.
func TestAbsent(t *testing.T) {
	for _, name := range slices.Concat(golden.Families(t), golden.Encoders(t), golden.Rerankers(t)) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name+".gguf")
			if _, err := convert.Convert(t.Context(), golden.Model(t, name), file, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			want, err := printed(file)
			if err != nil {
				t.Fatal(err)
			}
			whole := read(t, file)
			may, found := strings.Fields(optional[""]+" "+optional[whole.arch()]), 0
			for _, k := range whole.meta {
				key, ok := strings.CutPrefix(k.Key, whole.arch()+".")
				if !ok {
					continue
				}
				m := whole.clone(t)
				m.set("."+key, nil)
				path := m.write()
				got, err := printed(path)
				switch {
				case err != nil && slices.Contains(may, key):
					t.Errorf("%s: %v", key, err)
				case err != nil || got == want:
				case !slices.Contains(may, key):
					if r, err := Run(t.Context(), path, Options{}); err != nil || r.Clean() {
						t.Errorf("%s: another model, and nothing says so: %v", key, err)
					}
				}
				found++
			}
			if found < 6 {
				t.Errorf("%d keys", found)
			}
		})
	}
}

// printed is the graph of the model at path.
func printed(path string) (string, error) {
	c, err := checkpoint.Open(path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	g, _, err := arch.Load(c)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = graph.Print(&b, g)
	return b.String(), err
}
