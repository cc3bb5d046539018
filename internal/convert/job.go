package convert

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// converter is a single conversion.
type converter struct {
	Options
	src, dst    string
	reads       []string     // GGUF files, not to be replaced
	to          quantmix.Mix // the Type
	tower       tower
	result      Result
	done, total int64
	progress    func(done, total int64)
	threads     int // 0 means a thread for each processor
}

// count notes the format, the types and the size of the result.
func (c *converter) count(format checkpoint.Format, jobs []job) {
	c.result.Format, c.result.Tensors, c.result.Types = string(format), len(jobs), map[string]int{}
	for _, j := range jobs {
		c.result.Types[j.out.DType.String()]++
	}
	c.total = totalBytes(jobs)
	c.result.Bytes = c.total
}

// chunkBytes is about the size of a worker's piece.
const chunkBytes = 512 << 10

// A job is a tensor to write, and its sources.
type job struct {
	out  tensor.Tensor   // without Data
	in   tensor.Tensor   // source, perhaps with a Source; its elements lie as out's
	from func(r int) int // row of in for row r of out, along the first dimension; nil for r itself
	turn bool            // matrices are transposed, each in a piece

	value      func(float32) float32   // change of each value; nil for none
	times      func(row int) []float64 // multipliers of the values of a row of out; nil for none
	importance []float32               // [matrices, columns] for quantizers; may be nil
	loss       *loss                   // measures what the values lose; nil for none
}

// matrixRows returns the number of rows of a matrix, of perhaps several in in.
func (j *job) matrixRows() int {
	if n := len(j.in.Shape); n > 1 {
		return j.in.Shape[n-2]
	}
	return 1
}

// unit returns the number of elements that stay together: a row of the first dimension where rows change places, else a
// row of the last dimension.
func (j *job) unit() int {
	switch {
	case j.turn:
		return j.matrixRows() * j.in.Shape.Last()
	case j.from != nil:
		return j.in.Shape.Size() / j.in.Shape[0]
	}
	return j.in.Shape.Last()
}

// units returns the number of units, and the number per chunk.
func (j *job) units() (n, per int) {
	unit := j.unit()
	n = j.in.Shape.Size() / unit
	per = max(1, chunkBytes/max(j.out.DType.RowBytes(unit), j.in.DType.RowBytes(unit), 1))
	return n, min(per, n)
}

// A worker makes chunks, reusing its memory.
type worker struct {
	rows   []byte    // of in, gathered
	values []float32 // of rows
	out    []byte
}

// makeChunk makes units from to to of the result. The slice is valid until the next call, or part of the source.
func (w *worker) makeChunk(j *job, from, to int) (out []byte, err error) {
	guarded := mmap.Guard(func() error {
		out, err = w.make(j, from, to)
		return nil
	})
	if guarded != nil {
		return nil, guarded
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", j.in.Name, err)
	}
	return out, nil
}

func (w *worker) make(j *job, from, to int) ([]byte, error) {
	unit := j.unit()
	rows, err := w.read(j, from, to)
	if err != nil {
		return nil, err
	}
	if j.out.DType == j.in.DType && j.value == nil && j.times == nil && !j.turn {
		return rows, j.checkFinite(rows, from)
	}
	n := (to - from) * unit
	if cap(w.values) < n {
		w.values = make([]float32, n)
	}
	v := w.values[:n]
	if err := quant.Dequantize(j.in.DType, v, rows); err != nil {
		return nil, err
	}
	if j.turn {
		v = transpose(v, j.matrixRows(), j.in.Shape.Last())
	}
	if j.value != nil {
		for i := range v {
			v[i] = j.value(v[i])
		}
	}
	if j.times != nil {
		j.multiply(v, from*unit/j.out.Shape.Last())
	}
	out, err := w.encode(j, v, from*unit)
	if err != nil { // Quantize has looked at every element, but does not know its place
		err = cmp.Or(j.checkFinite(rows, from), err)
	}
	return out, err
}

// multiply multiplies rows of out, beginning at row, in float32, as the converter does.
func (j *job) multiply(v []float32, row int) {
	width := j.out.Shape.Last()
	for i := 0; i < len(v); i += width {
		for _, by := range j.times(row + i/width) {
			for k := i; k < i+width; k++ {
				v[k] *= float32(by)
			}
		}
	}
}

