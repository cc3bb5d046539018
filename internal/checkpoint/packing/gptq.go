package packing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

// gptq reads the packing of AutoGPTQ and GPTQModel: words along a weight's columns, in sequence for each of its rows. A
// weight is scale * (code - zero).
type gptq struct {
	Bits       int
	Group      int    `json:"group_size"`
	Checkpoint string `json:"checkpoint_format"`
	Format     string // the same, in GPTQModel's files (gptqmodel/quantization/config.py)
	Marlin     bool   `json:"is_marlin_format"`
	DescAct    bool   `json:"desc_act"`
	Dynamic    map[string]any
}

func (p *gptq) validate() error {
	p.Checkpoint = cmp.Or(p.Format, p.Checkpoint)
	switch p.Checkpoint {
	case "", "gptq", "gptq_v2":
	default:
		return fmt.Errorf("checkpoint_format %q is not read, gptq and gptq_v2 are; %s", p.Checkpoint, advice)
	}
	if p.Marlin {
		return fmt.Errorf("is_marlin_format: codes in an order of that kernel are not read; %s", advice)
	}
	switch p.Bits {
	case 2, 3, 4, 8:
		return nil
	}
	return fmt.Errorf("bits is %d, expected 2, 3, 4 or 8", p.Bits)
}

func (p *gptq) Name() string { return describe("GPTQ", p.Bits, p.Group) }

// describe names a packing of whole numbers.
func describe(name string, bits, group int) string {
	if group > 0 {
		return fmt.Sprintf("%s, %d bits, groups of %d", name, bits, group)
	}
	return fmt.Sprintf("%s, %d bits", name, bits)
}

func (p *gptq) weight(m *module) (tensor.Tensor, error) {
	q, scales, groups, err := readTransposed(m, "GPTQ")
	if err != nil {
		return q, err
	}
	rows, bits := q.Shape[1], p.Bits
	if err := wants("scales", scales, floats, tensor.Shape{groups, rows}); err != nil {
		return q, err
	}
	zeros, ok := m.part("qzeros")
	if ok && len(p.Dynamic) > 0 && len(zeros.Shape) == 2 { // modules may differ in bits
		bits = zeros.Shape[1] * 32 / rows
	}
	if !slices.Contains([]int{2, 3, 4, 8}, bits) { // GPTQModel writes others in planes (PLANAR_BITS)
		return q, fmt.Errorf("%d bits, expected 2, 3, 4 or 8", bits)
	}
	if zeros, err = m.need("qzeros", words, tensor.Shape{groups, upTo(rows*bits, 32)}); err != nil {
		return q, err
	}
	columns := q.Shape[0] * 32 / bits
	x := &matrix{codes: &codes{data: q.Data, bits: bits, line: 1, word: rows}, values: naturals, rows: rows,
		columns: columns, scale: byGroups(scales)}
	size := p.Group
	if size < 1 || len(p.Dynamic) > 0 {
		size = upTo(columns, groups)
	}
	if x.divide(size) != groups || q.Shape[0] != upTo(columns*bits, 32) {
		return q, x.misfit(scales)
	}
	plus := byte(1) // the first format has zero points less 1
	if p.Checkpoint == "gptq_v2" {
		plus = 0
	}
	x.zero = (&codes{data: zeros.Data, bits: bits, line: zeros.Shape[1], word: 1, across: true}).grid(plus)
	if order, ok := m.part("g_idx"); ok {
		if err := wants("g_idx", order, words, tensor.Shape{columns}); err != nil {
			return q, err
		}
		if err := x.order("g_idx", order, groups); err != nil {
			return q, err
		}
	} else if p.DescAct && groups > 1 {
		return q, errors.New("g_idx is missing: config.json has desc_act")
	}
	return x.tensor(m, tensor.Shape{rows, columns})
}

// readTransposed returns codes and scales with a column for each row of the weight, and the number of groups.
func readTransposed(m *module, name string) (q, scales tensor.Tensor, groups int, err error) {
	q, ok := m.part("qweight")
	if !ok {
		return q, q, 0, fmt.Errorf("it has codes of another packing than %s", name)
	}
	scales, ok = m.part("scales")
	if !ok {
		return q, scales, 0, errors.New("scales is missing")
	}
	for _, t := range []tensor.Tensor{q, scales} {
		if len(t.Shape) != 2 || slices.Min(t.Shape) < 1 {
			return q, scales, 0, fmt.Errorf("%s has shape %v, expected a matrix", t.Name, []int(t.Shape))
		}
	}
	return q, scales, scales.Shape[0], wants("qweight", q, words, q.Shape)
}
