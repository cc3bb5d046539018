package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/karat-run/karat/internal/filelock"
)

// File is a file under way: a temporary file beside its path.
type File struct {
	*os.File
	path string
	lock io.Closer // of the temporary file; nil where the system has no locks
	done bool
}

// Close gives up a file without a commit. After Commit, or a first Close, a Close does nothing.
func (f *File) Close() error {
	if f.done {
		return nil
	}
	f.done = true
	defer unlock(f.lock)
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}

// writeError says why nothing can be written at path. The name of a temporary file in err goes.
func writeError(path string, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

func notRegular(path string) error {
	return writeError(path, errors.New("not a regular file, and so not replaced"))
}

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

// makeTemporary makes a temporary file or folder beside path by calling make, and locks the result.
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
		unlock(lock) // another program swept the file away before it was locked
	}
	return "", nil, writeError(path, errors.New("other programs remove the temporary file"))
}

// sweep removes the temporary files, or folders, of killed writers of path.
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
// another program holds the lock (busy), or if the system has no locks: on Windows a lock would keep the writer out.
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
