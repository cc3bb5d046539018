package arch_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// growth opens the model at path, and returns how queries grow in its first layer, and how
// they turn.
func growth(t *testing.T, path string) (grow graph.ScalePosAttr, turn graph.RoPEAttr, err error) {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		return grow, turn, err
	}
	defer c.Close()
	g, notes, err := arch.Load(c)
	if err != nil {
		return grow, turn, err
	}
	if len(notes) > 0 {
		t.Errorf("%s: notes %q", path, notes)
	}
	for _, n := range slices.Backward(g.Nodes) {
		switch a := n.Attr.(type) {
		case graph.ScalePosAttr:
			grow = a
		case graph.RoPEAttr:
			turn = a
		}
	}
	return grow, turn, nil
}

// TestGrowth reads the same growth and the same yarn from all spellings.
func TestGrowth(t *testing.T) {
	folder := golden.Model(t, "ministral3")
	grow, turn, err := growth(t, folder)
	if want := (graph.ScalePosAttr{Beta: 0.1, Every: 64}); err != nil || grow != want {
		t.Fatalf("growth %+v, %v", grow, err)
	}
	params := func(c config) map[string]any { return c["rope_parameters"].(map[string]any) }
	for name, change := range map[string]func(config){
		"rope_scaling": func(c config) {
			c["rope_scaling"] = params(c)
			delete(c, "rope_parameters")
		},
		"the base outside": func(c config) {
			c["rope_theta"] = params(c)["rope_theta"]
			delete(params(c), "rope_theta")
		},
		"both types":          func(c config) { params(c)["type"] = "yarn" },
		"the library's betas": func(c config) { delete(params(c), "beta_fast"); delete(params(c), "beta_slow") },
		"a text model": func(c config) {
			inner := map[string]any{}
			for key, v := range c {
				inner[key] = v
				delete(c, key)
			}
			c["model_type"], c["text_config"] = "mistral3", inner
		},
	} {
		c := readConfig(t, folder)
		change(c)
		own, way, err := growth(t, withConfig(t, folder, c))
		if err != nil || own != grow || !reflect.DeepEqual(way, turn) {
			t.Errorf("%s: %+v, %v", name, own, err)
		}
	}
	c := readConfig(t, folder) // what the library assumes of a file that says nothing
	delete(c, "rope_parameters")
	if own, _, err := growth(t, withConfig(t, folder, c)); err != nil || own.Every != 16384 || own.Beta != 0.1 {
		t.Errorf("nothing said: %+v, %v", own, err)
	}
	for name, want := range map[string]float64{"without a multiplier": 1.2772588722239782, "with a multiplier of 0": 1.2772588722239782} {
		_, way, err := growth(t, changed(t, folder, func(f *file) {
			f.set("rope.scaling.yarn_log_multiplier", nil)
			if strings.HasSuffix(name, "0") {
				f.set("rope.scaling.yarn_log_multiplier", float32(0))
			}
		}))
		if err != nil || way.Magnitude != float64(float32(want)) {
			t.Errorf("%s: magnitude %v, %v", name, way.Magnitude, err)
		}
	}
	// llama.cpp takes the context length for an original context that the file does not say.
	own, _, err := growth(t, changed(t, folder, func(f *file) {
		f.set("context_length", uint32(1000))
		f.set("rope.scaling.original_context_length", nil)
	}))
	if err != nil || own.Every != 1000 {
		t.Errorf("no original context: %+v, %v", own, err)
	}
}

// TestGrowthErrors names what a file lacks, and what GGUF has no key for.
func TestGrowthErrors(t *testing.T) {
	folder := golden.Model(t, "ministral3")
	for want, change := range map[string]func(p map[string]any){
		"has truncate false: GGUF has no key for it": func(p map[string]any) { p["truncate"] = false },
	} {
		c := readConfig(t, folder)
		change(c["rope_parameters"].(map[string]any))
		path := withConfig(t, folder, c)
		if _, _, err := growth(t, path); err != nil {
			t.Error(err)
		}
		if _, err := convert.Convert(t.Context(), path, filepath.Join(t.TempDir(), "x.gguf"), convert.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestNoGrowth: a file of Mistral Small 3, which has the key of Ministral 3, becomes a
// folder of the type that has neither yarn nor growth.
func TestNoGrowth(t *testing.T) {
	path := changed(t, golden.Model(t, "ministral3"), func(f *file) {
		for _, key := range []string{"type", "factor", "original_context_length", "yarn_beta_fast", "yarn_beta_slow", "yarn_log_multiplier"} {
			f.set("rope.scaling."+key, nil)
		}
		f.set("attention.temperature_scale", nil)
	})
	back := filepath.Join(t.TempDir(), "back")
	if _, err := convert.Convert(t.Context(), path, back, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	if c := readConfig(t, back); c["model_type"] != "mistral" || c["sliding_window"] != nil {
		t.Errorf("%v", c)
	}
	_, want, err := growth(t, path)
	if err != nil {
		t.Fatal(err)
	}
	grow, got, err := growth(t, back)
	if err != nil || grow != (graph.ScalePosAttr{}) || !slices.Equal(got.Freqs, want.Freqs) {
		t.Errorf("%+v, %v, %v", grow, got, err)
	}
}
