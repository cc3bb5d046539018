package hub

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/hub/local"
)

const maxName = 128

// CheckName is an error if a model cannot have the name.
func CheckName(name string) error {
	first, _, _ := strings.Cut(name, ":")
	switch {
	case len(name) > maxName:
		return fmt.Errorf("name %q: %d characters, at most %d", clip(name), len(name), maxName)
	case !local.Is(name):
		return fmt.Errorf("name %q: want letters, digits, and . _ - between them, and a tag behind a colon if there is to be one, such as small:Q4_K_M", clip(name))
	case slices.Contains([]string{"hf", "oci", "http", "https", "file"}, strings.ToLower(first)):
		return fmt.Errorf("name %q: it would be read as a place to pull from", name)
	case local.IsFile(name):
		return fmt.Errorf("name %q: it would be read as a file's", name)
	}
	return nil
}

// maxPath bounds the path of a file in a model, and of a part of it.
const maxPath, maxPart = 512, 200

// checkPath is an error if a model's file cannot have the path, which a stranger wrote. It is relative, with slashes,
// and means the same on every system.
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
