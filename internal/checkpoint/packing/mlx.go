package packing

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/tensor"
)

// mlx reads the packing of MLX's quantize: words along a weight's columns. A weight is scale * code + bias, or in
// modes of floats scale * float.
type mlx struct {
	form
	own  map[string]*form // by module; nil for a module that is not packed
	keys map[string]json.RawMessage
}

// form tells how a module is packed.
type form struct {
	Bits  int
	Group int `json:"group_size"`
	Mode  string
}

// mode is a way to hold values: the bits and the group that a form need not name, and that modes of floats require.
type mode struct {
	bits, group int
	values      *[256]float32
	scale       tensor.DType // in bytes of U8; Invalid for affine, whose scales and biases are floats
}

var modes = map[string]mode{
	"affine": {bits: 4, group: 64, values: naturals},
	"mxfp4":  {4, 32, e2m1, tensor.F8_E8M0},
	"mxfp8":  {8, 32, e4m3, tensor.F8_E8M0},
	"nvfp4":  {4, 16, e2m1, tensor.F8_E4M3},
}

// read reads a form with the defaults of mlx.nn.quantize: of the form's mode, which is affine where none is named.
func (f *form) read(b []byte) error {
	if err := jsonerr.Unmarshal(b, f, ""); err != nil {
		return err
	}
	f.Mode = cmp.Or(f.Mode, "affine")
	f.Bits, f.Group = cmp.Or(f.Bits, modes[f.Mode].bits), cmp.Or(f.Group, modes[f.Mode].group)
	return nil
}

// mode returns the form's mode.
func (f *form) mode() (m mode, err error) {
	m, ok := modes[f.Mode]
	switch {
	case !ok:
		err = fmt.Errorf("mode %q is not read, affine, mxfp4, mxfp8 and nvfp4 are", f.Mode)
	case m.scale == tensor.Invalid && (f.Bits < 2 || f.Bits > 8 || f.Group < 1):
		err = fmt.Errorf("%d bits and groups of %d, expected 2 to 8 and 1 or more", f.Bits, f.Group)
	case m.scale != tensor.Invalid && (f.Bits != m.bits || f.Group != m.group):
		err = fmt.Errorf("mode %s has %d bits and groups of %d, expected %d and %d", f.Mode, f.Bits, f.Group, m.bits,
			m.group)
	}
	return m, err
}

// UnmarshalJSON keeps the keys for validate.
func (p *mlx) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &p.keys) }

// validate takes the forms of modules from the other keys, whose values are objects or false. A module's form takes
// nothing from the form of all.
func (p *mlx) validate() error {
	all, err := json.Marshal(p.keys)
	if err == nil {
		err = p.form.read(all)
	}
	p.own = map[string]*form{}
	for _, key := range slices.Sorted(maps.Keys(p.keys)) {
		switch raw := p.keys[key]; {
		case err != nil:
			return err
		case len(raw) > 0 && raw[0] == '{':
			p.own[key] = &form{}
			if err = p.own[key].read(raw); err != nil {
				err = fmt.Errorf("%s: %w", key, err)
			}
		case string(raw) == "false":
			p.own[key] = nil
		case strings.Contains(key, ".") && string(raw) != "true": // a module
			err = fmt.Errorf("%s: %.80s is neither an object nor true or false", key, raw)
		}
	}
	return err
}

func (p *mlx) Name() string {
	if p.Mode != "affine" {
		return "MLX " + p.Mode
	}
	return describe("MLX", p.Bits, p.Group)
}

func (p *mlx) says(module string) string {
	f := p.own[module]
	if f == nil {
		f = &p.form
	}
	return fmt.Sprintf("bits %d, group_size %d, mode %s", f.Bits, f.Group, f.Mode)
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
		return w, m.other("MLX")
	}
	mode, err := f.mode()
	if err != nil {
		return w, err
	}
	matrices, rows, words, err := splitShape(w.Shape)
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
	if mode.scale != tensor.Invalid {
		types = []tensor.DType{tensor.U8}
	}
	shape := reshape(w.Shape, rows, columns/f.Group)
	scales, err := m.need("scales", types, shape)
	if mode.scale != tensor.Invalid {
		scales.DType = mode.scale
	}
	if m.scales = append(m.scales, Scales{scales, mode.scale == tensor.Invalid}); err == nil {
		err = checkFinite("scales", scales)
	}
	if err != nil {
		return w, err
	}
	x := &matrix{codes: &codes{data: w.Data, bits: f.Bits, line: words, word: 1}, values: mode.values,
		rows: matrices * rows, columns: columns, group: f.Group, inBF16: f.Mode == "mxfp4",
		halves: scales.DType == tensor.F16}
	if f.Bits == 8 {
		x.codes = &octets{w.Data, columns}
	}
	if mode.scale == tensor.Invalid {
		biases, err := m.need("biases", []tensor.DType{scales.DType}, shape)
		if err == nil {
			err = checkFinite("biases", biases)
		}
		if err != nil {
			return w, err
		}
		x.bias = byRows(biases, rows, 1)
	}
	x.scale = byRows(scales, rows, 1)
	return x.tensor(m, reshape(w.Shape, rows, columns))
}
