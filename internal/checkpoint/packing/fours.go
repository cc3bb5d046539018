package packing

import (
	"cmp"
	"fmt"

	"github.com/karat-run/karat/internal/tensor"
)

// readFours reads 4-bit floats, two to a byte, the first in the low half. Groups of 16 have E4M3 scales, and the whole
// has a factor: compressed-tensors divides scales by weight_global_scale, ModelOpt multiplies scales by weight_scale_2.
// Groups of 32 have E8M0 scales.
func readFours(m *module, w tensor.Tensor, group int, factor string) (tensor.Tensor, error) {
	matrices, rows, columns, err := splitShape(w.Shape)
	if m.turned {
		rows, columns = columns, rows
	}
	if err == nil {
		_, ending := split(w.Name)
		err = wants(cmp.Or(ending, "codes"), w, []tensor.DType{tensor.U8}, w.Shape)
	}
	if columns *= 2; err == nil && columns%8 != 0 {
		err = fmt.Errorf("rows of %d codes, expected a multiple of 8", columns)
	}
	if err == nil && group != 16 && group != 32 {
		err = fmt.Errorf("groups of %d, expected 16 or 32", group)
	}
	if err != nil {
		return w, err
	}
	types := []tensor.DType{tensor.F8_E4M3}
	if group == 32 {
		types = []tensor.DType{tensor.U8, tensor.F8_E8M0}
	}
	x := &matrix{codes: &codes{data: w.Data, bits: 4, line: columns / 8, word: 1}, values: e2m1, rows: matrices * rows,
		columns: columns, inBF16: group == 32}
	want := reshape(w.Shape, rows, x.divide(group))
	if m.turned {
		want = reshape(w.Shape, x.divide(group), rows)
		x.codes = &upright{w.Data, 4, rows, columns}
	}
	scale, err := m.scale("weight_scale", types, want)
	if err != nil {
		return w, err
	}
	if x.scale = byRows(scale, rows, 1); m.turned {
		x.scale = turnedScales(scale, rows, 1)
	}
	if group == 16 {
		all, err := m.need(factor, []tensor.DType{tensor.F32}, scalars(reshape(w.Shape, rows, columns))...)
		if err != nil {
			return w, err
		}
		by, err := whole(factor, all, x.rows)
		if err != nil {
			return w, err
		}
		plain := x.scale
		x.divides = factor != "weight_scale_2"
		if x.scale = func(row, group int) float32 { return plain(row, group) * by(row, group) }; x.divides {
			x.scale = func(row, group int) float32 { return plain(row, group) / by(row, group) }
		}
		if !isSigned(scale.Data) {
			x.plain, x.factor = plain, by
		}
	}
	return x.tensor(m, reshape(w.Shape, rows, columns))
}
