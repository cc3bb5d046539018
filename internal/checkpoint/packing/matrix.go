package packing

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"unsafe"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// matrix is the Source of a weight that lies in files as codes: a value is (value of the code - zero) * scale + bias,
// whose product and sum round to float32.
type matrix struct {
	codes interface {
		read(q []byte, row, from int)
	}
	values            *[256]float32 // by code
	scale, zero, bias grid
	rows, columns     int
	group             int      // columns of a group
	tall              int      // rows of a scale; 0 as 1
	each              int      // rows of each of several matrices, where tall is set
	groups            []int    // of columns, where these are in another order; else nil
	count             int      // of groups
	inBF16            bool     // BF16 holds all values
	halves            bool     // scales are F16
	bounded           bool     // zero points have the bits of codes
	origin            [][]byte // bytes of the files
	plain, factor     grid     // of NVFP4: the parts of scale, a product or a quotient; else nil
	divides           bool     // plain is divided by factor
	coded             *blocks  // the codes behind values of float types, or nil
}

// tensor returns the weight of a module.
func (x *matrix) tensor(m *module, shape tensor.Shape) (tensor.Tensor, error) {
	for _, ending := range slices.Sorted(maps.Keys(m.parts)) {
		if kinds[ending] == codesPart || kinds[ending] == ofCodes {
			x.origin = append(x.origin, m.parts[ending].Data)
		}
	}
	t := tensor.Tensor{Name: m.name + ".weight", DType: tensor.F32, Shape: shape, Source: x}
	if m.bare {
		t.Name = m.name
	}
	if d := x.exact(); d != tensor.Invalid {
		t.DType, t.Source = d, &blocks{x, d}
	} else if x.code(); x.inBF16 {
		t.DType = tensor.BF16
	}
	_, err := tensor.Bytes(t.DType, shape)
	return t, err
}

// Stored returns the number of bytes that the files have of some of the weight's elements.
func (x *matrix) Stored(elements int) int {
	all := 0
	for _, b := range x.origin {
		all += len(b)
	}
	return int(float64(all) * float64(elements) / float64(max(1, x.rows*x.columns)))
}

// divide sets the columns of a group, all of them where size is less than 1, and returns the number of groups.
func (x *matrix) divide(size int) int {
	if x.group = x.columns; size > 0 {
		x.group = min(size, x.columns)
	}
	return upTo(x.columns, x.group)
}

// order sets the group of each column. Of columns in order nothing is kept.
func (x *matrix) order(ending string, t tensor.Tensor, groups int) error {
	x.groups, x.count = make([]int, x.columns), groups
	unset, sorted, counts := 0, true, make([]int, groups)
	for i := range x.groups {
		g := int(int32(binary.LittleEndian.Uint32(t.Data[4*i:])))
		if g == -1 {
			unset++
		} else if g < 0 || g >= groups {
			return damaged("%s has group %d for column %d, there are %d", ending, g, i, groups)
		} else {
			counts[g]++
		}
		x.groups[i], sorted = g, sorted && g == i/x.group
	}
	if sorted || unset == x.columns { // compressed-tensors leaves -1 where columns are in order
		x.groups = nil
	} else if unset > 0 {
		return damaged("%s has no group for %d of %d columns", ending, unset, x.columns)
	} else if g := slices.Index(counts, 0); g >= 0 {
		return damaged("%s has no column of group %d, there are %d: it is damaged", ending, g, groups)
	}
	return nil
}

// fit divides the columns into groups that scales [groups, rows] must have.
func (x *matrix) fit(scales tensor.Tensor, size int) (groups int, err error) {
	groups = x.divide(size)
	if want := []int{groups, x.rows}; !slices.Equal(scales.Shape, want) {
		err = fmt.Errorf("scales has shape %v, expected %v for groups of %d columns", []int(scales.Shape), want,
			x.group)
	}
	return groups, err
}

// run returns the group of a column, and where the columns end that are in the same group.
func (x *matrix) run(column int) (group, end int) {
	if x.groups == nil {
		group = column / x.group
		return group, min(x.columns, (group+1)*x.group)
	}
	group, end = x.groups[column], column+1
	for end < x.columns && x.groups[end] == group {
		end++
	}
	return group, end
}

// decode sets dst to values of a row from a column on.
func (x *matrix) decode(dst []float32, row, from int) {
	if x.groups != nil {
		x.scatter(dst, row, from)
	} else {
		x.decodeRuns(dst, row, from)
	}
}

// decodeRuns is decode of runs of columns in the same group.
func (x *matrix) decodeRuns(dst []float32, row, from int) {
	var buf [256]byte
	plain, _ := x.codes.(*octets)
	for len(dst) > 0 {
		group, end := x.run(from)
		n := min(len(dst), end-from)
		var q []byte
		if plain != nil {
			q = plain.data[row*x.columns+from:][:n]
		} else {
			n = min(n, len(buf))
			q = buf[:n]
			x.codes.read(q, row, from)
		}
		scale, values, out := x.scale(row, group), x.values, dst[:len(q)]
		switch {
		case x.zero != nil:
			zero := x.zero(row, group)
			for j, c := range q {
				out[j] = (values[c] - zero) * scale
			}
		case x.bias != nil:
			bias := x.bias(row, group)
			for j, c := range q {
				out[j] = float32(values[c]*scale) + bias
			}
		case values == e4m3:
			simd.ScaleE4M3(out, q, scale)
		default:
			for j, c := range q {
				out[j] = values[c] * scale
			}
		}
		dst, from = dst[n:], from+n
	}
}

