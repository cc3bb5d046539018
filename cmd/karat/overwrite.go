package main

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/karat-run/karat/internal/gguf"
)

// refuseOverwrite refuses the file out, named by the flag what, if out would replace a file of read, or a file of a
// model's folder, or a part of a split model.
func refuseOverwrite(what, out string, read ...string) error {
	for _, in := range read {
		if entries, err := os.ReadDir(in); err == nil {
			for _, x := range entries {
				// Other files in the folder are no model's: predictions, an importance matrix.
				if path := filepath.Join(in, x.Name()); slices.Contains(folderTypes, filepath.Ext(path)) &&
					sameFile(out, path) {
					return usagef("%s would replace %s, which is read", what, path)
				}
			}
		}
		parts := gguf.IsPart(in) && gguf.IsPart(out) && sameFile(filepath.Dir(in), filepath.Dir(out)) &&
			gguf.PartPath(filepath.Base(in), 1, 1) == gguf.PartPath(filepath.Base(out), 1, 1)
		if parts || sameFile(out, in) {
			return usagef("%s would replace %s, which is read", what, in)
		}
	}
	return nil
}

// folderTypes are the endings of the files of a Hugging Face model.
var folderTypes = []string{".safetensors", ".json", ".jinja", ".model"}

// sameFile reports whether both paths lead to the same file.
func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}
