package rope

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func no() *bool { return new(bool) }

// wantYarn is _compute_yarn_parameters in float64, with package math's functions.
func wantYarn(p Params, dim int, truncate bool) (freqs []float64, magnitude float64) {
	turns := func(n float64) float64 {
		return float64(dim) * math.Log(p.Context/(n*2*math.Pi)) / (2 * math.Log(p.Theta))
	}
	low, high := turns(p.Fast), turns(p.Slow)
	if truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = math.Max(low, 0), math.Min(high, float64(dim-1))
	if low == high {
		high += 0.001
	}
	for i := range dim / 2 {
		plain := math.Pow(p.Theta, -2*float64(i)/float64(dim))
		ramp := math.Min(math.Max((float64(i)-low)/(high-low), 0), 1)
		freqs = append(freqs, plain/p.Factor*ramp+plain*(1-ramp))
	}
	scale := func(m float64) float64 {
		if p.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(p.Factor) + 1
	}
	switch {
	case p.Magnitude != 0:
		return freqs, p.Magnitude
	case p.Mscale != 0 && p.MscaleAllDim != 0:
		return freqs, scale(p.Mscale) / scale(p.MscaleAllDim)
	}
	return freqs, scale(1)
}

// TestYarn has the settings of published models: gpt-oss, Ministral 3, DeepSeek V2 Lite,
// OLMo 3, Qwen 3's and some at the edges of the blend.
func TestYarn(t *testing.T) {
	for name, c := range map[string]struct {
		dim int
		p   Params
	}{
		"gpt-oss":        {64, Params{Theta: 150000, Factor: 32, Fast: 32, Slow: 1, Context: 4096, Truncate: no()}},
		"ministral3":     {128, Params{Theta: 1e6, Factor: 16, Fast: 32, Slow: 1, Context: 16384, Mscale: 1, MscaleAllDim: 1}},
		"deepseek2-lite": {64, Params{Theta: 1e4, Factor: 40, Fast: 32, Slow: 1, Context: 4096, Mscale: 0.707, MscaleAllDim: 0.707}},
		"two mscales":    {64, Params{Theta: 1e4, Factor: 40, Fast: 32, Slow: 1, Context: 4096, Mscale: 1, MscaleAllDim: 0.5}},
		"olmo3":          {128, Params{Theta: 5e5, Factor: 8, Fast: 32, Slow: 1, Context: 8192, Magnitude: 1.2079441541679836}},
		"qwen3":          {128, Params{Theta: 1e6, Factor: 4, Fast: 32, Slow: 1, Context: 32768}},
		"other betas":    {96, Params{Theta: 1e4, Factor: 8, Fast: 16, Slow: 2, Context: 2048}},
		"factor 1":       {64, Params{Theta: 1e4, Factor: 1, Fast: 32, Slow: 1, Context: 2048}},
		"short context":  {32, Params{Theta: 1e4, Factor: 16, Fast: 32, Slow: 1, Context: 64, Truncate: no()}},
		"one bound":      {64, Params{Theta: 1e4, Factor: 4, Fast: 2, Slow: 2, Context: 4096, Truncate: no()}},
	} {
		c.p.Type = "yarn"
		got, err := Resolve(c.dim, opening(c.p, 1<<17, 0))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		freqs, magnitude := wantYarn(c.p, c.dim, c.p.Truncate == nil)
		if math.Abs(max(got.Magnitude, 1)/max(magnitude, 1)-1) > 1e-15 || got.Dim != 0 || len(got.Freqs) != len(freqs) {
			t.Errorf("%s: magnitude %v, want %v; %d frequencies of %d features", name, got.Magnitude, magnitude, len(got.Freqs), got.Dim)
		}
		for i, v := range got.Freqs {
			if math.Abs(v/freqs[i]-1) > 6e-6 || v != float64(float32(v)) { // the exponent's rounding times ln(base), and the blend's
				t.Errorf("%s: frequency %d is %v, want %v", name, i, v, freqs[i])
			}
		}
	}
}

// TestYarnDefaults: what a file leaves out is the library's default.
func TestYarnDefaults(t *testing.T) {
	yes := true
	short := Params{Theta: 1e6, Type: "yarn"}
	full := Params{Theta: 1e6, Type: "yarn", Factor: 4, Fast: 32, Slow: 1, Truncate: &yes, Context: 8192, Magnitude: 0.1*math.Log(4) + 1}
	for _, p := range []Params{{Context: 8192}, {Factor: 4, Context: 8192}} {
		short.Factor, short.Context = p.Factor, p.Context
		a, err := Resolve(128, opening(short, 32768, 0))
		b, err2 := Resolve(128, opening(full, 32768, 0))
		if err != nil || err2 != nil || !slices.Equal(a.Freqs, b.Freqs) || math.Abs(a.Magnitude-b.Magnitude) > 1e-15 {
			t.Errorf("%+v: %v, %v, %v, %v", p, err, err2, a.Magnitude, b.Magnitude)
		}
	}
	full.Context = 0
	a, err := Resolve(128, opening(full, 8192, 0))
	full.Context = 8192
	b, err2 := Resolve(128, opening(full, 32768, 0))
	if err != nil || err2 != nil || !slices.Equal(a.Freqs, b.Freqs) {
		t.Errorf("no original context: %v, %v", err, err2)
	}
}

