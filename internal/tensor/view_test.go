package tensor

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestJoin reads parts as one tensor: whole, by rows, and across their borders.
func TestJoin(t *testing.T) {
	part := func(name, data string) Tensor {
		return Tensor{Name: name, DType: U8, Shape: Shape{2, 3}, Data: []byte(data)}
	}
	x, err := Join("all", []Tensor{part("a", "abcdef"), part("b", "ghijkl"), part("c", "mnopqr")})
	if err != nil || x.Data != nil || x.Size() != 18 || x.Rows() != 6 || !x.There() {
		t.Fatalf("%+v, %v", x, err)
	}
	if m := x.Matrix(1); string(m.Data) != "ghijkl" || len(m.Shape) != 2 {
		t.Errorf("matrix %+v", m)
	}
	if p, err := x.Part(1, 4); err != nil || string(p.Data) != "defghijkl" {
		t.Errorf("rows 1 to 4 are %q, %v", p.Data, err)
	}
	if p, err := x.Whole(); err != nil || string(p.Data) != "abcdefghijklmnopqr" || len(p.Shape) != 3 || p.Source != nil {
		t.Errorf("whole: %+v, %v", p, err)
	}
	var buf []byte
	if got := x.Span(1, 3, &buf); string(got) != "defghi" || string(x.Row(5)) != "pqr" {
		t.Errorf("span %q, row %q", got, x.Row(5))
	}
	if n, err := x.Source.ReadAt(make([]byte, 4), 16); n != 2 || err == nil {
		t.Errorf("beyond the end: %d bytes, %v", n, err)
	}
	other := part("b", "ghi")
	other.Shape = Shape{1, 3}
	if _, err := Join("all", []Tensor{part("a", "abcdef"), other}); err == nil || !strings.Contains(err.Error(), "[1 3]") {
		t.Errorf("parts of two shapes: %v", err)
	}
}

// TestTurn reads a matrix as its transpose, at any element.
func TestTurn(t *testing.T) {
	in := Tensor{Name: "w", DType: F16, Shape: Shape{2, 3}, Data: []byte("aAbBcCdDeEfF")}
	const want = "aAdDbBeEcCfF"
	x := Turn(in)
	whole, err := x.Whole()
	if err != nil || string(whole.Data) != want || whole.Shape[0] != 3 || whole.Shape[1] != 2 {
		t.Fatalf("%+v, %v", whole, err)
	}
	for from := range len(want) { // within elements, too
		for to := from; to <= len(want); to++ {
			got := make([]byte, to-from)
			if _, err := x.Source.ReadAt(got, int64(from)); err != nil || string(got) != want[from:to] {
				t.Errorf("bytes %d to %d: %q, %v", from, to, got, err)
			}
		}
	}
	if !bytes.Equal(x.Row(1), []byte("bBeE")) {
		t.Errorf("row 1 is %q", x.Row(1))
	}
	for off, left := range map[int64]int{10: 2, 11: 1, 12: 0, 13: 0, -1: 0} {
		if n, err := x.Source.ReadAt(make([]byte, 4), off); n != left || err == nil {
			t.Errorf("beyond the end, from %d: %d bytes, %v", off, n, err)
		}
	}
	back, _ := whole.Part(0, 3)
	back = Turn(Tensor{DType: F16, Shape: Shape{3, 2}, Data: back.Data})
	if again, _ := back.Whole(); !bytes.Equal(again.Data, in.Data) {
		t.Errorf("turned twice: %q", again.Data)
	}
}