// scatter is decode of columns in another order: the scales of all groups are read once.
func (x *matrix) scatter(dst []float32, row, from int) {
	var buf [256]byte
	var by, zeros [256]float32
	groups := x.groups[from:]
	for g := range min(x.count, len(by)) {
		if by[g] = x.scale(row, g); x.zero != nil {
			zeros[g] = x.zero(row, g)
		}
	}
	for len(dst) > 0 {
		q := buf[:min(len(dst), len(buf))]
		x.codes.read(q, row, from)
		for j, c := range q {
			g := groups[j]
			if g < len(by) {
				dst[j] = (x.values[c] - zeros[g]) * by[g]
			} else {
				x.decodeRuns(dst[j:j+1], row, from+j)
			}
		}
		dst, groups, from = dst[len(q):], groups[len(q):], from+len(q)
	}
}

// ReadAt implements io.ReaderAt.
func (x *matrix) ReadAt(p []byte, off int64) (int, error) {
	size := 4
	if x.inBF16 {
		size = 2
	}
	return tensor.ReadUnits(p, off, size, x.rows*x.columns, func(p []byte, first int) error {
		var buf [256]float32
		for n := len(p) / size; n > 0; n = len(p) / size {
			row, from := first/x.columns, first%x.columns
			n = min(n, x.columns-from)
			part := inFloats(p[:size*n], size)
			if part == nil {
				part = buf[:min(n, len(buf))]
			}
			x.decode(part, row, from)
			switch {
			case x.inBF16:
				for i, v := range part {
					binary.LittleEndian.PutUint16(p[2*i:], uint16(math.Float32bits(v)>>16))
				}
			case &part[0] == &buf[0]:
				for i, v := range part {
					binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
				}
			}
			p, first = p[size*len(part):], first+len(part)
		}
		return nil
	})
}

// inFloats returns p as float32 numbers where they lie as such, else nil.
func inFloats(p []byte, size int) []float32 {
	if size != 4 || !float16.LittleEndian || uintptr(unsafe.Pointer(&p[0]))%4 != 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), len(p)/4)
}

var _ io.ReaderAt = (*matrix)(nil)

// readScaled returns a matrix of codes of a byte each, [.., rows, columns] with scales of blocks: of so many rows and
// columns, or where these are 0 of all rows or one.
func readScaled(m *module, w tensor.Tensor, values *[256]float32, ending string, block []int) (tensor.Tensor, error) {
	matrices, rows, columns, err := splitShape(w.Shape)
	if err != nil {
		return w, err
	}
	x := &matrix{codes: &octets{w.Data, columns}, values: values, rows: matrices * rows, columns: columns}
	if m.turned {
		rows, columns = columns, rows
		w.Shape = reshape(w.Shape, rows, columns)
		x.codes, x.rows, x.columns = &upright{w.Data, 8, rows, columns}, matrices*rows, columns
	}
	x.divide(0)
	shapes := scalars(w.Shape)
	if len(block) == 2 {
		shapes = []tensor.Shape{reshape(w.Shape, upTo(rows, block[0]), x.divide(block[1]))}
		if m.turned {
			shapes[0] = reshape(w.Shape, x.divide(block[1]), upTo(rows, block[0]))
		}
	} else {
		byRow := reshape(w.Shape, rows, 1)
		shapes = append(shapes, byRow, byRow[:len(byRow)-1])
		if m.turned {
			shapes = append(shapes, reshape(w.Shape, 1, rows))
		}
	}
	s, err := m.scale(ending, scaleTypes, shapes...)
	if err != nil {
		return w, err
	}
	if size := s.Shape.Size(); len(block) == 2 && m.turned {
		x.scale = turnedScales(s, rows, block[0])
	} else if len(block) == 2 {
		x.scale, x.tall, x.each = byRows(s, rows, block[0]), block[0], rows
	} else if size == x.rows && size > matrices {
		s.Shape = tensor.Shape{size, 1}
		x.scale = byRows(s, rows, 1)
	} else if x.scale, err = whole(ending, s, x.rows); err != nil {
		return w, err
	}
	x.inBF16 = (values == e4m3 || values == e5m2) && isPowers(s)
	return x.tensor(m, slices.Clone(w.Shape))
}

// scalars returns the shapes of a number for the matrix of a shape, or for each of several.
func scalars(of tensor.Shape) []tensor.Shape {
	all := []tensor.Shape{{}, {1}, {1, 1}}
	if n := of[0]; len(of) == 3 {
		all = append(all, tensor.Shape{n}, tensor.Shape{n, 1}, tensor.Shape{n, 1, 1})
		if of[1]%2 == 0 {
			all = append(all, tensor.Shape{n, 2}) // of gates and of ups
		}
	}
	return all
}
