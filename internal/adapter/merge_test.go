package adapter_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/adapter"
	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	opener "github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// unit is what all of the test's weights are multiples of, so that merged ones are exact in float32.
const unit = 1.0 / (1 << 14)

// model is a folder's model, whose weights are rounded to multiples of unit.
type model struct {
	name    string
	source  string // the golden folder
	weights []tensor.Tensor
}

func values(t *testing.T, w tensor.Tensor) []float32 {
	t.Helper()
	v := make([]float32, w.Shape.Size())
	if err := quant.Dequantize(w.DType, v, w.Data); err != nil {
		t.Fatal(err)
	}
	return v
}

func floats(name string, shape []int, v []float32) tensor.Tensor {
	x := tensor.Tensor{Name: name, DType: tensor.F32, Shape: shape}
	for _, f := range v {
		x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(f))
	}
	return x
}

func newModel(t *testing.T, name string) *model {
	t.Helper()
	m := &model{name: name, source: golden.Model(t, name)}
	f, err := safetensors.Open(filepath.Join(m.source, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range f.Tensors {
		v := values(t, w)
		for i := range v {
			v[i] = float32(math.Round(float64(v[i])/unit) * unit)
		}
		m.weights = append(m.weights, floats(w.Name, w.Shape, v))
	}
	return m
}

// write writes the model to a folder, with other weights in place of some.
func (m *model) write(t *testing.T, others map[string]tensor.Tensor) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), m.name)
	if err := os.CopyFS(dir, os.DirFS(m.source)); err != nil {
		t.Fatal(err)
	}
	list := make([]tensor.Tensor, len(m.weights))
	for i, w := range m.weights {
		list[i] = w
		if x, ok := others[w.Name]; ok {
			list[i] = x
		}
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, path string) (*checkpoint.Checkpoint, *graph.Graph) {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, g
}

// low is a pair of small numbers beside a layer.
type low struct {
	hf, gguf string // names of the layer's weight, without .weight
	rank     int
	a, b     []float32 // [rank, in], [out, rank]
	out, in  int
}

// lows are random pairs for all linear layers of g but the head, which shares the embeddings' table.
func lows(g *graph.Graph, seed uint64) (list []low) {
	r := rand.New(rand.NewPCG(seed, 3))
	for _, n := range g.Nodes {
		if n.Op != graph.Linear || n == g.Result() || n.In[0] == g.Result() || n.Layer < 0 && strings.Contains(n.Name, "output") {
			continue
		}
		w := n.W[0]
		l := low{hf: w.HF, gguf: w.GGUF, rank: 4, out: w.Shape[0], in: w.Shape[1]}
		if strings.HasSuffix(w.HF, "o_proj") {
			l.rank = 2
		}
		l.a, l.b = make([]float32, l.rank*l.in), make([]float32, l.out*l.rank)
		for i := range l.a {
			l.a[i] = float32(r.IntN(9)-4) / 64
		}
		for i := range l.b {
			l.b[i] = float32(r.IntN(9)-4) / 64
		}
		list = append(list, l)
	}
	return list
}

// alpha is that of the adapters: of rank 4 a pair's scale is 0.5, of rank 2 it is 1.
const alpha = 2.0

// merged is w + by·alpha/rank·B·A for each layer.
func (m *model) merged(t *testing.T, by float64, list []low) string {
	t.Helper()
	others := map[string]tensor.Tensor{}
	for _, w := range m.weights {
		for _, l := range list {
			if checkpoint.TextName(w.Name) != l.hf+".weight" {
				continue
			}
			v := values(t, w)
			for o := range l.out {
				for i := range l.in {
					sum := float64(v[o*l.in+i])
					for r := range l.rank {
						sum += by * alpha / float64(l.rank) * float64(l.b[o*l.rank+r]) * float64(l.a[r*l.in+i])
					}
					if v[o*l.in+i] = float32(sum); float64(v[o*l.in+i]) != sum {
						t.Fatalf("%s: %v is no float32: the test's numbers are badly chosen", w.Name, sum)
					}
				}
			}
			others[w.Name] = floats(w.Name, w.Shape, v)
		}
	}
	if len(others) != len(list) {
		t.Fatalf("%d weights of %d layers", len(others), len(list))
	}
	return m.write(t, others)
}

