package check

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// optional are keys that llama.cpp's readers do without (get_key with required = false in load_hparams of
// src/llama-model.cpp and in load_arch_hparams of src/models), by the architecture's name; those of "" all have. A
// key's value is what it reads where the file lacks it (src/llama-hparams.h, if not there), or a string with the key
// whose value that is. Of keys with nil another fact stands for them, or nothing there reads them.
var optional = map[string]map[string]any{
	"": {"rope.freq_base": float32(1e4), "rope.scaling.type": "linear", "rope.scaling.factor": float32(1), "vocab_size": nil,
		"rope.scaling.original_context_length": ".context_length", "rope.scaling.attn_factor": float32(1)},
	"cohere2":    {"rope.dimension_count": ".attention.key_length", "rope.freq_base_swa": ".rope.freq_base", "attention.sliding_window_pattern": uint32(4)},
	"deepseek2":  {"rope.scaling.yarn_log_multiplier": float32(0), "expert_weights_scale": float32(1), "expert_weights_norm": false},
	"deepseek32": {"rope.scaling.yarn_log_multiplier": float32(0), "expert_weights_scale": float32(1), "expert_weights_norm": false},
	"glm-dsa":    {"expert_weights_scale": float32(1), "expert_weights_norm": false},
	"exaone4":    {"rope.freq_base_swa": ".rope.freq_base"},
	"afmoe":      {"expert_weights_scale": float32(1), "expert_weights_norm": false, "expert_gating_func": uint32(2)},
	"exaone-moe": {"rope.freq_base_swa": ".rope.freq_base", "attention.sliding_window_pattern": uint32(4), "expert_weights_scale": float32(1),
		"expert_weights_norm": false, "expert_shared_count": nil, "expert_shared_feed_forward_length": nil},
	"gemma2": {"attention.sliding_window": uint32(4096), "attn_logit_softcapping": float32(50), "final_logit_softcapping": float32(30),
		"rope.freq_base_swa": ".rope.freq_base", "attention.sliding_window_pattern": uint32(2)},
	"gemma-embedding": {"attention.sliding_window_pattern": uint32(6), "rope.freq_base_swa": float32(1e4)},
	"glm4":            {"rope.dimension_count": ".attention.key_length"},
	"glm4moe": {"rope.dimension_count": ".attention.key_length", "expert_weights_scale": float32(1), "expert_weights_norm": false, "expert_gating_func": uint32(2),
		"expert_group_count": uint32(0), "expert_group_used_count": uint32(0)},
	"gpt-oss": {"attention.sliding_window_pattern": uint32(2), "rope.freq_base_swa": ".rope.freq_base"},
	"granite": {"attention.scale": tinyScale, "embedding_scale": float32(1), "residual_scale": float32(1)},
	"granitehybrid": {"attention.scale": tinyScale, "embedding_scale": float32(1), "residual_scale": float32(1), "logit_scale": float32(1),
		"rope.scaling.finetuned": true},
	"granitemoe": {"attention.scale": tinyScale, "embedding_scale": float32(1), "residual_scale": float32(1)},
	"llama4":     {"attention.sliding_window": uint32(8192), "attention.temperature_length": uint32(8192), "attention.sliding_window_pattern": uint32(4)},
	"hy_v3":      {"expert_weights_scale": float32(1), "expert_weights_norm": false, "expert_gating_func": uint32(2), "expert_shared_feed_forward_length": nil},
	"mistral3": {"rope.scaling.yarn_log_multiplier": float32(0), "rope.scaling.yarn_beta_fast": float32(32), "rope.scaling.yarn_beta_slow": float32(1),
		"attention.temperature_scale": float32(0)},
	"mistral4": {"rope.scaling.yarn_log_multiplier": float32(0), "expert_weights_scale": float32(1), "expert_weights_norm": false,
		"attention.temperature_scale": float32(0)},
	"mimo2":          {"rope.dimension_count": ".attention.key_length", "attention.value_scale": float32(1)},
	"kimi-linear":    {"expert_weights_scale": float32(1)},
	"qwen3next":      {"rope.dimension_count": ".attention.key_length"},
	"minimax-m2":     {"rope.dimension_count": ".attention.key_length"},
	"gemma3n":        {"final_logit_softcapping": float32(30)},
	"modern-bert":    {"rope.freq_base_swa": float32(1e4), "attention.sliding_window_pattern": uint32(3)},
	"nemotron_h_moe": {"expert_weights_norm": false, "expert_weights_scale": float32(1), "attention.layer_norm_epsilon": nil},
	"olmo-hybrid":    {"ssm.negative_eigenvalues": false},
	"olmo2":          {"attention.sliding_window_pattern": uint32(4), "rope.freq_base_swa": ".rope.freq_base"},
	"phi2":           {"rope.dimension_count": uint32(32)}, // the head size
	"stablelm":       {"rope.dimension_count": uint32(32)}, // likewise
	"starcoder2":     {"attention.sliding_window": nil},
}

