package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// ErrNoKey is what Metadata's getters return, wrapped, for a key that the file
// does not have.
var ErrNoKey = errors.New("no such key")

// Error describes a fault in a file, and its place.
type Error struct {
	Path     string // "" for a file that Parse was given
	Name     string // the part that was read: header, key "K", tensor "T"; "" for the file as a whole
	Offset   int64  // of the offending bytes in the file
	What     string
	Declared string // what the file says, "" where it says nothing
	Allowed  string // what it may say, "" where What tells
	Cause    error  // the error behind What, nil for most
	Size     int64  // of a file that is cut off, with Need; else 0
	Need     int64  // bytes that the tensors of such a file end at, or its header at least
	header   bool   // Need is of the header
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error says that a file is cut off, or none of GGUF, or is "PATH: NAME: byte OFFSET: WHAT (declared X, allowed Y)".
func (e *Error) Error() string {
	switch {
	case e.Need > 0 && e.header:
		return fmt.Sprintf("%s is cut off: it has %d bytes, and its header needs %d or more. Download it again", cmp.Or(e.Path, "the file"), e.Size, e.Need)
	case e.Need > 0:
		return fmt.Sprintf("%s is cut off: it has %d bytes, and its tensors need %d. Download it again", cmp.Or(e.Path, "the file"), e.Size, e.Need)
	}
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if e.Name == "" {
		return b.String() + e.What
	}
	fmt.Fprintf(&b, "%s: byte %d: %s", e.Name, e.Offset, e.What)
	switch {
	case e.Declared != "" && e.Allowed != "":
		fmt.Fprintf(&b, " (declared %s, allowed %s)", e.Declared, e.Allowed)
	case e.Declared != "":
		fmt.Fprintf(&b, " (declared %s)", e.Declared)
	case e.Allowed != "":
		fmt.Fprintf(&b, " (allowed %s)", e.Allowed)
	}
	return b.String()
}
