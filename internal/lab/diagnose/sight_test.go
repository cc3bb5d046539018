package diagnose

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/vision"
)

// sightEngine is an engine of a model that sees, with mistakes.
type sightEngine struct {
	c    *checkpoint.Checkpoint
	text *graph.Graph
	eye  *lab.Eye // the right one
}

func openSight(t *testing.T, name string) *sightEngine {
	t.Helper()
	c, err := checkpoint.Open(golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s := &sightEngine{c: c}
	if s.text, _, err = arch.Load(c); err != nil {
		t.Fatal(err)
	}
	m, err := vision.Open(c.Tower, reference.Backend{}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.eye = &lab.Eye{Model: m, ID: 514}
	return s
}

// record computes the golden prompts with mistakes before the text and in the text.
func (s *sightEngine) record(t *testing.T, name, sight, text string) *lab.Record {
	t.Helper()
	ctx := context.Background()
	parse := func(list string) []mistake.Fault {
		if list == "" {
			return nil
		}
		f, err := mistake.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	e, err := mistake.InjectSight(s.eye.Model, parse(sight))
	if err != nil {
		t.Fatal(err)
	}
	m, err := vision.Open(s.c.Tower, reference.Backend{Edits: e.Edits}, "")
	if err != nil {
		t.Fatal(err)
	}
	eye := e.Eye(s.eye, m)
	goldens, err := golden.SightPrompts(golden.Shared(t, "goldens/vision/"+name))
	if err != nil {
		t.Fatal(err)
	}
	b := reference.Backend{}
	h := s.text
	if text != "" {
		if h, b.Edits, _, err = mistake.Inject(h, parse(text)); err != nil {
			t.Fatal(err)
		}
	}
	record := &lab.Record{Path: "dump.safetensors", Names: lab.NamesHF}
	for i, p := range goldens[:2] {
		q := &lab.Prompt{Index: i, IDs: slices.Clone(p.IDs)}
		for _, name := range p.Images {
			q.Pictures = append(q.Pictures, lab.Picture{Path: golden.Shared(t, "goldens/vision/images/"+name+".png")})
		}
		if err := eye.Look(ctx, q, true, nil); err != nil {
			t.Fatal(err)
		}
		record.Prompts = append(record.Prompts, q)
	}
	r, err := lab.NewRecorder(ctx, h, b, lab.Longest(record.Prompts), 8)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, p := range record.Prompts {
		if err := r.Record(ctx, p, true); err != nil {
			t.Fatal(err)
		}
		p.Show(vision.Mixed{})
	}
	return record
}

// TestSight wants right engines cleared, and mistakes of all parts named.
func TestSight(t *testing.T) {
	for _, c := range []struct {
		name, sight, text string
		want              map[string][]int
	}{
		{"qwen25vl", "", "", nil},
		{"qwen25vl", "tower.activation@all; image_mean=half", "", map[string][]int{"image_mean": nil, "activation": {0, 1, 2, 3}}},
		{"qwen3vl", "tower.place_interpolation=nearest", "deepstack", map[string][]int{"place_interpolation": nil, "deepstack": {0, 1}}},
		{"qwen3vl", "tower.norm_joined", "image_scale", map[string][]int{"norm_joined": nil, "image_scale": nil}},
		{"mistral3", "tower.weight_missing:v.patch_embd", "", map[string][]int{"weight_missing": {}}}, // all taps are zeros
		{"smolvlm", "tower.weight_missing:mm", "", map[string][]int{"weight_missing": {}}},            // the text reads zeros
		{"qwen3vl", "tower.weight_missing:mm.2", "", map[string][]int{"weight_missing": {}}},          // or a bias alone
		{"gemma3", "image_channels", "mask=groups@all", map[string][]int{"image_channels": nil, "mask": {0, 1, 2, 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openSight(t, c.name)
			d, err := Run(context.Background(), Options{Model: c.name, Graph: s.text,
				Dump: s.record(t, c.name, c.sight, c.text), Eye: s.eye})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]int{}
			for _, f := range d.Findings {
				got[f.Cause] = f.Layers
			}
			if !maps.EqualFunc(got, c.want, slices.Equal) || (d.Verdict == Clean) != (c.want == nil) {
				t.Errorf("%s: %v, want %v", d.Verdict, got, c.want)
			}
		})
	}
}

// TestUnreadSight: a tower's result that the text does not go on with is the probe's fault.
func TestUnreadSight(t *testing.T) {
	s := openSight(t, "mistral3")
	dump, name := s.record(t, "mistral3", "", ""), cmp.Or(s.eye.Graph.Result().HF, lab.Projected)
	for _, p := range dump.Prompts {
		clear(p.Taps[name].Data)
	}
	d, err := Run(t.Context(), Options{Model: "mistral3", Graph: s.text, Dump: dump, Eye: s.eye})
	if err != nil || d.Verdict != Instrument {
		t.Errorf("%v, %v: %+v", err, d.Verdict, d.Findings)
	}
}

// TestExpectSight: values before the text are expected from the engine's own values, and rows of a mistake are off.
func TestExpectSight(t *testing.T) {
	s := openSight(t, "qwen25vl")
	dump := s.record(t, "qwen25vl", "tower.activation@1", "")
	for _, c := range []struct {
		tap, node string
		off       bool // some rows
	}{
		{"model.visual.blocks.1.mlp.out", "v.blk.1.ffn_down#1", true},
		{"visual.blocks.1.mlp", "v.blk.1.ffn_down#1", true},
		{"model.visual.blocks.1.mlp.up_proj.out", "v.blk.1.ffn_up.bias", false},
		{"model.visual.blocks.2.mlp.out", "v.blk.2.ffn_down#1", false},
		{"model.visual.patch_embed.out", "v.patch_embd#1", false},
		{"image.rows", "mm", false},
		{"model.layers.0.self_attn.q_proj.out", "blk.0.attn_q.bias", false},
	} {
		e, err := Expect(context.Background(), Options{Model: "qwen25vl", Graph: s.text, Dump: dump, Eye: s.eye}, c.tap)
		if err != nil {
			t.Errorf("%s: %v", c.tap, err)
			continue
		}
		off := slices.ContainsFunc(e.Rows, func(r ExpectedRow) bool { return r.IsOff() })
		if e.Node != c.node || off != c.off || !e.Tapped || len(e.Rows) == 0 {
			t.Errorf("%s: %s, tapped %v, of %v, %d rows, off %v, want %s, off %v", c.tap, e.Node, e.Tapped, e.From, len(e.Rows), off, c.node, c.off)
		}
	}
	_, err := Expect(context.Background(), Options{Model: "qwen25vl", Graph: s.text, Dump: dump, Eye: s.eye}, "visual.blocks.9.mlp")
	if err == nil || !strings.Contains(err.Error(), "visual.blocks.9.mlp") {
		t.Error(err)
	}
	for tap, want := range map[string]string{"sight.layer_out-1#0.ADD": "model.visual.blocks.1.out",
		"sight.patch_bias#0.ADD": "model.visual.patch_embed.out", "sight.layer_out-9#0.ADD": "", "layer_out-1": "", "sight.x": ""} {
		if n := s.eye.Find(tap); n == nil && want != "" || n != nil && n.HF != want {
			t.Errorf("%s is %v, want %s", tap, n, want)
		}
	}
}

// TestRoundedSight wants rows that no tap shows rounded as an engine's class rounds them, on padding as elsewhere.
func TestRoundedSight(t *testing.T) {
	for _, name := range []string{"gemma4", "qwen3vl"} {
		s := openSight(t, name)
		dump := s.record(t, name, "", "")
		for _, p := range dump.Prompts {
			p.Taps = nil
		}
		text, _, _, _, err := (&Options{Graph: s.text, Dump: dump, Eye: s.eye}).parts()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range text.Dump.Prompts {
			rows := func(kv string) [][]float32 { return text.sights[p](class{"f64", kv, ""}.center())() }
			if plain, kept := rows("f64"), rows("f16"); slices.EqualFunc(plain, kept, slices.Equal) {
				t.Errorf("%s: %d rows, equal with keys in 16 bits", name, len(kept))
			}
		}
	}
}
