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

// IsDecoded reports whether bytes of t, or of a part of t, are computed on reading.
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

// Coded is a matrix of floats in the form of the codes behind its values: of a quantized type, or of F8_32. The type's
// scales are multiplied by Mul, divided by Div and rounded.
type Coded struct {
	Tensor
	Mul, Div float32
	Columns  []int // the place of each column in the tensor of floats; nil in order
}

// Coded returns the codes behind t, a matrix of floats. Coded reports false where values are no codes times scales.
func (t *Tensor) Coded() (c Coded, ok bool) {
	v, is := t.Source.(interface {
		Coded(from, to int) (Coded, bool)
	})
	if !is || !t.DType.Float() || t.Shape.Last() == 0 {
		return c, false
	}
	row := int64(t.DType.RowBytes(t.Shape.Last()))
	from := int(t.At / row)
	if c, ok = v.Coded(from, from+t.Rows()); ok {
		c.Name, c.Shape, c.Order = t.Name, t.Shape, t.Order
		if c.Source != nil {
			c.At += t.At / row * int64(c.DType.RowBytes(t.Shape.Last()))
		}
	}
	return c, ok
}

// CodeType returns the type of the codes behind t's values, where products of integers read these, else t's type. The
// codes of a stack's matrices have one type.
func (t *Tensor) CodeType() DType {
	if !t.DType.Float() {
		return t.DType
	}
	if len(t.Shape) < 3 || t.Source == nil {
		if c, ok := t.Coded(); ok && c.DType.Quantized() {
			return c.DType
		}
		return t.DType
	}
	first := t.Matrix(0)
	d := first.CodeType()
	for i := 1; d != t.DType && i < t.Shape[0]; i++ {
		if m := t.Matrix(i); m.CodeType() != d {
			return t.DType
		}
	}
	return d
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

// strided is the Source of a tensor with units in another order in a file. A unit is an element, or of a type with
// blocks a row. The unit at index (i, j, k) is unit first + i·step[0] + j·step[1] + k·step[2] of in.
type strided struct {
	in    Tensor
	size  int // bytes of a unit
	dims  [3]int
	step  [3]int
	first int
}

// view returns t's units in order. t has two dimensions or three.
func view(t Tensor) strided {
	if v, ok := t.Source.(strided); ok {
		return v
	}
	n := len(t.Shape)
	v := strided{in: t, size: t.DType.BlockBytes(), dims: [3]int{1, t.Shape[n-2], t.Shape[n-1]}}
	if n == 3 {
		v.dims[0] = t.Shape[0]
	}
	if t.DType.Quantized() {
		v.size, v.dims[2] = t.DType.RowBytes(t.Shape.Last()), 1
	}
	v.step = [3]int{v.dims[1] * v.dims[2], v.dims[2], 1}
	return v
}

// wrap returns t with another shape, and the bytes of v.
func (v strided) wrap(t Tensor, shape Shape) Tensor {
	t.Shape, t.Data, t.Source, t.At = shape, nil, v, 0
	return t
}

// Turn returns t with its last two dimensions exchanged, without copying. t has two or three dimensions, and a type
// without blocks.
func Turn(t Tensor) Tensor {
	v, n := view(t), len(t.Shape)
	v.dims[1], v.dims[2] = v.dims[2], v.dims[1]
	v.step[1], v.step[2] = v.step[2], v.step[1]
	return v.wrap(t, append(append(Shape{}, t.Shape[:n-2]...), t.Shape[n-1], t.Shape[n-2]))
}

// Pick returns every step-th from first on along t's second dimension: rows of each of several matrices, or elements of
// each row of a matrix without blocks. Nothing is copied.
func Pick(t Tensor, first, step int) Tensor {
	v, d := view(t), 1
	if len(t.Shape) == 2 {
		d = 2
	}
	count := (v.dims[d] - first + step - 1) / step
	v.first += first * v.step[d]
	v.dims[d], v.step[d] = count, v.step[d]*step
	shape := append(Shape{}, t.Shape...)
	shape[1] = count
	return v.wrap(t, shape)
}

// Regroup returns the matrix t with its columns, outer times inner runs, as inner times outer runs. Nothing is copied.
// A run is of whole blocks.
func Regroup(t Tensor, outer, inner int) Tensor {
	v := strided{in: t, size: t.DType.RowBytes(t.Shape[1] / (outer * inner)), dims: [3]int{t.Shape[0], inner, outer}}
	v.step = [3]int{outer * inner, 1, inner}
	return v.wrap(t, t.Shape)
}

// Cut returns the part-th of equal runs of rows of t, or of each of its matrices. Nothing is copied.
func Cut(t Tensor, part, of int) Tensor {
	n := len(t.Shape)
	rows := t.Shape[n-2] / of
	shape := append(Shape{}, t.Shape...)
	shape[n-2] = rows
	if size := rows * t.DType.RowBytes(t.Shape.Last()); n == 2 && t.Source == nil && t.Data != nil {
		t.Shape, t.Data = shape, t.Data[part*size:(part+1)*size]
		return t
	}
	if _, ok := t.Source.(Decoded); ok && n == 2 {
		t.At += int64(part * rows * t.DType.RowBytes(t.Shape.Last()))
		t.Shape = shape
		return t
	}
	if _, view := t.Source.(strided); n == 3 && !view {
		parts := make(Joined, t.Shape[0])
		for i := range parts {
			parts[i] = Cut(t.Matrix(i), part, of)
		}
		t.Shape, t.Data, t.Source, t.At = shape, nil, parts, 0
		return t
	}
	v := view(t)
	v.first += part * rows * v.step[1]
	v.dims[1] = rows
	return v.wrap(t, shape)
}

// Stack returns the tensor that Cut would cut into parts, without copying. All parts have the same type and shape.
func Stack(name string, parts []Tensor) Tensor {
	t, n := parts[0], len(parts[0].Shape)
	v := woven{parts, t.DType.RowBytes(t.Shape.Last()) * t.Shape[n-2]}
	t.Name, t.Shape, t.Data, t.Source, t.At = name, append(Shape{}, t.Shape...), nil, v, 0
	t.Shape[n-2] *= len(parts)
	return t
}

// ReadAt implements io.ReaderAt.
func (v strided) ReadAt(p []byte, off int64) (n int, err error) {
	return ReadUnits(p, off, v.size, v.dims[0]*v.dims[1]*v.dims[2], v.units)
}

// ReadUnits is ReadAt over units of size bytes, set by read from a unit on. Where p begins or ends within a
// unit, the whole unit is read and a part copied to p.
func ReadUnits(p []byte, off int64, size, count int, read func(p []byte, first int) error) (n int, err error) {
	if all := int64(size) * int64(count); off < 0 || off > all {
		return 0, io.EOF
	} else if int64(len(p)) > all-off {
		p, err = p[:all-off], io.EOF
	}
	var part []byte
	for n < len(p) {
		at, in := (int(off)+n)/size, (int(off)+n)%size
		if whole := (len(p) - n) / size * size; in == 0 && whole > 0 {
			if err := read(p[n:n+whole], at); err != nil {
				return n, err
			}
			n += whole
			continue
		}
		if part == nil {
			part = make([]byte, size)
		}
		if err := read(part, at); err != nil {
			return n, err
		}
		n += copy(p[n:], part[in:])
	}
	return n, err
}

// units sets p to whole units from first on.
func (v strided) units(p []byte, first int) error {
	matrix, end := v.dims[1]*v.dims[2], first+len(p)/v.size
	for at := first; at < end; {
		i := at / matrix
		stop := min(end, (i+1)*matrix)
		if err := v.read(p[(at-first)*v.size:(stop-first)*v.size], i, at-i*matrix); err != nil {
			return err
		}
		at = stop
	}
	return nil
}

// read sets p to matrix i's units from from on, in the order of memory.
func (v strided) read(p []byte, i, from int) error {
	rows, columns := v.dims[1], v.dims[2]
	end, base := from+len(p)/v.size, v.first+i*v.step[0]
	if v.step[2] == 1 { // runs of columns
		for at := from; at < end; {
			n := min(end-at, columns-at%columns)
			run := p[(at-from)*v.size:][:n*v.size]
			if err := v.in.bytes(run, (base+at/columns*v.step[1]+at%columns)*v.size); err != nil {
				return err
			}
			at += n
		}
		return nil
	}
	if v.step[2] <= v.step[1] {
		for at := from; at < end; at++ {
			if err := v.unit(p[(at-from)*v.size:], base+at/columns*v.step[1]+at%columns*v.step[2]); err != nil {
				return err
			}
		}
		return nil
	}
	for k := range columns {
		for j := max(0, (from-k+columns-1)/columns); j < rows && j*columns+k < end; j++ {
			if err := v.unit(p[(j*columns+k-from)*v.size:], base+j*v.step[1]+k*v.step[2]); err != nil {
				return err
			}
		}
	}
	return nil
}

// unit copies a stored unit.
func (v strided) unit(p []byte, at int) error { return v.in.bytes(p[:v.size], at*v.size) }

// bytes copies t's bytes from an offset on.
func (t *Tensor) bytes(p []byte, off int) error {
	if t.Source == nil {
		copy(p, t.Data[off:])
		return nil
	}
	if n, err := t.Source.ReadAt(p, t.At+int64(off)); n < len(p) { // else io.EOF is no error
		return err
	}
	return nil
}

// Origin returns the bytes of files behind t.
func (t *Tensor) Origin() (parts [][]byte) {
	switch v := t.Source.(type) {
	case nil:
		return [][]byte{t.Data}
	case Joined:
		for i := range v {
			parts = append(parts, v[i].Origin()...)
		}
		return parts
	case strided:
		return v.in.Origin()
	case interface{ Origin() [][]byte }:
		return v.Origin()
	}
	return nil
}

// woven is the Source of a tensor with the units of several, by turns.
type woven struct {
	parts []Tensor
	size  int // bytes of a unit
}

// Origin returns the bytes of files behind the parts.
func (v woven) Origin() (parts [][]byte) {
	for i := range v.parts {
		parts = append(parts, v.parts[i].Origin()...)
	}
	return parts
}

// Weave returns the tensor that Pick would take apart, without copying. All parts have the same type and shape.
func Weave(name string, parts []Tensor) Tensor {
	t := parts[0]
	v := woven{parts, t.DType.BlockBytes()}
	t.Name, t.Shape, t.Data, t.Source, t.At = name, append(Shape{}, t.Shape...), nil, v, 0
	if len(t.Shape) > 2 {
		v.size = t.DType.RowBytes(t.Shape.Last())
		t.Source = v
	}
	t.Shape[min(1, len(t.Shape)-1)] *= len(parts)
	return t
}

// ReadAt implements io.ReaderAt.
func (v woven) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := int(off) + n
		unit, in := at/v.size, at%v.size
		part := &v.parts[unit%len(v.parts)]
		from := unit/len(v.parts)*v.size + in
		if from >= part.Size() {
			return n, io.EOF
		}
		size := min(v.size-in, len(p)-n)
		if err := part.bytes(p[n:n+size], from); err != nil {
			return n, err
		}
		n += size
	}
	return n, nil
}

// gathered is the Source of a tensor with the rows of several.
type gathered struct {
	parts []Tensor
	size  int // bytes of a row
	rows  int
	at    func(row int) (part, from int)
}

// Gather returns a matrix of so many rows of parts: at tells the part of a row, and its row there. All parts have the
// same type and width. Nothing is copied.
func Gather(name string, parts []Tensor, rows int, at func(row int) (part, from int)) Tensor {
	t := parts[0]
	v := gathered{parts, t.DType.RowBytes(t.Shape.Last()), rows, at}
	t.Name, t.Shape, t.Data, t.Source, t.At = name, Shape{rows, t.Shape.Last()}, nil, v, 0
	return t
}

// Origin returns the bytes of files behind the parts.
func (v gathered) Origin() [][]byte { return woven{parts: v.parts}.Origin() }

// ReadAt implements io.ReaderAt.
func (v gathered) ReadAt(p []byte, off int64) (n int, err error) {
	return ReadUnits(p, off, v.size, v.rows, func(p []byte, first int) error {
		for i := 0; i < len(p); i += v.size {
			part, from := v.at(first + i/v.size)
			if err := v.parts[part].bytes(p[i:i+v.size], from*v.size); err != nil {
				return err
			}
		}
		return nil
	})
}
