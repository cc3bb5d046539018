package packing

import (
	"cmp"
	"errors"
	"fmt"
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
	Marlin     bool   `json:"is_marlin_format"`
	DescAct    bool   `json:"desc_act"`
	Dynamic    map[string]any
	Extra      map[string]any `json:"extra_config"` // the same, of auto-round
}

func (p *gptq) validate() error {
	p.Checkpoint, p.Bits = strings.ToLower(cmp.Or(p.Format, p.Checkpoint)), cmp.Or(p.Bits, 4) // AutoGPTQ's default
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
		bits, size = zeros.Shape[1]*32/rows, 0
	}
	if !slices.Contains([]int{2, 3, 4, 8}, bits) { // GPTQModel writes others in planes (PLANAR_BITS)
		return q, fmt.Errorf("%d bits, expected 2, 3, 4 or 8", bits)
	}
	x := &matrix{codes: &codes{data: q.Data, bits: bits, line: 1, word: rows}, values: naturals, rows: rows,
		columns: q.Shape[0] * 32 / bits, scale: byGroups(scales), halves: scales.DType == tensor.F16,
		bounded: true}
	if size == 0 {
		size = upTo(x.columns, scales.Shape[0])
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
