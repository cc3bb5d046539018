package arch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// idle are settings that may change unnoticed: transformers does not read them in these models. A key is a golden and
// a setting, or a setting of all goldens. A family's Idle lists more.
var idle = map[string]string{
	"rope_parameters.beta_fast":                "0 is the default, 32, and the pair that it bounds is a whole number",
	"rope_parameters.beta_slow":                "likewise, of 1",
	"lfm2 block_ffn_dim_multiplier":            "only where block_auto_adjust_ff_dim is true",
	"lfm2 block_multiple_of":                   "likewise",
	"deepseek2-lite n_group":                   "only where topk_method is group_limited_greedy",
	"granitehybrid rope_parameters.rope_theta": "only where position_embedding_type is rope",
	"granitehybrid rope_parameters.rope_type":  "likewise",
	"gemma3n altup_active_idx":                 "the golden has the default, 0, which the edit is, too",
	"qwen3moe sliding_window":                  "only where use_sliding_window is true",
	"qwen3moe use_sliding_window":              "only where sliding_window is a number",
	"llama4 no_rope_layers":                    "an empty list is none",
	"mamba2 rescale_prenorm_residual":          "of training",
	"nemotronh rescale_prenorm_residual":       "likewise",
	"modernbert global_attn_every_n_layers":    "layer_types says more",
	"ernie45moe moe_layer_end_index":           "-1 and layers behind the last stand for the last",
	"exaonemoe sliding_window_pattern":         "likewise",
	"embeddinggemma _sliding_window_pattern":   "likewise",
	"deepseek2 num_nextn_predict_layers":       "its layers are set aside",
	"glm4moe num_nextn_predict_layers":         "likewise",
	"nemotronh n_shared_experts":               "moe_shared_expert_intermediate_size is that of all",
	"nemotronh mtp_layers_block_type":          "likewise",
	"qwen3next mlp_only_layers":                "an empty list is none",
	"mistral4 intermediate_size":               "of layers without experts, of which there are none",
	"mistral4 first_k_dense_replace":           "0, as the file says",
}

// others are values that say something else than v, or nothing sensible.
func others(v any) []any {
	switch v := v.(type) {
	case nil:
		return []any{true, 7., "nonsense"}
	case bool:
		return []any{!v}
	case float64:
		return []any{0., v*2 + 1, -1., "nonsense", true}
	case string:
		return []any{"nonsense"}
	case []any:
		return []any{[]any{}, "nonsense", v[:max(len(v)-1, 0)]}
	}
	return nil
}

// edits are the settings of config, those of its objects by their paths, each with other values.
func edits(config map[string]any) map[string][]map[string]any {
	all := map[string][]map[string]any{}
	for key, v := range config {
		with := func(path string, v any) {
			m := maps.Clone(config)
			m[key] = v
			all[path] = append(all[path], m)
		}
		inner, _ := v.(map[string]any)
		for k := range inner {
			for _, o := range others(inner[k]) {
				own := maps.Clone(inner)
				own[k] = o
				with(key+"."+k, own)
			}
		}
		for _, o := range others(v) {
			with(key, o)
		}
	}
	return all
}

// TestSettings changes every setting of every golden's config.json: it must be refused, noted,
// or computed, unless it is known to change nothing.
func TestSettings(t *testing.T) {
	for _, name := range golden.Sample(append(golden.Families(t), golden.Encoders(t)...)) {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			if err := os.CopyFS(path, os.DirFS(golden.Model(t, name))); err != nil {
				t.Fatal(err)
			}
			config := readConfig(t, path)
			want, family, err := seen(t, path, config)
			if err != nil {
				t.Fatal(err)
			}
			all := edits(config)
			for _, key := range slices.Sorted(maps.Keys(all)) {
				for _, edited := range all[key] {
					got, _, err := seen(t, path, edited)
					if err == nil && got == want && !family.Idle(key) && idle[name+" "+key]+idle[key] == "" {
						top, _, _ := strings.Cut(key, ".")
						t.Errorf("%s: with %v nothing is said, and nothing changes", key, edited[top])
					}
				}
			}
		})
	}
}

// seen is what loading the folder with a configuration tells: the notes, and the graph with
// every frequency.
func seen(t *testing.T, path string, config map[string]any) (string, *checkpoint.Checkpoint, error) {
	t.Helper()
	text, err := json.Marshal(config)
	if file := filepath.Join(path, "config.json"); err == nil {
		err = errors.Join(os.Remove(file), os.WriteFile(file, text, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	g, notes, err := arch.Load(c)
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	fmt.Fprintln(&b, c.Notes, notes)
	err = graph.Print(&b, g)
	for _, n := range g.Nodes {
		if r, ok := n.Attr.(graph.RoPEAttr); ok {
			fmt.Fprintln(&b, r.Freqs)
		}
	}
	return b.String(), c, err
}

// TestOlderSettings: published files of LFM2 say some settings otherwise, and one that says of no
// layer what it does has attention in all.
func TestOlderSettings(t *testing.T) {
	path := t.TempDir()
	if err := os.CopyFS(path, os.DirFS(golden.Model(t, "lfm2"))); err != nil {
		t.Fatal(err)
	}
	config := readConfig(t, path)
	want, _, err := seen(t, path, config)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(config, map[string]any{"full_attn_idxs": []any{2, 4}, "theta": 1e6, "block_ff_dim": config["intermediate_size"], "tie_embedding": true})
	for _, key := range []string{"layer_types", "rope_parameters", "intermediate_size", "tie_word_embeddings"} {
		delete(config, key)
	}
	if got, _, err := seen(t, path, config); err != nil || got != want {
		t.Errorf("%v, %s", err, difference(got, want))
	}
	delete(config, "full_attn_idxs")
	if _, _, err := seen(t, path, config); err == nil || !strings.Contains(err.Error(), "tensor model.layers.0.self_attn.q_proj: missing") {
		t.Errorf("without a setting of layers: %v", err)
	}
}

// TestLetters: EXAONE 4.0's files say in letters which layers slide, and that of the 1.2B, as the
// library writes it again, has a pattern of none. There all layers turn.
func TestLetters(t *testing.T) {
	path := t.TempDir()
	if err := os.CopyFS(path, os.DirFS(golden.Model(t, "exaone4"))); err != nil {
		t.Fatal(err)
	}
	config := readConfig(t, path)
	want, _, err := seen(t, path, config)
	if err != nil {
		t.Fatal(err)
	}
	delete(config, "layer_types")
	if got, _, err := seen(t, path, config); err != nil || got != want {
		t.Errorf("without layer_types: %v, %s", err, difference(got, want))
	}
	for _, pattern := range []string{"", "LLL", "LGLG", "GLLL", "llg"} {
		config["sliding_window_pattern"] = pattern
		if _, _, err := seen(t, path, config); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("key sliding_window_pattern is %q", pattern)) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	maps.Copy(config, map[string]any{"layer_types": slices.Repeat([]any{"full_attention"}, 5), "sliding_window": nil, "sliding_window_pattern": 0})
	got, _, err := seen(t, path, config)
	if n := strings.Count(got, "= rope("); err != nil || n != 10 || strings.Contains(got, "window=") {
		t.Errorf("%v, %d rotations, want 10 in\n%s", err, n, got)
	}
	config["sliding_window"] = 16
	config["sliding_window_pattern"] = 4
	if _, _, err := seen(t, path, config); err == nil || !strings.Contains(err.Error(), "no layer slides") {
		t.Errorf("a window that no layer has: %v", err)
	}
}
