package gguf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// Writer writes a GGUF file of version 3. NewWriter writes the header; the tensors' data follow through Write.
type Writer struct {
	w         io.Writer
	alignment int
	left      []int // bytes still to come of each incomplete tensor
	written   int64
	err       error // first failed write
}

// NewWriter writes the header to w: the metadata in order, and the tensors, whose Data is not used. The alignment is
// metadata's general.alignment, a uint32, else 32. Anything that Open would refuse is an error, before a byte is
// written.
func NewWriter(w io.Writer, metadata []KeyValue, tensors []tensor.Tensor) (*Writer, error) {
	b, err := appendHeader(metadata, tensors)
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	// Reading the header back holds the writer to all of the reader's rules.
	f, _, err := readHeader(b[:min(len(b), maxHeader)], math.MaxInt)
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	g := &Writer{w: w, alignment: f.Alignment, left: make([]int, len(tensors))}
	for i, t := range f.tensors {
		if g.left[i], err = tensor.Bytes(t.DType, t.Shape); err != nil {
			return nil, fmt.Errorf("write: tensor %q: %w", t.Name, err)
		}
	}
	g.put(b)
	g.pad()
	return g, g.err
}

// MetadataOf returns the metadata of a file with these keys.
func MetadataOf(keys []KeyValue) (Metadata, error) {
	b, err := appendHeader(keys, nil)
	if err != nil {
		return Metadata{}, err
	}
	f, _, err := readHeader(b, math.MaxInt)
	if err != nil {
		return Metadata{}, err
	}
	return f.Metadata, nil
}

// Write appends p to the tensors' data. Data is in the order of the tensors, in pieces of any size; the padding between
// tensors is the Writer's work.
func (g *Writer) Write(p []byte) (n int, err error) {
	for n < len(p) && g.err == nil {
		if len(g.left) == 0 {
			g.err = errors.New("write: more data than the tensors hold")
			break
		}
		size := min(len(p)-n, g.left[0])
		g.put(p[n : n+size])
		n += size
		if g.left[0] -= size; g.left[0] == 0 {
			g.left = g.left[1:]
			g.pad()
		}
	}
	return n, g.err
}

// Close reports whether all the data was written. The underlying writer stays open.
func (g *Writer) Close() error {
	if g.err == nil && len(g.left) > 0 {
		g.err = fmt.Errorf("write: the data of %d tensors is not complete", len(g.left))
	}
	return g.err
}

func (g *Writer) put(b []byte) {
	if g.err == nil {
		var n int
		n, g.err = g.w.Write(b)
		g.written += int64(n)
	}
}

func (g *Writer) pad() { g.put(make([]byte, alignUp(g.written, g.alignment)-g.written)) }

// Write writes a whole file to w: the metadata, and the tensors with their Data.
func Write(w io.Writer, metadata []KeyValue, tensors []tensor.Tensor) error {
	g, err := NewWriter(w, metadata, tensors)
	if err != nil {
		return err
	}
	for i, t := range tensors {
		if len(t.Data) != g.left[0] {
			return fmt.Errorf("write: tensor %q (%d): Data has %d bytes, not %d", t.Name, i, len(t.Data), g.left[0])
		}
		if _, err := g.Write(t.Data); err != nil {
			return err
		}
	}
	return g.Close()
}

