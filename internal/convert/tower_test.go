package convert_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/image/processor"
	"github.com/karat-run/karat/internal/vision"
)

// seers are the models that see.
var seers = []string{"qwen3vl", "qwen35", "qwen25vl", "gemma3", "gemma4-moe", "gemma4", "smolvlm", "mistral3", "lfm2vl"}

// seer returns the folder of a model that sees, with a tokenizer.
func seer(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Rename(golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name)), dir); err != nil {
		t.Fatal(err)
	}
	golden.Tokenizer(t, dir, map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}, "")
	return dir
}

// TestTowers takes each model that sees to GGUF and back. The file beside the text's has the tensors and the keys of
// llama.cpp's converter, in its order; the folder has the source's tensors and settings.
func TestTowers(t *testing.T) {
	for _, name := range seers {
		t.Run(name, func(t *testing.T) {
			src, dir := seer(t, name), t.TempDir()
			r := run(t, src, filepath.Join(dir, "model.gguf"), convert.Options{})
			file := filepath.Join(dir, "mmproj-model.gguf")
			if len(r.Files) != 2 || r.Files[1] != file {
				t.Fatal(r.Files, r.Notes)
			}
			compareTower(t, name, file)
			compareText(t, name, filepath.Join(dir, "model.gguf"))
			back := filepath.Join(dir, "back")
			r = run(t, filepath.Join(dir, "model.gguf"), back, convert.Options{})
			want, got := folder(t, src), folder(t, back)
			if len(want) != len(got) {
				t.Errorf("%d tensors became %d: %q", len(want), len(got), r.Notes)
			}
			for name, x := range want {
				y := got[name]
				if x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) || !bytes.Equal(x.Data, y.Data) {
					t.Errorf("tensor %s: %v %v became %v %v", name, x.DType, x.Shape, y.DType, y.Shape)
				}
			}
			a, b := opened(t, src), opened(t, back)
			beside, closer, err := checkpoint.OpenProjector(file)
			if err != nil {
				t.Fatal(err)
			}
			defer closer.Close()
			for _, x := range []*checkpoint.Tower{beside, b.Tower} {
				if d, err := processor.Differences(a.Tower.Processor, x.Processor); err != nil || len(d) > 0 {
					t.Errorf("%s prepares pictures otherwise: %v, %v", x.Path, d, err)
				}
			}
			if a.Arch != b.Arch || a.Tower.Kind != b.Tower.Kind {
				t.Errorf("%s became %s", a.Arch, b.Arch)
			}
			var configs [4]any
			for i, x := range []*checkpoint.Checkpoint{a, b} {
				configs[i], configs[2+i] = x.Family.Model.Config(), x.Tower.Kind.Model.Config()
				if _, err := x.Config(configs[i]); err != nil {
					t.Fatal(err)
				}
				if err := x.Tower.Config(configs[2+i]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 2 {
				a, b := fmt.Sprintf("%+v", configs[2*i]), fmt.Sprintf("%+v", configs[2*i+1])
				if strings.ReplaceAll(a, "Type:default", "Type:") != strings.ReplaceAll(b, "Type:default", "Type:") {
					t.Errorf("%s became %s", a, b)
				}
			}
		})
	}
}

// TestOmittedMeans writes the mean and the deviation of the processor's class where the folder's file leaves them out.
func TestOmittedMeans(t *testing.T) {
	src, dir := seer(t, "qwen3vl"), t.TempDir()
	path := filepath.Join(src, "preprocessor_config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	delete(config, "image_mean")
	delete(config, "image_std")
	if b, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	run(t, src, filepath.Join(dir, "model.gguf"), convert.Options{})
	f, err := gguf.Open(filepath.Join(dir, "mmproj-model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, want := range map[string][]float32{"mean": {0.48145466, 0.4578275, 0.40821073}, "std": {0.26862954, 0.26130258, 0.27577711}} {
		v, err := f.Metadata.Floats("clip.vision.image_" + name)
		if err != nil || len(v) != 3 || float32(v[0]) != want[0] || float32(v[1]) != want[1] || float32(v[2]) != want[2] {
			t.Errorf("%s %v, want %v; %v", name, v, want, err)
		}
	}
}

func opened(t *testing.T, path string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if c.Tower == nil {
		t.Fatal(c.Notes)
	}
	return c
}

// compareTower compares a tower's file with the record of llama.cpp's.
func compareTower(t *testing.T, name, path string) {
	t.Helper()
	b, err := os.ReadFile(golden.Shared(t, "goldens/vision/"+name+"/mmproj.gguf.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Metadata, Tensors json.RawMessage }
	if err := json.Unmarshal(b, &record); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got, want []string
	for _, x := range f.Tensors() {
		shape := slices.Clone(x.Shape)
		slices.Reverse(shape)
		got = append(got, fmt.Sprintf("%s [%v %v %x]", x.Name, x.DType, []int(shape), sha256.Sum256(x.Data)))
	}
	for key, v := range inOrder(t, record.Tensors) {
		want = append(want, fmt.Sprintf("%s %v", key, v))
	}
	sameLines(t, got, want)
	got, want = nil, nil
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		x, err := v.Any()
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.ToUpper(v.Type().String())
		if v.Type() == gguf.Array {
			kind += " " + strings.ToUpper(v.Elem().String())
		}
		switch y := x.(type) { // as JSON has it
		case float32:
			x = float64(y)
		case []float32:
			var all []float64
			for _, v := range y {
				all = append(all, float64(v))
			}
			x = all
		}
		if name == "gemma3" && strings.HasSuffix(key, "scale_factor") {
			continue // the record's converter takes the pooling of published models
		}
		if key == "karat.image_processor" { // bounds of pictures that no published model has
			if slices.Contains([]string{"gemma3", "smolvlm", "mistral3"}, name) {
				t.Errorf("%s: %v", key, x)
			}
			continue
		}
		got = append(got, fmt.Sprintf("%s [[%s] %v]", key, kind, x))
	}
	for key, v := range inOrder(t, record.Metadata) {
		want = append(want, fmt.Sprintf("%s %v", key, v))
	}
	sameLines(t, got, want)
}

// compareText compares the settings of a text's file with the record of llama.cpp's.
func compareText(t *testing.T, name, path string) {
	t.Helper()
	b, err := os.ReadFile(golden.Shared(t, "goldens/vision/"+name+"/text.gguf.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Metadata map[string][2]any }
	if err := json.Unmarshal(b, &record); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	arch := fmt.Sprint(record.Metadata["general.architecture"][1])
	for key, want := range record.Metadata {
		if key != "general.architecture" && !strings.HasPrefix(key, arch+".") {
			continue
		}
		v, _ := f.Metadata.Lookup(key)
		x, err := v.Any()
		if n, is := x.(float32); is { // as JSON has it
			x = float64(n)
		}
		var got any
		if b, e := json.Marshal(x); err != nil || e != nil || json.Unmarshal(b, &got) != nil || !reflect.DeepEqual(got, want[1]) {
			t.Errorf("%s: %v, want %v; %v", key, x, want[1], err)
		}
	}
}

func sameLines(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("line %d of %d and %d: %s, want %s", i, len(got), len(want), got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
}

// inOrder yields the entries of an object in the file's order.
func inOrder(t *testing.T, object []byte) func(yield func(string, any) bool) {
	return func(yield func(string, any) bool) {
		d := json.NewDecoder(bytes.NewReader(object))
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
		for d.More() {
			key, err := d.Token()
			var v any
			if err == nil {
				err = d.Decode(&v)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(key.(string), v) {
				return
			}
		}
	}
}

// TestQuantizedTowers: llama-quantize's rules for the names of parts for pictures, whose settings it does not read.
// Quantized, they see almost the same.
func TestQuantizedTowers(t *testing.T) {
	for _, name := range seers {
		src, dir := seer(t, name), t.TempDir()
		run(t, src, filepath.Join(dir, "model.gguf"), convert.Options{})
		file, small := filepath.Join(dir, "mmproj-model.gguf"), filepath.Join(dir, "small.gguf")
		if _, err := convert.Quantize(t.Context(), file, small, convert.QuantizeOptions{Type: "Q8_0"}); name == "lfm2vl" {
			if err == nil || !strings.Contains(err.Error(), `"mm.2.weight": its rows of 80 are no multiple`) { // llama-quantize has none either
				t.Error(err)
			}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(small)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range f.Tensors() {
			kept := len(x.Shape) < 2 || !strings.HasSuffix(x.Name, ".weight") ||
				slices.ContainsFunc([]string{".patch_embd", ".position_embd", ".patch_merger"}, func(s string) bool { return strings.Contains(x.Name, s) })
			if want := map[bool]string{true: "F32", false: "Q8_0"}[kept]; x.DType.String() != want {
				t.Errorf("%s: %s is %v, want %s", name, x.Name, x.DType, want)
			}
		}
		f.Close()
		a, b := rowsOf(t, file, src), rowsOf(t, small, src)
		var diff, norm float64
		for i := range a {
			diff, norm = diff+float64(a[i]-b[i])*float64(a[i]-b[i]), norm+float64(a[i])*float64(a[i])
		}
		if d := math.Sqrt(diff / norm); !(d > 0 && d < 0.03) {
			t.Errorf("%s: rows differ by %.3g", name, d)
		}
	}
}

// rowsOf computes a picture's rows by the tower of a file. The folder says how pictures are resized.
func rowsOf(t *testing.T, file, folder string) (all []float32) {
	t.Helper()
	x, f, err := checkpoint.OpenProjector(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if x.Processor, err = os.ReadFile(filepath.Join(folder, "preprocessor_config.json")); err != nil {
		t.Fatal(err)
	}
	m, err := vision.Open(x, reference.Backend{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	data, err := os.ReadFile(golden.Shared(t, "goldens/vision/images/checker.png"))
	if err != nil {
		t.Fatal(err)
	}
	pixels, err := image.Decode(data, image.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Prepare(pixels)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := m.Encode(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(rows...)
}
