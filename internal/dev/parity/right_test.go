package parity

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/round"
)

// TestRight accuses no right engine: of every class of rounding, with keys and values of
// every precision, told and not told, through all taps, some or none; Karat's own among
// them. By default it is Karat's own that does not say how it rounds, and a few others; in
// the long ring a tenth of all models' and of some quantized files'.
func TestRight(t *testing.T) {
	slow := golden.Slow()
	names, files := []string{}, []string{"tiny-llama.Q8_0"}
	if slow {
		names = golden.Models(t)
		files = append(files, "tiny-llama.Q2_K", "tiny-llama.IQ4_NL", "tiny-qwen3.Q4_K_M", "tiny-gemma3.Q8_0", "tiny-gemma4.Q4_K_M", "tiny-gemma4-moe.MXFP4_MOE")
	}
	accuse := func(t *testing.T, m *Model) {
		ways := []Options{{Match: "karat fast, kv=f16 through", Every: 2}, {Every: 100}}
		switch {
		case slow:
			ways[1].Every = 10 // all of them take most of an hour
		case testing.Short():
			ways = []Options{{Match: ways[0].Match + " states"}} // as lab record has them by default
		}
		for _, o := range ways {
			o.Models, o.Conditions, o.Longest, o.Seed, o.Jobs = []*Model{m}, []Condition{Right}, 24, 9, 2
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Results {
				if x.Scores.False.Hit > 0 || x.Error != "" {
					t.Error(x.Line())
				}
			}
			var text bytes.Buffer
			if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "right engines that are accused") {
				t.Errorf("%v: %s", err, text.String())
			}
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { accuse(t, load(t, name)) })
	}
	for _, name := range files {
		t.Run(name, func(t *testing.T) { accuse(t, open(t, name, golden.Shared(t, "goldens/gguf/"+name+".gguf"))) })
	}
}

// TestAccused is right engines that were accused once.
func TestAccused(t *testing.T) {
	golden.SkipFast(t, "it takes minutes")
	for _, c := range []struct {
		what, model, match string
		seed               uint64
	}{
		{"8-bit activations that fall otherwise by as much as another epsilon would turn them", "tiny-gemma4", "activations=q8,kv=f16,gelu=f16-table declared through layers", 1},
		{"binary16 that lies no nearer to its emulation than to float64, and no product to show it", "tiny-gemma4-moe", "activations=f16 through states", 7},
		{"8 bits that are said, and logits that lie nearer to what rounds nothing", "tiny-gemma4", "activations=q8,kv=f16 declared through logits", 7},
		{"8 bits for each 256 also before weights in 16 bits, which few equations show", "tiny-gemma4.Q4_K_M", "activations=q8_256,kv=bf16 through modules", 9},
		{"8 bits for each 32 also before a router in float32", "tiny-gemma4-moe.MXFP4_MOE", "activations=q8_32,kv=bf16 through all", 9},
	} {
		var m *Model
		if strings.Contains(c.model, ".") {
			m = open(t, c.model, golden.Shared(t, "goldens/gguf/"+c.model+".gguf"))
		} else {
			m = load(t, c.model)
		}
		r, err := Run(t.Context(), Options{Models: []*Model{m}, Conditions: []Condition{Right}, Longest: 40, Seed: c.seed, Match: c.match})
		if err != nil || len(r.Results) != 1 {
			t.Fatalf("%d results, %v", len(r.Results), err)
		}
		if x := r.Results[0]; len(x.Failed) > 0 {
			t.Errorf("%s: %s", c.what, x.Line())
		}
	}
}

// TestEvery: right engines are of every class that differs, and seen in every way.
func TestEvery(t *testing.T) {
	m := load(t, "tiny-gemma4")
	seen := map[Taps]int{}
	classes, said := map[round.Class]bool{}, 0
	for _, c := range m.right() {
		seen[c.taps]++
		if c.own == (own{}) {
			classes[c.class] = true
		}
		if c.said {
			said++
		}
	}
	if got := slices.Collect(maps.Keys(seen)); len(got) != len(Coarseness) || 2*said != len(m.right()) {
		t.Errorf("taps %v, %d of %d told", seen, said, len(m.right()))
	}
	for _, a := range round.Activations {
		for _, kv := range []round.Format{"", round.F16, round.BF16} {
			if want := a != round.I16_32 && kv != a.Stored(); classes[round.Class{Activations: a, KV: kv}] != want { // no weight is quantized
				t.Errorf("activations %s, keys and values %s: %v", a, kv, !want)
			}
		}
	}
	if !classes[round.Class{Activations: round.Q8, KV: round.F16, GELU: round.F16Table}] {
		t.Error("llama.cpp's class is missing")
	}
}
