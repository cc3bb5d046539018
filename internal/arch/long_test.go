package arch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// turns opens the model at path for a context, and returns how the heads of its first
// layer turn.
func turns(t *testing.T, path string, context int) (graph.RoPEAttr, error) {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		return graph.RoPEAttr{}, err
	}
	defer c.Close()
	g, notes, err := arch.LoadFor(c, context)
	if err != nil {
		return graph.RoPEAttr{}, err
	}
	if len(notes) > 0 {
		t.Errorf("%s: notes %q", path, notes)
	}
	i := slices.IndexFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == graph.RoPE })
	return g.Nodes[i].Attr.(graph.RoPEAttr), nil
}

// TestLongrope opens a model for contexts up to the original one, 1024, and beyond, in
// both formats: the list of divisors is chosen then.
func TestLongrope(t *testing.T) {
	folder, file := golden.Model(t, "phi3"), filepath.Join(t.TempDir(), "phi3.gguf")
	if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	for context, second := range map[int]float64{1: 1.05, 1024: 1.05, 1025: 1.7, 8192: 1.7, 0: 1.7} {
		for _, path := range []string{folder, file} {
			got, err := turns(t, path, context)
			if err != nil {
				t.Fatal(err)
			}
			// 10000^(-2/24) is 0.464158883...
			if want := 0.4641588833612779 / second; got.Freqs[1] < want*(1-3e-7) || got.Freqs[1] > want*(1+3e-7) {
				t.Errorf("%s for %d tokens: frequency %v, want %v", filepath.Base(path), context, got.Freqs[1], want)
			}
			if got.Dim != 24 || got.Magnitude != float64(float32(1.0954451150103321)) {
				t.Errorf("%s: %d features turn, magnitude %v", filepath.Base(path), got.Dim, got.Magnitude)
			}
		}
	}
}

// TestLongropeSpellings reads the same rotation from what older folders and files say.
func TestLongropeSpellings(t *testing.T) {
	folder := golden.Model(t, "phi3")
	want, err := turns(t, folder, 512)
	if err != nil {
		t.Fatal(err)
	}
	params := func(c config) map[string]any { return c["rope_parameters"].(map[string]any) }
	old := func(typ string) func(config) {
		return func(c config) {
			p := params(c)
			delete(c, "rope_parameters")
			c["rope_theta"] = p["rope_theta"]
			c["rope_scaling"] = map[string]any{"type": typ, "short_factor": p["short_factor"], "long_factor": p["long_factor"]}
		}
	}
	for name, change := range map[string]func(config){
		"rope_scaling":            old("longrope"),
		"rope_scaling su":         old("su"),
		"rope_scaling yarn":       old("yarn"),
		"the context outside":     func(c config) { delete(params(c), "original_max_position_embeddings") },
		"the part outside":        func(c config) { delete(params(c), "partial_rotary_factor") },
		"the part inside":         func(c config) { delete(c, "partial_rotary_factor") },
		"the attention's factor":  func(c config) { params(c)["attention_factor"] = 1.0954451150103321 },
		"the context's own ratio": func(c config) { params(c)["factor"] = 4. },
	} {
		c := readConfig(t, folder)
		change(c)
		got, err := turns(t, withConfig(t, folder, c), 512)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, change := range map[string]func(*file){
		"the type, too":           func(f *file) { f.set("rope.scaling.type", "longrope") },
		"no magnitude":            func(f *file) { f.set("rope.scaling.attn_factor", nil) },
		"no window":               func(f *file) { f.set("attention.sliding_window", nil) },
		"a window of the context": func(f *file) { f.set("attention.sliding_window", uint32(4096)) },
	} {
		got, err := turns(t, changed(t, folder, change), 512)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestLongropeErrors wants the tensors of both lists, of the right shape.
func TestLongropeErrors(t *testing.T) {
	folder := golden.Model(t, "phi3")
	drop := func(name string) func(*file) {
		return func(f *file) {
			f.tensors = slices.DeleteFunc(f.tensors, func(x tensor.Tensor) bool { return strings.HasPrefix(x.Name, name) })
		}
	}
	for want, change := range map[string]func(*file){
		"one of the tensors rope_factors_long and rope_factors_short is missing": drop("rope_factors_long"),
		`rope.scaling.type is "longrope", but the tensors rope_factors_long and rope_factors_short are missing`: func(f *file) {
			drop("rope_factors")(f)
			f.set("rope.scaling.type", "longrope")
		},
		"rope.scaling.type is linear, but the file also has tensors rope_factors_long": func(f *file) {
			f.set("rope.scaling.type", "linear")
			f.set("rope.scaling.factor", float32(2))
		},
		"tensor rope_factors_short: F32 [11], expected F32 [12], a value for each pair": func(f *file) {
			x := f.tensor("rope_factors_short")
			x.Shape, x.Data = tensor.Shape{11}, x.Data[:44]
		},
		"tensor rope_factors_long: element 0 is 0, expected 1/64": func(f *file) { clear(f.tensor("rope_factors_long").Data[:4]) },
	} {
		if _, err := turns(t, changed(t, folder, change), 512); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for want, change := range map[string]func(config){
		"11 numbers in short_factor for 12 pairs": func(c config) {
			p := c["rope_parameters"].(map[string]any)
			p["short_factor"] = p["short_factor"].([]any)[1:]
		},
		"original_max_position_embeddings is -1": func(c config) { c["original_max_position_embeddings"] = -1 },
	} {
		c := readConfig(t, folder)
		change(c)
		if _, err := turns(t, withConfig(t, folder, c), 512); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// withConfig is a copy of a folder with another config.json.
func withConfig(t *testing.T, folder string, c config) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "model")
	b, err := json.Marshal(c)
	if err == nil {
		err = os.CopyFS(to, os.DirFS(folder))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "config.json"), b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// changed is the GGUF file that convert makes of a folder, changed.
func changed(t *testing.T, folder string, change func(*file)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "converted.gguf")
	if _, err := convert.Convert(t.Context(), folder, path, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	g, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	f := &file{}
	for _, key := range g.Metadata.Keys() {
		v, _ := g.Metadata.Lookup(key)
		x, err := v.Any()
		if err != nil {
			t.Fatal(err)
		}
		f.metadata = append(f.metadata, gguf.KeyValue{Key: key, Value: x})
		if key == "general.architecture" {
			f.arch = fmt.Sprint(x)
		}
	}
	for _, x := range g.Tensors() {
		x.Data = slices.Clone(x.Data)
		f.tensors = append(f.tensors, x)
	}
	change(f)
	return f.write(t)
}
