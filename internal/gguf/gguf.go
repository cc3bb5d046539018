// Package gguf reads and writes GGUF files, versions 2 and 3, little-endian: metadata and tensors, of a single file or
// of the parts of a split file. Models are other packages' matter.
//
// The format is described in ggml's docs/gguf.md and gguf.h. A file is taken as hostile. Everything that ggml refuses
// is refused here, and also: a bool that is neither 0 nor 1, an empty dimension, a key or name that is not printable
// text, an alignment that is no multiple of 8, anything but padding after the last tensor, and sizes beyond the limits
// of a header. Unlike ggml, arrays of arrays are read, and the padding after the last tensor may be missing.
//
// Files in reading order: split.go, write.go, gguf.go, header.go, metadata.go, value.go, reader.go, dtype.go.
package gguf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// File is an open GGUF file. Several goroutines may use a File at once.
type File struct {
	Version   uint32 // of a split file's first part, as is the rest
	Alignment int    // of the tensors' data, in bytes
	Metadata  Metadata

	parts   []part
	tensors []tensor.Tensor
	places  []place        // of tensors
	index   map[string]int // into tensors
}

// part is a single file, whole or part of a split model.
type part struct {
	path string
	file *mmap.File // nil where Parse or Read was given the bytes
}

// place is the part and the byte at which a tensor's data begins.
type place struct {
	part   int
	offset int64
}

// Open maps the file at path. If the name is NAME-00001-of-0000N.gguf, of any part of a split model, all N parts are
// opened, from the same folder, as a single commit left them (atomicfile.Open). Where a file may shrink meanwhile, its
// bytes must be read under mmap.Guard; Metadata's getters do so.
func Open(path string) (*File, error) {
	prefix, no, count, split := splitName(path)
	if split && (no < 1 || no > count) {
		return nil, fmt.Errorf("%s: part %d of %d", path, no, count)
	}
	if split {
		paths := make([]string, count)
		for i := range paths {
			paths[i] = partPath(prefix, i+1, count)
		}
		return atomicfile.Open(paths, func() (*File, error) { return openSplit(prefix, count, openPart) })
	}
	f, err := openPart(path, "")
	if err != nil {
		return nil, err
	}
	if err := f.checkAlone(); err != nil {
		return nil, errors.Join(withPath(err, path), f.Close())
	}
	return f, nil
}

// Parse reads a file in memory. The tensors share data, which must not change while the File is used.
func Parse(data []byte) (*File, error) {
	f, err := parse(data)
	if err != nil {
		return nil, err
	}
	if err := f.checkAlone(); err != nil {
		return nil, err
	}
	return f, nil
}

// openPart implements opener with a mapped file.
func openPart(path, what string) (f *File, err error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s%w", what, err)
	}
	err = mmap.Guard(func() error {
		f, err = parse(m.Data())
		return err
	})
	if err != nil {
		return nil, errors.Join(withPath(err, path), m.Close())
	}
	f.parts[0] = part{path, m}
	mmap.Drop(m.Data()) // arrays of strings were read to find their ends
	return f, nil
}

// withPath puts path into an error about the file there.
func withPath(err error, path string) error {
	if e, ok := err.(*Error); ok {
		e.Path = path
		return e
	}
	return fmt.Errorf("%s: %w", path, err)
}

// parse reads a file.
func parse(data []byte) (*File, error) {
	f, err := readFile(data[:min(len(data), maxHeader)], len(data))
	if err != nil {
		return nil, err
	}
	return f, f.fill(func(t *tensor.Tensor, at int64, size int) error {
		t.Data = data[at : at+int64(size) : at+int64(size)]
		return nil
	})
}

