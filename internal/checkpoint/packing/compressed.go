package packing

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

	Bits  int // of auto-round, which has a form of floats for all
	Group int `json:"group_size"`

	patterns map[string]*pattern // compiled, of targets and Ignore
}

// scheme describes the packing of its targets' weights.
type scheme struct {
	Targets []string
	Format  string
	Weights *numbers

	name string // in config_groups
}

// numbers describes packed numbers (QuantizationArgs in quant_args.py).
type numbers struct {
	Bits      int             `json:"num_bits"` // 8 where left out
	Type      string          // int where left out
	Symmetric *bool           // nil as true
	Strategy  string          // by Group where left out
	Group     *int            `json:"group_size"`
	ActOrder  any             // true as group
	Structure json.RawMessage `json:"block_structure"` // a list, or "2x4"

	block   []int
	group   int
	ordered bool // columns of a group are apart
}

func (p *compressed) validate() error {
	if len(p.Transform) > 0 {
		return errors.New("transform_config has rotations of activations, which are not computed; " + advice)
	}
	if f := p.Sparsity.Format; f != "" && f != "dense" {
		return fmt.Errorf("sparsity_config.format: %q is not read; %s", f, advice)
	}
	if p.Bits > 0 && p.Groups == nil {
		p.Groups = map[string]*scheme{"auto-round": {Targets: []string{"Linear"},
			Weights: &numbers{Bits: p.Bits, Type: "float", Group: &p.Group}}}
	}
	p.patterns = map[string]*pattern{}
	if err := p.compile(p.Ignore, false); err != nil {
		return fmt.Errorf("ignore: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Groups)) {
		s := p.Groups[name]
		if s == nil {
			return fmt.Errorf("config_groups.%s is null", name)
		}
		s.name = name
		switch f := p.format(s); f {
		case "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
			"mxfp4-pack-quantized", "mxfp8-quantized", "dense", "":
		default:
			return fmt.Errorf("config_groups.%s.format: %q is not read; %s", name, f, advice)
		}
		if err := p.compile(s.Targets, len(p.Groups) > 1); err != nil {
			return fmt.Errorf("config_groups.%s.targets: %w", name, err)
		}
		if s.Weights != nil {
			if err := s.Weights.validate(); err != nil {
				return fmt.Errorf("config_groups.%s.weights.%w", name, err)
			}
		}
	}
	return nil
}

// compile compiles the patterns in a list. A pattern that looks around is an error where it decides.
func (p *compressed) compile(list []string, decides bool) error {
	for _, target := range list {
		text, is := strings.CutPrefix(target, "re:")
		if !is {
			continue
		}
		read, looks, err := parsePattern(text)
		switch {
		case looks && decides:
			return fmt.Errorf("%q looks around, which is read at the start alone, as (?!...); name the modules without",
				target)
		case err != nil && !looks:
			return fmt.Errorf("%q is no pattern that is read: %w", target, err)
		case err == nil:
			p.patterns[target] = read
		}
	}
	return nil
}

// validate fills in fields that are left out, and checks the others. Errors begin with a field.
func (n *numbers) validate() error {
	n.Bits, n.Type = cmp.Or(n.Bits, 8), cmp.Or(strings.ToLower(n.Type), "int")
	if n.Strategy = strings.ToLower(n.Strategy); n.Strategy == "" {
		n.Strategy = "tensor"
		if n.Group != nil && *n.Group > 0 {
			n.Strategy = "group"
		} else if n.Group != nil {
			n.Strategy = "channel"
		}
	}
	switch n.ActOrder {
	case nil, false, "weight", "static":
	case true, "group", "dynamic":
		n.ordered = true
	default:
		return fmt.Errorf("actorder: %v is none of group, weight, dynamic and static", n.ActOrder)
	}
	if n.Group != nil {
		n.group = *n.Group
	}
	var err error
	if n.block, err = parseBlock(n.Structure); err != nil {
		return err
	}
	switch grouped := strings.HasSuffix(n.Strategy, "group"); {
	case n.Bits < 1 || n.Bits > 8:
		return fmt.Errorf("num_bits: %d bits, expected 1 to 8", n.Bits)
	case n.Type != "int" && n.Type != "float":
		return fmt.Errorf("type: %q is neither int nor float", n.Type)
	case !slices.Contains([]string{"tensor", "channel", "group", "tensor_group", "block"}, n.Strategy):
		return fmt.Errorf("strategy: %q is none of tensor, channel, group, tensor_group and block", n.Strategy)
	case grouped && n.Group == nil:
		return fmt.Errorf("group_size is missing, for strategy %q", n.Strategy)
	case n.group < -1 || grouped != (n.group > 0):
		return fmt.Errorf("group_size: %d contradicts strategy %q", n.group, n.Strategy)
	case n.Strategy == "block" && n.block == nil:
		return errors.New("block_structure is missing, for strategy \"block\"")
	case n.Strategy != "block" && n.block != nil:
		return fmt.Errorf("block_structure: %.80s contradicts strategy %q", n.Structure, n.Strategy)
	case n.ordered && !grouped:
		return fmt.Errorf("actorder: %v contradicts strategy %q", n.ActOrder, n.Strategy)
	}
	return nil
}

// parseBlock returns the rows and columns of a block, nil for none.
func parseBlock(raw json.RawMessage) (block []int, err error) {
	if isNull(raw) {
		return nil, nil
	}
	separates := func(r rune) bool { return strings.ContainsRune(`"[], x`, r) }
	for _, part := range strings.FieldsFunc(string(raw), separates) {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("block_structure: %.80s, expected rows and columns", raw)
		}
		block = append(block, n)
	}
	if len(block) != 2 {
		return nil, fmt.Errorf("block_structure: %.80s, expected rows and columns", raw)
	}
	return block, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

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
			if w.group > 0 {
				text += fmt.Sprintf(", groups of %d", w.group)
			}
		}
		if !slices.Contains(formats, text) {
			formats = append(formats, text)
		}
	}
	return "compressed-tensors, " + strings.Join(formats, "; ")
}

