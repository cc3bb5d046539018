package hub

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

const maxName = 128

// fileEndings end names of files, and no names of models.
var fileEndings = []string{".gguf", ".safetensors", ".json", ".jsonl", ".model", ".bin", ".pt", ".pth", ".txt"}

// aName is a model's name: words of letters, digits, points, lines and underscores, with a tag behind a colon or without.
var aName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9][A-Za-z0-9._-]*)?$`)

// CheckName is an error if a model cannot have the name.
func CheckName(name string) error {
	first, _, _ := strings.Cut(name, ":")
	ending := strings.ToLower(path.Ext(name))
	switch {
	case len(name) > maxName:
		return fmt.Errorf("name %q: %d characters, at most %d", clip(name), len(name), maxName)
	case !aName.MatchString(name) || strings.HasSuffix(name, ".") || strings.HasSuffix(first, "."):
		return fmt.Errorf("name %q: want letters, digits, and . _ - between them, and a tag behind a colon if there is to be one, such as small:Q4_K_M", clip(name))
	case slices.Contains([]string{"hf", "oci", "http", "https", "file"}, strings.ToLower(first)):
		return fmt.Errorf("name %q: it would be read as a place to pull from", name)
	case slices.Contains(fileEndings, ending):
		return fmt.Errorf("name %q: it would be read as a file's", name)
	}
	return nil
}

// nameKey is the name of the files of a model in the store. Names that differ in case only are the same model's, as they
// would be the same file's on many disks.
func nameKey(name string) string { return strings.ReplaceAll(strings.ToLower(name), ":", "+") }

// maxPath bounds the path of a file in a model, and of a part of it.
const maxPath, maxPart = 512, 200

// checkPath is an error if a model's file cannot have the path, which a stranger wrote. It is relative, with slashes, and
// means the same on every system.
func checkPath(p string) error {
	bad := func(why string) error { return fmt.Errorf("file %q: %s", clip(p), why) }
	switch {
	case len(p) > maxPath:
		return bad("the name is too long")
	case !fs.ValidPath(p) || p == ".":
		return bad("want a path within the model, without ..")
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|`, r) }):
		return bad("the name holds a character that no file's should")
	}
	for part := range strings.SplitSeq(p, "/") {
		if len(part) > maxPart || strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
			return bad("the name is too long, or ends in a point or a space")
		}
	}
	return nil
}
