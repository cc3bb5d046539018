package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// takeFactors gives weights of NVFP4 in a GGUF file the factors beside them, a number for each matrix, as llama.cpp's
// converter writes them (_repack_nvfp4 and _flush_nvfp4_experts in conversion/base.py). Factors that the model itself
// applies stay. Scales of activations are set aside.
func takeFactors(c *weights) error {
	aside := 0
	for _, name := range slices.Clone(c.set.Names) {
		w := c.set.ByName[name]
		if w.DType != tensor.NVFP4 || len(w.Shape) < 2 {
			continue
		}
		if _, ok := c.set.ByName[name+".input_scale"]; ok {
			c.set.Drop(name + ".input_scale")
			aside++
		}
		by, ok := c.set.ByName[name+".scale"]
		if _, role, _ := cutLast(name); !ok || c.Family.Model.Claims(role+".scale") {
			continue
		}
		matrices := w.Shape[:len(w.Shape)-2].Size()
		if by.DType != tensor.F32 || len(by.Shape) != 1 || by.Shape[0] != matrices {
			return fmt.Errorf("%s: tensor %s: %v %v, expected F32 [%d], a number for each matrix", c.Path, by.Name,
				by.DType, []int(by.Shape), matrices)
		}
		by, err := by.Whole()
		if err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
		f := &factored{in: w, rows: w.Shape[len(w.Shape)-2]}
		for i := range matrices {
			v := math.Float32frombits(binary.LittleEndian.Uint32(by.Data[4*i:]))
			if !(v > 0 && v <= math.MaxFloat32) {
				return fmt.Errorf("%s: tensor %s is %v, want finite numbers greater than 0", c.Path, by.Name, v)
			}
			f.by = append(f.by, v)
		}
		c.set.Drop(name + ".scale")
		w.DType, w.Data, w.Source, w.At = tensor.F32, nil, f, 0
		c.set.ByName[name] = w
	}
	if aside > 0 {
		c.Notes = append(c.Notes, noteAside(aside))
	}
	return nil
}

// noteAside returns the note about scales of activations.
func noteAside(n int) string {
	return fmt.Sprintf("%d scales of activations are set aside: they stay floating point", n)
}

// factored is the Source of weights of NVFP4 in F32, whose scales are multiplied by a factor of each matrix.
type factored struct {
	in   tensor.Tensor
	by   []float32
	rows int // of a matrix
}

// Stored implements tensor.Decoded.
func (f *factored) Stored(elements int) int { return f.in.DType.RowBytes(elements) }

// Origin implements what tensor.Tensor.Origin asks for.
func (f *factored) Origin() [][]byte { return f.in.Origin() }

// Coded implements what tensor.Tensor.Coded asks for.
func (f *factored) Coded(from, to int) (tensor.Coded, bool) {
	c := tensor.Coded{Tensor: f.in, Mul: f.by[from/f.rows], Div: 1}
	if row := f.in.DType.RowBytes(f.in.Shape.Last()); f.in.Source == nil {
		c.Data = f.in.Data[from*row : to*row : to*row]
	}
	return c, to-from <= f.rows-from%f.rows // rows of one matrix
}

// ReadAt implements io.ReaderAt.
func (f *factored) ReadAt(p []byte, off int64) (int, error) {
	d, columns := f.in.DType, f.in.Shape.Last()
	offset, group := int32(quant.Offset(d)), quant.GroupSize(d)
	q, scales := make([]byte, columns), make([]float32, columns/group)
	return tensor.ReadUnits(p, off, 4*columns, f.in.Rows(), func(p []byte, row int) error {
		for ; len(p) > 0; row++ {
			w, err := f.in.Part(row, row+1)
			if err != nil {
				return err
			}
			quant.Unpack(d, q, scales, 1, w.Data)
			for i := range scales {
				scales[i] *= f.by[row/f.rows]
			}
			for i, code := range q {
				v := float32(int32(code)-offset) * scales[i/group]
				binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
			}
			p = p[4*columns:]
		}
		return nil
	})
}
