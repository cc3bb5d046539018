package packing

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// TestCoded: the codes behind values of F32, their scales times the factors and their columns in order, are the values,
// of all rows and of some.
func TestCoded(t *testing.T) {
	for name, want := range map[string]tensor.DType{"gptq-act-order": tensor.Grouped(4, 32, true),
		"ct-int4-actorder": tensor.Q4_0, "ct-nvfp4": tensor.NVFP4, "modelopt-nvfp4": tensor.NVFP4} {
		config, parts := layer(t, name)
		all, err := apply(config, parts)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []tensor.Tensor{all[0], tensor.Cut(all[0], 2, 3)} {
			values := floatsOf(t, w)
			c, ok := w.Coded()
			if !ok || c.DType != want || w.CodeType() != want || (c.Columns == nil) != (want == tensor.NVFP4) {
				t.Fatalf("%s: %v, %v", name, ok, c.DType)
			}
			codes := floatsOf(t, c.Tensor)
			for i, v := range values {
				at := i
				if c.Columns != nil {
					at = i/64*64 + find(c.Columns, i%64)
				}
				got := codes[at]
				if want == tensor.NVFP4 { // the factor belongs to the scale
					scale := quantScale(t, c.Tensor, i)
					got = codes[i] / scale * (scale * c.Mul / c.Div)
				}
				if got != v {
					t.Fatalf("%s: number %d is %v, want %v", name, i, got, v)
				}
			}
		}
	}
}

// find returns the place of v.
func find(all []int, v int) int {
	for i, x := range all {
		if x == v {
			return i
		}
	}
	return -1
}

// quantScale returns the scale of number i of a matrix of NVFP4.
func quantScale(t *testing.T, x tensor.Tensor, i int) float32 {
	t.Helper()
	x, err := x.Whole()
	if err != nil {
		t.Fatal(err)
	}
	return e4m3[x.Data[i/64*36+i%64/16]]
}

// floatsOf returns a tensor's values.
func floatsOf(t *testing.T, x tensor.Tensor) []float32 {
	t.Helper()
	x, err := x.Whole()
	v := make([]float32, x.Shape.Size())
	if err == nil {
		err = quant.Dequantize(x.DType, v, x.Data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEmptyGroup refuses an order in which a group has no column, and codes whose groups differ in size have values
// alone.
func TestEmptyGroup(t *testing.T) {
	config, parts := layer(t, "gptq-act-order")
	order := parts["m.q_proj.g_idx"]
	order.Data = make([]byte, len(order.Data))
	parts[order.Name] = order
	fails(t, string(config), parts, "g_idx has no column of group 1, there are 2")
	binary.LittleEndian.PutUint32(order.Data[4*5:], 1)
	all, err := apply(config, parts)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := all[0].Coded(); ok || all[0].CodeType() != tensor.F32 {
		t.Errorf("groups of 63 and 1: %v", c.DType)
	}
	for _, v := range floatsOf(t, all[0]) {
		if math.IsNaN(float64(v)) {
			t.Fatal("NaN")
		}
	}
}

// TestReorder moves runs of columns of packed weights as of their values, and keeps the codes where runs are of whole
// groups.
func TestReorder(t *testing.T) {
	for name, kept := range map[string]bool{"fp8-tensor-static": true, "ct-float-channel": true, "fp8-block-e8m0": true,
		"modelopt-mxfp8": false, "modelopt-nvfp4": true, "ct-nvfp4": true, "gptq-act-order": false} {
		config, parts := layer(t, name)
		all, err := apply(config, parts)
		if err != nil {
			t.Fatal(err)
		}
		w, ok := Reorder(all[0], 2, 2)
		if ok != kept {
			t.Errorf("%s: %v", name, ok)
		}
		if !ok {
			continue
		}
		was, _ := all[0].Coded()
		if c, _ := w.Coded(); c.DType != was.DType || was.DType == tensor.Invalid {
			t.Errorf("%s: codes of %v, were %v", name, c.DType, was.DType)
		}
		if !slices.Equal(floatsOf(t, w), floatsOf(t, tensor.Regroup(all[0], 2, 2))) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestSignedScale: NVFP4's scales have no sign, so that values alone stand for codes with a negative scale.
func TestSignedScale(t *testing.T) {
	for _, name := range []string{"ct-nvfp4", "modelopt-nvfp4"} {
		config, parts := layer(t, name)
		plain := values(t, string(config), parts)
		scale := parts["m.q_proj.weight_scale"]
		scale.Data[3*64/16+1] |= 0x80 // of row 3, columns 16 to 31
		all, err := apply(config, parts)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := all[0].Coded(); ok || all[0].DType != tensor.F32 {
			t.Errorf("%s: %v, codes of %v", name, all[0].DType, c.DType)
		}
		for i, v := range floatsOf(t, all[0]) {
			if want := plain[i]; i/16 == 3*64/16+1 && v != -want || i/16 != 3*64/16+1 && v != want {
				t.Fatalf("%s: number %d is %v, was %v", name, i, v, want)
			}
		}
	}
}

// TestFarZero: grouped types have zero points of their codes' bits, and values alone stand for zero points beyond.
func TestFarZero(t *testing.T) {
	for zero, want := range map[int8]tensor.DType{-9: tensor.F32, -8: tensor.Grouped(4, 32, true),
		7: tensor.Grouped(4, 32, true), 8: tensor.F32} {
		config, parts := layer(t, "ct-int4-group")
		plain := values(t, string(config), parts)
		config = bytes.Replace(config, []byte(`"symmetric":true`), []byte(`"symmetric":false`), 1)
		scale := number(parts["m.q_proj.weight_scale"].DType)
		zeros := make([]byte, 48*2)
		zeros[5*2+1] = byte(zero) // of row 5, columns 32 to 63
		name := "m.q_proj.weight_zero_point"
		parts[name] = tensor.Tensor{Name: name, DType: tensor.I8, Shape: tensor.Shape{48, 2}, Data: zeros}
		all, err := apply(config, parts)
		if err != nil {
			t.Fatal(err)
		}
		if all[0].DType != want {
			t.Errorf("zero point %d: %v, want %v", zero, all[0].DType, want)
		}
		by := scale(parts["m.q_proj.weight_scale"].Data, 5*2+1)
		for i, v := range floatsOf(t, all[0]) {
			want := plain[i]
			if i/32 == 5*2+1 {
				want = (want/by - float32(zero)) * by
			}
			if v != want {
				t.Fatalf("zero point %d: number %d is %v, want %v", zero, i, v, want)
			}
		}
	}
}
