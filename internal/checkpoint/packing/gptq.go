package packing

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// gptq reads the packing of AutoGPTQ and GPTQModel: words along a weight's columns, in sequence for each of its rows. A
// weight is scale * (code - zero).
type gptq struct {
	Bits       int
	Group      int    `json:"group_size"`
	Checkpoint string `json:"checkpoint_format"`
	Format     string // the same, in GPTQModel's files (gptqmodel/quantization/config.py)
	Packing    string `json:"packing_format"` // of auto-round
	Marlin     bool   `json:"is_marlin_format"`
	DescAct    bool   `json:"desc_act"`
	Sym        bool
	Dynamic    map[string]any
	Extra      map[string]any `json:"extra_config"` // the same, of auto-round
}

func (p *gptq) validate() error {
	p.Checkpoint, p.Bits = strings.ToLower(cmp.Or(p.Format, p.Checkpoint)), cmp.Or(p.Bits, 4) // AutoGPTQ's default
	if exactZeros(p.Packing) {
		p.Checkpoint = "gptq_v2"
	}
	switch p.Checkpoint {
	case "", "gptq", "gptq_v2":
	default:
		return fmt.Errorf("checkpoint_format %q is not read, gptq and gptq_v2 are; %s", p.Checkpoint, advice)
	}
	if p.Marlin {
		return fmt.Errorf("is_marlin_format: codes in an order of that kernel are not read; %s", advice)
	}
	if p.Group < -1 {
		return fmt.Errorf("group_size is %d, expected columns, or -1 for all", p.Group)
	}
	switch p.Bits {
	case 2, 3, 4, 8:
		return nil
	}
	return fmt.Errorf("bits is %d, expected 2, 3, 4 or 8", p.Bits)
}

func (p *gptq) Name() string { return describe("GPTQ", p.Bits, p.Group) }

func (p *gptq) says(string) string {
	return fmt.Sprintf("bits %d, group_size %d, desc_act %v", p.Bits, p.Group, p.DescAct)
}

// describe names a packing of whole numbers.
func describe(name string, bits, group int) string {
	if group > 0 {
		return fmt.Sprintf("%s, %d bits, groups of %d", name, bits, group)
	}
	return fmt.Sprintf("%s, %d bits", name, bits)
}

func (p *gptq) weight(m *module) (tensor.Tensor, error) {
	q, scales, err := readTransposed(m, "GPTQ")
	if err != nil {
		return q, err
	}
	rows, bits, size := q.Shape[1], p.Bits, p.Group
	zeros, ok := m.part("qzeros")
	if len(p.Dynamic)+len(p.Extra) > 0 && ok && len(zeros.Shape) == 2 { // modules may differ in bits and groups
		bits = zeros.Shape[1] * 32 / rows
	}
	if !slices.Contains([]int{2, 3, 4, 8}, bits) { // GPTQModel writes others in planes (PLANAR_BITS)
		return q, fmt.Errorf("%d bits, expected 2, 3, 4 or 8", bits)
	}
	x := &matrix{codes: &codes{data: q.Data, bits: bits, line: 1, word: rows}, values: naturals, rows: rows,
		columns: q.Shape[0] * 32 / bits, scale: byGroups(scales), halves: scales.DType == tensor.F16,
		bounded: true}
	if len(p.Dynamic)+len(p.Extra) > 0 {
		if size, err = p.own(m.name, x.columns, scales.Shape[0]); err != nil {
			return q, err
		}
	}
	groups, err := x.fit(scales, size)
	if err == nil && q.Shape[0] != upTo(x.columns*bits, 32) {
		err = fmt.Errorf("qweight has shape %v, no whole numbers of %d bits", []int(q.Shape), bits)
	}
	if err == nil {
		zeros, err = m.need("qzeros", words, tensor.Shape{groups, upTo(rows*bits, 32)})
	}
	if err != nil {
		return q, err
	}
	plus := byte(1) // the first format has zero points less 1
	if p.Checkpoint == "gptq_v2" {
		plus = 0
	}
	x.zero = (&codes{data: zeros.Data, bits: bits, line: zeros.Shape[1], word: 1, across: true}).grid(plus)
	if err := p.checkZeros(x, bits); err != nil {
		return q, err
	}
	if order, ok := m.part("g_idx"); ok {
		if err := wants("g_idx", order, words, tensor.Shape{x.columns}); err != nil {
			return q, err
		}
		if err := x.order("g_idx", order, groups); err != nil {
			return q, err
		}
	} else if p.DescAct && groups > 1 {
		return q, errors.New("g_idx is missing: config.json has desc_act")
	}
	return x.tensor(m, tensor.Shape{rows, x.columns})
}

