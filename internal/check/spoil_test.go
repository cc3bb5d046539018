package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// model is a good model in memory, to be spoiled: a GGUF file, or a Hugging Face folder, whose tensors and texts are
// those of the file until they are changed.
type model struct {
	t       testing.TB
	meta    []gguf.KeyValue   // GGUF
	config  map[string]any    // Hugging Face
	texts   map[string]string // its other files
	tensors []tensor.Tensor
	patch   func(b []byte) // of the GGUF file's bytes, at last
}

// read reads a model; what it holds is valid until the test ends.
func read(t testing.TB, path string) *model {
	t.Helper()
	m := &model{t: t}
	if !strings.HasSuffix(path, ".gguf") {
		return m.folder(path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for _, k := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(k)
		m.meta = append(m.meta, gguf.KeyValue{Key: k, Value: v})
	}
	m.tensors = f.Tensors()
	return m
}

func (m *model) folder(dir string) *model {
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { f.Close() })
	m.tensors, m.texts = f.Tensors, map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "model.") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			m.t.Fatal(err)
		}
		m.texts[e.Name()] = string(b)
	}
	if err := json.Unmarshal([]byte(m.texts["config.json"]), &m.config); err != nil {
		m.t.Fatal(err)
	}
	return m
}

// clone returns m with lists of its own; data are shared until tensor copies them.
func (m *model) clone(t testing.TB) *model {
	c := &model{t: t, meta: slices.Clone(m.meta), tensors: slices.Clone(m.tensors)}
	if m.config != nil {
		b, _ := json.Marshal(m.config)
		json.Unmarshal(b, &c.config)
		c.texts = map[string]string{}
		for k, v := range m.texts {
			c.texts[k] = v
		}
	}
	return c
}

// set sets a key, behind the architecture's prefix if it begins with a dot; nil takes it away.
func (m *model) set(key string, v any) {
	if m.config != nil {
		if m.config[key] = v; v == nil {
			delete(m.config, key)
		}
		return
	}
	if strings.HasPrefix(key, ".") {
		key = m.arch() + key
	}
	i := slices.IndexFunc(m.meta, func(kv gguf.KeyValue) bool { return kv.Key == key })
	switch {
	case v == nil && i >= 0:
		m.meta = slices.Delete(m.meta, i, i+1)
	case v == nil:
		m.t.Fatalf("no key %s", key)
	case i >= 0:
		m.meta[i].Value = v
	default:
		m.meta = append(m.meta, gguf.KeyValue{Key: key, Value: v})
	}
}

func (m *model) get(key string) any {
	for _, kv := range m.meta {
		if v, ok := kv.Value.(gguf.Value); ok && kv.Key == key {
			x, err := v.Any()
			if err != nil {
				m.t.Fatal(err)
			}
			return x
		}
	}
	m.t.Fatalf("no key %s", key)
	return nil
}

func (m *model) arch() string {
	if kv := m.meta[0]; kv.Key != "general.architecture" {
		m.t.Fatalf("the first key is %s", kv.Key)
	}
	if s, ok := m.meta[0].Value.(string); ok {
		return s
	}
	return m.get("general.architecture").(string)
}

func (m *model) index(name string) int {
	i := slices.IndexFunc(m.tensors, func(t tensor.Tensor) bool { return t.Name == name || t.Name == name+".weight" })
	if i < 0 {
		m.t.Fatalf("no tensor %s", name)
	}
	return i
}

// tensor returns a tensor with data of its own.
func (m *model) tensor(name string) *tensor.Tensor {
	x := &m.tensors[m.index(name)]
	x.Data = slices.Clone(x.Data)
	return x
}

func (m *model) remove(name string) {
	i := m.index(name)
	m.tensors = slices.Delete(m.tensors, i, i+1)
}

// each calls edit for the tensors with that end of their name.
func (m *model) each(suffix string, edit func(x *tensor.Tensor)) {
	n := 0
	for i := range m.tensors {
		if x := &m.tensors[i]; strings.HasSuffix(x.Name, suffix) {
			x.Data = slices.Clone(x.Data)
			edit(x)
			n++
		}
	}
	if n == 0 {
		m.t.Fatalf("no tensor *%s", suffix)
	}
}

