package tensor

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		d    DType
		s    Shape
		want int
		err  string
	}{
		{F32, Shape{2, 3}, 24, ""},
		{F32, nil, 4, ""},
		{Q4_K, Shape{3, 512}, 3 * 2 * 144, ""},
		{Q8_0, Shape{2, 160}, 2 * 5 * 34, ""},
		{Q4_K, Shape{2, 160}, 0, "no multiple"},
		{F32, Shape{-1}, 0, "negative"},
		{F32, Shape{math.MaxInt, 2}, 0, "more elements"},
		{F32, Shape{math.MaxInt}, 0, "more bytes"},
		{Invalid, Shape{1}, 0, "element type"},
	} {
		got, err := Bytes(c.d, c.s)
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("Bytes(%v, %v) = %d, %v; want %d, %q", c.d, c.s, got, err, c.want, c.err)
		}
	}
}

func TestParseDType(t *testing.T) {
	for d := F32; d < numDTypes; d++ {
		if got, ok := ParseDType(d.String()); !ok || got != d {
			t.Errorf("ParseDType(%q) = %v, %v", d.String(), got, ok)
		}
	}
	if _, ok := ParseDType("invalid"); ok {
		t.Error("invalid is a type's name")
	}
}

func TestRow(t *testing.T) {
	x := Tensor{DType: F16, Shape: Shape{2, 3, 4}, Data: make([]byte, 48)}
	if x.Rows() != 6 {
		t.Errorf("Rows = %d", x.Rows())
	}
	x.Data[8] = 7
	if x.Row(1)[0] != 7 || len(x.Row(5)) != 8 {
		t.Error("Row")
	}
	var buf []byte
	if s := x.Span(1, 3, &buf); len(s) != 16 || &s[0] != &x.Data[8] || buf != nil {
		t.Error("Span of rows in order")
	}
	x.Order = func(row int) int { return 5 - row }
	if s := x.Span(3, 5, &buf); len(s) != 16 || s[8] != 7 || &s[0] == &x.Data[16] || x.Row(4)[0] != 7 {
		t.Errorf("Span of rows in another order: %v", s)
	}
}

// TestNotFinite finds a number with all bits of its exponent at any place, by itself and before others, and none among
// the largest finite numbers.
func TestNotFinite(t *testing.T) {
	for d, c := range map[DType]struct{ most, infinite []byte }{
		F32: {[]byte{255, 255, 127, 255}, []byte{0, 0, 128, 127}}, F16: {[]byte{255, 251}, []byte{0, 252}},
		BF16: {[]byte{127, 255}, []byte{128, 127}}, F8_E4M3: {[]byte{254}, []byte{127}}, F8_E8M0: {[]byte{254}, []byte{255}},
	} {
		for n := range 80 {
			b := bytes.Repeat(c.most, n)
			if got := NotFinite(d, b); got != -1 {
				t.Fatalf("%v: place %d of %d finite numbers", d, got, n)
			}
			for at := n - 1; at >= 0; at -= 1 + at%3 {
				copy(b[at*len(c.most):], c.infinite)
				if got := NotFinite(d, b); got != at {
					t.Fatalf("%v: place %d of %d numbers, want %d", d, got, n, at)
				}
			}
		}
	}
}