// WriteFile makes or replaces the file at path with the output of write. Until all bytes are on disk, they are in
// another file of the same folder; an error leaves no trace, and the file at path unchanged. Anything at path but a
// regular file is an error.
func WriteFile(path string, write func(io.Writer) error) error {
	err := atomicfile.Write(path, func(f io.Writer) error {
		w := bufio.NewWriterSize(f, 1<<20)
		if err := write(w); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return fmt.Errorf("write: %s: %w", path, err)
	}
	return nil
}

// KeyValue is a metadata key with its value. A value is of a type that Value.Any returns (uint8 to float64, bool,
// string, slices of these, []any of slices), or a Value of another file, whose bytes are copied.
type KeyValue struct {
	Key   string
	Value any
}

// appendHeader returns the bytes before the tensors' data and its padding.
func appendHeader(metadata []KeyValue, tensors []tensor.Tensor) (b []byte, err error) {
	alignment := defaultAlignment
	b = append(b, magic...)
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(len(metadata)))
	for _, kv := range metadata {
		b = appendString(b, kv.Key)
		if b, err = appendValue(b, kv.Value); err != nil {
			return nil, fmt.Errorf("key %q: %w", kv.Key, err)
		}
		if a, ok := kv.Value.(uint32); ok && kv.Key == alignmentKey {
			alignment = int(a)
		}
	}
	offset := int64(0)
	for _, t := range tensors {
		id, ok := idOf(t.DType)
		if !ok {
			return nil, fmt.Errorf("tensor %q: GGUF has no elements of type %v", t.Name, t.DType)
		}
		b = appendString(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Shape)))
		for i := len(t.Shape) - 1; i >= 0; i-- {
			b = le.AppendUint64(b, uint64(t.Shape[i]))
		}
		b = le.AppendUint32(b, id)
		b = le.AppendUint64(b, uint64(offset))
		n, err := tensor.Bytes(t.DType, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		offset = alignUp(offset+int64(n), alignment)
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends x after its type.
func appendValue(b []byte, x any) ([]byte, error) {
	if v, ok := x.(Value); ok {
		b = le.AppendUint32(b, uint32(v.typ))
		err := mmap.Guard(func() error {
			b = append(b, v.data...)
			return nil
		})
		return b, err
	}
	t, err := typeOf(reflect.TypeOf(x))
	if err != nil {
		return nil, err
	}
	return appendBody(le.AppendUint32(b, uint32(t)), x)
}

// appendBody appends x without its type.
func appendBody(b []byte, x any) ([]byte, error) {
	switch x := x.(type) {
	case string:
		return appendString(b, x), nil
	case []string:
		b = le.AppendUint32(b, uint32(String))
		b = le.AppendUint64(b, uint64(len(x)))
		for _, s := range x {
			b = appendString(b, s)
		}
		return b, nil
	case []any:
		return appendArrays(b, x)
	}
	if v := reflect.ValueOf(x); v.Kind() == reflect.Slice {
		elem, err := typeOf(v.Type().Elem())
		if err != nil {
			return nil, err
		}
		b = le.AppendUint32(b, uint32(elem))
		b = le.AppendUint64(b, uint64(v.Len()))
	}
	return binary.Append(b, le, x)
}

func appendArrays(b []byte, arrays []any) (_ []byte, err error) {
	b = le.AppendUint32(b, uint32(Array))
	b = le.AppendUint64(b, uint64(len(arrays)))
	for _, x := range arrays {
		if reflect.ValueOf(x).Kind() != reflect.Slice {
			return nil, fmt.Errorf("a %T among arrays", x)
		}
		if b, err = appendBody(b, x); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// typeOf returns the format's type for values of t.
func typeOf(t reflect.Type) (Type, error) {
	if t != nil {
		if t.Kind() == reflect.Slice {
			return Array, nil
		}
		for i := range numTypes {
			if i != Array && types[i].name == t.Kind().String() {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("GGUF has no values of type %v", t)
}

const (
	firstRead = 1 << 20 // of a header
	small     = 1 << 20 // bytes of a tensor read at once
	smallest  = 1 << 16 // likewise of a quantized tensor, mostly packed elsewhere
)

// Source is a file that cannot be mapped: the bytes, or a reader of the bytes.
type Source struct {
	Name string // NAME-00001-of-0000N.gguf tells a part's place in a split model
	Data []byte // the whole file; nil if At reads the file

	At   io.ReaderAt
	Size int64 // size of the file behind At
}

// Read reads a file that cannot be mapped, or all parts of a split model, in any order. Large tensors of files without
// Data have a Source in place of Data. All files must stay readable, and their Data unchanged, while the File is used.
func Read(files ...Source) (*File, error) {
	if len(files) == 0 {
		return nil, errors.New("a model of no files")
	}
	prefix, _, count, split := splitName(files[0].Name)
	if !split {
		if len(files) > 1 {
			return nil,
				fmt.Errorf("%s is no part of a split model, whose %d files would be named NAME-00001-of-%05[2]d.gguf",
					files[0].Name, len(files))
		}
		f, err := files[0].read()
		if err == nil {
			err = f.checkAlone()
		}
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	if len(files) > count {
		return nil, fmt.Errorf("%d files, %s is one of %d", len(files), files[0].Name, count)
	}
	return openSplit(prefix, count, func(path, what string) (*File, error) {
		i := slices.IndexFunc(files, func(s Source) bool { return s.Name == path })
		if i < 0 {
			return nil, fmt.Errorf("%s%s is not among the files", what, path)
		}
		return files[i].read()
	})
}

// read reads a file without looking at its place in a split model.
func (s *Source) read() (f *File, err error) {
	switch {
	case s.Data != nil:
		f, err = parse(s.Data)
	case s.At != nil:
		f, err = s.readPieces()
	default:
		err = errors.New("neither its Data nor At is there")
	}
	if err != nil {
		return nil, withPath(err, s.Name)
	}
	f.parts[0].path = s.Name
	return f, nil
}

// readPieces reads a file, and leaves large tensors unread.
func (s *Source) readPieces() (*File, error) {
	if int64(int(s.Size)) != s.Size || s.Size < 0 {
		return nil, fmt.Errorf("a file of %d bytes", s.Size)
	}
	f, err := readStart(s.At, int(s.Size))
	if err != nil {
		return nil, err
	}
	return f, f.fill(func(t *tensor.Tensor, at int64, size int) error {
		if size > small || size > smallest && t.DType.Quantized() {
			t.Source, t.At = s.At, at
			return nil
		}
		t.Data = make([]byte, size)
		return readFull(s.At, t.Data, at)
	})
}

// readStart reads the header, and as little behind the header as is easy.
func readStart(r io.ReaderAt, size int) (*File, error) {
	var data []byte
	for n := firstRead; ; n *= 4 {
		had := len(data)
		data = append(data, make([]byte, min(n, size, maxHeader)-had)...)
		if err := readFull(r, data[had:], int64(had)); err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		f, err := readFile(data, size)
		if err == nil { // again, of the header alone: the bytes stay in memory
			end := len(data)
			for _, p := range f.places {
				end = min(end, int(p.offset))
			}
			return readFile(bytes.Clone(data[:end]), size)
		}
		if len(data) == min(size, maxHeader) { // else the cause may be a lack of bytes
			return f, err
		}
	}
}

// readFull reads all of b.
func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n < len(b) {
		return fmt.Errorf("%d of %d bytes at %d: %w", n, len(b), at, err)
	}
	return nil
}