// keys gives a layer of tiny-gemma4 the keys and values of its own that published files have.
func (m *model) keys(layer int) {
	for _, part := range []string{"attn_k", "attn_v", "attn_k_norm"} {
		x := *m.tensor(fmt.Sprintf("blk.%d.%s", layer%4, part))
		x.Name = fmt.Sprintf("blk.%d.%s.weight", layer, part)
		n := x.DType.RowBytes(x.Shape.Last())
		if len(x.Shape) == 1 {
			n = 4
		}
		x.Data = slices.Concat(x.Data[(layer-3)*n:], x.Data[:(layer-3)*n]) // no other's bytes
		m.tensors = append(m.tensors, x)
	}
}

// write writes the model into a folder of the test.
func (m *model) write() string {
	dir := m.t.TempDir()
	if m.config == nil {
		path := filepath.Join(dir, "model.gguf")
		var b bytes.Buffer
		if err := gguf.Write(&b, m.meta, m.tensors); err != nil {
			m.t.Fatal(err)
		}
		if m.patch != nil {
			m.patch(b.Bytes())
		}
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			m.t.Fatal(err)
		}
		return path
	}
	b, err := json.Marshal(m.config)
	if err != nil {
		m.t.Fatal(err)
	}
	m.texts["config.json"] = string(b)
	for name, text := range m.texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	var s bytes.Buffer
	if err := safetensors.Write(&s, m.tensors, nil); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), s.Bytes(), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// values returns a tensor's, decoded.
func values(t testing.TB, x *tensor.Tensor) []float32 {
	v := make([]float32, x.Shape.Size())
	if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
		t.Fatal(err)
	}
	return v
}

// store puts values into a tensor of floats.
func store(x *tensor.Tensor, v []float32) {
	x.Data = x.Data[:0]
	for _, f := range v {
		switch x.DType {
		case tensor.F32:
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(f))
		case tensor.BF16:
			x.Data = binary.LittleEndian.AppendUint16(x.Data, float16.ToBF16(f))
		}
	}
}

// alter changes each value of a tensor of floats.
func (m *model) alter(name string, f func(i int, v float32) float32) {
	x := m.tensor(name)
	v := values(m.t, x)
	for i := range v {
		v[i] = f(i, v[i])
	}
	store(x, v)
}

func (m *model) add(suffix string, d float32) {
	m.each(suffix, func(x *tensor.Tensor) {
		v := values(m.t, x)
		for i := range v {
			v[i] += d
		}
		store(x, v)
	})
}

// quantize turns all matrices into the type of that name.
func (m *model) quantize(kind string) {
	d, ok := tensor.ParseDType(kind)
	for i := range m.tensors {
		x := &m.tensors[i]
		if !ok || x.DType != tensor.BF16 || x.Shape.Last()%d.BlockSize() != 0 {
			continue
		}
		v := values(m.t, x)
		x.DType, x.Data = d, make([]byte, d.RowBytes(len(v)))
		if err := quant.Quantize(d, x.Data, v, x.Shape.Last(), nil); err != nil {
			m.t.Fatal(err)
		}
	}
}

// spoil is one way to spoil a model.
type spoil struct {
	name    string // with the number of the fault or incident that it is of
	base    string
	against bool // found with the source alone
	want    string
	edit    func(m *model)
}

// good are the models that are spoiled, by name; those with a dot are GGUF files, which package convert makes.
type good struct {
	t      *testing.T
	models map[string]*model
}

func (g *good) get(t *testing.T, name string) *model {
	if m := g.models[name]; m != nil {
		return m
	}
	folder, kind, ok := strings.Cut(name, ".")
	path := golden.Model(t, folder)
	switch {
	case ok && kind == "bf16":
		to := filepath.Join(g.t.TempDir(), name+".gguf")
		if _, err := convert.Convert(context.Background(), path, to, convert.Options{}); err != nil {
			t.Fatal(err)
		}
		g.models[name] = read(g.t, to)
	case ok:
		g.models[name] = g.get(t, folder+".bf16").clone(g.t)
		g.models[name].quantize(kind)
	default:
		g.models[name] = read(g.t, path)
	}
	return g.models[name]
}

