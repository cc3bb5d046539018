package arch_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// scalings are edits of config.json as people make them, for models of 512 positions before, and the divisor of the
// frequency of pair i, which turns so often within 512 positions, with the magnitude of cosines and sines: the formulas
// of modeling_rope_utils.py in float64.
var scalings = map[string]struct {
	params  map[string]any
	divisor func(i int, pairs bounds, turns float64) float64
	by      float64
}{
	"linear":  {map[string]any{"type": "linear", "factor": 4}, same(4), 1},
	"dynamic": {map[string]any{"rope_type": "dynamic", "factor": 4}, same(1), 1},
	"llama3": {map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 512},
		func(_ int, _ bounds, turns float64) float64 {
			mix := min(max((turns-1)/3, 0), 1)
			return 1 / ((1-mix)/8 + mix)
		}, 1},
	"yarn": {map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512},
		blend(4, 32, 1), 0.1*math.Log(4) + 1},
	"yarn, magnitude and bounds": {map[string]any{"type": "yarn", "factor": 8, "original_max_position_embeddings": 512,
		"attention_factor": 1.25, "beta_fast": 16, "beta_slow": 2}, blend(8, 16, 2), 1.25},
	"yarn, one multiplier": {map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512,
		"mscale": 0.5}, blend(4, 32, 1), 0.1*math.Log(4) + 1},
	"yarn, context outside": {map[string]any{"rope_type": "yarn", "factor": 4, outside: 512}, blend(4, 32, 1), 0.1*math.Log(4) + 1},
	"longrope": {map[string]any{"rope_type": "longrope", "factor": 4, "original_max_position_embeddings": 512},
		func(i int, _ bounds, _ float64) float64 { return 2 + float64(i)/8 }, math.Sqrt(1 + math.Log(4)/math.Log(512))},
}

// bounds returns the pairs that turn so often within 512 positions.
type bounds func(fast, slow float64) (low, high float64)

// same is one divisor of all frequencies.
func same(by float64) func(int, bounds, float64) float64 {
	return func(int, bounds, float64) float64 { return by }
}

// outside is a setting of a scaling that lies beside it.
const outside = "outside"

// blend is the divisor of yarn.
func blend(factor, fast, slow float64) func(int, bounds, float64) float64 {
	return func(i int, pairs bounds, _ float64) float64 {
		low, high := pairs(fast, slow)
		ramp := min(max((float64(i)-low)/max(high-low, 0.001), 0), 1)
		return 1 / (ramp/factor + 1 - ramp)
	}
}

// longDivisors returns divisors of 1 for texts within the original context, and divisors for longer texts.
func longDivisors(pairs int) (short, long []float64) {
	for i := range pairs {
		short, long = append(short, 1), append(long, 2+float64(i)/8)
	}
	return short, long
}