// peft writes the pairs as PEFT does.
func peft(t *testing.T, list []low) string {
	t.Helper()
	dir := t.TempDir()
	var tensors []tensor.Tensor
	for _, l := range list {
		tensors = append(tensors, floats("base_model.model."+l.hf+".lora_A.weight", []int{l.rank, l.in}, l.a),
			floats("base_model.model."+l.hf+".lora_B.weight", []int{l.out, l.rank}, l.b))
	}
	config, err := json.Marshal(map[string]any{"peft_type": "LORA", "r": 4, "lora_alpha": alpha, "rank_pattern": map[string]int{"o_proj": 2},
		"alpha_pattern": map[string]int{}, "bias": "none", "use_rslora": false, "use_dora": false, "modules_to_save": nil, "fan_in_fan_out": false,
		"task_type": "CAUSAL_LM", "inference_mode": true, "init_lora_weights": true, "lora_dropout": 0.05, "megatron_core": "megatron.core"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), config, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ggufFile writes the pairs as llama.cpp's converter does, for a model of c.
func ggufFile(t *testing.T, c *checkpoint.Checkpoint, list []low) string {
	t.Helper()
	var tensors []tensor.Tensor
	for _, l := range list {
		b := l.b
		heads := 0
		if c.Arch == "llama" && strings.HasSuffix(l.hf, "q_proj") {
			heads = int(c.Setting("num_attention_heads").(float64))
		} else if c.Arch == "llama" && strings.HasSuffix(l.hf, "k_proj") {
			heads = int(c.Setting("num_key_value_heads").(float64))
		}
		if heads > 0 {
			b = permuted(b, heads, l.out, l.rank)
		}
		tensors = append(tensors, floats(l.gguf+".weight.lora_a", []int{l.rank, l.in}, l.a), floats(l.gguf+".weight.lora_b", []int{l.out, l.rank}, b))
	}
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	err := gguf.WriteFile(path, func(w io.Writer) error {
		return gguf.Write(w, []gguf.KeyValue{{Key: "general.architecture", Value: c.Arch}, {Key: "general.type", Value: "adapter"},
			{Key: "adapter.type", Value: "lora"}, {Key: "adapter.lora.alpha", Value: float32(alpha)}}, tensors)
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// permuted is LlamaModel.permute of llama.cpp's conversion/llama.py: rows (head, half, pair) as
// (head, pair, half).
func permuted(b []float32, heads, rows, width int) []float32 {
	half := rows / heads / 2
	var out []float32
	for h := range heads {
		for pair := range half {
			for side := range 2 {
				row := (h*2+side)*half + pair
				out = append(out, b[row*width:(row+1)*width]...)
			}
		}
	}
	return out
}

func bind(t *testing.T, path string, c *checkpoint.Checkpoint, g *graph.Graph) *backend.Adapter {
	t.Helper()
	f, err := adapter.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, _, err := f.Bind(c, g)
	if err != nil {
		t.Fatal(err)
	}
	if a.Bytes() != f.Bytes() {
		t.Errorf("%d bytes, the file says %d", a.Bytes(), f.Bytes())
	}
	return a
}

// logits are those after each of ids, in float64 if b is ref's, as it computes them.
func logits(t *testing.T, g *graph.Graph, b backend.Backend, ids []int32, parts ...backend.Part) (all []float64) {
	t.Helper()
	defer b.Close()
	if r, ok := b.(reference.Backend); ok {
		r.See = func(n *graph.Node, y []float64) {
			if n == g.Result() {
				all = append(all, y...)
			}
		}
		b = r
	}
	blend, err := backend.NewBlend(parts...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(g, b, engine.Options{Context: 128, Adapters: blend})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	rows, err := s.Feed(t.Context(), ids, len(ids))
	if err != nil {
		t.Fatal(err)
	}
	if all != nil {
		return all
	}
	for _, row := range rows {
		for _, v := range row {
			all = append(all, float64(v))
		}
	}
	return all
}

// distance is the largest difference, relative to the largest value.
func distance(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	diff, top := 0.0, 0.0
	for i, v := range a {
		diff, top = max(diff, math.Abs(v-b[i])), max(top, math.Abs(v))
	}
	return diff / top
}

// TestMerged: a model with adapters, of either format beside files of either format, is the model
// whose weights they are added to: to 1e-9 in float64, and else to rounding.
// merged returns the models that adapters are merged into.
func merged() []string {
	if golden.Slow() {
		return []string{"tiny-llama", "tiny-qwen3", "tiny-gemma4"}
	}
	return []string{"tiny-gemma4"}
}

func TestMerged(t *testing.T) {
	ids := []int32{5, 300, 17, 42, 1999, 7, 8, 9, 500, 3, 77, 1024}
	for _, name := range merged() {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, name)
			plain := bothFormats(t, m.write(t, nil))
			c, g := open(t, plain["folder"])
			pairs, more := lows(g, 1), lows(g, 2)
			adapters, second := map[string]string{"PEFT": peft(t, pairs), "GGUF": ggufFile(t, c, pairs)}, peft(t, more)
			whole := bothFormats(t, m.merged(t, 1, pairs))
			two := bothFormats(t, (&model{name, m.source, reread(t, m.merged(t, -0.5, pairs))}).merged(t, 0.25, more))
			for _, b := range []struct {
				name string
				open func() backend.Backend
				most float64
			}{
				{"f64", func() backend.Backend { return reference.Backend{} }, 1e-9},
				{"f32", func() backend.Backend { return cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32, Threads: 2}) }, 2e-6},
				{"fast", func() backend.Backend { return cpu.New(cpu.Options{Threads: 2}) }, 5e-4}, // keys and values in binary16
			} {
				for kind, base := range plain {
					c, g := open(t, base)
					_, of := open(t, whole[kind])
					want := logits(t, of, b.open(), ids)
					_, of = open(t, two[kind])
					wantTwo := logits(t, of, b.open(), ids)
					if d := distance(want, logits(t, g, b.open(), ids)); d < 0.01 {
						t.Errorf("%s: the adapter changes logits by %.2g only", b.name, d)
					}
					for format, path := range adapters {
						a, x := backend.Part{Adapter: bind(t, path, c, g), By: 1}, backend.Part{Adapter: bind(t, second, c, g), By: 0.25}
						one := distance(logits(t, g, b.open(), ids, a), want)
						a.By = -0.5
						both := distance(logits(t, g, b.open(), ids, a, x), wantTwo)
						t.Logf("%s, %s on a %s: %.2g, two adapters %.2g", b.name, format, kind, one, both)
						if !(max(one, both) <= b.most) {
							t.Errorf("%s, %s on a %s: %.2g, two adapters %.2g, at most %.2g", b.name, format, kind, one, both, b.most)
						}
					}
				}
			}
		})
	}
}

// TestMergedGPU: on a GPU, too, a model with adapters is the merged one, and what the CPU computes.
func TestMergedGPU(t *testing.T) {
	d, err := webgpu.Open(0)
	if errors.Is(err, gpu.ErrNone) {
		golden.Lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ids := []int32{5, 300, 17, 42, 1999, 7, 8, 9, 500, 3, 77, 1024}
	for _, name := range merged() {
		m := newModel(t, name)
		c, g := open(t, m.write(t, nil))
		pairs, more := lows(g, 1), lows(g, 2)
		once := m.merged(t, -0.5, pairs)
		_, merged := open(t, (&model{name, m.source, reread(t, once)}).merged(t, 0.25, more))
		parts, _, err := opener.Adapters(t.Context(), c, g, opener.Options{Numerics: numerics.Numerics{GPU: 1}, NoFit: true,
			Adapters: []opener.Adapter{{Path: peft(t, pairs), By: -0.5}, {Path: peft(t, more), By: 0.25}}})
		if err != nil {
			t.Fatal(err)
		}
		onGPU := func() backend.Backend { return webgpu.New(d, webgpu.Options{F32KV: true}) }
		got, width := logits(t, g, onGPU(), ids, parts...), g.Result().Shape.Size()
		kl := func(want []float64) (most float64) {
			for row := 0; row < len(want); row += width {
				most = max(most, lab.KL(want[row:row+width], got[row:row+width]))
			}
			return most
		}
		plain, whole := kl(logits(t, g, onGPU(), ids)), kl(logits(t, merged, onGPU(), ids))
		onCPU := kl(logits(t, g, cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32, Threads: 2}), ids, parts...))
		t.Logf("%s: KL %.2g from the merged model, %.2g from the CPU, %.2g from the model without adapters", name, whole, onCPU, plain)
		if !(whole <= 1e-9 && onCPU <= 1e-9 && plain > 1e-3) {
			t.Errorf("%s: KL %.2g from the merged model, %.2g from the CPU, at most 1e-9; %.2g from the model without adapters", name, whole, onCPU, plain)
		}
	}
}

// bothFormats is a folder, and the GGUF file that it is converted to.
func bothFormats(t *testing.T, folder string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "model.gguf")
	if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"folder": folder, "file": file}
}

// reread is the weights of a folder.
func reread(t *testing.T, dir string) (list []tensor.Tensor) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.Tensors
}
