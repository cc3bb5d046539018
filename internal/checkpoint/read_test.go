package checkpoint

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// TestHalvedUnits reads halves at any byte.
func TestHalvedUnits(t *testing.T) {
	in := tensor.Tensor{Name: "kv", DType: tensor.F16, Shape: tensor.Shape{6, 2}, Data: []byte("aAbBcCdDeEfFgGhHiIjJkKlL")}
	for want, h := range map[string]*halved{
		"aAcCbBdDgGiIhHjJ": {in: in, step: 3, rows: 2, turned: true}, // of each head of 3 rows the first 2
		"eEfFkKlL":         {in: in, step: 3, from: 2, rows: 1},
	} {
		for from := range len(want) {
			for to := from; to <= len(want); to++ {
				p := make([]byte, to-from)
				if n, err := h.ReadAt(p, int64(from)); err != nil || n != len(p) || string(p) != want[from:to] {
					t.Fatalf("bytes %d to %d of %q: %q, %v", from, to, want, p[:n], err)
				}
			}
		}
		if n, err := h.ReadAt(make([]byte, 3), int64(len(want)-2)); n != 2 || err == nil {
			t.Errorf("beyond the end: %d bytes, %v", n, err)
		}
	}
}

// TestUnread: a tensor that must be read and cannot be says so, of either format.
func TestUnread(t *testing.T) {
	bad := tensor.Unread{Err: errors.New("a bad sector")}
	for _, f := range []Format{GGUF, HuggingFace} {
		c := newCheckpoint("x", f)
		c.Family = registry.Find("gemma3")
		name := c.Name("output_norm", "norm")
		c.set.ByName[name] = tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{2}, Source: bad}
		x, ok := c.Tensor("output_norm", "norm")
		u, unread := x.Source.(tensor.Unread)
		if !ok || !unread || !errors.Is(u.Err, bad.Err) || !slices.Equal(x.Shape, tensor.Shape{2}) {
			t.Errorf("%v: %+v, %v", f, x, ok)
		}
	}
}

// TestRegroup moves the columns of heads shorter than a block: values move, whatever their type, and come back.
func TestRegroup(t *testing.T) {
	const rows, columns = 3, 128 // 8 heads of 16 in 2 groups
	h := Habit{tiled: tiled{groups: 2, heads: 8, size: 16, columns: true}}
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32((i*37)%255 - 127)
		if i%32 == 5 {
			values[i] = 127 // the scale of each block is 1
		}
	}
	x := tensor.Tensor{Name: "w", DType: tensor.Q8_0, Shape: tensor.Shape{rows, columns}}
	for b := 0; b < len(values); b += 32 {
		x.Data = append(x.Data, 0x00, 0x3c)
		for _, v := range values[b : b+32] {
			x.Data = append(x.Data, byte(int8(v)))
		}
	}
	for _, back := range []bool{false, true} {
		plain := tensor.Tensor{Name: "w", DType: tensor.F32, Shape: x.Shape, Data: bytesOf(values)}
		got, want := floatsOf(t, h.Regroup(x, back)), floatsOf(t, h.Regroup(plain, back))
		if !slices.Equal(got, want) || slices.Equal(got, values) {
			t.Errorf("back %v: %v, want %v", back, got, want)
		}
	}
}

// TestFactoredAway reads weights with factors from a file beyond mapping, from rows on, as from memory.
func TestFactoredAway(t *testing.T) {
	const rows, columns, before = 4, 128, 9
	data := make([]byte, tensor.NVFP4.RowBytes(2*rows*columns))
	for i := range data {
		data[i] = byte(i*37+i/36) & 127
	}
	in := tensor.Tensor{DType: tensor.NVFP4, Shape: tensor.Shape{2, rows, columns}, Data: data}
	away := in
	away.Data, away.Source, away.At = nil, bytes.NewReader(append(make([]byte, before), data...)), before
	var values [2][]float32
	for i, in := range []tensor.Tensor{in, away} {
		x := tensor.Tensor{DType: tensor.F32, Shape: in.Shape, Source: &factored{in: in, by: []float32{0.3, 0.7}, rows: rows}}
		values[i] = floatsOf(t, x)
		x = x.Matrix(1)
		x = tensor.Cut(x, 1, 2)
		c, ok := x.Coded()
		codes, err := c.Whole()
		if !ok || c.Mul != 0.7 || err != nil || !bytes.Equal(codes.Data, data[len(data)*3/4:]) {
			t.Errorf("source %d: %v, factor %v, %v", i, ok, c.Mul, err)
		}
		if !slices.Equal(floatsOf(t, x), values[i][3*rows*columns/2:]) {
			t.Errorf("source %d: other values from a row on", i)
		}
	}
	if !slices.Equal(values[0], values[1]) {
		t.Error("values differ")
	}
}
