package parity

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
)

// seeing opens a model that sees, with pictures of a seed.
func seeing(t *testing.T, name string, seed uint64) *Model {
	t.Helper()
	dir := golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name))
	row := "<|image_pad|>"
	if name == "smolvlm" {
		row = "<image>"
	}
	names := map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: row}
	if name == "gemma4-moe" {
		names = map[int]string{514: "<|image|>", 515: "<image|>", 516: "<|image>"}
		path := filepath.Join(dir, "preprocessor_config.json") // changed for small pictures
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(`"max_soft_tokens": 280`), []byte(`"max_soft_tokens": 12`), 1)
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	golden.Tokenizer(t, dir, names, "")
	file, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	m := &Model{Name: name, Tower: file.Tower}
	if m.Tokenizer, err = file.Tokenizer(); err != nil {
		t.Fatal(err)
	}
	if m.Graph, _, err = model.Graph(t.Context(), file, 128); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if m.Eye, err = lab.OpenEye(file, m.Tokenizer, reference.Backend{}, folder); err != nil {
		t.Fatal(err)
	}
	if err := Draw(folder, seed); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPictured wants a case of every mistake that engines make with pictures.
func TestPictured(t *testing.T) {
	have := map[string]bool{}
	for _, name := range golden.Seeing {
		m := seeing(t, name, 1)
		for _, f := range m.pictured() {
			have[f.String()] = true
			if f.Tower {
				have["tower."+f.ID] = true
			} else {
				have[f.ID] = true
			}
		}
	}
	for _, want := range []string{"image_filter", "image_antialias", "image_size", "image_fit", "image_fit=black",
		"image_fit=grey", "image_fit=white", "image_mean", "image_range", "image_channels", "image_tiles",
		"image_tiles=no whole", "patch_order", "tower.place_interpolation", "tower.pooling", "tower.fold_order",
		"tower.norm_joined", "image_scale", "tower.scale_factor", "tower.activation", "tower.activation=gelu_erf@all",
		"tower.norm_eps", "image_markers", "image_markers=double first", "tower.rope_sections", "image_advance",
		"mask=both@all", "mask=groups@all", "tower.mask", "deepstack", "deepstack=layer@all", "image_stale",
		"image_decoder", "image_decoder=jpeg"} {
		if !have[want] {
			t.Errorf("no case of %s", want)
		}
	}
}

// TestPictures runs engines with a mistake before the text, in the tower and in the text, and a right one. The seed
// decides the pictures.
func TestPictures(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	m, windowed := seeing(t, "qwen3vl", 3), seeing(t, "qwen25vl", 3)
	for _, c := range []struct {
		of        *Model
		condition Condition
		match     string
	}{
		{m, Pictures, "image_mean=half"}, {m, Clean, "f32,kv=f16 declared"},
		{seeing(t, "qwen35", 3), Right, "activations=q8_32,kv=bf16 through states"}, // rows of pictures are rounded, unseen
		{windowed, Pictures, "image_size=up"}, {windowed, Pictures, "image_size=down"},
		{windowed, Right, "activations=bf16 through modules"}, // levels of channels lie side by side
		{m, Coarse, "rows_missing:ffn_down"},                  // between rows that hold and none, in a long equation
	} {
		r, err := Run(t.Context(), Options{Models: []*Model{c.of}, Conditions: []Condition{c.condition}, Seed: 3, Match: c.match})
		if err != nil || len(r.Results) > 1 {
			t.Fatalf("%s: %v, %d results", c.condition, err, len(r.Results))
		}
		for _, x := range r.Results {
			if len(x.Failed) > 0 {
				t.Error(x.Line())
			}
		}
	}
	tiled := seeing(t, "smolvlm", 3)
	for match, want := range map[string]string{"tower.norm_joined": "tower.norm_joined", "image_stale": "image_stale",
		"image_decoder=jpeg": "image_decoder=jpeg", "image_scale": "image_scale", "tower.weight_layout=beyond": "tower.weight_layout=beyond", "tower.weight_missing:mm.2": "tower.weight_missing:mm.2", "no whole": "image_tiles=no whole"} {
		of := m
		if match == "no whole" {
			of = tiled
		}
		r, err := Run(t.Context(), Options{Models: []*Model{of}, Conditions: []Condition{Pictures}, Seed: 3, Match: match})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Results, func(x *Result) bool { return x.Case == want || len(x.Case) > len(want) }) {
			t.Errorf("no result of %s", want)
		}
		for _, x := range r.Results {
			if len(x.Failed) > 0 {
				t.Error(x.Line())
			}
		}
	}
}

// TestExchanged accuses no right engine in which another expert at an early position, that no tap shows, changes all rows
// behind.
func TestExchanged(t *testing.T) {
	golden.SkipFast(t, "it takes a minute")
	r, err := Run(t.Context(), Options{Models: []*Model{seeing(t, "gemma4-moe", 4)}, Conditions: []Condition{Right}, Seed: 4,
		Match: "activations=f32,kv=bf16,gelu=f16-table declared through states"})
	if err != nil || len(r.Results) != 1 {
		t.Fatalf("%v, %d results", err, len(r.Results))
	}
	if x := r.Results[0]; len(x.Failed) > 0 {
		t.Error(x.Line())
	}
}