// readFile reads a file of size bytes, beginning with data, except the tensors' data.
func readFile(data []byte, size int) (*File, error) {
	f, end, err := readHeader(data, size)
	if err != nil {
		return nil, err
	}
	if padded := alignUp(end, f.Alignment); int64(size) > padded {
		return nil, &Error{Name: "end", Offset: padded, What: "bytes follow the last tensor and its padding",
			Declared: fmt.Sprintf("a file of %d bytes", size), Allowed: fmt.Sprint(padded)}
	}
	f.parts = make([]part, 1)
	return f, nil
}

// fill gives each tensor its data, of size bytes at byte at.
func (f *File) fill(give func(t *tensor.Tensor, at int64, size int) error) error {
	for i := range f.tensors {
		t := &f.tensors[i]
		size, err := tensor.Bytes(t.DType, t.Shape)
		if err == nil {
			err = give(t, f.places[i].offset, size)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// Close unmaps the file: the tensors' data must not be used afterwards. Values from Metadata's getters stay valid.
func (f *File) Close() error {
	var errs []error
	for _, p := range f.parts {
		if p.file != nil {
			errs = append(errs, p.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Tensors lists the tensors in the order of the file, and of the parts. Shapes are
// row-major, GGUF's ne reversed; Data is the file's memory, read-only.
func (f *File) Tensors() []tensor.Tensor { return slices.Clone(f.tensors) }

// Tensor returns the tensor with a name, and whether there is any.
func (f *File) Tensor(name string) (tensor.Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return tensor.Tensor{}, false
	}
	return f.tensors[i], true
}

// Place returns where the data of a tensor begins: the path of its part ("" for Parse), the byte in that file, and
// whether there is such a tensor.
func (f *File) Place(name string) (path string, offset int64, ok bool) {
	i, ok := f.index[name]
	if !ok {
		return "", 0, false
	}
	p := f.places[i]
	return f.parts[p.part].path, p.offset, true
}

// Paths lists the open files, in the order of the parts; "" for a file given to Parse.
func (f *File) Paths() []string {
	paths := make([]string, len(f.parts))
	for i, p := range f.parts {
		paths[i] = p.path
	}
	return paths
}

// signatures lists first bytes of formats that are often mistaken for GGUF.
var signatures = []struct{ prefix, what string }{
	{"PK\x03\x04", "a ZIP archive (a PyTorch .pt or .bin file is one, with pickled code in it, which is never run)"},
	{"\x80\x02", pickle}, {"\x80\x03", pickle}, {"\x80\x04", pickle}, {"\x80\x05", pickle},
	{"lmgg", oldGGML}, {"fmgg", oldGGML}, {"tjgg", oldGGML}, {"algg", oldGGML},
	{"<!DOCTYPE", html}, {"<!doctype", html}, {"<html", html}, {"<HTML", html},
	{"<?xml", "an XML file, perhaps a server's error message"},
	{"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded"},
	{"{", "a JSON file"},
	{"\x1f\x8b", "a gzip file"},
	{"\x28\xb5\x2f\xfd", "a Zstandard file"},
	{"\x93NUMPY", "a NumPy file"},
	{"\x89HDF\r\n", "an HDF5 file"},
	{"\x7fELF", "a program"}, {"MZ", "a program"},
	{"\x00\x00\x00\x00\x00\x00\x00\x00", "an empty download, which begins with zeros"},
}

const (
	pickle  = "a Python pickle (an old PyTorch file): it holds code, which is never run; use safetensors or GGUF"
	oldGGML = "a GGML file, older than GGUF"
	html    = "a web page, perhaps a server's error message"
)

// identify names the format of a file without the magic of GGUF.
func identify(head []byte) string {
	if len(head) > 8 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 100<<20 {
		return "not a GGUF file, but a safetensors file"
	}
	text := bytes.TrimLeft(head, " \t\r\n\ufeff")
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.prefix)) || bytes.HasPrefix(text, []byte(s.prefix)) {
			return "not a GGUF file, but " + s.what
		}
	}
	return fmt.Sprintf("not a GGUF file: it begins with %q", head[:min(4, len(head))])
}

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
