package golden

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Headed names the families whose files may have a head predicting further tokens.
var Headed = []string{"qwen35", "qwen35moe", "glm4moe", "deepseek2", "deepseek32", "glmdsa"}

// WithHead returns the copy of a seeded family's folder with a head: a layer behind the last, shaped as the
// last, and the head's own tensors, under the publisher's names. The other weights are the family's.
func WithHead(t testing.TB, name string) string {
	t.Helper()
	dir, ok := seeded(t, name)
	if !ok {
		t.Fatalf("golden: %s has no seed", name)
	}
	dir = Seeded(t, dir)
	var s seed
	config := map[string]any{}
	if err := errors.Join(readJSON(filepath.Join(dir, "seed.json"), &s),
		readJSON(filepath.Join(dir, "config.json"), &config)); err != nil {
		t.Fatal(err)
	}
	layers, hidden := int(config["num_hidden_layers"].(float64)), int(config["hidden_size"].(float64))
	last, layer := fmt.Sprintf("model.layers.%d.", layers-1), fmt.Sprintf("model.layers.%d.", layers)
	own, parts := layer, [4]string{"eh_proj", "enorm", "hnorm", "shared_head.norm"}
	config["num_nextn_predict_layers"] = 1
	if strings.HasPrefix(name, "qwen") {
		layer, own = "mtp.layers.0.", "mtp."
		parts = [4]string{"fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}
		delete(config, "num_nextn_predict_layers")
		config["mtp_num_hidden_layers"] = 1
	}
	for name, shape := range s.Tensors {
		if rest, ok := strings.CutPrefix(name, last); ok {
			s.Tensors[layer+rest] = shape
		}
	}
	for i, part := range parts {
		if s.Tensors[own+part+".weight"] = []int{hidden}; i == 0 {
			s.Tensors[own+part+".weight"] = []int{hidden, 2 * hidden}
		}
	}
	for file, v := range map[string]any{"seed.json": s, "config.json": config} {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Grow(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return err
}
