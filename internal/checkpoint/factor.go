package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// takeFactors gives weights in a GGUF file the factors beside them, a number for each matrix, as llama.cpp's converter
// writes factors beside NVFP4 (_repack_nvfp4 and _flush_nvfp4_experts in conversion/base.py), and as its reader takes
// them beside weights of all types (load_tensors in llama-model.cpp). Factors that the model itself applies stay.
// Scales of activations are set aside.
func takeFactors(c *weights) error {
	aside := 0
	for _, name := range slices.Clone(c.set.Names) {
		w := c.set.ByName[name]
		if len(w.Shape) < 2 || w.DType != tensor.NVFP4 && !multiplied.MatchString(name) {
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
		_, biased := c.set.ByName[name+".bias"]
		if biased && w.DType != tensor.NVFP4 && strings.Contains(name, ".ffn_") {
			return fmt.Errorf("%s: tensor %s: llama.cpp multiplies the sum of %s's product and its bias with it: "+
				"multiply the weight and the bias instead, and leave it out", c.Path, by.Name, name)
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

// multiplied has the layers' weights with factors in llama.cpp, whatever their types.
var multiplied = regexp.MustCompile(`^blk\.\d+\.(attn_(q|k|v|output|qkv|gate)|ffn_(gate|down|up)(_shexp|_exps)?|` +
	`ssm_(in|out|alpha|beta)|nextn\.(eh_proj|shared_head_head))$`)

// HasFactor reports whether llama.cpp multiplies products with a weight of NVFP4 by the factor beside it, given the
// weight's names without .weight, and the model does not.
func HasFactor(c *Checkpoint, gguf, hf string) bool {
	_, role, _ := cutLast(gguf)
	_, biased := c.set.ByName[c.Name(gguf+".bias", hf+".bias")]
	return (multiplied.MatchString(gguf) || gguf == "output") && !c.Family.Model.Claims(role+".scale") &&
		!(biased && strings.Contains(gguf, ".ffn_"))
}

// noteAside returns the note about scales of activations.
func noteAside(n int) string {
	return fmt.Sprintf("%d scales of activations are set aside: they stay floating point", n)
}

// factored is the Source of weights in F32 that are multiplied by a factor of each matrix. Of NVFP4 the scales are.
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
	if f.in.DType != tensor.NVFP4 {
		return tensor.Coded{}, false
	}
	c := tensor.Coded{Tensor: f.in, Mul: f.by[from/f.rows], Div: 1}
	if row := f.in.DType.RowBytes(f.in.Shape.Last()); f.in.Source == nil {
		c.Data = f.in.Data[from*row : to*row : to*row]
	}
	return c, to-from <= f.rows-from%f.rows // rows of one matrix
}

// ReadAt implements io.ReaderAt.
func (f *factored) ReadAt(p []byte, off int64) (int, error) {
	d, columns := f.in.DType, f.in.Shape.Last()
	values := make([]float32, columns)
	read := func(row []byte, by float32) error {
		err := quant.Dequantize(d, values, row)
		for i := range values {
			values[i] *= by
		}
		return err
	}
	if d == tensor.NVFP4 {
		offset, group := int32(quant.Offset(d)), quant.GroupSize(d)
		q, scales := make([]byte, columns), make([]float32, columns/group)
		read = func(row []byte, by float32) error {
			quant.Unpack(d, q, scales, 1, row)
			for i, code := range q {
				values[i] = float32(int32(code)-offset) * float32(scales[i/group]*by)
			}
			return nil
		}
	}
	return tensor.ReadUnits(p, off, 4*columns, f.in.Rows(), func(p []byte, row int) error {
		for ; len(p) > 0; row++ {
			w, err := f.in.Part(row, row+1)
			if err == nil {
				err = read(w.Data, f.by[row/f.rows])
			}
			if err != nil {
				return err
			}
			for i, v := range values {
				binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
			}
			p = p[4*columns:]
		}
		return nil
	})
}
