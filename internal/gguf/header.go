package gguf

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

const (
	magic        = "GGUF"
	alignmentKey = "general.alignment"
)

// Least bytes of a key with its value, and of a tensor's entry.
const (
	minKeyBytes    = 8 + 1 + 4 + 1
	minTensorBytes = 8 + 1 + 4 + 4 + 8
)

// headerReader reads the parts of a header.
type headerReader struct{ reader }

// readHeader reads a file of size bytes, beginning with data, up to the tensors' data. The tensors have no Data yet;
// Data ends at byte end, inside the file.
func readHeader(data []byte, size int) (f *File, end int64, err error) {
	r := &headerReader{reader{data: data, size: size, of: subject{kind: "header"}}}
	f = &File{Version: r.version()}
	tensors := r.count("the number of tensors", maxTensors, minTensorBytes)
	keys := r.count("the number of keys", maxKeys, minKeyBytes)
	f.Metadata = r.metadata(keys)
	f.Alignment = r.alignment(f.Metadata)
	entries := r.entries(f, tensors)
	if r.err != nil {
		return nil, 0, r.err
	}
	end = r.layout(f, entries)
	return f, end, r.err
}

// version reads the magic and the version.
func (r *headerReader) version() uint32 {
	if r.size == 0 {
		r.err = &Error{What: "the file is empty"}
		return 0
	}
	if head := r.data[:min(len(r.data), len(magic))]; !strings.HasPrefix(magic, string(head)) {
		r.err = &Error{What: identify(r.data)}
		return 0
	}
	r.take(uint64(len(magic)), "the magic")
	at := r.off
	v := r.u32("the version")
	swapped := bits.ReverseBytes32(v)
	switch {
	case r.err != nil || v == 2 || v == 3:
	case v == 1:
		r.fail(at, "GGUF version 1 is no longer read: convert the model again", v, "2 or 3")
	case swapped > 0 && swapped < 1<<16:
		r.fail(at, fmt.Sprintf("a big-endian file, of version %d", swapped), fmt.Sprintf("%#x", v),
			"little-endian 2 or 3")
	case v > 3:
		r.fail(at, "a GGUF version newer than this program", v, "2 or 3")
	default:
		r.fail(at, "no GGUF version", v, "2 or 3")
	}
	return v
}

func (r *headerReader) metadata(n int) Metadata {
	m := Metadata{values: make(map[string]Value, n), keys: make([]string, 0, n)}
	for len(m.keys) < n && r.err == nil {
		r.of = subject{kind: "key", no: len(m.keys) + 1}
		at := r.off
		key := r.label("a key", maxKey)
		if old, ok := m.values[key]; ok {
			r.fail(at, fmt.Sprintf("key %q is already there, with a value at byte %d", key, old.off), nil, nil)
		}
		r.of.name = key
		at = r.off
		t := Type(r.u32("the type of a value"))
		if t >= numTypes {
			r.fail(at, "unknown type of value", uint32(t), fmt.Sprintf("0 to %d", numTypes-1))
		}
		if r.err != nil {
			break
		}
		m.values[key] = r.value(key, t)
		m.keys = append(m.keys, key)
	}
	return m
}

// alignment returns the value of alignmentKey, in the format a uint32.
func (r *headerReader) alignment(m Metadata) int {
	v, ok := m.values[alignmentKey]
	if !ok || r.err != nil {
		return defaultAlignment
	}
	a, err := m.Uint(alignmentKey)
	if v.typ != Uint32 || err != nil {
		r.err = v.problem("wrong type", v.describe(), Uint32.String())
	} else if a < minAlignment || a > maxAlignment || a&(a-1) != 0 {
		r.err = v.problem("bad alignment", fmt.Sprint(a),
			fmt.Sprintf("powers of two from %d to %d", minAlignment, maxAlignment))
	}
	return int(a)
}

// entry is a tensor's header entry, without the fields of a tensor.Tensor.
type entry struct {
	bytes    int    // of the data
	offset   uint64 // of the data, from the data section's beginning
	offsetAt int    // where in the header offset is, for errors
}

