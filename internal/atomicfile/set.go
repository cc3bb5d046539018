package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// maxWait bounds the wait for other programs writing the same set.
const maxWait = 10 * time.Second

// rename is os.Rename. Tests replace the function to fail or to kill the program.
var rename = os.Rename

// CommitAll commits the files of a set, in one folder. Open, with their paths in the same order, sees all of the files
// or none. After an error the old files are in their places; where they cannot be put back, the error says so.
func CommitAll(files ...*File) error {
	var errs []error
	for _, f := range files {
		if f.done {
			return fs.ErrClosed
		}
		f.done = true
		defer unlock(f.lock)
		errs = append(errs, f.Sync(), f.File.Close())
	}
	err := errors.Join(errs...)
	switch {
	case err != nil || len(files) == 0:
	case len(files) == 1:
		err = rename(files[0].Name(), files[0].path)
	default:
		err = replace(files)
	}
	if err == nil {
		return nil
	}
	for _, f := range files {
		if e := os.Remove(f.Name()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// replace puts a set in the place of an old set.
func replace(files []*File) (err error) {
	dir := filepath.Dir(files[0].path)
	seen := map[string]bool{}
	for _, f := range files {
		if filepath.Dir(f.path) != dir || seen[f.path] {
			return writeError(f.path, errors.New("files that belong together have one folder and different names"))
		}
		seen[f.path] = true
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return writeError(files[0].path, err)
	}
	defer unlock(lock)
	var undo []func() error // in order; undone from the last
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			if e := undo[i](); e != nil {
				err = errors.Join(err, fmt.Errorf("and the old file cannot be put back: %w", e))
			}
		}
	}()
	var old []string
	for _, f := range files {
		name, lock, err := moveAway(f.path)
		if err != nil {
			return err
		}
		defer unlock(lock)
		if name != "" {
			old = append(old, name)
			undo = append(undo, func() error { return rename(name, f.path) })
		}
		syncFolder(dir) // the first file is away before another changes
	}
	for i := len(files) - 1; i >= 0; i-- {
		if i == 0 {
			syncFolder(dir) // all others are in place before the first is
		}
		f := files[i]
		if err := rename(f.Name(), f.path); err != nil {
			return err
		}
		undo = append(undo, func() error { return rename(f.path, f.Name()) })
	}
	syncFolder(dir)
	for _, name := range old {
		_ = os.Remove(name) // else the next write sweeps the file away
	}
	return nil
}

// moveAway gives the file at path a temporary name, "" where there is none. The lock keeps others from sweeping the
// file away.
func moveAway(path string) (name string, lock io.Closer, err error) {
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, nil
	case err != nil:
		return "", nil, err
	case !st.Mode().IsRegular():
		return "", nil, notRegular(path)
	}
	name = temporary(path)
	lock, _ = tryLock(path)
	if err := rename(path, name); err != nil {
		unlock(lock)
		return "", nil, err
	}
	return name, lock, nil
}

// Open opens the files at paths, in one folder, as a single commit left them. The order of paths is the order of
// CommitAll's files. A commit while open runs makes open run again.
func Open[T io.Closer](paths []string, open func() (T, error)) (none T, err error) {
	stat := func() fs.FileInfo {
		st, err := os.Stat(paths[0])
		if err != nil {
			return nil
		}
		return st
	}
	for range maxTries {
		was := stat()
		if was == nil { // a commit may be under way: wait for its end
			lock, _ := lockFolder(filepath.Dir(paths[0]))
			defer unlock(lock)
			return open()
		}
		x, err := open()
		is := stat()
		if is != nil && os.SameFile(was, is) && was.ModTime().Equal(is.ModTime()) && was.Size() == is.Size() {
			return x, err
		}
		if err == nil {
			x.Close()
		}
	}
	return none, &fs.PathError{Op: "open", Path: paths[0], Err: errors.New("it is replaced again and again")}
}

// lockFolder waits for the lock of the folder's sets. The lock is nil where the system has none.
func lockFolder(dir string) (io.Closer, error) {
	for end := time.Now().Add(maxWait); ; time.Sleep(time.Millisecond) {
		lock, busy := tryLock(dir)
		if !busy {
			return lock, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("other programs write the same files")
		}
	}
}

// syncFolder brings a folder's names to the disk, where a system can.
func syncFolder(dir string) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		return
	}
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
