// Package atomicfile writes files, and folders of files, that appear whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// File is a file being written: it lies beside the file that it is to become.
type File struct {
	*os.File
	path string
	done bool
}

var errNoName = errors.New("write: the name of what is to be written is empty")

// Create begins the file at path. Another one there may be replaced, but nothing
// else: a device, a pipe, a folder or a link there is an error.
func Create(path string) (*File, error) {
	switch st, err := os.Lstat(path); {
	case path == "":
		return nil, errNoName
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "write", Path: path, Err: errors.New("not a regular file, and so not replaced")}
	}
	// Not os.CreateTemp, whose files are the owner's alone.
	f, err := os.OpenFile(temporary(path), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, cannot(path, err)
	}
	return &File{File: f, path: path}, nil
}

// temporary is a new name beside path.
func temporary(path string) string { return fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32()) }

// cannot is why nothing can be written beside path, and so not there.
func cannot(path string, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

// Check reports why Create could not begin the file at path: long work asks before it
// begins.
func Check(path string) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// Commit closes the file and puts it in its place when all of it is on the disk. An
// error leaves that place as it was, and nothing beside it.
func (f *File) Commit() error { return CommitAll(f) }

// CommitAll commits files that belong together: none is in its place before all
// are on the disk. Where one cannot be put there, none is left.
func CommitAll(files ...*File) error {
	var errs []error
	for _, f := range files {
		if f.done {
			return fs.ErrClosed
		}
		f.done = true
		errs = append(errs, f.Sync(), f.File.Close())
	}
	err := errors.Join(errs...)
	for i, f := range files {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
			continue
		}
		if err = os.Rename(f.Name(), f.path); err == nil {
			continue
		}
		err = errors.Join(err, os.Remove(f.Name()))
		for _, before := range files[:i] {
			err = errors.Join(err, os.Remove(before.path))
		}
	}
	return err
}

// Close gives up a file that was not committed. A second Close does nothing.
func (f *File) Close() error {
	if f.done {
		return nil
	}
	f.done = true
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}

// Write makes the file at path of what write writes.
func Write(path string, write func(io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Commit()
}

// CheckFolder reports why WriteFolder would not make the folder at path.
func CheckFolder(path string) error {
	dir, err := createFolder(path)
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// createFolder makes the folder that is to become the one at path.
func createFolder(path string) (dir string, err error) {
	if st, err := os.Lstat(filepath.Clean(path)); err == nil && !st.IsDir() {
		return "", &fs.PathError{Op: "write", Path: path, Err: errors.New("not a folder, and so not replaced")}
	}
	switch entries, err := os.ReadDir(path); {
	case path == "":
		return "", errNoName
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case len(entries) > 0:
		return "", &fs.PathError{Op: "write", Path: path, Err: errors.New("a folder that is not empty, and so not replaced")}
	}
	dir = temporary(filepath.Clean(path))
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", cannot(path, err)
	}
	return dir, nil
}

// WriteFolder makes the folder at path, where there is none or an empty one, of the
// files that write makes in the folder that it is given. It appears when all of
// them are on the disk.
func WriteFolder(path string, write func(dir string) error) (err error) {
	dir, err := createFolder(path)
	if err != nil {
		return err
	}
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
