// Package atomicfile writes files, folders, and sets of files that appear whole or not at all.
//
// A file and a folder appear by a single rename. Files of a set, such as a record and its JSON file, are written by
// CommitAll and read by Open. The first file is the sign of a whole set: CommitAll moves an old first file away before
// any other file changes, and renames the new first file last. Where a program is killed in between, the first file is
// missing, so that nobody reads files of two writes.
//
// A program that is killed while writing leaves a temporary file or folder, PATH.XXXXXXXX.tmp. The next write of PATH
// removes the leftover. A writer locks its temporary file, and the system unlocks the file when the writer ends in any
// way, so a file that can be locked has no writer. Where a network's file system hides locks from other machines, two
// machines writing PATH at the same time disturb each other: one of the writes ends with an error. Without locks
// (Windows) nothing is removed.
//
// Files in reading order: atomicfile.go, set.go, temporary.go.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

var errNoName = errors.New("write: the name of the output is empty")

// Create begins the file at path. A regular file there may be replaced; a device, a pipe, a folder or a link is an
// error. The new file has the old file's permissions.
func Create(path string) (*File, error) { return create(path, 0o666) }

// create implements Create, with the permissions of a file that is not there yet.
func create(path string, mode fs.FileMode) (*File, error) {
	st, err := os.Lstat(path)
	switch {
	case path == "":
		return nil, errNoName
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, notRegular(path)
	}
	if st != nil {
		mode = st.Mode().Perm() | 0o200
	}
	f := &File{path: path}
	_, f.lock, err = makeTemporary(path, false, func(name string) (err error) {
		if f.File != nil { // another program has swept the previous file away
			f.File.Close()
		}
		f.File, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	if st != nil {
		_ = f.Chmod(mode) // against the umask; some file systems have no modes
	}
	return f, nil
}

// Check reports why Create could not begin the file at path, for callers with long work before the write.
func Check(path string) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// Commit closes the file and, once all of its bytes are on the disk, puts the file in its place. An error leaves the
// place unchanged, with nothing beside it.
func (f *File) Commit() error { return CommitAll(f) }

// Write makes the file at path of the output of write.
func Write(path string, write func(io.Writer) error) error { return writeMode(path, 0o666, write) }

// WriteSecret makes a file as Write does. The user alone may read a new file.
func WriteSecret(path string, write func(io.Writer) error) error {
	return writeMode(path, 0o600, write)
}

func writeMode(path string, mode fs.FileMode, write func(io.Writer) error) error {
	f, err := create(path, mode)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Commit()
}

// WriteIn makes a file of root as Write does. Nothing outside of root is touched, whatever the name.
func WriteIn(root *os.Root, name string, write func(io.Writer) error) (err error) {
	if st, err := root.Lstat(name); err == nil && !st.Mode().IsRegular() {
		return notRegular(name)
	}
	tmp := temporary(name)
	f, err := root.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return writeError(name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(tmp))
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}

// WriteFolder makes the folder at path, where there is no folder or an empty one. Function write fills a temporary
// folder, which appears at path afterwards.
func WriteFolder(path string, write func(dir string) error) (err error) {
	dir, lock, err := createFolder(path)
	if err != nil {
		return err
	}
	defer unlock(lock)
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := write(dir); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty folder
		return err
	}
	return os.Rename(dir, path)
}

// CheckFolder reports why WriteFolder would not make the folder at path.
func CheckFolder(path string) error {
	dir, lock, err := createFolder(path)
	if err != nil {
		return err
	}
	defer unlock(lock)
	return os.Remove(dir)
}

// createFolder makes the temporary folder for path.
func createFolder(path string) (dir string, lock io.Closer, err error) {
	if st, err := os.Lstat(filepath.Clean(path)); err == nil && !st.IsDir() {
		return "", nil, writeError(path, errors.New("not a folder, and so not replaced"))
	}
	switch entries, err := os.ReadDir(path); {
	case path == "":
		return "", nil, errNoName
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", nil, err
	case len(entries) > 0:
		return "", nil, writeError(path, errors.New("a folder that is not empty, and so not replaced"))
	}
	return makeTemporary(filepath.Clean(path), true, func(name string) error { return os.Mkdir(name, 0o777) })
}