// TestLongrope has Phi 3's settings: the factor is by how much its longest context exceeds
// the original, and three quarters of a head turn.
func TestLongrope(t *testing.T) {
	p := Params{Theta: 1e4, Type: "longrope", Context: 4096, Part: 0.75}
	for i := range 48 {
		p.Short, p.Long = append(p.Short, 1+float32(i)/64), append(p.Long, 1+float32(i))
	}
	want := math.Sqrt(1 + math.Log(131072.0/4096)/math.Log(4096))
	for opened, factors := range map[int][]float32{4096: p.Short, 4097: p.Long, 0: p.Long} {
		r, err := Resolve(128, opening(p, 131072, opened))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(r.Magnitude/want-1) > 1e-15 || r.Dim != 96 || len(r.Freqs) != 48 {
			t.Errorf("magnitude %v, want %v; %d frequencies of %d features", r.Magnitude, want, len(r.Freqs), r.Dim)
		}
		for i, v := range r.Freqs {
			if f := math.Pow(1e4, -float64(i)/48) / float64(factors[i]); math.Abs(v/f-1) > 5e-6 {
				t.Errorf("context %d: frequency %d is %v, want %v", opened, i, v, f)
			}
		}
	}
	for _, c := range []struct{ factor, given, want float64 }{{0, 1.5, 1.5}, {1, 0, 0}, {4, 0, math.Sqrt(1 + math.Log(4)/math.Log(4096))}} {
		p.Factor, p.Magnitude = c.factor, c.given
		if r, err := Resolve(128, opening(p, 131072, 0)); err != nil || math.Abs(r.Magnitude-c.want) > 1e-15 {
			t.Errorf("%+v: %v, %v", c, r.Magnitude, err)
		}
	}
}

// TestResolvePart: a part of the features is as a smaller head.
func TestResolvePart(t *testing.T) {
	r, err := Resolve(64, Params{Theta: 1e4, Part: 0.5})
	if err != nil || r.Dim != 32 || r.Magnitude != 0 || !slices.Equal(r.Freqs, New(1e4, 32)) {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Resolve(64, Params{Theta: 1e4, Type: "proportional", Part: 0.5})
	if err != nil || r.Dim != 0 || !slices.Equal(r.Freqs, New(1e4, 64)[:16]) {
		t.Errorf("proportional: %+v, %v", r, err)
	}
}

func TestResolveErrors(t *testing.T) {
	nan := math.NaN()
	yarn := func(f func(*Params)) Params {
		p := Params{Theta: 1e4, Type: "yarn", Factor: 8, Context: 512}
		f(&p)
		return p
	}
	for want, p := range map[string]Params{
		"factor is NaN":                              yarn(func(p *Params) { p.Factor = nan }),
		"factor is -1":                               yarn(func(p *Params) { p.Factor = -1 }),
		"beta_fast is -1":                            yarn(func(p *Params) { p.Fast = -1 }),
		"beta_slow is NaN":                           yarn(func(p *Params) { p.Slow = nan }),
		"beta_fast 1 is below beta_slow 2":           yarn(func(p *Params) { p.Fast, p.Slow = 1, 2 }),
		"rope_theta is 1":                            yarn(func(p *Params) { p.Theta = 1 }),
		"attention_factor is NaN":                    yarn(func(p *Params) { p.Mscale, p.MscaleAllDim = nan, 1 }),
		"attention_factor is -2":                     yarn(func(p *Params) { p.Magnitude = -2 }),
		"original_max_position_embeddings is 1e+300": yarn(func(p *Params) { p.Context = 1e300 }),
		"original_max_position_embeddings is NaN":    yarn(func(p *Params) { p.Context = nan }),
		"original_max_position_embeddings is 0":      {Theta: 1e4, Type: "longrope"},
		"0 numbers in short_factor for 4 pairs":      {Theta: 1e4, Type: "longrope", Context: 64},
		"factor is NaN, expected":                    {Theta: 1e4, Type: "longrope", Context: 64, Factor: nan, Short: []float32{1, 1, 1, 1}, Long: []float32{1, 1, 1, 1}},
		"partial_rotary_factor 0.4":                  {Theta: 1e4, Part: 0.4},
		"partial_rotary_factor 0.01":                 {Theta: 1e4, Part: 0.01},
	} {
		if r, err := Resolve(8, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v, want an error with %s", p, r, err, want)
		}
	}
}

// TestScoreScale: a factor that follows from the contexts counts as one that is given.
func TestScoreScale(t *testing.T) {
	given := Params{Type: "yarn", Factor: 4, Context: 1024, MscaleAllDim: 1}
	follows := given
	follows.Factor = 0
	if got, want := opening(follows, 4096, 0).ScoreScale(), given.ScoreScale(); got != want || want == 1 {
		t.Errorf("%v, want %v", got, want)
	}
}
