package packing

import "github.com/karat-run/karat/internal/tensor"

// Reorder returns a packed weight with its columns, outer times inner runs, as inner times outer runs. The codes are
// copied and nothing is decoded. Reorder reports false where runs divide bytes or groups, and for other tensors.
func Reorder(t tensor.Tensor, outer, inner int) (tensor.Tensor, bool) {
	x, ok := t.Source.(*matrix)
	if !ok || x.groups != nil || t.At != 0 {
		return t, false
	}
	run := x.columns / (outer * inner)
	place := func(i int) int { return i%outer*inner + i/outer } // of the run that comes i-th
	y, bytes := *x, run
	var in, out []byte
	switch c := x.codes.(type) {
	case *octets:
		in, out = c.data, make([]byte, len(c.data))
		y.codes = &octets{out, c.columns}
	case *codes:
		in, out, bytes = c.data, make([]byte, len(c.data)), run/2
		own := *c
		own.data, y.codes = out, &own
		ok = c.bits == 4 && run%8 == 0 && c.word == 1 && !c.across && c.order == nil
	default:
		ok = false
	}
	if !ok || x.columns%(outer*inner) != 0 || x.group < x.columns && run%x.group != 0 {
		return t, false
	}
	row := bytes * outer * inner
	for at := 0; at < x.rows*row; at += row {
		for i := range outer * inner {
			copy(out[at+i*bytes:at+(i+1)*bytes], in[at+place(i)*bytes:])
		}
	}
	moved := func(g grid) grid {
		if g == nil || x.group == x.columns {
			return g
		}
		per := run / x.group
		return func(row, group int) float32 { return g(row, place(group/per)*per+group%per) }
	}
	y.scale, y.zero, y.bias, y.plain = moved(x.scale), moved(x.zero), moved(x.bias), moved(x.plain)
	if y.coded = nil; x.coded != nil {
		y.code()
	}
	t.Source = &y
	return t, true
}
