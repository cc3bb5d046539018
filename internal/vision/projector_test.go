package vision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// values are a tensor's numbers.
func values(t *testing.T, x *tensor.Tensor) []float32 {
	t.Helper()
	v := make([]float32, x.Shape.Size())
	if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
		t.Fatal(err)
	}
	return v
}

// projectorFile writes the file that llama.cpp's converter makes of a tower, tensors in hand-written order, and
// compares each tensor with the record's hash.
func projectorFile(t *testing.T, name string, x *checkpoint.Tower, keys ...gguf.KeyValue) string {
	t.Helper()
	g, _, err := arch.Tower(x)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*graph.Weight{}
	for _, n := range g.Nodes {
		for _, w := range n.W {
			byName[w.GGUF] = w
		}
	}
	b, err := os.ReadFile(golden.Shared(t, "goldens/vision/"+name+"/mmproj.gguf.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Metadata map[string][2]any
		Tensors  map[string][3]any
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	for key, v := range file.Metadata {
		keys = append(keys, gguf.KeyValue{Key: key, Value: typed(t, v)})
	}
	heads := x.Values.Int("num_attention_heads")
	deep := regexp.MustCompile(`^v\.deepstack\.(\d+)\.`)
	var tensors []tensor.Tensor
	for full, facts := range file.Tensors {
		base := strings.TrimSuffix(full, ".weight")
		row, part, of := 0, 0, 1 // the part of a tensor of several
		switch {
		case strings.HasSuffix(full, ".weight.1"):
			base, part = strings.TrimSuffix(full, ".weight.1"), 1
		case deep.MatchString(full):
			layer, _ := strconv.Atoi(deep.FindStringSubmatch(full)[1])
			layers := x.Values["deepstack_visual_indexes"].([]any)
			at := slices.Index(layers, any(float64(layer)))
			base = deep.ReplaceAllString(base, fmt.Sprintf("v.deepstack.%d.", at))
		case x.Kind.Projector.Apart && strings.Contains(base, "attn_") && !strings.Contains(base, "attn_out"):
			for i, p := range []string{"attn_q", "attn_k", "attn_v"} {
				if strings.Contains(base, p) {
					row, of, base = i, 3, strings.Replace(base, p, "attn_qkv", 1)
				}
			}
		}
		w := byName[base]
		if w == nil {
			t.Fatalf("%s: no weight %s", full, base)
		}
		source, ok := x.Tensor(w.GGUF, w.HF)
		if !ok {
			t.Fatalf("%s: no tensor %s", full, w.HF)
		}
		v := values(t, &source)
		v = v[row*len(v)/of : (row+1)*len(v)/of]
		shape := tensor.Shape{}
		for _, n := range facts[1].([]any) {
			shape = append(tensor.Shape{int(n.(float64))}, shape...)
		}
		switch p := x.Kind.Projector; {
		case p.Times && base == "v.patch_embd":
			plane, half := shape[2]*shape[3], []float32{}
			for i := part * plane; i < len(v); i += 2 * plane {
				half = append(half, v[i:i+plane]...)
			}
			v = half
		case p.Last && base == "v.patch_embd":
			first, places, all := make([]float32, len(v)), shape[2]*shape[3], shape[1]*shape[2]*shape[3]
			for i := range v {
				out, at, c := i/all, i%all/shape[1], i%shape[1]
				first[out*all+c*places+at] = v[i]
			}
			v = first
		case p.Plus == base:
			v = slices.Clone(v)
			for i := range v {
				v[i]++
			}
		case p.Permuted && (strings.HasSuffix(base, "attn_q") || strings.HasSuffix(base, "attn_k")):
			moved, k, dim := make([]float32, len(v)), shape[1], shape[0]/heads
			for r := range shape[0] { // halves of a head become neighbours
				h, i := r/dim, r%dim
				to := h*dim + i%(dim/2)*2 + i/(dim/2)
				copy(moved[to*k:(to+1)*k], v[r*k:])
			}
			v = moved
		}
		d, _ := tensor.ParseDType(facts[0].(string))
		y := tensor.Tensor{Name: full, DType: d, Shape: shape}
		if d == tensor.F32 {
			for _, f := range v {
				y.Data = binary.LittleEndian.AppendUint32(y.Data, math.Float32bits(f))
			}
		} else {
			y.Data = make([]byte, 2*len(v))
			if err := quant.Quantize(d, y.Data, v, len(v), nil); err != nil {
				t.Fatal(err)
			}
		}
		if sum := sha256.Sum256(y.Data); hex.EncodeToString(sum[:]) != facts[2] {
			t.Errorf("%s: other bytes than llama.cpp's", full)
		}
		tensors = append(tensors, y)
	}
	slices.SortFunc(tensors, func(a, b tensor.Tensor) int { return strings.Compare(a.Name, b.Name) })
	var out bytes.Buffer
	if err := gguf.Write(&out, keys, tensors); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mmproj-"+name+".gguf")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// typed returns a key's value as package gguf writes it.
func typed(t *testing.T, v [2]any) any {
	t.Helper()
	kinds := v[0].([]any)
	switch kinds[0] {
	case "STRING":
		return v[1].(string)
	case "BOOL":
		return v[1].(bool)
	case "UINT32":
		return uint32(v[1].(float64))
	case "FLOAT32":
		return float32(v[1].(float64))
	case "ARRAY":
		switch list := v[1].([]any); kinds[1] {
		case "BOOL":
			var all []bool
			for _, x := range list {
				all = append(all, x.(bool))
			}
			return all
		case "FLOAT32":
			var all []float32
			for _, x := range list {
				all = append(all, float32(x.(float64)))
			}
			return all
		}
	}
	t.Fatalf("a key of type %v", kinds)
	return nil
}

// TestRefusedProjectors names what is wrong with a file.
func TestRefusedProjectors(t *testing.T) {
	write := func(name string, keys []gguf.KeyValue, tensors ...tensor.Tensor) string {
		var out bytes.Buffer
		if err := gguf.Write(&out, keys, tensors); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	of := func(projector string, more ...gguf.KeyValue) []gguf.KeyValue {
		return append([]gguf.KeyValue{{Key: "general.architecture", Value: "clip"},
			{Key: "clip.projector_type", Value: projector}}, more...)
	}
	whole := func(projector string) []gguf.KeyValue {
		all := of(projector)
		for key, v := range map[string]uint32{"embedding_length": 8, "feed_forward_length": 8, "block_count": 1,
			"attention.head_count": 1, "patch_size": 2, "image_size": 4, "projection_dim": 8, "spatial_merge_size": 1} {
			all = append(all, gguf.KeyValue{Key: "clip.vision." + key, Value: v})
		}
		return all
	}
	f32 := func(name string, shape ...int) tensor.Tensor {
		s := tensor.Shape(shape)
		return tensor.Tensor{Name: name, DType: tensor.F32, Shape: s, Data: make([]byte, 4*s.Size())}
	}
	for want, path := range map[string]string{
		`architecture is "llama"`:       write("a", []gguf.KeyValue{{Key: "general.architecture", Value: "llama"}}),
		`projector "ldp" is not`:        write("b", of("ldp")),
		"clip.projector_type":           write("c", []gguf.KeyValue{{Key: "general.architecture", Value: "clip"}}),
		"out_hidden_size is missing":    write("d", of("gemma3")),
		"block_count":                   write("e", of("gemma3", gguf.KeyValue{Key: "clip.vision.block_count", Value: uint32(1 << 30)})),
		"1025 elements":                 write("f", of("gemma3", gguf.KeyValue{Key: "clip.vision.image_mean", Value: make([]float32, 1025)})),
		"of two times":                  write("g", whole("qwen3vl_merger"), f32("v.patch_embd.weight", 8, 3, 2, 2), f32("v.patch_embd.weight.1", 8, 3, 2, 1)),
		"four dimensions":               write("h", whole("gemma4v"), f32("v.patch_embd.weight", 8, 12)),
		"v.blk.0.attn_k: missing":       write("i", whole("qwen2.5vl_merger"), f32("v.blk.0.attn_q.weight", 8, 8)),
		"v.blk.0.attn_q: shape [7 8]":   write("j", whole("pixtral"), f32("v.blk.0.attn_q.weight", 7, 8)),
		"two tensors have this name":    write("k", whole("pixtral"), f32("v.x.weight", 8), f32("v.x", 8)),
		"another type or shape than v.": write("l", whole("qwen2.5vl_merger"), f32("v.blk.0.attn_q.weight", 8, 8), f32("v.blk.0.attn_k.weight", 8, 7)),
	} {
		if _, _, err := checkpoint.OpenProjector(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestProjectorPixels: bounds of a picture's area in a file win over the publisher's.
func TestProjectorPixels(t *testing.T) {
	path := projectorFile(t, "qwen3vl", tower(t, "qwen3vl"), gguf.KeyValue{Key: "clip.vision.image_min_pixels", Value: uint32(1 << 12)},
		gguf.KeyValue{Key: "clip.vision.image_max_pixels", Value: uint32(1 << 14)})
	x, f, err := checkpoint.OpenProjector(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := Open(x, reference.Backend{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for side, want := range map[int]int{16: 64, 512: 128} {
		p, err := m.Prepare(&image.Image{Width: side, Height: side, Pix: make([]byte, 3*side*side)})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Tiles(p)[0].Grid.Width * m.Sight().Patch; got != want {
			t.Errorf("a side of %d: %d, want %d", side, got, want)
		}
	}
}

// TestFindProjectors orders the files beside a model.
func TestFindProjectors(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model-8B-Q4_K_M.gguf")
	for _, c := range []struct{ add, want string }{{"mmproj.txt", ""}, {"mmproj-F16.gguf", "mmproj-F16.gguf"},
		{"model.mmproj-BF16.gguf", "model.mmproj-BF16.gguf"}, {"mmproj-model-4B-F32.gguf", "mmproj-model-4B-F32.gguf"},
		{"mmproj-model-8B-Q8_0.gguf", "mmproj-model-8B-Q8_0.gguf"}, {"mmproj-model-8B-F16.gguf", "mmproj-model-8B-F16.gguf"},
		{"mmproj-model-8B-Q4_K_M.gguf", "mmproj-model-8B-Q4_K_M.gguf"}} {
		if err := os.WriteFile(filepath.Join(dir, c.add), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		paths, err := checkpoint.FindProjectors(model)
		if c.want == "" && len(paths) == 0 && err == nil {
			continue
		}
		if err != nil || len(paths) == 0 || filepath.Base(paths[0]) != c.want {
			t.Errorf("with %q: %q, %v", c.add, paths, err)
		}
	}
}

// TestFitProjector: the file beside a model is the model's, if it fits; a given one must.
func TestFitProjector(t *testing.T) {
	fits := projectorFile(t, "qwen3vl", tower(t, "qwen3vl")) // rows of 96 numbers
	model := func() *checkpoint.Checkpoint {
		c, err := checkpoint.Open(golden.Model(t, "tiny-llama"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.Format, c.Path = checkpoint.GGUF, filepath.Join(filepath.Dir(fits), "m.gguf")
		return c
	}
	c := model()
	c.Values["hidden_size"], c.Arch = 96., "qwen3vl"
	if err := checkpoint.FitProjector(c, ""); err != nil || c.Tower == nil || len(c.Notes) > 0 {
		t.Errorf("beside the model: %v, %v", err, c.Notes)
	}
	other := filepath.Join(filepath.Dir(fits), "mmproj-a-F32.gguf")
	if err := os.Rename(projectorFile(t, "gemma3", tower(t, "gemma3")), other); err != nil {
		t.Fatal(err)
	}
	c = model()
	c.Values["hidden_size"], c.Arch = 96., "qwen3vl"
	if err := checkpoint.FitProjector(c, ""); err != nil || c.Tower == nil || len(c.Notes) != 1 {
		t.Errorf("behind a file of another model: %v, %v", err, c.Notes)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	c = model()
	if err := checkpoint.FitProjector(c, ""); err != nil || c.Tower != nil || len(c.Notes) > 0 {
		t.Errorf("of another model: %v, %v", err, c.Notes)
	}
	if err := checkpoint.FitProjector(c, fits); err == nil || !strings.Contains(err.Error(), "made for another model") {
		t.Errorf("given, of another model: %v", err)
	}
	c = model()
	c.Values["hidden_size"] = 96.
	if err := checkpoint.FitProjector(c, fits); err == nil || !strings.Contains(err.Error(), "qwen3vl_merger beside a text of architecture llama") {
		t.Errorf("given, of another family: %v", err)
	}
	c = model()
	if err := os.WriteFile(fits, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.FitProjector(c, ""); err != nil || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "pictures are not read") {
		t.Errorf("damaged: %v, %v", err, c.Notes)
	}
	if c = model(); checkpoint.FitProjector(c, fits) == nil {
		t.Error("given, damaged")
	}
	c = model()
	c.Format = checkpoint.HuggingFace
	if err := checkpoint.FitProjector(c, fits); err == nil || !strings.Contains(err.Error(), "folder has its own") {
		t.Errorf("beside a folder: %v", err)
	}
}

// TestProjectors: the tower of llama.cpp's file makes the rows that the folder's makes.
func TestProjectors(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			folder := tower(t, name)
			file, f, err := checkpoint.OpenProjector(projectorFile(t, name, folder))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			open(t, file, reference.Backend{}) // with the processor that the publisher's models have
			if name == "gemma3" {              // files have no pooling: published models' is 4
				file.Values["mm_tokens_per_image"] = folder.Values["mm_tokens_per_image"]
			}
			file.Processor = folder.Processor
			var rows [2][][]float32
			for i, x := range []*checkpoint.Tower{folder, file} {
				m := open(t, x, reference.Backend{})
				p, err := m.Prepare(picture(t, "checker"))
				if err != nil {
					t.Fatal(err)
				}
				if rows[i], err = m.Encode(context.Background(), p); err != nil {
					t.Fatal(err)
				}
			}
			bound := 0.0
			switch name {
			case "gemma3": // a norm plus 1, and a projection in F16
				bound = 2e-4
			case "mistral3": // files have no epsilon of the text's norms: published models' is the tower's
				bound = 1e-6
			}
			if d := distance(slices.Concat(rows[1]...), slices.Concat(rows[0]...)); !(d <= bound) {
				t.Errorf("rows differ by %.3g", d)
			}
		})
	}
}