// own returns the size of a module's groups where modules may differ, given the number of groups.
func (p *gptq) own(module string, columns, groups int) (int, error) {
	fits := func(size int) bool { return groups == 1 && size < 1 || size > 0 && upTo(columns, size) == groups }
	if fits(p.Group) {
		return p.Group, nil
	}
	for _, table := range []map[string]any{p.Dynamic, p.Extra} {
		for _, key := range slices.Sorted(maps.Keys(table)) {
			settings, _ := table[key].(map[string]any)
			size, ok := settings["group_size"].(float64)
			name, _, _ := parsePattern(strings.TrimPrefix(key, "+:")) // dynamic_get in GPTQModel's config.py
			if ok && fits(int(size)) && (key == module || name.is != nil && name.matches(module)) {
				return int(size), nil
			}
		}
	}
	if columns%groups != 0 {
		return 0, fmt.Errorf("scales has %d groups for %d columns, and no group_size gives as many", groups,
			columns)
	}
	return columns / groups, nil
}

// checkZeros returns an error about zero points that are all the same and off the middle, where config.json has sym:
// the format is another one than config.json says.
func (p *gptq) checkZeros(x *matrix, bits int) error {
	middle, zero := 1<<(bits-1), int(x.zero(0, 0))
	if !p.Sym || zero == middle || !x.all(x.zero, isFrom(zero, zero)) {
		return nil
	}
	other := "gptq_v2"
	if p.Checkpoint == other {
		other = "gptq"
	}
	return fmt.Errorf("qzeros stand for %d throughout, but sym is true, with zero points of %d: checkpoint_format is "+
		"perhaps %s", zero, middle, other)
}

// readTransposed returns codes and scales, whose columns are the weight's rows.
func readTransposed(m *module, name string) (q, scales tensor.Tensor, err error) {
	q, ok := m.part("qweight")
	if !ok {
		return q, q, m.other(name)
	}
	m.signed = true
	scales, err = m.scale("scales", floats, m.parts["scales"].Shape)
	for _, t := range []tensor.Tensor{q, scales} {
		if err == nil && (len(t.Shape) != 2 || slices.Min(t.Shape) < 1) {
			err = fmt.Errorf("%s has shape %v, expected a matrix", t.Name, []int(t.Shape))
		}
	}
	if err == nil {
		err = wants("qweight", q, words, q.Shape)
	}
	return q, scales, err
}

// awq reads the packing of AutoAWQ's gemm kernel: words along a weight's rows, of eight codes in another order.
type awq struct {
	Bits    int
	WBits   int `json:"w_bit"`
	Group   int `json:"group_size"`
	QGroup  int `json:"q_group_size"`
	Version string
	Format  string // the same, in GPTQModel's files
}

func (p *awq) validate() error {
	p.Bits, p.Group = cmp.Or(p.Bits, p.WBits, 4), cmp.Or(p.Group, p.QGroup, 128) // AutoAWQ's defaults (_config.py)
	if v := cmp.Or(p.Version, p.Format, "gemm"); !strings.EqualFold(v, "gemm") {
		return fmt.Errorf("version %q of AWQ is not read: its codes are in an order of that kernel; %s", v, advice)
	}
	if p.Group < -1 {
		return fmt.Errorf("group_size is %d, expected columns, or -1 for all", p.Group)
	}
	if p.Bits != 4 {
		return fmt.Errorf("bits is %d, expected 4", p.Bits)
	}
	return nil
}

func (p *awq) Name() string { return describe("AWQ", p.Bits, p.Group) }

func (p *awq) says(string) string { return fmt.Sprintf("bits %d, group_size %d", p.Bits, p.Group) }

func (p *awq) weight(m *module) (tensor.Tensor, error) {
	q, scales, err := readTransposed(m, "AWQ")
	if err != nil {
		return q, err
	}
	x := &matrix{codes: &codes{data: q.Data, bits: 4, line: q.Shape[1], word: 1, across: true, order: &awqOrder},
		values: naturals, rows: q.Shape[1] * 8, columns: q.Shape[0], scale: byGroups(scales),
		halves: scales.DType == tensor.F16, bounded: true}
	groups, err := x.fit(scales, p.Group)
	if err != nil {
		return q, err
	}
	zeros, err := m.need("qzeros", words, tensor.Shape{groups, q.Shape[1]})
	if err != nil {
		return q, err
	}
	z := &codes{data: zeros.Data, bits: 4, line: q.Shape[1], word: 1, across: true, order: &awqOrder}
	x.zero = z.grid(0)
	return x.tensor(m, tensor.Shape{x.rows, x.columns})
}

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
