package rope

import (
	"slices"
	"strings"
	"testing"
)

// TestGGUF turns settings into divisors and, for Llama 3, back: with the values of
// the published models (3.1, 3.2, a head of 64 or 128) and small ones.
func TestGGUF(t *testing.T) {
	for _, c := range []struct {
		dim             int
		factor, context float64
	}{{128, 8, 8192}, {64, 32, 8192}, {32, 8, 512}, {64, 2, 1 << 17}, {32, 16, 64}} {
		p := Params{Theta: 500000, Type: "llama3", Factor: c.factor, Low: 1, High: 4, Context: c.context}
		f, err := p.GGUF(c.dim)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(f) || f[0] != 1 || f[len(f)-1] != float32(c.factor) {
			t.Errorf("%+v: divisors %v", c, f)
		}
		scaled, err := Resolve(c.dim, p)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range New(p.Theta, c.dim).Factors(f) {
			if d := v/scaled.Freqs[i] - 1; d > 3e-7 || d < -3e-7 { // rounded in another order
				t.Errorf("%+v: frequency %d is %v, not %v", c, i, v, scaled.Freqs[i])
			}
		}
		if back, ok := BandsFrom(p.Theta, f); !ok || back.Factor != p.Factor || back.Context != p.Context || back.Low != 1 || back.High != 4 {
			t.Errorf("%+v became %+v, %v", p, back, ok)
		}
		f[len(f)/2] *= 1.001
		if back, ok := BandsFrom(p.Theta, f); ok {
			t.Errorf("changed divisors are %+v", back)
		}
	}
	if got, err := (Params{Theta: 1e6, Type: "proportional", Part: 0.25}).GGUF(16); err != nil || !slices.Equal(got, []float32{1, 1, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30}) {
		t.Errorf("a quarter of 8 pairs: %v, %v", got, err)
	}
	if got, err := (Params{Theta: 1e4}).GGUF(16); got != nil || err != nil {
		t.Errorf("no scaling: %v, %v", got, err)
	}
	if got, err := (Params{Theta: 1e4, Type: "factors", Factors: []float32{1, 2}}).GGUF(4); err != nil || !slices.Equal(got, []float32{1, 2}) {
		t.Errorf("factors: %v, %v", got, err)
	}
	for _, p := range []Params{{Theta: 1e6, Type: "proportional", Part: 0.5, Factor: 2}, {Theta: 1e4, Type: "yarn"}} {
		if _, err := p.GGUF(16); err == nil || !strings.Contains(err.Error(), p.Type) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, ok := BandsFrom(1e4, nil); ok {
		t.Error("no divisors are settings")
	}
}

// TestBanded: another base under a scaling by wavelengths divides the pairs that have these wavelengths then.
func TestBanded(t *testing.T) {
	p := Params{Type: "llama3", Theta: 5e5, Factor: 8, Low: 1, High: 4, Context: 512}
	f, err := Resolve(32, p)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := Banded(f.Freqs, 5e5, 32)
	if got.Context != 512 || got.Factor != 8 || !ok {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := Banded(New(5e5, 32), 5e5, 32); ok {
		t.Error("there is no scaling")
	}
	if _, ok := Banded(New(5e5, 32).Linear(2), 5e5, 32); ok {
		t.Error("all pairs are divided alike")
	}
}
