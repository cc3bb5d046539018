package lab

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// rows is a tensor of floats as n rows, positions, of width values each.
type rows struct {
	n, width int
	dtype    tensor.DType
	data     []byte
}

// rowsOf takes the first dimension for the rows, and a vector for one row. The
// tensor is one that checkFloats accepts.
func rowsOf(t *tensor.Tensor) rows {
	n := 1
	if len(t.Shape) > 1 {
		n = t.Shape[0]
	}
	return rows{n, t.Shape.Size() / n, t.DType, t.Data}
}

// read sets x to row i.
func (r rows) read(x []float64, i int) {
	size := r.dtype.BlockBytes() * r.width
	b := r.data[i*size : (i+1)*size]
	for j := range x {
		switch r.dtype {
		case tensor.F32:
			x[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:])))
		case tensor.F64:
			x[j] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*j:]))
		case tensor.F16:
			x[j] = float64(float16.F16(binary.LittleEndian.Uint16(b[2*j:])))
		case tensor.BF16:
			x[j] = float64(float16.BF16(binary.LittleEndian.Uint16(b[2*j:])))
		}
	}
}

// eachRow calls f with the last rows that g and r both have, of one width, and their place in g.
func eachRow(g, r rows, f func(at int, x, y []float64)) {
	x, y := make([]float64, g.width), make([]float64, g.width)
	for at := g.n - min(g.n, r.n); at < g.n; at++ {
		g.read(x, at)
		r.read(y, r.n-g.n+at)
		f(at, x, y)
	}
}

// checkFloats reports a tensor that does not hold floats, is empty, or has another number of dimensions than rank.
// A rank of 0 allows any number above 0.
func checkFloats(t *tensor.Tensor, rank int) error {
	if !t.DType.Float() {
		return fmt.Errorf("element type %v, want floats", t.DType)
	}
	return checkShape(t, rank)
}

func checkShape(t *tensor.Tensor, rank int) error {
	if len(t.Shape) == 0 || rank != 0 && len(t.Shape) != rank {
		return fmt.Errorf("shape %v, want %d dimensions", []int(t.Shape), max(1, rank))
	}
	size, err := tensor.Bytes(t.DType, t.Shape)
	switch {
	case err != nil:
		return err
	case size == 0:
		return fmt.Errorf("shape %v: empty", []int(t.Shape))
	case size != len(t.Data):
		return fmt.Errorf("shape %v of %v: %d bytes, want %d", []int(t.Shape), t.DType, len(t.Data), size)
	}
	return nil
}

func decodeIDs(t *tensor.Tensor) ([]int32, error) {
	ids := make([]int32, t.Shape.Size())
	for i := range ids {
		if t.DType == tensor.I32 {
			ids[i] = int32(binary.LittleEndian.Uint32(t.Data[4*i:]))
			continue
		}
		id := int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
		if ids[i] = int32(id); int64(ids[i]) != id {
			return nil, fmt.Errorf("position %d: id %d is more than 32 bits hold", i, id)
		}
	}
	return ids, nil
}