// of returns the scheme of a module: by the module's name before patterns, and by patterns before classes, in the order
// of targets (match_targets in compressed_tensors/utils/match.py).
func (p *compressed) of(module string) (*scheme, error) {
	for _, target := range p.Ignore {
		if p.rank(target, module) >= byPattern {
			return nil, fmt.Errorf("it is packed, but ignore has %q", target)
		}
	}
	var best *scheme
	most, first := 0, ""
	for _, name := range slices.Sorted(maps.Keys(p.Groups)) {
		for _, target := range p.Groups[name].Targets {
			if n := p.rank(target, module); n > most || n == most && n > 0 && target < first {
				best, most, first = p.Groups[name], n, target
			}
		}
	}
	if best == nil || best.Weights == nil {
		return nil, errors.New("it is packed, but no target of config_groups tells how")
	}
	return best, nil
}

func (p *compressed) says(module string) string {
	s, err := p.of(module)
	if err != nil {
		return fmt.Sprintf("%d config_groups", len(p.Groups))
	}
	w := s.Weights
	text := fmt.Sprintf("in config_groups.%s num_bits %d, type %s, strategy %s", s.name, w.Bits, w.Type, w.Strategy)
	if w.group > 0 {
		text += fmt.Sprintf(", group_size %d", w.group)
	}
	if w.block != nil {
		text += fmt.Sprintf(", block_structure %v", w.block)
	}
	return text
}

// Ranks of targets, the more specific the higher: a class may be a name that only PyTorch knows.
const (
	byClass = 1 + iota
	byLinear
	byPattern
	byName
)

// rank returns how specific a target is about a module, 0 for not at all. A pattern that looks around counts as
// a class.
func (p *compressed) rank(target, module string) int {
	re, is := p.patterns[target], strings.HasPrefix(target, "re:")
	embedding := strings.HasSuffix(module, "embed_tokens") || strings.HasSuffix(module, "wte")
	switch {
	case target == module:
		return byName
	case re != nil && re.matches(module):
		return byPattern
	case re != nil, !is && strings.Contains(target, "."):
		return 0
	case target == "Embedding" && embedding, target == "Linear" && !embedding:
		return byLinear
	case target == "Embedding", target == "Linear":
		return 0
	}
	return byClass
}

func (p *compressed) weight(m *module) (tensor.Tensor, error) {
	w, ending := m.first("weight_packed", "weight")
	if ending == "" {
		return w, m.other("compressed-tensors")
	}
	s, err := p.of(m.name)
	if err != nil {
		return w, err
	}
	if err := s.check(m, ending, w); err != nil {
		return w, err
	}
	m.signed = s.Weights.Type == "int"
	switch w.DType {
	case tensor.U8:
		return readFours(m, w, s.Weights.group, "weight_global_scale")
	case tensor.I32:
		return s.readPacked(m, w)
	}
	if _, ok := m.parts["weight_zero_point"]; ok || s.Weights.Strategy == "group" {
		return s.readGroups(m, w, &matrix{codes: &octets{w.Data, w.Shape.Last()}, values: findValues(w.DType)}, w.Shape)
	}
	return readScaled(m, w, findValues(w.DType), "weight_scale", s.Weights.block)
}

