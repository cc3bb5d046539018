package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/tensor"
)

// Writer writes a file whose tensors' data come in pieces.
type Writer struct {
	// Tensors has the tensors in the order of their data: wide elements first and then by name, as the reference's
	// writer sorts, so that each tensor is aligned.
	Tensors []tensor.Tensor

	w    io.Writer
	left int // bytes to come
}

// NewWriter writes the header of a file to w: the tensors, whose Data is not used, and metadata, which may be nil.
// Equal tensors and metadata give equal bytes, whatever the order of the tensors. The metadata is sorted by key and the
// header padded with spaces to a multiple of 8 bytes.
//
// The tensors' types must be known to Open, and names unique. Errors come before the first byte is written.
func NewWriter(w io.Writer, tensors []tensor.Tensor, metadata map[string]string) (*Writer, error) {
	g := &Writer{Tensors: slices.Clone(tensors), w: w}
	slices.SortStableFunc(g.Tensors, func(a, b tensor.Tensor) int {
		return cmp.Or(-cmp.Compare(slices.Index(dtypes[:], a.DType), slices.Index(dtypes[:], b.DType)),
			cmp.Compare(a.Name, b.Name))
	})
	var header []byte
	var err error
	if header, g.left, err = appendHeader(nil, g.Tensors, metadata); err == nil {
		_, err = w.Write(header)
	}
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return g, nil
}

// Write appends p to the tensors' data. Data is in the order of Tensors without gaps, in pieces of any size.
func (g *Writer) Write(p []byte) (int, error) {
	if len(p) > g.left {
		return 0, fmt.Errorf("write: %d bytes, but only %d are left of the tensors' data", len(p), g.left)
	}
	n, err := g.w.Write(p)
	g.left -= n
	return n, err
}

// Close reports whether all the data was written. The underlying writer stays open.
func (g *Writer) Close() error {
	if g.left > 0 {
		return fmt.Errorf("write: %d bytes of the tensors' data are missing", g.left)
	}
	return nil
}

// Write writes a file with tensors, including their Data, and metadata, as NewWriter does.
func Write(w io.Writer, tensors []tensor.Tensor, metadata map[string]string) error {
	if _, err := NewWriter(io.Discard, tensors, metadata); err != nil {
		return err
	}
	for _, t := range tensors {
		if size, _ := tensor.Bytes(t.DType, t.Shape); size != len(t.Data) { // the error would be NewWriter's
			return fmt.Errorf("write: tensor %q: %d bytes, but %v of shape %v has %d", t.Name, len(t.Data), t.DType,
				t.Shape, size)
		}
	}
	g, err := NewWriter(w, tensors, metadata)
	if err != nil {
		return err
	}
	for _, t := range g.Tensors {
		if _, err := g.Write(t.Data); err != nil {
			return fmt.Errorf("write: tensor %q: %w", t.Name, err)
		}
	}
	return g.Close()
}

// WriteFile writes a file as Write does. The file appears at path, in place of another file but of nothing else, when
// all of its bytes are on the disk. An error leaves path unchanged.
func WriteFile(path string, tensors []tensor.Tensor, metadata map[string]string) error {
	err := atomicfile.Write(path, func(w io.Writer) error { return Write(w, tensors, metadata) })
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// appendHeader appends the header and its length, checked by the reader's rules, and returns the size of the data.
func appendHeader(b []byte, tensors []tensor.Tensor, metadata map[string]string) (_ []byte, size int, err error) {
	if len(tensors) > maxTensors || len(metadata) > maxMetadata {
		return nil, 0, fmt.Errorf("%d tensors and %d metadata, at most %d and %d are allowed", len(tensors),
			len(metadata), maxTensors, maxMetadata)
	}
	b = append(b, make([]byte, 8)...)
	b = append(b, '{')
	if metadata != nil {
		b = append(b, `"`+metadataKey+`":{`...)
		for _, k := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
				return nil, 0, fmt.Errorf("metadata %q is not UTF-8", k)
			}
			b = appendString(append(appendString(separate(b), k), ':'), metadata[k])
		}
		b = append(b, '}')
	}
	seen := map[string]bool{metadataKey: true}
	for i := range tensors {
		t := &tensors[i]
		n, err := checkTensor(t)
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("tensor %q: %w", t.Name, err)
		case seen[t.Name]:
			return nil, 0, fmt.Errorf("tensor %q: the name is taken", t.Name)
		case n > math.MaxInt-size:
			return nil, 0, fmt.Errorf("tensor %q: more bytes than an int holds", t.Name)
		}
		seen[t.Name] = true
		b = appendEntry(separate(b), t, size, size+n)
		size += n
	}
	b = append(b, '}')
	b = append(b, bytes.Repeat([]byte{' '}, -len(b)&7)...)
	if len(b)-8 > maxHeader {
		return nil, 0, fmt.Errorf("a header of %d bytes, at most %d are allowed", len(b)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, size, nil
}

// checkTensor refuses tensors that a reader would not accept, and returns the size.
func checkTensor(t *tensor.Tensor) (int, error) {
	if !slices.Contains(dtypes[:], t.DType) {
		return 0, fmt.Errorf("%v is no safetensors dtype", t.DType)
	}
	if len(t.Name) > maxName || !utf8.ValidString(t.Name) {
		return 0, fmt.Errorf("a name is at most %d bytes of UTF-8", maxName)
	}
	if len(t.Shape) > maxDims {
		return 0, fmt.Errorf("%d dimensions, at most %d are allowed", len(t.Shape), maxDims)
	}
	return tensor.Bytes(t.DType, t.Shape)
}

// appendEntry appends the header's entry of t, whose data is at bytes at to end.
func appendEntry(b []byte, t *tensor.Tensor, at, end int) []byte {
	b = append(appendString(b, t.Name), `:{"dtype":"`+t.DType.String()+`","shape":[`...)
	for _, n := range t.Shape {
		b = strconv.AppendInt(separate(b), int64(n), 10)
	}
	b = strconv.AppendInt(append(b, `],"data_offsets":[`...), int64(at), 10)
	b = strconv.AppendInt(append(b, ','), int64(end), 10)
	return append(b, "]}"...)
}

// separate appends a comma unless b is at the beginning of a list.
func separate(b []byte) []byte {
	if c := b[len(b)-1]; c != '{' && c != '[' {
		b = append(b, ',')
	}
	return b
}

// appendString appends a JSON string, without the escapes for HTML.
func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.Encode(s) // of a string to memory: cannot fail
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}
