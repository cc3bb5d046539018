package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Seeing are the folders of models that see, in goldens/vision of the shared files.
var Seeing = []string{"qwen3vl", "qwen35", "qwen25vl", "gemma3", "gemma4", "gemma4-moe", "mistral3", "smolvlm",
	"lfm2vl"}

// SightPrompt is a prompt of a record with pictures.
type SightPrompt struct {
	Images []string
	IDs    []int32
}

// SightPrompts reads the prompts of a record's golden.json.
func SightPrompts(dir string) ([]SightPrompt, error) {
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		return nil, err
	}
	var x struct{ Prompts []SightPrompt }
	return x.Prompts, json.Unmarshal(b, &x)
}
