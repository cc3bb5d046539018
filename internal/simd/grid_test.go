package simd

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/karat-run/karat/internal/float16"
)

// gridFormats have every number of points, and every width of signs.
var gridFormats = []GridFormat{
	{Low: Field{0, 8, 32, 8}, High: Field{256, 3, 16, 3}, Sign: Field{271, 1, 16, 0}, Scale: Field{268, 3, 64, 16}, Groups: 8, Bytes: 48, Unit: 0.125},
	{Low: Field{0, 8, 32, 8}, High: Field{256, 3, 16, 4}, Sign: Field{259, 1, 16, 4}, Scale: Field{384, 3, 16, 3}, Groups: 16, Bytes: 56, Unit: 1},
	{Low: Field{0, 8, 64, 8}, Sign: Field{32, 7, 64, 7}, Scale: Field{60, 4, 256, 64}, Groups: 8, Bytes: 64, Unit: 2},
	{Low: Field{0, 8, 64, 16}, High: Field{8, 1, 64, 16}, Sign: Field{9, 7, 64, 16}, Scale: Field{512, 4, 16, 4}, Groups: 16, Bytes: 72, Unit: 3},
	{Low: Field{0, 8, 32, 8}, High: Field{512, 2, 8, 2}, Sign: Field{256, 8, 32, 8}, Scale: Field{576, 4, 16, 4}, Groups: 16, Bytes: 80, Unit: 0.125},
	{Low: Field{0, 8, 64, 8}, Sign: Field{512, 7, 32, 7}, Scale: Field{540, 4, 128, 32}, Four: true, Groups: 8, Bytes: 96, Unit: 0.25},
	{Low: Field{0, 8, 64, 8}, High: Field{512, 1, 8, 1}, Sign: Field{576, 8, 32, 8}, Scale: Field{832, 4, 16, 4}, Four: true, Groups: 8, Bytes: 108, Unit: 1},
}

// grid makes the grid of a format, with random points and codes.
func (f GridFormat) grid(r *rand.ChaCha8) *Grid {
	points := make([]byte, 2<<(8+f.High.Width))
	r.Read(points)
	r.Read(f.Codes[:])
	if f.Four {
		for i := range points {
			points[i] &= 0x77 // 8 levels
		}
	} else {
		copy(f.Codes[4:8], f.Codes[:4])
		copy(f.Codes[12:], f.Codes[8:12])
	}
	f.Points = string(points)
	return NewGrid(&f)
}

// TestUnpackGrid compares every tier with the generic twin, on random blocks and on blocks of set and of clear bits.
func TestUnpackGrid(t *testing.T) {
	defer func(f func() bool) { gathers = f }(gathers)
	for _, way := range []bool{false, true} {
		gathers = func() bool { return way }
		testUnpackGrid(t)
	}
}

func testUnpackGrid(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		r := rand.NewChaCha8([32]byte{7})
		for i, f := range gridFormats {
			g := f.grid(r)
			for n := range 20 {
				src := make([]byte, g.Bytes())
				if r.Read(src); n < 2 {
					copy(src[2*PanelRows:], bytes.Repeat([]byte{byte(-n)}, len(src)))
				}
				codes, want := make([]byte, StoredColumns*PanelRows), make([]byte, StoredColumns*PanelRows)
				scales, all := make([]float32, f.Groups*PanelRows), make([]float32, f.Groups*PanelRows)
				unpackGridGeneric(want, all, src, g)
				UnpackGrid(codes, scales, src, g)
				if !bytes.Equal(codes, want) {
					t.Fatalf("format %d, block %d: other codes", i, n)
				}
				equal(t, fmt.Sprintf("scales of format %d, block %d", i, n), scales, all)
			}
		}
	})
}

// TestUnpackDigits compares every tier with the generic twin, on every byte.
func TestUnpackDigits(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		src := make([]byte, DigitBytes)
		for n := range 256 {
			for i := range src {
				src[i] = byte(n * (i + 1))
			}
			codes, want := make([]byte, StoredColumns*PanelRows), make([]byte, StoredColumns*PanelRows)
			unpackDigitsGeneric(want, src)
			if UnpackDigits(codes, src); !bytes.Equal(codes, want) {
				t.Fatalf("other codes of bytes from %d", n)
			}
		}
	})
}

// TestLoadE4M3 compares every tier with the generic twin, on every byte.
func TestLoadE4M3(t *testing.T) {
	src := make([]byte, 256)
	for i := range src {
		src[i] = byte(i)
	}
	eachTier(t, func(t *testing.T) {
		for _, n := range []int{0, 16, 256, 255} {
			dst, want := make([]float32, n), make([]float32, n)
			loadE4M3Generic(want, src[256-n:])
			LoadE4M3(dst, src[256-n:])
			equal(t, fmt.Sprintf("%d floats", n), dst, want)
		}
	})
}

// TestScaleE4M3 compares every tier with the definition, on every byte, NaN and factors at the ends of float32 included.
func TestScaleE4M3(t *testing.T) {
	src := make([]byte, 256)
	for i := range src {
		src[i] = byte(i)
	}
	eachTier(t, func(t *testing.T) {
		for _, s := range []float32{1, -0.3, 1.7e-3, 0x1p-149, 3e-41, 0x1p118, 0x1.8p120, math.MaxFloat32, 0} {
			for _, n := range []int{0, 7, 16, 255, 256} {
				dst, want := make([]float32, n), make([]float32, n)
				for i, c := range src[256-n:] {
					want[i] = float16.E4M3(c) * s
				}
				ScaleE4M3(dst, src[256-n:], s)
				equal(t, fmt.Sprintf("%d floats times %g", n, s), dst, want)
			}
		}
	})
}
