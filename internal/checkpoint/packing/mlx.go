package packing

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/tensor"
)

// mlx reads the packing of MLX's quantize: words along a weight's columns. A weight is scale * code + bias, or in
// modes of floats scale * float.
type mlx struct {
	form
	own map[string]*form // by module; nil for a module that is not packed
}

// form tells how a module is packed.
type form struct {
	Bits  int
	Group int `json:"group_size"`
	Mode  string
}

// UnmarshalJSON takes the forms of modules from the other keys, whose values are objects or false.
func (p *mlx) UnmarshalJSON(b []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &p.form); err != nil {
		return err
	}
	p.own = map[string]*form{}
	for key, raw := range all {
		switch {
		case len(raw) > 0 && raw[0] == '{':
			f := p.form
			if err := json.Unmarshal(raw, &f); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			p.own[key] = &f
		case string(raw) == "false":
			p.own[key] = nil
		}
	}
	return nil
}

func (p *mlx) name() string {
	if p.Mode != "" && p.Mode != "affine" {
		return "MLX " + p.Mode
	}
	return grouped("MLX", p.Bits, p.Group)
}

func (p *mlx) weight(m *module) (tensor.Tensor, error) {
	f, own := p.own[m.name]
	if !own {
		f = &p.form
	} else if f == nil {
		return tensor.Tensor{}, errors.New("it is packed, but config.json says that it is not")
	}
	w, ok := m.part("weight")
	if !ok {
		return w, errors.New("it has codes of another packing than MLX")
	}
	if f.Bits < 2 || f.Bits > 8 || f.Group < 1 {
		return w, fmt.Errorf("%d bits and groups of %d, expected 2 to 8 and 1 or more", f.Bits, f.Group)
	}
	matrices, rows, words, err := dims(w.Shape)
	if err == nil {
		err = wants("weight", w, []tensor.DType{tensor.U32}, w.Shape)
	}
	if err != nil {
		return w, err
	}
	columns := words * 32 / f.Bits
	if columns%f.Group != 0 || columns*f.Bits != words*32 || columns == 0 {
		return w, fmt.Errorf("weight has shape %v, no groups of %d of %d bits", []int(w.Shape), f.Group, f.Bits)
	}
	types := floats
	switch f.Mode {
	case "", "affine":
	case "mxfp4", "mxfp8", "nvfp4":
		types = []tensor.DType{tensor.U8}
	default:
		return w, fmt.Errorf("mode %q is not read, affine, mxfp4, mxfp8 and nvfp4 are", f.Mode)
	}
	shape := shaped(w.Shape, rows, columns/f.Group)
	scales, err := m.need("scales", types, shape)
	if err != nil {
		return w, err
	}
	x := &matrix{codes: &codes{data: w.Data, bits: f.Bits, line: words, word: 1}, rows: matrices * rows,
		columns: columns, group: f.Group}
	switch f.Mode {
	case "nvfp4":
		x.values, scales.DType = e2m1, tensor.F8_E4M3
	case "mxfp4":
		x.values, x.halves = e2m1, true
	case "mxfp8":
		x.values = e4m3
	default:
		biases, err := m.need("biases", []tensor.DType{scales.DType}, shape)
		if err != nil {
			return w, err
		}
		x.values, x.bias = naturals, byRows(biases, rows, 1)
	}
	x.scale = byRows(scales, rows, 1)
	return x.tensor(m, shaped(w.Shape, rows, columns))
}
