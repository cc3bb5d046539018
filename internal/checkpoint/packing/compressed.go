package packing

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// compressed reads the packings of vllm-project/compressed-tensors: a scheme for each list of targets.
type compressed struct {
	Format    string
	Groups    map[string]*scheme `json:"config_groups"`
	Ignore    []string
	Transform map[string]any `json:"transform_config"`
	Sparsity  struct {
		Format string
	} `json:"sparsity_config"`
}

// scheme describes the packing of its targets' weights.
type scheme struct {
	Targets []string
	Format  string
	Weights *struct {
		Bits      int `json:"num_bits"`
		Type      string
		Symmetric *bool // nil as true
		Strategy  string
		Group     int   `json:"group_size"`
		Block     []int `json:"block_structure"`
		ActOrder  any
	}
}

func (p *compressed) validate() error {
	if len(p.Transform) > 0 {
		return errors.New("transform_config has rotations of activations, which are not computed; " + advice)
	}
	if f := p.Sparsity.Format; f != "" && f != "dense" {
		return fmt.Errorf("sparsity_config has format %q, which is not read; %s", f, advice)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Groups)) {
		s := p.Groups[name]
		if s == nil {
			return fmt.Errorf("config_groups.%s is null", name)
		}
		switch f := p.format(s); f {
		case "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
			"mxfp4-pack-quantized", "mxfp8-quantized", "dense", "":
		default:
			return fmt.Errorf("config_groups.%s has format %q, which is not read; %s", name, f, advice)
		}
		if w := s.Weights; w != nil {
			if w.Bits < 1 || w.Bits > 8 {
				return fmt.Errorf("config_groups.%s has %d bits, expected 1 to 8", name, w.Bits)
			}
			if err := checkBlock("block_structure", w.Block); err != nil {
				return fmt.Errorf("config_groups.%s: %w", name, err)
			}
		}
	}
	return nil
}

// format returns a scheme's format.
func (p *compressed) format(s *scheme) string {
	if s.Format != "" {
		return s.Format
	}
	return p.Format
}

func (p *compressed) Name() string {
	var formats []string
	for _, name := range slices.Sorted(maps.Keys(p.Groups)) {
		text := p.format(p.Groups[name])
		if w := p.Groups[name].Weights; w != nil {
			text += fmt.Sprintf(" %s%d", w.Type, w.Bits)
			if w.Group > 0 {
				text += fmt.Sprintf(", groups of %d", w.Group)
			}
		}
		if !slices.Contains(formats, text) {
			formats = append(formats, text)
		}
	}
	return "compressed-tensors, " + strings.Join(formats, "; ")
}

// of returns the scheme of a module: by the module's name before patterns, and by patterns before classes.
func (p *compressed) of(module string) (*scheme, error) {
	if i := slices.IndexFunc(p.Ignore, func(target string) bool { return rank(target, module) > 1 }); i >= 0 {
		return nil, fmt.Errorf("it is packed, but ignore has %q", p.Ignore[i])
	}
	var best *scheme
	most := 0
	for _, name := range slices.Sorted(maps.Keys(p.Groups)) {
		for _, target := range p.Groups[name].Targets {
			if n := rank(target, module); n > most {
				best, most = p.Groups[name], n
			}
		}
	}
	if best == nil || best.Weights == nil {
		return nil, errors.New("it is packed, but no target of config_groups tells how")
	}
	return best, nil
}

// rank returns how specific a target is about a module: 3 by its name, 2 by a pattern, 1 by a class, 0 not at all. A
// pattern in Python's syntax alone counts as a class.
func rank(target, module string) int {
	pattern, is := strings.CutPrefix(target, "re:")
	switch {
	case target == module:
		return 3
	case is:
		re, err := regexp.Compile("^(?:" + pattern + ")")
		if err != nil {
			return 1
		}
		if re.MatchString(module) {
			return 2
		}
		return 0
	case strings.Contains(target, "."):
		return 0
	}
	return 1
}

func (p *compressed) weight(m *module) (tensor.Tensor, error) {
	w, ending := m.first("weight_packed", "weight")
	if ending == "" {
		return w, errors.New("it has codes of another packing than compressed-tensors")
	}
	s, err := p.of(m.name)
	if err != nil {
		return w, err
	}
	if err := s.check(m, ending, w); err != nil {
		return w, err
	}
	switch w.DType {
	case tensor.U8:
		return readFours(m, w, s.Weights.Group, "weight_global_scale")
	case tensor.I32:
		return s.readPacked(m, w)
	}
	if _, ok := m.parts["weight_zero_point"]; ok || s.Weights.Strategy == "group" {
		return s.readGroups(m, w, &matrix{codes: &octets{w.Data, w.Shape.Last()}, values: findValues(w.DType)}, w.Shape)
	}
	return readScaled(m, w, findValues(w.DType), "weight_scale", s.Weights.Block)
}