// TestStacks turns, picks from and weaves two matrices: whole, and at any unit.
func TestStacks(t *testing.T) {
	in := Tensor{Name: "w", DType: U8, Shape: Shape{2, 2, 4}, Data: []byte("abcdefghijklmnop")}
	flat := Tensor{Name: "b", DType: U8, Shape: Shape{2, 4}, Data: []byte("abcdefgh")}
	blocks := Tensor{Name: "q", DType: Q8_0, Shape: Shape{1, 2, 32}, Data: bytes.Repeat([]byte("xy"), 34)}
	copy(blocks.Data[34:], bytes.Repeat([]byte("z"), 34))
	turned, picked := Turn(in), Pick(Turn(in), 1, 2)
	for _, c := range []struct {
		x    Tensor
		want string
	}{
		{turned, "aebfcgdhimjnkolp"},
		{picked, "bfdhjnlp"},
		{Turn(turned), "abcdefghijklmnop"},
		{Pick(flat, 0, 2), "aceg"},
		{Pick(in, 1, 2), "efghmnop"},
		{Pick(blocks, 1, 2), strings.Repeat("z", 34)},
		{Weave("w", []Tensor{Pick(in, 0, 2), Pick(in, 1, 2)}), "abcdefghijklmnop"},
		{Weave("b", []Tensor{Pick(flat, 0, 2), Pick(flat, 1, 2)}), "abcdefgh"},
		{Weave("q", []Tensor{Pick(blocks, 0, 2), Pick(blocks, 1, 2)}), string(blocks.Data)},
	} {
		whole, err := c.x.Whole()
		if err != nil || string(whole.Data) != c.want || whole.Shape.Size()/c.x.DType.BlockSize()*c.x.DType.BlockBytes() != len(c.want) {
			t.Errorf("%v: %q, %v, want %q", c.x.Shape, whole.Data, err, c.want)
		}
		if got := c.x.Row(c.x.Rows() - 1); !strings.HasSuffix(c.want, string(got)) {
			t.Errorf("%v: the last row is %q", c.x.Shape, got)
		}
		if c.x.DType.Quantized() {
			continue
		}
		for from := range c.want {
			got := make([]byte, 1)
			if _, err := c.x.Source.ReadAt(got, int64(from)); err != nil || got[0] != c.want[from] {
				t.Errorf("%v: byte %d is %q, %v", c.x.Shape, from, got, err)
			}
		}
		if n, err := c.x.Source.ReadAt(make([]byte, 3), int64(len(c.want)-1)); n != 1 || err == nil {
			t.Errorf("%v: beyond the end: %d bytes, %v", c.x.Shape, n, err)
		}
	}
	if got := picked.Origin(); len(got) != 1 || &got[0][0] != &in.Data[0] {
		t.Error("a view is not stored where its tensor is")
	}
}

// TestShortSource wants a panic, not zeros, where a Source has fewer bytes than the tensor.
func TestShortSource(t *testing.T) {
	x := Tensor{Name: "w", DType: F32, Shape: Shape{3, 4}, Source: bytes.NewReader(make([]byte, 40))}
	var buf []byte
	for name, read := range map[string]func(){
		"Row":     func() { x.Row(2) },
		"RowPart": func() { x.RowPart(2, 4, make([]byte, 12)) },
		"Span":    func() { x.Span(1, 3, &buf) },
	} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v, want io.EOF", name, err)
				}
			}()
			read()
		}()
	}
	if row := x.Row(1); len(row) != 16 {
		t.Errorf("row 1 has %d bytes", len(row))
	}
}

// hasCodes is the Source of a matrix of floats with codes of a type.
type hasCodes struct {
	io.ReaderAt
	of DType
}

func (h hasCodes) Coded(int, int) (Coded, bool) { return Coded{Tensor: Tensor{DType: h.of}}, true }

// TestCodeType: a stack has codes of the type that all its matrices have.
func TestCodeType(t *testing.T) {
	part := func(of DType) Tensor {
		x := Tensor{DType: F32, Shape: Shape{2, 32}, Data: make([]byte, 256)}
		if of != F32 {
			x.Data, x.Source = nil, hasCodes{of: of}
		}
		return x
	}
	for _, c := range []struct {
		of   []DType
		want DType
	}{{[]DType{Q4_0, Q4_0, Q4_0}, Q4_0}, {[]DType{Q4_0, Q4_0, F32}, F32}, {[]DType{F32, Q4_0}, F32}, {[]DType{F32}, F32},
		{[]DType{Q4_0, Q8_0}, F32}, {[]DType{F8_32, F8_32}, F32}} {
		var parts []Tensor
		for _, of := range c.of {
			parts = append(parts, part(of))
		}
		x, err := Join("", parts)
		if d := x.CodeType(); err != nil || d != c.want {
			t.Errorf("%v: %v, want %v, %v", c.of, d, c.want, err)
		}
	}
}
