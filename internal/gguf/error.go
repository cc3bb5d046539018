package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// ErrNoKey is returned, wrapped, by Metadata's getters for an absent key.
var ErrNoKey = errors.New("no such key")

// Error describes a fault in a file, and its place.
type Error struct {
	Path     string // "" for a file given to Parse
	Name     string // part of the file: header, key "K", tensor "T"; "" for the whole
	Offset   int64  // of the offending bytes in the file
	What     string
	Declared string // the file's value; "" for none
	Allowed  string // the allowed values; "" if What names them
	Cause    error  // the error behind What; usually nil
	Size     int64  // size of a truncated file, with Need; else 0
	Need     int64  // least size of the truncated file by its tensors, or by its header
	header   bool   // Need is of the header
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error returns "PATH: NAME: byte OFFSET: WHAT (declared X, allowed Y)", or a plain sentence about a truncated file and
// a file of another format.
func (e *Error) Error() string {
	switch {
	case e.Need > 0 && e.header:
		return fmt.Sprintf("%s is cut off: it has %d bytes, and its header needs %d or more. Download it again",
			cmp.Or(e.Path, "the file"), e.Size, e.Need)
	case e.Need > 0:
		return fmt.Sprintf("%s is cut off: it has %d bytes, and its tensors need %d. Download it again",
			cmp.Or(e.Path, "the file"), e.Size, e.Need)
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
