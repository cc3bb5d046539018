package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// otherNames matches names of weights in quantized folders. A record of logits may lie beside the weights.
var otherNames = regexp.MustCompile(`(?i)model|gptq|awq|quant|[2-8]-?bit|fp[48]`)

// FindWeights returns the path of a folder's weights: model.safetensors or its index, else the only index or the only
// file of another name, as folders of GPTQ and AWQ have it (gptq_model-4bit-128g.safetensors). The path is "" where
// there is none.
func FindWeights(dir string) (path string, err error) {
	for _, name := range []string{"model.safetensors", "model.safetensors.index.json"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, ending := range []string{".safetensors.index.json", ".safetensors"} {
		var found []string
		for _, e := range entries {
			name := e.Name()
			if strings.HasSuffix(name, ending) && otherNames.MatchString(name) && !strings.HasPrefix(name, "adapter") &&
				!strings.HasPrefix(name, "consolidated") {
				found = append(found, name)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return filepath.Join(dir, found[0]), nil
		default:
			return "", fmt.Errorf("%s: holds %s, %s and no model.safetensors; leave the model's file alone in the "+
				"folder", dir, found[0], found[1])
		}
	}
	return "", nil
}
