// Package safetensors reads and writes Hugging Face's tensor files.
//
// A file is a little-endian uint64, the length of the header; the header, a JSON object of tensor name to dtype, shape
// and place in the data, and of "__metadata__" to strings; and the data, to the end of the file
// (https://huggingface.co/docs/safetensors). A large model is several such files, and an index of tensor names to
// files.
//
// Files are not trusted, and the reader is stricter than the format's reference: the tensors fill the data exactly (no
// gap, overlap or rest), every key is known and unique, numbers are plain integers, and the header is at most 16 MiB
// with at most 131072 tensors of at most 8 dimensions, so that a bad file costs little memory. PyTorch's pickle files
// are never read.
//
// Files in reading order: safetensors.go, index.go, write.go, header.go.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// File is a safetensors file, or all files of an index.
type File struct {
	// Tensors are in the order of their data; of an index's files, in the order of the files' names. Names are unique.
	// Data is part of the mapped file: read-only, little-endian, and not aligned to the size of elements.
	Tensors []tensor.Tensor
	// Metadata is the "__metadata__" of the (first) file; nil if absent.
	Metadata map[string]string

	maps  []*mmap.File
	name  string
	files map[string]string // of an index: the file of each tensor
}

// FileOf returns the name of the file with a tensor.
func (f *File) FileOf(name string) string { return cmp.Or(f.files[name], f.name) }

// Open maps the file at path and reads its header. A path that ends in .index.json is opened with OpenIndex. PyTorch's
// .bin, .pt and .pth files of pickled code are refused unread.
func Open(path string) (*File, error) {
	if strings.HasSuffix(path, ".index.json") {
		return OpenIndex(path)
	}
	f, err := open(path)
	if err != nil {
		return nil, inFile(path, err)
	}
	f.name = filepath.Base(path)
	return f, nil
}

// cutError reports a file that ends too early.
type cutError struct {
	size, need int
	part       string // header or tensors, in need of the bytes
}

func (e *cutError) Error() string {
	verb := map[bool]string{true: "need", false: "needs"}[strings.HasSuffix(e.part, "s")]
	return fmt.Sprintf("is cut off: it has %d bytes, and its %s %s %d. Download it again", e.size, e.part, verb, e.need)
}

// inFile names the file of an error.
func inFile(path string, err error) error {
	if errors.As(err, new(*cutError)) {
		return fmt.Errorf("%s %w", path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func open(path string) (*File, error) {
	if err := refusePickle(path); err != nil {
		return nil, err
	}
	m, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	var f *File
	err = mmap.Guard(func() (err error) {
		f, err = parse(m.Data())
		return err
	})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	f.maps = []*mmap.File{m}
	return f, nil
}

// Parse reads a file's bytes. The tensors share data.
func Parse(data []byte) (*File, error) {
	f, err := parse(data)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close unmaps the files. The tensors' Data must not be used afterwards.
func (f *File) Close() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

func parse(data []byte) (*File, error) {
	switch {
	case len(data) == 0:
		return nil, errors.New("the file is empty")
	case len(data) < 8:
		return nil, &cutError{len(data), 8, "header"}
	}
	n, rest := binary.LittleEndian.Uint64(data), data[8:]
	if n > uint64(len(rest)) || n > maxHeader || n == 0 || rest[0] != '{' {
		return nil, notHeader(data, n)
	}
	header, data := rest[:n], rest[n:]
	list, metadata, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	entries := make([]*entry, len(list)) // a sort of pointers shares its code with all others
	for i := range list {
		entries[i] = &list[i]
	}
	if err := checkNames(entries); err != nil {
		return nil, err
	}
	tensors, err := place(entries, data, 8+int(n))
	if err != nil {
		return nil, err
	}
	return &File{Tensors: tensors, Metadata: metadata}, nil
}

// checkNames refuses names that occur twice.
func checkNames(entries []*entry) error {
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(entries); i++ {
		if entries[i].name == entries[i-1].name {
			return fmt.Errorf("tensor %q: the header names it twice", entries[i].name)
		}
	}
	return nil
}

// place sorts the entries by their place in data, which they must fill, and makes tensors of the entries. The data
// begins at byte start of the file.
func place(entries []*entry, data []byte, start int) ([]tensor.Tensor, error) {
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	tensors, at := make([]tensor.Tensor, len(entries)), 0
	for i, e := range entries {
		switch {
		case e.end > len(data):
			last := slices.MaxFunc(entries, func(a, b *entry) int { return cmp.Compare(a.end, b.end) })
			return nil, &cutError{start + len(data), start + last.end, "tensors"}
		case e.begin < at:
			return nil, fmt.Errorf("tensor %q: data_offsets [%d, %d] overlap another tensor, which ends at %d", e.name,
				e.begin, e.end, at)
		case e.begin > at:
			return nil, fmt.Errorf("tensor %q: data_offsets [%d, %d] leave a hole from %d", e.name, e.begin, e.end, at)
		}
		tensors[i] = tensor.Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, Data: data[e.begin:e.end:e.end]}
		at = e.end
	}
	if at != len(data) {
		return nil, fmt.Errorf("%d bytes after the last tensor, from byte %d", len(data)-at, start+at)
	}
	return tensors, nil
}

// refusePickle says why a PyTorch file is not opened.
func refusePickle(path string) error {
	switch ext := strings.ToLower(filepath.Ext(strings.TrimSuffix(path, ".index.json"))); ext {
	case ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle":
		return fmt.Errorf("a %s file is a Python pickle, whose reading would run code from it; only safetensors and "+
			"GGUF files are read", ext)
	}
	return nil
}

// notHeader explains why data does not begin with the length of a header and a header, and names the known formats.
func notHeader(data []byte, n uint64) error {
	const pickle = "a Python pickle, whose reading would run code from it"
	for _, k := range []struct{ prefix, what string }{
		{"PK\x03\x04",
			"a zip archive, perhaps PyTorch's, which has a pickle in it: its reading would run code from it"},
		{"\x80\x02", pickle}, {"\x80\x03", pickle}, {"\x80\x04", pickle}, {"\x80\x05", pickle},
		{"GGUF", "a GGUF file"},
		{"version https://git-lfs", "a Git LFS pointer, whose file was not fetched"},
		{"<", "a web page"},
		{"{", "JSON without the length of a header before it"},
	} {
		if bytes.HasPrefix(data, []byte(k.prefix)) {
			return fmt.Errorf("this is %s, not a safetensors file", k.what)
		}
	}
	switch {
	case n > maxHeader:
		return fmt.Errorf("byte 0: a header of %d bytes, at most %d are allowed", n, maxHeader)
	case n > uint64(len(data)-8):
		return &cutError{len(data), 8 + int(n), "header"}
	case n == 0:
		return errors.New("byte 0: a header of 0 bytes")
	}
	return fmt.Errorf("byte 8: the header begins with %q, not with {", data[8])
}