// check returns an error where a weight has another type than the scheme's numbers, or lacks zero points.
func (s *scheme) check(m *module, ending string, w tensor.Tensor) error {
	want, bits := tensor.Invalid, s.Weights.Bits
	switch kind := s.Weights.Type; {
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

// readPacked reads whole numbers in 32-bit words, whose smallest code stands for the smallest signed number. Until
// June 2026 words of 3, 5, 6 and 7 bits had spare bits (pack_to_int32 in compressors/pack_quantized/helpers.py).
func (s *scheme) readPacked(m *module, w tensor.Tensor) (tensor.Tensor, error) {
	matrices, rows, words, err := splitShape(w.Shape)
	if err != nil {
		return w, err
	}
	is, err := m.need("weight_shape", []tensor.DType{tensor.I64, tensor.I32}, tensor.Shape{len(w.Shape)})
	if err != nil {
		return w, err
	}
	n, columns := integer(is, len(w.Shape)-2), integer(is, len(w.Shape)-1)
	q := &codes{data: w.Data, bits: s.Weights.Bits, line: words, word: 1}
	if columns > 0 && columns <= int64(words)*32 && words > q.words(int(columns)) {
		q.per = 32 / q.bits
	}
	if n != int64(rows) || columns < 1 || columns > int64(words)*32 || words != q.words(int(columns)) {
		return w, fmt.Errorf("weight_packed has shape %v, but weight_shape is [%d %d] of %d bits", []int(w.Shape), n,
			columns, s.Weights.Bits)
	}
	x := &matrix{codes: q, values: naturals, rows: matrices * rows}
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
		groups = x.divide(s.Weights.group)
	}
	shapes := []tensor.Shape{reshape(shape, rows, groups)}
	if s.Weights.Strategy == "tensor" {
		shapes = scalars(shape)
	}
	scale, err := m.scale("weight_scale", scaleTypes, shapes...)
	if err != nil {
		return w, err
	}
	if s.Weights.Strategy != "tensor" {
		x.scale = byRows(scale, rows, 1)
	} else if x.scale, err = whole("weight_scale", scale, x.rows); err != nil {
		return w, err
	}
	if zero, ok := m.part("weight_zero_point"); ok {
		none := x.zero
		if err := s.zeros(x, zero, shapes, rows, groups); err != nil {
			return w, err
		}
		if is := s.Weights.Symmetric; is == nil || *is { // early versions write zeros nevertheless
			middle := 0
			if none != nil {
				middle = int(none(0, 0))
			}
			if !x.all(x.zero, isFrom(middle, middle)) {
				return w, fmt.Errorf("weight_zero_point has others than 0, but config_groups.%s.weights.symmetric is "+
					"not false", s.name)
			}
			x.zero = none
		}
	}
	if g, ok := m.part("weight_g_idx"); ok {
		if err := wants("weight_g_idx", g, []tensor.DType{tensor.I32}, tensor.Shape{columns}); err != nil {
			return w, err
		}
		err = x.order("weight_g_idx", g, groups)
	} else if s.Weights.ordered {
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
		count, want := c.words(rows), tensor.Shape{}
		if x.rows > rows {
			want = append(want, x.rows/rows)
		}
		z := codes{data: zero.Data, bits: c.bits, per: c.per, line: 1, word: groups, across: true}
		x.zero = func(row, group int) float32 { return float32(z.at(row%rows, row/rows*count*groups+group)) }
		return wants("weight_zero_point", zero, []tensor.DType{tensor.I32}, append(want, count, groups))
	}
	if err := wants("weight_zero_point", zero, []tensor.DType{tensor.I8, tensor.F8_E4M3}, shapes...); err != nil {
		return err
	}
	signed, offset := byRows(zero, rows, 1), float32(0)
	if x.zero != nil {
		offset = x.zero(0, 0)
	}
	if read := number(zero.DType); s.Weights.Strategy == "tensor" {
		signed = func(row, _ int) float32 { return read(zero.Data, min(row/rows, zero.Shape.Size()-1)) }
	}
	x.zero = func(row, group int) float32 { return signed(row, group) + offset }
	return nil
}
