package atomicfile

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// temporary is a new name beside path.
func temporary(path string) string { return fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32()) }

// isTemporary reports whether temporary could have given path the name. (Package regexp would cost each program 0.4 MB.)
func isTemporary(name, base string) bool {
	id, ok := strings.CutPrefix(name, base+".")
	id, end := strings.CutSuffix(id, ".tmp")
	return ok && end && len(id) == 8 && strings.Trim(id, "0123456789abcdef") == ""
}

// held makes a temporary file or folder beside path by make, and locks it. The lock is nil where there are none.
func held(path string, folder bool, make func(name string) error) (name string, lock io.Closer, err error) {
	sweep(path, folder)
	for range maxTries {
		name = temporary(path)
		if err := make(name); err != nil {
			return "", nil, cannot(path, err)
		}
		lock, busy := hold(name)
		if !busy && exists(name) {
			return name, lock, nil
		}
		(&File{lock: lock}).unlock() // another program sweeps it away, or has, before it was locked
	}
	return "", nil, cannot(path, fmt.Errorf("other programs remove the temporary file"))
}

// sweep removes the temporary files, or folders, that killed writers of path have left: they can be locked.
// (The folder of a commit of several files has such a name, too, and no lock: it lies beside a file.)
func sweep(path string, folder bool) {
	path = filepath.Clean(path)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return // the write itself will tell
	}
	base := filepath.Base(path)
	for _, e := range entries {
		if !isTemporary(e.Name(), base) || folder && !e.IsDir() || !folder && !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(filepath.Dir(path), e.Name())
		if lock, _ := hold(name); lock != nil {
			_ = os.RemoveAll(name) // another user's stays
			lock.Close()
		}
	}
}