// tinyScale is the scale of attention that follows from 32, the size of heads in both models of Granite.
const tinyScale = float32(0.17677669)

// TestAbsent takes each key of an architecture from a file of each family. Nothing may change in silence: the file is
// refused, or computes the same, or the key is an optional one and the model that of llama.cpp's value, or the checker
// finds something. Optional keys are never an error.
func TestAbsent(t *testing.T) {
	for _, name := range golden.Sample(slices.Concat(golden.Families(t), golden.Encoders(t), golden.Rerankers(t))) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name+".gguf")
			if _, err := convert.Convert(t.Context(), golden.Model(t, name), file, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			want, err := printed(file)
			if err != nil {
				t.Fatal(err)
			}
			whole, found := read(t, file), 0
			may := maps.Clone(optional[""])
			maps.Copy(may, optional[whole.arch()])
			for _, k := range whole.meta {
				key, ok := strings.CutPrefix(k.Key, whole.arch()+".")
				if !ok {
					continue
				}
				found++
				path := whole.with(t, key, nil)
				got, err := printed(path)
				instead, ok := may[key]
				switch {
				case err != nil && ok:
					t.Errorf("%s: %v", key, err)
				case err != nil || got == want:
				case ok:
					if from, ok := instead.(string); ok && strings.HasPrefix(from, ".") {
						instead = whole.get(whole.arch() + from)
					}
					if instead == nil {
						continue
					}
					if same, err := printed(whole.with(t, key, instead)); err != nil || got != same {
						t.Errorf("%s: another model than with %v: %v", key, instead, err)
					}
				default:
					if r, err := Run(t.Context(), path, Options{}); err != nil || r.Clean() {
						t.Errorf("%s: another model, and nothing says so: %v", key, err)
					}
				}
			}
			if found < 6 {
				t.Errorf("%d keys", found)
			}
		})
	}
}

// TestBehind opens a file of llama.cpp's converter, which counts layers behind the last: keys of layers have their
// numbers, too, and flags are numbers.
func TestBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mimo2.gguf")
	if _, err := convert.Convert(t.Context(), golden.Model(t, "mimo2"), file, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	want, err := printed(file)
	if err != nil {
		t.Fatal(err)
	}
	for key, v := range map[string]any{"block_count": uint32(7), "nextn_predict_layers": uint32(3),
		"attention.head_count_kv": []int32{2, 4, 4, 2, 4, 4, 4}, "attention.sliding_window_pattern": []int32{0, 1, 1, 0, 1, 1, 1}} {
		file = read(t, file).with(t, key, v)
	}
	if got, err := printed(file); err != nil || got != want {
		t.Errorf("another model: %v", err)
	}
}

// TestOlderWhole opens a file of early converters, which have a DeltaNet's queries, keys, values and gates in one tensor,
// as folders have.
func TestOlderWhole(t *testing.T) {
	folder := golden.Model(t, "qwen3next")
	file := filepath.Join(t.TempDir(), "qwen3next.gguf")
	if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	m, whole := read(t, file), read(t, folder)
	for _, i := range []string{"0", "2"} {
		x := *whole.tensor("model.layers." + i + ".linear_attn.in_proj_qkvz")
		x.Name = "blk." + i + ".ssm_in.weight"
		m.tensors[m.index("blk."+i+".attn_qkv")] = x
		m.remove("blk." + i + ".attn_gate")
	}
	if got, want := weights(t, m.write()), weights(t, file); !maps.Equal(got, want) || len(want) < 40 {
		t.Errorf("%d weights, of %d, or others", len(got), len(want))
	}
}

// weights returns the bytes of a model's weights by name.
func weights(t *testing.T, path string) map[string]string {
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range g.Nodes {
		for _, w := range n.W {
			x, err := w.Whole()
			if err != nil {
				t.Fatal(err)
			}
			all[w.GGUF] = string(x.Data)
		}
	}
	return all
}

// with returns the path of the model with another value of a key of its architecture, nil for none.
func (m *model) with(t *testing.T, key string, v any) string {
	m = m.clone(t)
	m.set("."+key, v)
	return m.write()
}

// printed returns the graph of the model at path, without factors of 1.
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
	return strings.NewReplacer(" factor=1\n", "\n", " factor=1 ", " ").Replace(b.String()), err
}
