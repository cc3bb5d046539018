package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/karat-run/karat/internal/filelock"
)

// maxTries bounds how often other programs may be in the way.
const maxTries = 64

// temporary returns a new name beside path.
func temporary(path string) string { return fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32()) }

// isTemporary reports whether temporary could have given path the name. (Package regexp would cost each program 0.4
// MB.)
func isTemporary(name, base string) bool {
	id, ok := strings.CutPrefix(name, base+".")
	id, end := strings.CutSuffix(id, ".tmp")
	return ok && end && len(id) == 8 && strings.Trim(id, "0123456789abcdef") == ""
}

// makeTemporary makes a temporary file or folder beside path by make, and locks it.
func makeTemporary(path string, folder bool, make func(name string) error) (name string, lock io.Closer, err error) {
	sweep(path, folder)
	for range maxTries {
		name = temporary(path)
		if err := make(name); err != nil {
			return "", nil, writeError(path, err)
		}
		lock, busy := tryLock(name)
		if _, err := os.Lstat(name); err == nil && !busy {
			return name, lock, nil
		}
		unlock(lock) // another program swept it away before it was locked
	}
	return "", nil, writeError(path, errors.New("other programs remove the temporary file"))
}

// sweep removes the temporary files, or folders, that killed writers of path have left.
func sweep(path string, folder bool) {
	path = filepath.Clean(path)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return // the write itself will fail, with the reason
	}
	base := filepath.Base(path)
	for _, e := range entries {
		if !isTemporary(e.Name(), base) || folder && !e.IsDir() || !folder && !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(filepath.Dir(path), e.Name())
		if lock, _ := tryLock(name); lock != nil {
			_ = os.RemoveAll(name) // another user's stays
			unlock(lock)
		}
	}
}

// tryLock locks the file or folder at path until unlock, or until the program ends in any way. The lock is nil if
// another program holds it, which is busy, or if the system has none: on Windows a lock keeps the writer out, also.
func tryLock(path string) (lock io.Closer, busy bool) {
	if runtime.GOOS == "windows" {
		return nil, false
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	if ok, err := filelock.Try(f); !ok {
		f.Close()
		return nil, err == nil
	}
	return f, false
}

func unlock(lock io.Closer) {
	if lock != nil {
		lock.Close()
	}
}
