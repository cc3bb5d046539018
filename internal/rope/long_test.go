package rope

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestLong(t *testing.T) {
	short, long := []float32{1, 1.5, 2}, []float32{4, 8, 16}
	for context, factors := range map[int][]float32{1: short, 64: short, 65: long, 4096: long} {
		f, err := longFreqs(1e4, 6, short, long, 64, context)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range f {
			if want := 1 / (float64(factors[i]) * math.Pow(1e4, float64(2*i)/6)); math.Abs(v/want-1) > 3e-7 || v != float64(float32(v)) {
				t.Errorf("context %d: frequency %d is %v, want %v", context, i, v, want)
			}
		}
	}
	ones, err := longFreqs(1e4, 6, []float32{1, 1, 1}, long, 64, 64)
	if err != nil || !slices.Equal(ones, New(1e4, 6)) {
		t.Errorf("factors of 1: %v, %v", ones, err)
	}
	for want, call := range map[string]func() (Freqs, error){
		"2 numbers in long_factor for 3 pairs": func() (Freqs, error) { return longFreqs(1e4, 6, short, long[:2], 64, 65) },
		"short_factor 1 is NaN":                func() (Freqs, error) { return longFreqs(1e4, 6, []float32{1, float32(math.NaN()), 1}, long, 64, 64) },
		"long_factor 2 is -1":                  func() (Freqs, error) { return longFreqs(1e4, 6, []float32{1, 1, 1}, []float32{1, 1, -1}, 64, 64) },
		"short_factor 0 is 0":                  func() (Freqs, error) { return longFreqs(1e4, 6, []float32{0, 1, 1}, long, 64, 64) },
		"head size 7":                          func() (Freqs, error) { return longFreqs(1e4, 7, short, long, 64, 64) },
		"rope_theta 0":                         func() (Freqs, error) { return longFreqs(0, 6, short, long, 64, 64) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestMagnitude: a table's cosines and sines are float32 products, and those of no magnitude
// are as without.
func TestMagnitude(t *testing.T) {
	f := New(1e4, 8)
	plain, long := NewTable(f, 0), NewTable(f, 1.19)
	for _, pos := range []int{0, 1, 77} {
		cos, sin := plain.Row(pos)
		c, s := long.Row(pos)
		for i := range f {
			if c[i] != cos[i]*float32(1.19) || s[i] != sin[i]*float32(1.19) {
				t.Errorf("position %d, pair %d: %v and %v", pos, i, c[i], s[i])
			}
			a, b := TurnBy(pos, f[i], 1.19)
			if float32(a) != c[i] || float32(b) != s[i] {
				t.Errorf("position %d, pair %d: TurnBy gives %v and %v", pos, i, a, b)
			}
		}
	}
}
