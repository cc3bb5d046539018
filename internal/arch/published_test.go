package arch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPublished reads published*.json beside each golden, the facts of a publisher's config.json: it is taken without
// notes, every key of it is read or known to change nothing, the graph has its sizes, and its tower is read.
func TestPublished(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Repo(t), "*", "*", "published*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file)) + strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), ".json"), "published")
		config, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := checkpoint.Configured(config)
		if err == nil {
			seen[c.Family.Name] = true
		}
		t.Run(name, func(t *testing.T) {
			if err != nil {
				t.Fatal(err)
			}
			if notes, err := c.Config(c.Family.Model.Config()); err != nil || len(notes)+len(c.Notes) > 0 {
				t.Errorf("%v: %q, %q", err, notes, c.Notes)
			}
			for _, e := range arch.Unread(c) {
				if !c.Idle(e.Key) {
					t.Errorf("%s = %s is not read, and not listed as idle", e.Key, e.Value)
				}
			}
			planned, err := arch.Planned(c)
			if err != nil {
				t.Fatal(err)
			}
			embed := tensor.Shape{int(c.Setting("vocab_size").(float64)), int(c.Setting("hidden_size").(float64))}
			if !slices.ContainsFunc(planned, func(x tensor.Tensor) bool {
				return x.Name == "token_embd" && slices.Equal(x.Shape, embed)
			}) {
				t.Errorf("no embedding of %v", embed)
			}
			last := fmt.Sprintf("blk.%v.", c.Setting("num_hidden_layers").(float64)-1)
			if !slices.ContainsFunc(planned, func(x tensor.Tensor) bool { return strings.HasPrefix(x.Name, last) }) {
				t.Errorf("no tensor of %s", last)
			}
			n := 0
			for _, x := range planned {
				n += x.Shape.Size()
			}
			if want := publishedWeights[name]; want != 0 && n != want {
				t.Errorf("%d weights, published are %d", n, want)
			}
			x, err := checkpoint.ConfiguredTower(config)
			if err != nil || x == nil {
				if err != nil || strings.Contains(string(config), `"vision_config"`) {
					t.Errorf("no tower: %v", err)
				}
				return
			}
			settings := x.Kind.Model.Config()
			if err := x.Config(settings); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Kind.Model.New(settings, 0, 0); err != nil {
				t.Error(err)
			}
		})
	}
	for _, f := range registry.Families {
		if !seen[f.Name] {
			t.Errorf("%s has no published.json", f.Name)
		}
	}
}

// publishedWeights are the weights of checkpoints as the pages of their publishers count them (by memory, and equal),
// less those that Karat's models of text leave out: MiniLM's and XLM-RoBERTa's poolers and padding.
var publishedWeights = map[string]int{
	"tiny-llama": 8030261248, "tiny-llama-tied": 1235814400, "tiny-llama-mistral": 7248023552, "mixtral": 46702792704,
	"tiny-qwen2": 3085938688, "tiny-qwen2-vl": 7615616512, "tiny-qwen3": 8190735360, "qwen3moe": 30532122624,
	"tiny-gemma3-text": 999885952, "gemma2": 2614341888, "gemma": 2506172416, "gpt2": 124439808,
	"smollm3": 3075098624, "glm4": 9400279040, "cohere2": 8028033024, "olmo3-olmo2": 7298617344,
	"deepseek2-kimi": 1026408232448, "deepseek2-lite": 15706484224, "gpt-oss": 20914757184, "phi3": 3821079552,
	"phi3-longrope": 3821079552, "lfm2": 354483968, "lfm2-vl": 1170340608, "mamba2": 7285403648, "falconh1": 521411104,
	"starcoder2": 7173923840, "exaone4": 32003216384, "embeddinggemma": 302863104, "falcon-7b": 6921720704,
	"bert": 22713216 - 384*385, "xlm-roberta-reranker": 567755777 - 1024*1025 - 1024 - 1 - 2*1024,
	"phimoe": 41873153344, "exaone": 7818448896, "phi2": 2779683840, "jamba": 51570323328, "olmoe": 6919161856, "stablelm": 2795443200,
}

// TestPublishedGate refuses another gate behind Qwen's scans than Qwen 3.6's file names.
func TestPublishedGate(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(golden.Repo(t), "families", "qwen35", "published-3.6.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = checkpoint.Configured([]byte(strings.Replace(string(config), `"swish"`, `"sigmoid"`, 1)))
	if err == nil || !strings.Contains(err.Error(), "output_gate_type") {
		t.Error(err)
	}
}
