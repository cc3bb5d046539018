package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/tensor"
)

// Write writes tensors and metadata, which may be nil, as one file. The bytes
// depend on nothing else, and not on the order of the tensors: these are sorted
// as the reference's writer sorts them, wide elements first and then by name, so
// that each is aligned. The metadata is sorted by key and the header padded with
// spaces to a multiple of 8 bytes.
//
// The tensors' types are those that Open reads, their names unique. The error of
// a tensor that cannot be written comes before the first byte.
func Write(w io.Writer, tensors []tensor.Tensor, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b tensor.Tensor) int {
		return cmp.Or(-cmp.Compare(slices.Index(dtypes[:], a.DType), slices.Index(dtypes[:], b.DType)), cmp.Compare(a.Name, b.Name))
	})
	header, err := appendHeader(nil, tensors, metadata)
	if err != nil {
		return fmt.Errorf("safetensors: write: %w", err)
	}
	if _, err := w.Write(header); err != nil {
		return fmt.Errorf("safetensors: write: %w", err)
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return fmt.Errorf("safetensors: write: tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// WriteFile writes a file as Write does. The file appears at path, in place of
// another file but of nothing else, when all of it is on the disk; an error leaves
// path as it was.
func WriteFile(path string, tensors []tensor.Tensor, metadata map[string]string) error {
	err := atomicfile.Write(path, func(w io.Writer) error { return Write(w, tensors, metadata) })
	if err != nil {
		return fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return nil
}

// appendHeader appends the header and its length, having checked that a reader
// will accept them.
func appendHeader(b []byte, tensors []tensor.Tensor, metadata map[string]string) ([]byte, error) {
	if len(tensors) > maxTensors || len(metadata) > maxMetadata {
		return nil, fmt.Errorf("%d tensors and %d metadata, at most %d and %d are allowed", len(tensors), len(metadata), maxTensors, maxMetadata)
	}
	b = append(b, make([]byte, 8)...)
	b = append(b, '{')
	if metadata != nil {
		b = append(b, `"`+metadataKey+`":{`...)
		for _, k := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
				return nil, fmt.Errorf("metadata %q is not UTF-8", k)
			}
			b = appendString(append(appendString(separate(b), k), ':'), metadata[k])
		}
		b = append(b, '}')
	}
	seen, at := map[string]bool{metadataKey: true}, 0
	for i := range tensors {
		t := &tensors[i]
		if err := checkTensor(t); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor %q: the name is taken", t.Name)
		}
		seen[t.Name] = true
		b = appendEntry(separate(b), t, at)
		at += len(t.Data)
	}
	b = append(b, '}')
	b = append(b, bytes.Repeat([]byte{' '}, -len(b)&7)...)
	if len(b)-8 > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes, at most %d are allowed", len(b)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, nil
}

// checkTensor reports what a reader would not accept.
func checkTensor(t *tensor.Tensor) error {
	if !slices.Contains(dtypes[:], t.DType) {
		return fmt.Errorf("%v is no safetensors dtype", t.DType)
	}
	if len(t.Name) > maxName || !utf8.ValidString(t.Name) {
		return fmt.Errorf("a name is at most %d bytes of UTF-8", maxName)
	}
	if len(t.Shape) > maxDims {
		return fmt.Errorf("%d dimensions, at most %d are allowed", len(t.Shape), maxDims)
	}
	size, err := tensor.Bytes(t.DType, t.Shape)
	if err == nil && size != len(t.Data) {
		err = fmt.Errorf("%d bytes, but %v of shape %v has %d", len(t.Data), t.DType, t.Shape, size)
	}
	return err
}

// appendEntry appends what the header says of t, whose data begins at at.
func appendEntry(b []byte, t *tensor.Tensor, at int) []byte {
	b = append(appendString(b, t.Name), `:{"dtype":"`+t.DType.String()+`","shape":[`...)
	for _, n := range t.Shape {
		b = strconv.AppendInt(separate(b), int64(n), 10)
	}
	b = strconv.AppendInt(append(b, `],"data_offsets":[`...), int64(at), 10)
	b = strconv.AppendInt(append(b, ','), int64(at+len(t.Data)), 10)
	return append(b, "]}"...)
}

// separate appends a comma after all but the beginning of a list.
func separate(b []byte) []byte {
	if c := b[len(b)-1]; c != '{' && c != '[' {
		b = append(b, ',')
	}
	return b
}

// appendString appends a JSON string, without the escapes that only HTML needs.
func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.Encode(s) // of a string to memory: cannot fail
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}
