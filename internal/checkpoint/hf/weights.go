package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// CheckLinks refuses a Hugging Face folder with links to files outside: a downloaded folder must not choose which of
// the user's files are read, converted and published. In Hugging Face's cache the files of a snapshot are links to
// models--*/blobs, so there links may lead anywhere inside the same models--* folder. A dangling link counts as no
// file.
func CheckLinks(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(dir)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return err
	}
	root = repository(root)
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || !slices.Contains(fileTypes, filepath.Ext(e.Name())) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		to, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			to, err = filepath.Abs(to)
		}
		if err != nil {
			return err
		}
		if in, err := filepath.Rel(root, to); err != nil || !filepath.IsLocal(in) {
			return fmt.Errorf("%s: a link out of the folder, to %s; copy the file if it is meant", path, to)
		}
	}
	return nil
}

// fileTypes lists the extensions of the files that are read.
var fileTypes = []string{".safetensors", ".json", ".jinja", ".model", ".gguf"}

// repository returns the models--ORG--NAME folder of Hugging Face's cache if dir is
// models--ORG--NAME/snapshots/REVISION or a folder inside, and else dir.
func repository(dir string) string {
	for at := dir; ; {
		up := filepath.Dir(at)
		if up == at {
			return dir
		}
		if repo := filepath.Dir(up); filepath.Base(up) == "snapshots" &&
			strings.HasPrefix(filepath.Base(repo), "models--") {
			return repo
		}
		at = up
	}
}