// transpose returns matrices of so many rows and columns, each by columns.
func transpose(v []float32, rows, columns int) []float32 {
	out := make([]float32, 0, len(v))
	for ; len(v) > 0; v = v[rows*columns:] {
		for c := range columns {
			for r := range rows {
				out = append(out, v[r*columns+c])
			}
		}
	}
	return out
}

// read returns units from to to of the source.
func (w *worker) read(j *job, from, to int) ([]byte, error) {
	size := j.in.DType.RowBytes(j.unit())
	if j.from == nil && j.in.Source == nil {
		return j.in.Data[from*size : to*size], nil
	}
	n := (to - from) * size
	w.rows = slices.Grow(w.rows[:0], n)[:n]
	if j.from == nil {
		_, err := j.in.Source.ReadAt(w.rows, j.in.At+int64(from*size))
		return w.rows, err
	}
	for r := from; r < to; r++ {
		at, row := j.from(r)*size, w.rows[(r-from)*size:][:size]
		if j.in.Source == nil {
			copy(row, j.in.Data[at:at+size])
		} else if _, err := j.in.Source.ReadAt(row, j.in.At+int64(at)); err != nil && err != io.EOF {
			return nil, err
		}
	}
	return w.rows, nil
}

// checkFinite refuses NaNs and infinities in rows of the result, beginning at unit from.
func (j *job) checkFinite(rows []byte, from int) error {
	i := tensor.NotFinite(j.in.DType, rows)
	if i < 0 {
		return nil
	}
	unit := j.unit()
	at := from*unit + i
	if j.from != nil {
		at = j.from(at/unit)*unit + at%unit
	}
	return fmt.Errorf("element %d is %v", at, value(j.in.DType, rows, i))
}

// encode makes v, elements from first on, elements of the result's type.
func (w *worker) encode(j *job, v []float32, first int) ([]byte, error) {
	d, k := j.out.DType, j.out.Shape.Last()
	if j.from != nil { // along the first dimension, perhaps also the last
		k = j.unit()
	}
	size := d.RowBytes(len(v))
	if cap(w.out) < size {
		w.out = make([]byte, size)
	}
	for at := 0; at < len(v); {
		end, importance := len(v), j.importance
		if importance != nil { // each matrix has separate importances
			size := j.matrixRows() * k
			matrix := (first + at) / size
			end, importance = min(end, (matrix+1)*size-first), importance[matrix*k:(matrix+1)*k]
		}
		err := quant.Quantize(d, w.out[d.RowBytes(at):d.RowBytes(end)], v[at:end], k, importance)
		if err != nil && first+at > 0 {
			err = fmt.Errorf("from element %d: %w", first+at, err)
		}
		if err != nil {
			return nil, err
		}
		at = end
	}
	if j.loss != nil {
		return w.out[:size], j.loss.add(d, w.out[:size], v)
	}
	return w.out[:size], nil
}

// value returns element i of a float type.
func value(d tensor.DType, b []byte, i int) float32 {
	switch d {
	case tensor.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	case tensor.F16:
		return float16.F16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return float16.BF16(binary.LittleEndian.Uint16(b[2*i:]))
}

// isLossless reports whether d can represent every value of GGUF's tensor t in the other format, so that the way back
// gives t again.
func isLossless(d tensor.DType, t tensor.Tensor, h checkpoint.Habit) (all bool, err error) {
	err = mmap.Guard(func() error {
		if t, err = t.Whole(); err != nil {
			return err
		}
		for i := range len(t.Data) / t.DType.BlockBytes() {
			x := value(t.DType, t.Data, i)
			y := h.FromGGUF(x)
			if d == tensor.BF16 {
				y = float16.BF16(float16.ToBF16(y))
			} else if d == tensor.F16 {
				y = float16.F16(float16.ToF16(y))
			}
			if math.Float32bits(h.ToGGUF(y)) != math.Float32bits(x) {
				return nil
			}
		}
		all = true
		return nil
	})
	return all, err
}
