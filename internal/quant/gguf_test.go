package quant

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// readGGUF lists the tensors of a trusted GGUF file.
func readGGUF(t *testing.T, path string) []tensor.Tensor {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := data[8:] // magic, version
	u32 := func() (v uint32) { v, b = binary.LittleEndian.Uint32(b), b[4:]; return }
	u64 := func() (v int) { v, b = int(binary.LittleEndian.Uint64(b)), b[8:]; return }
	str := func() (s string) { n := u64(); s, b = string(b[:n]), b[n:]; return }
	var value func(kind uint32)
	value = func(kind uint32) {
		switch kind {
		case 8:
			str()
		case 9:
			kind := u32()
			for range u64() {
				value(kind)
			}
		default:
			b = b[[]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}[kind]:]
		}
	}
	types := map[uint32]tensor.DType{0: tensor.F32, 1: tensor.F16, 2: tensor.Q4_0, 3: tensor.Q4_1, 6: tensor.Q5_0,
		7: tensor.Q5_1, 8: tensor.Q8_0, 10: tensor.Q2_K, 11: tensor.Q3_K, 12: tensor.Q4_K, 13: tensor.Q5_K,
		14: tensor.Q6_K, 20: tensor.IQ4_NL, 23: tensor.IQ4_XS, 30: tensor.BF16, 39: tensor.MXFP4}
	tensors := make([]tensor.Tensor, u64())
	for range u64() {
		str()
		value(u32())
	}
	offsets := make([]int, len(tensors))
	for i := range tensors {
		x := &tensors[i]
		x.Name = str()
		for range u32() {
			x.Shape = append(x.Shape, u64())
		}
		slices.Reverse(x.Shape)
		x.DType, offsets[i] = types[u32()], u64()
	}
	rest := data[(len(data)-len(b)+31)/32*32:]
	for i := range tensors {
		n, err := tensor.Bytes(tensors[i].DType, tensors[i].Shape)
		if err != nil {
			t.Fatal(err)
		}
		tensors[i].Data = rest[offsets[i] : offsets[i]+n]
	}
	return tensors
}
