// Package atomicfile writes files that appear whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
)

// File is a file being written: it lies beside the file that it is to become.
type File struct {
	*os.File
	path string
	done bool
}

// Create begins the file at path. Another one there may be replaced, but nothing
// else: a device, a pipe, a folder or a link there is an error.
func Create(path string) (*File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	// Not os.CreateTemp, whose files are the owner's alone.
	f, err := os.OpenFile(fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path}, nil
}

// Check reports what is at path that Create would not replace.
func Check(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return &fs.PathError{Op: "write", Path: path, Err: errors.New("not a regular file, and so not replaced")}
	}
	return nil
}

// Commit closes the file and puts it in its place when all of it is on the disk. An
// error leaves that place as it was, and nothing beside it.
func (f *File) Commit() error {
	if f.done {
		return fs.ErrClosed
	}
	f.done = true
	err := errors.Join(f.Sync(), f.File.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
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
