package tensor

import (
	"fmt"
	"io"
)

// Joined is the Source of a tensor with separate tensors as matrices, in order.
type Joined []Tensor

// Join returns parts of one type and shape as one tensor [parts, shape of a part], without copying.
func Join(name string, parts []Tensor) (Tensor, error) {
	t := Tensor{Name: name, DType: parts[0].DType, Shape: append(Shape{len(parts)}, parts[0].Shape...),
		Source: Joined(parts)}
	for _, p := range parts[1:] {
		if p.DType != t.DType || fmt.Sprint(p.Shape) != fmt.Sprint(parts[0].Shape) {
			return t, fmt.Errorf("%v %v, expected %v %v as %s is", p.DType, []int(p.Shape), t.DType,
				[]int(parts[0].Shape), parts[0].Name)
		}
	}
	_, err := Bytes(t.DType, t.Shape)
	return t, err
}

// ReadAt implements io.ReaderAt.
func (j Joined) ReadAt(p []byte, off int64) (n int, err error) {
	size := int64(j[0].Size())
	for n < len(p) {
		at := off + int64(n)
		if size == 0 || at >= size*int64(len(j)) {
			return n, io.EOF
		}
		part := p[n:min(len(p), n+int(size-at%size))]
		if err := j[at/size].bytes(part, int(at%size)); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Stored returns the number of t's bytes in files, perhaps fewer than its decoded values.
func (t *Tensor) Stored() (n int) {
	switch v := t.Source.(type) {
	case Joined:
		for i := range v {
			n += v[i].Stored()
		}
		return n
	case strided:
		part := v.in
		part.Shape = t.Shape
		return part.Stored()
	case Decoded:
		return v.Stored(t.Shape.Size())
	}
	return t.Size()
}

// Decoded is a Source with bytes computed on reading.
type Decoded interface {
	io.ReaderAt
	// Stored returns the number of bytes of some elements in the files.
	Stored(elements int) int
}

// IsDecoded reports whether t's bytes, or those of its parts, are computed on reading.
func (t *Tensor) IsDecoded() bool {
	switch v := t.Source.(type) {
	case Joined:
		return v[0].IsDecoded()
	case strided:
		return v.in.IsDecoded()
	case Decoded:
		return true
	}
	return false
}

// Unread is the Source of an unreadable tensor, refused at binding.
type Unread struct{ Err error }

// ReadAt implements io.ReaderAt.
func (u Unread) ReadAt([]byte, int64) (int, error) { return 0, u.Err }

// Whole returns t with Data, read from a Source if need be.
func (t *Tensor) Whole() (Tensor, error) {
	if t.Source == nil {
		return *t, nil
	}
	p, err := t.Part(0, t.Rows())
	p.Shape = t.Shape
	return p, err
}

// Matrix returns the i-th part of t along its first dimension, without copying.
func (t *Tensor) Matrix(i int) Tensor {
	if parts, ok := t.Source.(Joined); ok {
		return parts[i]
	}
	size := t.Size() / t.Shape[0]
	m := Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape[1:], Source: t.Source, At: t.At + int64(i*size)}
	if t.Source == nil {
		m.Data, m.At = t.Data[i*size:(i+1)*size], 0
	}
	return m
}
