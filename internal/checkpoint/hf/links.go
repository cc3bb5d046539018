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
