// Package atomicfile writes files, and folders of files, that appear whole or not at all.
//
// Files that belong together, such as a record and its JSON file, are committed by
// CommitAll and read by Open: who opens them sees all of one commit, even if the program
// that wrote was killed at any point of it. That is so because
//
//   - No call renames several files at once, so the commit is one rename of a folder:
//     FIRST.commit/ID/new, which holds the new files, appears whole or not at all. Before it
//     nothing of the old files has changed. After it all that is left to do can be done by
//     anybody, in any order and more than once: each new file is moved to its place, and a
//     file that is no longer in the folder is where it belongs. Open does so first.
//   - The folder's name is the commit's lock: a rename does not replace a folder that holds
//     something. Who finds one ends it before putting another. The new files in it are
//     ready at first, which changes nothing. If another commit has ended since the
//     folder was prepared, it is taken out again and prepared anew.
//   - Should a file refuse its place (another user's, or on Windows one that is open), what
//     was there is put back: the folder holds links to the old files from the beginning.
//     From new to back is again one rename, after which no new file can be moved any more.
//   - The folder has a folder of a random name, so that who comes late, to a commit that
//     others have ended, finds nothing to move and nothing to remove.
//   - Only the names that the caller gives are moved, and no link is followed: a folder of
//     unknown origin can do no more than the files beside it.
//
// Other programs, which know nothing of the folder, can see new files beside old ones for
// the time of a few renames; after a kill in that time, until something here opens them.
//
// A program that is killed while it writes leaves its temporary file or folder, PATH.XXXXXXXX.tmp.
// The next write of PATH removes it. A writer locks its temporary file, and the system unlocks it when the
// writer ends in any way, so a file that can be locked has no writer. Where a network's file system keeps
// locks from other machines, two of them that write PATH at the same time disturb each other: one of the
// writes ends with an error. Without locks (Windows) nothing is removed.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is a file being written: it lies beside the file that it is to become.
type File struct {
	*os.File
	path string
	lock io.Closer // nil where there are none
	done bool
}

var errNoName = errors.New("write: the name of the output is empty")

// Create begins the file at path. Another one there may be replaced, but nothing
// else: a device, a pipe, a folder or a link there is an error. Who may not read the old file may not read the new one.
func Create(path string) (*File, error) {
	st, err := os.Lstat(path)
	switch {
	case path == "":
		return nil, errNoName
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "write", Path: path, Err: errors.New("not a regular file, and so not replaced")}
	}
	mode := fs.FileMode(0o666) // not os.CreateTemp's, whose files are the owner's alone
	if st != nil {
		mode = st.Mode().Perm() | 0o200
	}
	f := &File{path: path}
	_, lock, err := held(path, false, func(name string) (err error) {
		if f.File != nil { // that another program has swept away
			f.File.Close()
		}
		f.File, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.lock = lock
	if st != nil {
		_ = f.Chmod(mode) // against the umask; some file systems have no modes
	}
	return f, nil
}

// unlock lets others remove the file, if it is still temporary.
func (f *File) unlock() {
	if f.lock != nil {
		f.lock.Close()
	}
}

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

// CommitAll commits files that belong together, in one folder: who opens them by Open,
// with their paths in this order, sees all of them or none. After an error all is as it
// was. If that cannot be had either, the error says so, and Open puts them in place.
func CommitAll(files ...*File) error {
	if len(files) == 0 {
		return nil
	}
	var errs []error
	var paths, from []string
	for _, f := range files {
		if f.done {
			return fs.ErrClosed
		}
		f.done = true
		defer f.unlock()
		errs = append(errs, f.Sync(), f.File.Close())
		paths, from = append(paths, f.path), append(from, f.Name())
	}
	err := errors.Join(errs...)
	if err == nil && len(files) == 1 {
		err = rename(from[0], paths[0])
	} else if err == nil {
		var s *set
		if s, err = newSet(paths); err == nil {
			err = s.commit(from)
		}
	}
	if err != nil {
		for _, name := range from {
			if e := os.Remove(name); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
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
	defer f.unlock()
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
	dir, unlock, err := createFolder(path)
	if err != nil {
		return err
	}
	defer unlock()
	return os.Remove(dir)
}

// createFolder makes the folder that is to become the one at path, and locks it.
func createFolder(path string) (dir string, unlock func(), err error) {
	if st, err := os.Lstat(filepath.Clean(path)); err == nil && !st.IsDir() {
		return "", nil, &fs.PathError{Op: "write", Path: path, Err: errors.New("not a folder, and so not replaced")}
	}
	switch entries, err := os.ReadDir(path); {
	case path == "":
		return "", nil, errNoName
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", nil, err
	case len(entries) > 0:
		return "", nil, &fs.PathError{Op: "write", Path: path, Err: errors.New("a folder that is not empty, and so not replaced")}
	}
	dir, lock, err := held(filepath.Clean(path), true, func(name string) error { return os.Mkdir(name, 0o777) })
	if err != nil {
		return "", nil, err
	}
	return dir, (&File{lock: lock}).unlock, nil
}

// WriteFolder makes the folder at path, where there is none or an empty one, of the
// files that write makes in the folder that it is given. It appears when all of
// them are on the disk.
func WriteFolder(path string, write func(dir string) error) (err error) {
	dir, unlock, err := createFolder(path)
	if err != nil {
		return err
	}
	defer unlock()
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