// TestScalings gives models of all families each scaling that the library has: full layers turn by the formula,
// sliding ones with a rotation of their own as before; a GGUF file of the folder turns alike.
func TestScalings(t *testing.T) {
	names := append(golden.Families(t), "tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gemma3", "tiny-gemma4")
	for _, name := range golden.Sample(append(names, golden.Encoders(t)...)) {
		t.Run(name, func(t *testing.T) {
			folder := golden.Model(t, name)
			if c, err := checkpoint.Open(folder); err != nil || c.Family.Lacks("rope_parameters") {
				t.Skip("nothing turns", err)
			}
			plain, before, err := turned(scaled(t, folder, nil), 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(before) == 0 {
				t.Skip("nothing turns")
			}
			slides := func(x turn) bool {
				types := plain.Values.List("layer_types")
				return plain.Family.Rope.Sliding != nil && types[x.layer] == family.SlidingAttention
			}
			full := slices.IndexFunc(before, func(x turn) bool { return !slides(x) })
			for kind, c := range scalings {
				typ, _, _ := strings.Cut(kind, ",")
				p := maps.Clone(c.params)
				switch {
				case typ == "longrope":
					p["short_factor"], p["long_factor"] = longDivisors(before[full].dim / 2)
					if plain.Family.Name == "phimoe" { // its own spelling
						p["short_mscale"], p["long_mscale"] = c.by, c.by
					}
				case plain.Family.Name == "phi3" && typ == "yarn": // an older name of longrope there
					continue
				case typ == "yarn":
					maps.Copy(p, plain.Family.Rope.Fixed)
				}
				path := scaled(t, folder, p)
				_, got, err := turned(path, 0)
				if err != nil || len(got) != len(before) {
					t.Errorf("%s: %v", kind, err)
					continue
				}
				for i, was := range before {
					if slides(was) {
						if !reflect.DeepEqual(got[i], was) {
							t.Errorf("%s: sliding layer %d: %+v, want %+v", kind, was.layer, got[i], was)
						}
						continue
					}
					theta := plain.Rope(family.FullAttention, "rope_theta")
					pairs := func(fast, slow float64) (float64, float64) {
						pair := func(turns float64) float64 {
							return float64(was.dim) * math.Log(512/(turns*2*math.Pi)) / (2 * math.Log(theta))
						}
						low, high := pair(fast), pair(slow)
						if plain.Family.Rope.Fixed["truncate"] != false {
							low, high = math.Floor(low), math.Ceil(high)
						}
						return max(low, 0), min(high, float64(was.dim-1))
					}
					if by := got[i].Magnitude; math.Abs(max(by, 1)/c.by-1) > 1e-7 {
						t.Errorf("%s: magnitude %v, want %v", kind, by, c.by)
					}
					for j, v := range got[i].Freqs {
						f := math.Pow(theta, -2*float64(j)/float64(was.dim))
						if want := f / c.divisor(j, pairs, 512*f/(2*math.Pi)); math.Abs(v/want-1) > 6e-6 {
							t.Errorf("%s: layer %d, frequency %d is %v, want %v", kind, was.layer, j, v, want)
							break
						}
					}
				}
				if _, _, err := turned(path, 2049); (err != nil) != (typ == "dynamic") {
					t.Errorf("%s: opened for 2049 tokens: %v", kind, err)
				}
				for from, name := range []string{"x.gguf", "again"} {
					to := filepath.Join(t.TempDir(), name)
					if _, err := convert.Convert(t.Context(), path, to, convert.Options{}); err != nil {
						t.Errorf("%s: %v", kind, err)
						break
					}
					if _, back, err := turned(to, 0); err != nil || !slices.EqualFunc(back, got, turn.same) {
						t.Errorf("%s: conversion %d: the first turn is %+v, %v; want %+v", kind, from, append(back, turn{})[0], err, got[0])
					}
					path = to
				}
			}
		})
	}
}

// turn is how a node turns heads of dim features, as far as pairs are concerned.
type turn struct {
	graph.RoPEAttr
	layer, dim int
}

// same reports whether turns are equal but for the rounding of a base, or of divisors in another order.
func (a turn) same(b turn) bool {
	close := slices.EqualFunc(a.Freqs, b.Freqs, func(x, y float64) bool { return math.Abs(x/y-1) < 3e-7 })
	a.Freqs, b.Freqs = nil, nil
	return close && reflect.DeepEqual(a, b)
}

// turned returns the turns of a model opened for a context.
func turned(path string, context int) (*checkpoint.Checkpoint, []turn, error) {
	c, err := checkpoint.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	g, notes, err := arch.LoadFor(c, context)
	if err == nil && len(notes) > 0 {
		err = fmt.Errorf("notes %q", notes)
	}
	if err != nil {
		return nil, nil, err
	}
	var list []turn
	for _, n := range g.Nodes {
		if a, ok := n.Attr.(graph.RoPEAttr); ok && n.Op == graph.RoPE {
			a.Freqs = slices.Clone(a.Freqs)
			list = append(list, turn{a, n.Layer, a.Turning(n.Shape.Last())})
		}
	}
	return c, list, nil
}

// scaled is a copy of a folder whose full layers have the rotary settings p beside a base and a share of turning
// features, in the form that the folder has, for 2,048 positions.
func scaled(t *testing.T, folder string, p map[string]any) string {
	t.Helper()
	c := readConfig(t, folder)
	c["max_position_embeddings"] = 2048
	if c["original_max_position_embeddings"] != nil {
		c["original_max_position_embeddings"] = 512
	}
	own, _ := c["rope_parameters"].(map[string]any)
	scaling, _ := c["rope_scaling"].(map[string]any)
	if full, ok := own[family.FullAttention].(map[string]any); ok {
		own = full
	}
	if own == nil {
		own = map[string]any{}
		c["rope_scaling"] = own
	}
	if own["rope_type"] == "proportional" { // of all pairs
		delete(own, "partial_rotary_factor")
	}
	for _, from := range []map[string]any{own, scaling} {
		for _, key := range slices.Collect(maps.Keys(from)) {
			v := from[key]
			delete(from, key)
			switch key {
			case "partial_rotary_factor", "rope_theta", "mrope_section", "mrope_interleaved":
				own[key] = v
			}
		}
	}
	own["rope_type"] = "default"
	if p["type"] != nil {
		delete(own, "rope_type")
	}
	maps.Copy(own, p)
	if p[outside] != nil {
		c["original_max_position_embeddings"] = p[outside]
		delete(own, outside)
	}
	return withConfig(t, folder, c)
}
