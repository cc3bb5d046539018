package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// WriteIn is Write for a file of root, by its name there: nothing outside of root is touched, whatever the name.
func WriteIn(root *os.Root, name string, write func(io.Writer) error) (err error) {
	if st, err := root.Lstat(name); err == nil && !st.Mode().IsRegular() {
		return &fs.PathError{Op: "write", Path: name, Err: errors.New("not a regular file, and so not replaced")}
	}
	tmp := temporary(name)
	f, err := root.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return cannot(name, err)
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