// check returns an error where a weight has another type than the scheme's numbers, or lacks zero points.
func (s *scheme) check(m *module, ending string, w tensor.Tensor) error {
	want, bits := tensor.Invalid, s.Weights.Bits
	switch kind := cmp.Or(s.Weights.Type, "int"); {
	case kind == "int" && ending == "weight_packed":
		want = tensor.I32
	case kind == "int":
		want = tensor.I8
	case kind == "float" && ending == "weight_packed" && bits == 4:
		want = tensor.U8
	case kind == "float" && ending == "weight" && bits == 8:
		want = tensor.F8_E4M3
	}
	if want == tensor.Invalid || w.DType != want {
		return fmt.Errorf("%s has type %v, but the scheme has type %q of %d bits", ending, w.DType, s.Weights.Type,
			bits)
	}
	_, ok := m.parts["weight_zero_point"]
	if symmetric := s.Weights.Symmetric; !ok && symmetric != nil && !*symmetric && s.Weights.Type != "float" {
		return errors.New("weight_zero_point is missing: the scheme is not symmetric")
	}
	return nil
}

// readPacked reads whole numbers in 32-bit words, whose smallest code stands for the smallest signed number.
func (s *scheme) readPacked(m *module, w tensor.Tensor) (tensor.Tensor, error) {
	matrices, rows, words, err := splitShape(w.Shape)
	if err != nil {
		return w, err
	}
	is, err := m.need("weight_shape", []tensor.DType{tensor.I64, tensor.I32}, tensor.Shape{2})
	if err != nil {
		return w, err
	}
	n, columns := integer(is, 0), integer(is, 1)
	if n != int64(rows) || columns < 1 || columns > int64(words)*32 || words != upTo(int(columns)*s.Weights.Bits, 32) {
		return w, fmt.Errorf("weight_packed has shape %v, but weight_shape is [%d %d] of %d bits", []int(w.Shape), n,
			columns, s.Weights.Bits)
	}
	x := &matrix{codes: &codes{data: w.Data, bits: s.Weights.Bits, line: words, word: 1}, values: naturals,
		rows: matrices * rows}
	x.zero = constant(float32(int(1) << (s.Weights.Bits - 1)))
	return s.readGroups(m, w, x, reshape(w.Shape, rows, int(columns)))
}

// integer returns the i-th number of t, of I32 or I64.
func integer(t tensor.Tensor, i int) int64 {
	if t.DType == tensor.I32 {
		return int64(int32(binary.LittleEndian.Uint32(t.Data[4*i:])))
	}
	return int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
}

// readGroups reads the scales of groups, and their zero points, of x, whose codes are w's.
func (s *scheme) readGroups(m *module, w tensor.Tensor, x *matrix, shape tensor.Shape) (tensor.Tensor, error) {
	matrices, rows, columns, err := splitShape(shape)
	if err != nil {
		return w, err
	}
	x.rows, x.columns = matrices*rows, columns
	groups := x.divide(0)
	if s.Weights.Strategy == "group" {
		if s.Weights.Group < 1 {
			return w, fmt.Errorf("groups of %d columns", s.Weights.Group)
		}
		groups = x.divide(s.Weights.Group)
	}
	shapes := []tensor.Shape{reshape(shape, rows, groups)}
	if s.Weights.Strategy == "tensor" {
		shapes = scalar()
	}
	scale, err := m.need("weight_scale", scaleTypes, shapes...)
	if err != nil {
		return w, err
	}
	x.scale = byRows(scale, rows, 1)
	if s.Weights.Strategy == "tensor" {
		by, err := single("weight_scale", scale)
		if err != nil {
			return w, err
		}
		x.scale = constant(by)
	}
	if zero, ok := m.part("weight_zero_point"); ok {
		if err := s.zeros(x, zero, shapes, rows, groups); err != nil {
			return w, err
		}
	}
	if g, ok := m.part("weight_g_idx"); ok {
		if err := wants("weight_g_idx", g, []tensor.DType{tensor.I32}, tensor.Shape{columns}); err != nil {
			return w, err
		}
		err = x.order("weight_g_idx", g, groups)
	} else if s.Weights.ActOrder == "group" {
		err = errors.New("weight_g_idx is missing: the scheme has actorder")
	}
	if err != nil {
		return w, err
	}
	return x.tensor(m, slices.Clone(shape))
}

// zeros reads zero points: packed along rows, or a byte each.
func (s *scheme) zeros(x *matrix, zero tensor.Tensor, shapes []tensor.Shape, rows, groups int) error {
	if c, ok := x.codes.(*codes); ok && zero.DType == tensor.I32 {
		if x.rows != rows {
			return fmt.Errorf("weight_zero_point has shape %v, expected one matrix", []int(zero.Shape))
		}
		z := codes{data: zero.Data, bits: c.bits, line: 1, word: groups, across: true}
		x.zero = func(row, group int) float32 { return float32(z.at(row, group)) }
		return wants("weight_zero_point", zero, []tensor.DType{tensor.I32}, tensor.Shape{upTo(rows*c.bits, 32), groups})
	}
	if err := wants("weight_zero_point", zero, []tensor.DType{tensor.I8, tensor.F8_E4M3}, shapes...); err != nil {
		return err
	}
	signed, offset := byRows(zero, rows, 1), float32(0)
	if x.zero != nil {
		offset = x.zero(0, 0)
	}
	if s.Weights.Strategy == "tensor" {
		signed = constant(number(zero.DType)(zero.Data, 0))
	}
	x.zero = func(row, group int) float32 { return signed(row, group) + offset }
	return nil
}
