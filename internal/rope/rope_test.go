package rope

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

func closeTo32(a, b float64) bool { return float32(a) == float32(b) }

// TestNew compares with math.Pow rounded at the same steps, and with the
// definition.
func TestNew(t *testing.T) {
	for _, base := range []float64{1, 1e4, 5e5, 1e6, 1e7, 8e6, 1.5e5, 1e30} {
		for _, dim := range []int{2, 32, 64, 80, 96, 128, 256, 512} {
			f := New(base, dim)
			if len(f) != dim/2 || f[0] != 1 {
				t.Fatalf("base %v, dim %d: %d frequencies, the first %v", base, dim, len(f), f[0])
			}
			for i, v := range f {
				want := round(1 / round(math.Pow(base, round(2*float64(i)/float64(dim)))))
				if v != want {
					t.Errorf("base %v, dim %d, pair %d: %v, want %v", base, dim, i, v, want)
				}
				exact := math.Exp(-2 * float64(i) / float64(dim) * math.Log(base))
				if math.Abs(v/exact-1) > 5e-6 { // the exponent's rounding times ln(base)
					t.Errorf("base %v, dim %d, pair %d: %v, far from %v", base, dim, i, v, exact)
				}
			}
		}
	}
}

// TestLlama3 checks the three ranges against hand-made values: base 1e4, dim 8
// has the frequencies 1, 0.1, 0.01, 0.001 and the wavelengths 2π times 1 to 1000.
func TestLlama3(t *testing.T) {
	f := New(1e4, 8)
	g := f.Bands(8, 1, 2, 2000) // kept below 1000, stretched above 2000
	if g[0] != f[0] || g[1] != f[1] || g[2] != f[2] || !closeTo32(g[3], 0.001/8) {
		t.Errorf("%v from %v", g, f)
	}
	g = f.Bands(8, 0.25, 4, 2000) // blended from 500 to 8000
	mix := (2000/(2*math.Pi*1000) - 0.25) / 3.75
	if want := (1-mix)*0.001/8 + mix*0.001; math.Abs(g[3]/want-1) > 2e-7 {
		t.Errorf("blend %v, want %v", g[3], want)
	}
}

// TestLlama3Blend compares with the published formula in float64.
func TestLlama3Blend(t *testing.T) {
	for _, base := range []float64{1e4, 5e5} {
		f := New(base, 128)
		for i, got := range f.Bands(32, 1, 4, 8192) {
			turns := 8192 * f[i] / (2 * math.Pi)
			mix := min(max((turns-1)/3, 0), 1)
			if want := (1-mix)*f[i]/32 + mix*f[i]; math.Abs(got/want-1) > 4e-7 {
				t.Errorf("base %v, pair %d: %v, want %v", base, i, got, want)
			}
		}
	}
}

// opening returns p of a model made for so many positions and opened for so many.
func opening(p Params, longest, opened int) Params {
	k := Kinds{Full: p}
	k.Open(longest, opened)
	return k.Full
}

func TestResolve(t *testing.T) {
	plain := New(1e4, 8)
	scaled := []float32{1, 2, 1e30, 1e30}
	for _, c := range []struct {
		name string
		p    Params
		want Freqs
	}{
		{"default", Params{Theta: 1e4, Type: "default"}, plain},
		{"no type", Params{Theta: 1e4}, plain},
		{"linear", Params{Theta: 1e4, Type: "linear", Factor: 8}, plain.Linear(8)},
		{"dynamic", opening(Params{Theta: 1e4, Type: "dynamic", Factor: 4}, 512, 512), plain},
		{"dynamic, context unsaid", opening(Params{Theta: 1e4, Type: "dynamic", Factor: 4}, 512, 0), plain},
		{"llama3", Params{Theta: 1e4, Type: "llama3", Factor: 8, Low: 1, High: 4, Context: 512}, plain.Bands(8, 1, 4, 512)},
		{"llama3, context unsaid", opening(Params{Theta: 1e4, Type: "llama3", Factor: 8, Low: 1, High: 4}, 512, 0), plain.Bands(8, 1, 4, 512)},
		{"proportional", Params{Theta: 1e4, Type: "proportional", Part: 0.25}, plain[:1]},
		{"proportional and factor", Params{Theta: 1e4, Type: "proportional", Part: 0.5, Factor: 2}, plain[:2].Linear(2)},
		{"factors", Params{Theta: 1e4, Type: "factors", Factors: scaled}, Freqs{1, round(plain[1] / 2)}},
	} {
		got, err := Resolve(8, c.p)
		if err != nil || !slices.Equal(got.Freqs, c.want) || got.Magnitude != 0 {
			t.Errorf("%s: %+v, %v, want %v", c.name, got, err, c.want)
		}
	}
	if plain[1] != New(1e4, 8)[1] {
		t.Error("a scaling changed its input")
	}
}

func TestErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	llama3 := Params{Theta: 1e4, Type: "llama3", Factor: 8, Low: 1, High: 4, Context: 512}
	bad := func(f func(*Params)) Params {
		p := llama3
		f(&p)
		return p
	}
	for _, c := range []struct {
		dim  int
		p    Params
		want string
	}{
		{8, Params{Theta: 1e4, Type: "dynamic"}, "factor is 0"},
		{8, opening(Params{Theta: 1e4, Type: "dynamic", Factor: 2}, 512, 513), "a text of 513 tokens"},
		{8, Params{Theta: 1e4, Type: "su"}, `"su"`},
		{8, Params{Theta: 1e4, Type: "mrope"}, `"mrope"`},
		{8, Params{Theta: 1e4, Type: "ntk"}, `"ntk"`},
		{7, Params{Theta: 1e4}, "head size 7"},
		{0, Params{Theta: 1e4}, "head size 0"},
		{1 << 30, Params{Theta: 1e4}, "head size 1073741824"},
		{8, Params{}, "rope_theta 0"},
		{8, Params{Theta: nan}, "rope_theta NaN"},
		{8, Params{Theta: inf}, "rope_theta +Inf"},
		{8, Params{Theta: 1e4, Type: "linear"}, "factor is 0"},
		{8, Params{Theta: 1e4, Type: "linear", Factor: 1e-9}, "frequency 0 of 4 is 1e+09"},
		{8, Params{Theta: 1e4, Type: "linear", Factor: nan}, "factor is NaN"},
		{8, Params{Theta: 1e4, Type: "proportional", Part: 2}, "partial_rotary_factor 2"},
		{8, Params{Theta: 1e4, Type: "proportional", Part: nan}, "partial_rotary_factor NaN"},
		{8, Params{Theta: 1e4, Type: "factors", Factors: []float32{1}}, "1 frequency factors for 4 pairs"},
		{8, Params{Theta: 1e4, Type: "factors", Factors: []float32{1, 0, 1, 1}}, "frequency factor 1 is 0"},
		{8, Params{Theta: 1e4, Type: "factors", Factors: []float32{1, float32(nan), 1, 1}}, "frequency factor 1 is NaN"},
		{8, bad(func(p *Params) { p.Factor = -1 }), "factor is -1"},
		{8, bad(func(p *Params) { p.Low = 0 }), "low_freq_factor is 0"},
		{8, bad(func(p *Params) { p.High = 0 }), "high_freq_factor is 0"},
		{8, bad(func(p *Params) { p.High = 0.5 }), "is above"},
		{8, bad(func(p *Params) { p.Context = inf }), "original_max_position_embeddings is +Inf"},
	} {
		f, err := Resolve(c.dim, c.p)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v, want an error with %s", c.p, f, err, c.want)
		}
	}
}

// TestNoBand divides the frequencies of waves longer than the context, and no others, where both factors are 1.
func TestNoBand(t *testing.T) {
	p := Params{Theta: 1e4, Type: "llama3", Factor: 16, Low: 1, High: 1, Context: 300}
	f, err := Resolve(8, p)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range New(1e4, 8) {
		if 2*math.Pi/v > p.Context {
			v /= p.Factor
		}
		if f.Freqs[i] != v {
			t.Errorf("frequency %d is %v, want %v", i, f.Freqs[i], v)
		}
	}
}

func TestTable(t *testing.T) {
	f := New(1e4, 16).Linear(2)
	table := NewTable(f, 0)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for _, pos := range []int{g, 63, 64, 700 + g, 5, 3000} {
				cos, sin := table.Row(pos)
				if len(cos) != 8 || len(sin) != 8 {
					t.Errorf("position %d: %d cosines, %d sines", pos, len(cos), len(sin))
				}
				for i := range cos {
					angle := float64(float32(float64(pos) * f[i]))
					s, c := math.Sincos(angle)
					if cos[i] != float32(c) || sin[i] != float32(s) {
						t.Errorf("position %d, pair %d: %v %v, want %v %v", pos, i, cos[i], sin[i], c, s)
					}
				}
			}
		})
	}
	wg.Wait()
	cos, sin := table.Rows(100)
	c99, s99 := table.Row(99)
	if len(cos) != 800 || !slices.Equal(cos[792:], c99) || !slices.Equal(sin[792:], s99) {
		t.Error("Rows disagrees with Row")
	}
	if cos, sin := NewTable(nil, 0).Row(7); len(cos)+len(sin) != 0 {
		t.Error("a table of no pairs has values")
	}
}

// TestBits holds the tables to one digest on every architecture.
func TestBits(t *testing.T) {
	h := sha256.New()
	for _, base := range []float64{1e4, 5e5, 1e6} {
		f := New(base, 128)
		binary.Write(h, binary.LittleEndian, f)
		f = f.Bands(32, 1, 4, 8192)
		binary.Write(h, binary.LittleEndian, f)
		cos, sin := NewTable(f, 0).Rows(2000)
		binary.Write(h, binary.LittleEndian, cos)
		binary.Write(h, binary.LittleEndian, sin)
	}
	const want = "8dc820b8f9559f8d1d07c8811972807fb98155ada9a715bf7eeefa7fcaf8e30f"
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}
