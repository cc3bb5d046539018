package packing

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

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