func (g *good) run(t *testing.T, path string, o Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSpoiled wants each spoiled file found, by its name, and nothing else.
func TestSpoiled(t *testing.T) {
	g := &good{t: t, models: map[string]*model{}}
	var all []spoil
	for _, list := range [][]spoil{spoiledSettings, spoiledTensors, spoiledValues, spoiledText, spoiledSource} {
		all = append(all, list...)
	}
	if len(all) < 60 {
		t.Errorf("%d ways to spoil a file", len(all))
	}
	seen := map[string]bool{}
	for _, s := range all {
		seen[s.want] = true
		t.Run(s.name, func(t *testing.T) {
			m := g.get(t, s.base).clone(t)
			s.edit(m)
			o := Options{}
			if s.against {
				name, _, _ := strings.Cut(s.base, ".")
				o.Against = golden.Model(t, name)
			}
			r := g.run(t, m.write(), o)
			ids := map[string]bool{}
			for _, f := range r.Findings {
				ids[f.ID] = true
				if f.ID != s.want && (s.want != "markers-lost" || f.ID != "template-branches") { // content differs from turn to turn
					t.Errorf("found %s: %s", f.ID, f.What)
				}
				if f.What == "" || f.Means == "" || f.Fix == "" || len(f.Where) == 0 && f.ID != "not-loaded" {
					t.Errorf("incomplete: %+v", f)
				}
			}
			if !ids[s.want] {
				t.Errorf("did not find %s", s.want)
			} else if r.Clean() && catalogue()[s.want].severity != Note {
				t.Errorf("called clean: %v", r.Findings)
			}
		})
	}
	seen["packed-scales"] = true // TestPackedFolders spoils folders
	for id := range catalogue() {
		if !seen[id] {
			t.Errorf("nothing is spoiled so that %s is found", id)
		}
	}
}

// TestGood wants nothing found in good models: all that there are, alone and with their sources. The one exception is
// the demo's GGUF file of the goldens, which has no key for its attention scale.
func TestGood(t *testing.T) {
	g := &good{t: t, models: map[string]*model{}}
	paths := []string{filepath.Join(golden.Root(t), "cmd/karat/demo.gguf")}
	for _, name := range golden.Models(t) {
		paths = append(paths, golden.Model(t, name))
	}
	files, _ := filepath.Glob(filepath.Join(golden.Dir(t), "gguf", "*.gguf"))
	for _, path := range append(paths, files...) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			name, _, _ := strings.Cut(filepath.Base(path), ".")
			o := Options{}
			if source := filepath.Join(golden.Dir(t), "models", name); filepath.Base(path) != "demo.gguf" && filepath.Ext(path) == ".gguf" {
				if _, err := os.Stat(source); err == nil {
					o.Against = source
				}
			}
			r := g.run(t, path, o)
			var ids []string
			for _, f := range r.Findings {
				ids = append(ids, f.ID)
			}
			var want []string
			if filepath.Base(path) == "demo.Q4_K_M.gguf" {
				want = []string{"gemma3-scale"}
			}
			if !slices.Equal(ids, want) {
				t.Errorf("found %v", r.Findings)
			}
			if o.Against != "" && r.Compared == 0 {
				t.Error("nothing was compared")
			}
		})
	}
}

// TestRoundedColumns wants columns that a quantizer rounded to zeros taken for what they are, if not a whole block of
// them is; also in floats that were made of blocks.
func TestRoundedColumns(t *testing.T) {
	g := &good{t: t, models: map[string]*model{}}
	for _, side := range []int{1, 31, 32} { // columns side by side, from 20
		zero := func(i int) bool { c := i % 256; return c == 3 || c >= 20 && c < 20+side }
		for name, spoil := range map[string]func(m *model){
			"tiny-llama.Q8_0": codes("blk.1.ffn_up", func(i int, q int8) int8 {
				if zero(i) {
					return 0
				}
				return q
			}),
			"tiny-llama": func(m *model) {
				m.alter("model.layers.1.mlp.up_proj", func(i int, v float32) float32 {
					if zero(i) || i%17 == 0 {
						return 0
					}
					return v
				})
			},
		} {
			m := g.get(t, name).clone(t)
			spoil(m)
			r := g.run(t, m.write(), Options{})
			var ids []string
			for _, f := range r.Findings {
				ids = append(ids, f.ID)
			}
			var want []string
			if side >= 32 {
				want = []string{"zero-columns"}
			}
			if !slices.Equal(ids, want) {
				t.Errorf("%s, %d columns of zeros side by side: found %v", name, side, r.Findings)
			}
		}
	}
}
