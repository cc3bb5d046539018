// Package patherr writes errors of files in plain words: "m.gguf: no such file or directory". Package os puts the name
// of a system call before the path.
package patherr

import "io/fs"

// Plain returns an error of package os without the name of the system call. errors.As still finds the *fs.PathError.
// Plain returns other errors as they are.
func Plain(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return plain{e}
	}
	return err
}

type plain struct{ err *fs.PathError }

func (p plain) Error() string { return p.err.Path + ": " + p.err.Err.Error() }
func (p plain) Unwrap() error { return p.err }
