package mistake

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/graph"
)

func TestParse(t *testing.T) {
	text := " attention_scale@0,2-3; norm_offset:attn_q_norm+attn_k_norm@full ;window_size=+1@sliding;softcap_value=15;"
	got, err := Parse(text)
	want := []Fault{{ID: "attention_scale", Layers: "0,2-3"}, {ID: "norm_offset", Where: "attn_q_norm+attn_k_norm", Layers: "full"},
		{ID: "window_size", Value: "+1", Layers: "sliding"}, {ID: "softcap_value", Value: "15"}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, f := range got {
		if again, err := Parse(f.String()); err != nil || len(again) != 1 || again[0] != f {
			t.Errorf("%v is read as %v, %v", f, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                         "no fault is given",
		" ; ":                      "no fault is given",
		"no_such@all":              `"no_such": no such fault`,
		"unknown":                  "no such fault",
		"numeric_kv":               "rounding is no fault",
		"mask@":                    "no layers after @",
		"mask@some":                "want numbers and ranges",
		"mask@3-1":                 "there are 0 to",
		"mask@-1":                  "want numbers",
		"mask@1-":                  "want numbers",
		"mask@0-99999999":          "there are 0 to",
		"mask@9999999999999999999": "want numbers",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// TestRefused wants an error, which says why, for what a model cannot have and for
// what would change nothing.
func TestRefused(t *testing.T) {
	llama, gemma4, deepseek2 := load(t, "tiny-llama"), load(t, "tiny-gemma4"), load(t, "deepseek2")
	for _, c := range []struct {
		g           *graph.Graph
		fault, want string
		same        bool
	}{
		{g: llama, fault: "v_norm_missing@all", want: "no operation there"},
		{g: llama, fault: "v_norm_missing@1", want: "layer 1 has no operation"},
		{g: llama, fault: "mask@7", want: "there are 0 to 3"},
		{g: llama, fault: "mask@full", want: ""},
		{g: llama, fault: "mask@sliding", want: "no operation there"},
		{g: llama, fault: "attention_scale=0.17677669529663687@1", want: "own number is 0.176777", same: true},
		{g: llama, fault: "softcap_value=15", want: "no operation there"},
		{g: llama, fault: "norm_eps=1e-5@all", want: "own number is 1e-05", same: true},
		{g: llama, fault: "norm_eps=x@all", want: "want a number"},
		{g: llama, fault: "rope_theta=500000@all", want: "own number is 500000", same: true},
		{g: llama, fault: "rope_position:attn_q_rope+attn_k_rope@all", want: "off alike", same: true},
		{g: deepseek2, fault: "rope_position:attn_q_rope+attn_k_rope@all", want: "off alike", same: true},
		{g: llama, fault: "same_rope_offset@1", want: ""},
		{g: llama, fault: "same_rope_offset:attn_q_rope@1", want: "rope_position"},
		{g: llama, fault: "activation=silu", want: "nothing that it would change", same: true},
		{g: llama, fault: "activation=mish", want: `value "mish", want `},
		{g: llama, fault: "weight_layout:attn_q@1", want: "no operation"},
		{g: llama, fault: "weight_scale=min@1", want: "nothing that it would change", same: true},
		{g: llama, fault: "probe_rows", want: "no fault of the engine"},
		{g: llama, fault: "final_norm_missing@1", want: "outside the layers"},
		{g: gemma4, fault: "gqa_map@all", want: "no operation there"},
		{g: gemma4, fault: "kv_share_source@full", want: "nothing that it would change", same: true},
		{g: gemma4, fault: "layer_pattern@1", want: "layer 1 has no operation"},
		{g: gemma4, fault: "window_size=0@sliding", want: "want a window"},
	} {
		faults, err := Parse(c.fault)
		if err != nil {
			t.Fatal(err)
		}
		_, _, _, err = Inject(c.g, faults)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.fault, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.fault, err, c.want)
		}
		if as := same(""); errors.As(err, &as) != c.same {
			t.Errorf("%s: %v, same is %v", c.fault, err, !c.same)
		}
	}
}

// june is what an engine of Gemma 4 had wrong, all at once.
const june = "attention_scale@all; v_norm_missing@all; rope_factors@sliding; kv_share_source@shared; weight_transposed:per_layer_model_proj"

func TestJune(t *testing.T) {
	g := load(t, "tiny-gemma4")
	faults, err := Parse(june)
	if err != nil {
		t.Fatal(err)
	}
	h, edits, in, err := Inject(g, faults)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		op     string
		layers []int
	}{{"Attention", []int{0, 1, 2, 3, 4, 5, 6, 7}}, {"RMSNorm", []int{0, 1, 2, 3}}, {"RoPE", []int{0, 1, 2, 4, 5, 6}},
		{"Attention", []int{4, 5, 6}}, {"Linear", []int{}}}
	for i, w := range want {
		if in[i].Op != w.op || !slices.Equal(in[i].Layers, w.layers) {
			t.Errorf("%s: %s in layers %v, want %s in %v", in[i].Fault, in[i].Op, in[i].Layers, w.op, w.layers)
		}
	}
	if d := distance(run(t, g, nil, ids(9), 0)["softcap"], run(t, h, edits, ids(9), 0)["softcap"]); d < 0.1 {
		t.Errorf("logits are off by %g", d)
	}
	for i, n := range g.Nodes {
		if n.ID != i || n.Attr != nil && n.Op == graph.Attention && n.Attr.(graph.AttentionAttr).Scale != 1 {
			t.Fatalf("the recorded graph was changed at %v", n)
		}
	}
}

// TestDraw wants sets of faults that can be injected together and run, the same
// for the same seed.
func TestDraw(t *testing.T) {
	for _, name := range models(t) {
		g := load(t, name)
		all := slices.DeleteFunc(Applicable(g), func(f Fault) bool { return strings.HasPrefix(f.ID, "same_") })
		right := run(t, g, nil, ids(6), 0)[g.Result().Name]
		for seed := range uint64(6) {
			faults := Draw(g, all, 5, rand.New(rand.NewPCG(seed, 1)))
			h, edits, in, err := Inject(g, faults)
			if err != nil || len(faults) != 5 || len(in) < 5 {
				t.Errorf("seed %d: %v, %v", seed, faults, err)
				continue
			}
			if again := Draw(g, all, 5, rand.New(rand.NewPCG(seed, 1))); !slices.Equal(faults, again) {
				t.Errorf("seed %d: %v, then %v", seed, faults, again)
			}
			if d := distance(right, run(t, h, edits, ids(6), 0)[h.Result().Name]); !(d > 1e-6) || math.IsInf(d, 0) {
				t.Errorf("%s: %v: logits are off by %g", name, faults, d)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(june)
	f.Add("norm_eps:attn_norm=1e-3@0-2,5;;probe_rows=reverse")
	f.Fuzz(func(t *testing.T, text string) {
		faults, err := Parse(text)
		if err != nil {
			return
		}
		var all []string
		for _, x := range faults {
			all = append(all, x.String())
		}
		if again, err := Parse(strings.Join(all, ";")); err != nil || !slices.Equal(again, faults) {
			t.Errorf("%q: %+v, then %+v, %v", text, faults, again, err)
		}
	})
}
