package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// CheckLinks refuses a Hugging Face folder whose files are links that lead out of it: what a
// stranger's folder names is not the stranger's to have read, converted and published. In
// Hugging Face's cache a snapshot's files are links to models--*/blobs beside it: they may
// lead to whatever lies in the same models--* folder. A link to nothing is no file.
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

// fileTypes are the endings of files that are read of a folder.
var fileTypes = []string{".safetensors", ".json", ".jinja", ".model", ".gguf"}

// repository returns the folder of a whole repository where dir is a snapshot in Hugging Face's
// cache, models--ORG--NAME/snapshots/REVISION, or a folder in one; else it is dir.
func repository(dir string) string {
	for at := dir; ; {
		up := filepath.Dir(at)
		if up == at {
			return dir
		}
		if repo := filepath.Dir(up); filepath.Base(up) == "snapshots" && strings.HasPrefix(filepath.Base(repo), "models--") {
			return repo
		}
		at = up
	}
}
