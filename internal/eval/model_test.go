package eval

import (
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint"
)

// TestOwn: tokens of another tokenizer are told from a model's own, for every pair of the
// tiny models with one vocabulary's size.
func TestOwn(t *testing.T) {
	var models []*Model
	for _, name := range []string{"tiny-llama", "tiny-qwen2", "tiny-gemma3", "tiny-gemma4"} {
		c, err := checkpoint.Open(filepath.Join("..", "..", "testdata", "models", name))
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		models = append(models, m)
	}
	for _, m := range models {
		for _, context := range []int{16, 512} {
			for _, text := range []string{Text, Calibration} {
				w, err := m.Windows(text, context, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range models {
					name := m.Checkpoint.Path + " by " + o.Checkpoint.Path
					if o.Own(w) != (o == m) {
						t.Errorf("%s, windows of %d: own is %v", name, context, o != m)
					}
					if err := m.SameTokens(o, w); (err == nil) != (o == m) {
						t.Errorf("%s, windows of %d: same tokens: %v", name, context, err)
					}
				}
			}
		}
	}
}