// entries reads n tensors into f.
func (r *headerReader) entries(f *File, n int) []entry {
	f.tensors = make([]tensor.Tensor, 0, n)
	f.index = make(map[string]int, n)
	entries := make([]entry, 0, n)
	for i := 0; i < n && r.err == nil; i++ {
		r.of = subject{kind: "tensor", no: i + 1}
		at := r.off
		t := tensor.Tensor{Name: r.label("a tensor's name", maxName)}
		if _, ok := f.index[t.Name]; ok {
			r.fail(at, fmt.Sprintf("a tensor %q is already there", t.Name), nil, nil)
		}
		r.of.name = t.Name
		t.Shape = r.shape()
		at = r.off
		t.DType = r.dtype()
		bytes, err := tensor.Bytes(t.DType, t.Shape)
		if err != nil {
			r.failWith(at, err)
		}
		at = r.off
		entries = append(entries, entry{bytes: bytes, offsetAt: at, offset: r.u64("the offset of the data")})
		f.tensors = append(f.tensors, t)
		f.index[t.Name] = i
	}
	return entries
}

// shape reads the dimensions, in GGUF with the fastest first.
func (r *headerReader) shape() tensor.Shape {
	at := r.off
	n := r.u32("the number of dimensions")
	if n > maxDimensions {
		r.fail(at, "too many dimensions", n, fmt.Sprintf("at most %d", maxDimensions))
	}
	if r.err != nil {
		return nil
	}
	s := make(tensor.Shape, n)
	for i := len(s) - 1; i >= 0; i-- {
		at = r.off
		d := r.u64("a dimension")
		if d == 0 || d > math.MaxInt {
			r.fail(at, fmt.Sprintf("bad dimension %d", len(s)-1-i), d, fmt.Sprintf("1 to %d", math.MaxInt))
			return nil
		}
		s[i] = int(d)
	}
	return s
}

func (r *headerReader) dtype() tensor.DType {
	at := r.off
	id := r.u32("the type of the elements")
	if r.err != nil {
		return tensor.Invalid
	}
	d, name := dtypeOf(id)
	if d == tensor.Invalid {
		r.fail(at, refusal(id), fmt.Sprintf("%d, %s", id, name), nil)
	}
	return d
}

// layout checks where the tensors' data lies and sets f.places. As in ggml each tensor begins at the end of its
// predecessor and the padding, so none overlap.
func (r *headerReader) layout(f *File, entries []entry) (end int64) {
	end = int64(r.off)
	base := uint64(alignUp(end, f.Alignment))
	next := uint64(0)
	f.places = make([]place, len(entries))
	for i, e := range entries {
		r.of = subject{kind: "tensor", name: f.tensors[i].Name}
		switch {
		case e.offset%uint64(f.Alignment) != 0:
			r.fail(e.offsetAt, "the data is not aligned", e.offset, fmt.Sprintf("multiples of %d", f.Alignment))
		case e.offset < next:
			r.fail(e.offsetAt, fmt.Sprintf("the data overlaps that of %q", f.tensors[i-1].Name), e.offset, next)
		case e.offset > next:
			r.fail(e.offsetAt, "a gap lies before the data", e.offset, next)
		}
		left := int64(r.size) - int64(base+next) // next is inside the file, or its padding
		if int64(e.bytes) > left {
			r.fail(e.offsetAt, "the data runs past the end of the file",
				fmt.Sprintf("%d bytes at byte %d", e.bytes, base+next), fmt.Sprintf("the %d bytes left", max(left, 0)))
			r.cutOff(entries, int64(base), f.Alignment)
		}
		if r.err != nil {
			return 0
		}
		f.places[i].offset = int64(base + next)
		end = int64(base+next) + int64(e.bytes)
		next = uint64(alignUp(end, f.Alignment)) - base
	}
	return end
}

// maxNeed is far above the size of any file of a model.
const maxNeed = 1 << 50

// cutOff adds to the error the proper size of the file, if the entries are in sequence up to the end.
func (r *headerReader) cutOff(entries []entry, base int64, alignment int) {
	e := (*Error)(nil)
	if !errors.As(r.err, &e) || e.Need > 0 {
		return
	}
	need, next := int64(0), int64(0)
	for _, x := range entries {
		if x.bytes > maxNeed || next > maxNeed || x.offset != uint64(next) {
			return
		}
		need = base + next + int64(x.bytes)
		next = alignUp(next+int64(x.bytes), alignment)
	}
	e.Size, e.Need = int64(r.size), need
}

// alignUp rounds n up to a multiple of a, a power of two.
func alignUp(n int64, a int) int64 {
	mask := int64(a) - 1
	return (n + mask) &^ mask
}
