package arch_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// logits runs the model at path over some tokens.
func logits(t *testing.T, path string, b backend.Backend) [][]float32 {
	t.Helper()
	defer b.Close()
	_, g, _ := load(t, path)
	e, err := engine.New(g, b, engine.Options{Context: 64, Chunk: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	ids := []int32{7, 1, 44, 9, 9, 23, 0, 47, 12, 5, 31, 2}
	out, err := s.Feed(context.Background(), ids, len(ids))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// farthest is the largest difference between two passes, and the largest logit.
func farthest(a, b [][]float32) (d, size float64) {
	for i := range a {
		for j := range a[i] {
			d = max(d, math.Abs(float64(a[i][j])-float64(b[i][j])))
			size = max(size, math.Abs(float64(a[i][j])))
			if math.IsNaN(float64(a[i][j]) + float64(b[i][j])) {
				return math.NaN(), size
			}
		}
	}
	return d, size
}

// TestPasses runs every form of a model, those without a golden among them:
// the two backends agree to float32 rounding, and the two formats exactly.
func TestPasses(t *testing.T) {
	for _, name := range []string{"llama", "mistral", "qwen2", "qwen3", "gemma3", "gemma4-e2b", "gemma4-31b", "gemma4-26b"} {
		t.Run(name, func(t *testing.T) {
			folder := synthetic(name).write(t)
			f64 := logits(t, folder, reference.Backend{})
			f32 := logits(t, folder, cpu.New(cpu.Options{Threads: 1, Precision: cpu.F32, KV: cpu.KVF32}))
			if d, size := farthest(f64, f32); !(d <= 1e-5*size) || size < 0.1 {
				t.Errorf("float64 and float32 differ by %g, the largest logit is %g", d, size)
			}
			// Only Gemma 3's norms are rounded on their way to GGUF, and that not at these weights.
			if d, _ := farthest(f64, logits(t, toGGUF(t, folder, nil), reference.Backend{})); d != 0 {
				t.Errorf("the formats differ by %g", d)
			}
			for _, dtype := range []tensor.DType{tensor.F16, tensor.BF16} {
				m := synthetic(name)
				m.narrow(dtype)
				if d, _ := farthest(f64, logits(t, m.write(t), reference.Backend{})); d != 0 {
					t.Errorf("weights in %v make a difference of %g", dtype, d)
				}
			}
		})
	}
}

// TestDense31B is the form of Gemma 4 that has no golden: on full layers the
// keys' projection serves as the values'. It equals a model that has the same
// weights twice and says that they are two.
func TestDense31B(t *testing.T) {
	m := synthetic("gemma4-31b")
	once := m.write(t)
	_, g, _ := load(t, once)
	for i := range 4 {
		node := g.Node(fmt.Sprintf("blk.%d.attn_v", i))
		if full := i%2 == 1; (node == nil) != full {
			t.Errorf("layer %d: the values' projection is %v", i, node)
		}
	}
	want := []graph.KV{{Layer: 0, Heads: 2, Dim: 8, Window: 4}, {Layer: 1, Heads: 1, Dim: 16}, {Layer: 2, Heads: 2, Dim: 8, Window: 4}, {Layer: 3, Heads: 1, Dim: 16}}
	for i, kv := range g.KVs() {
		if *kv != want[i] {
			t.Errorf("layer %d stores %v, want %v", i, *kv, want[i])
		}
	}
	if text := printed(t, once); strings.Contains(text, "route") || strings.Contains(text, "per_layer") || !strings.Contains(text, "blk.3.attn_v_norm = rms_norm(blk.3.view#1) [1 16]") {
		t.Errorf("the graph is\n%s", text)
	}

	m.perLayer(map[string]any{"head_dim": fullDim, "num_key_value_heads": 1})
	m.config["attention_k_eq_v"] = false
	for _, i := range []int{1, 3} {
		m.copy(fmt.Sprintf("model.layers.%d.self_attn.k_proj", i), fmt.Sprintf("model.layers.%d.self_attn.v_proj.weight", i))
	}
	if d, _ := farthest(logits(t, once, reference.Backend{}), logits(t, m.write(t), reference.Backend{})); d != 0 {
		t.Errorf("K=V and a V that is K differ by %g", d)
	}
}

// TestSharedLayers changes the last layer that stores keys and values: the
// layers that share them see it, and what a file still holds for these does not count.
func TestSharedLayers(t *testing.T) {
	m := synthetic("gemma4-e2b")
	_, g, _ := load(t, m.write(t))
	reads := map[string]int{}
	for _, n := range g.Nodes {
		if n.Op == graph.Attention {
			reads[n.Name] = n.Attr.(graph.AttentionAttr).KV.Layer
		}
	}
	for name, want := range map[string]int{"blk.0.attention": 0, "blk.1.attention": 1, "blk.2.attention": 0, "blk.3.attention": 1} {
		if reads[name] != want {
			t.Errorf("%s reads what layer %d stores, want %d", name, reads[name], want)
		}
	}
	before := logits(t, m.write(t), reference.Backend{})
	m.unusedKeys()
	if d, _ := farthest(before, logits(t, m.write(t), reference.Backend{})); d != 0 {
		t.Errorf("keys and values that are not read make a difference of %g", d)
	}
}

// unusedKeys gives the two layers of gemma4-e2b that share keys and values the
// weights for these, which published files have and nothing reads.
func (m *model) unusedKeys() {
	for i, dim := range []int{dim, fullDim} {
		layer := fmt.Sprintf("model.layers.%d.self_attn.", 2+i)
		m.matrix(layer+"k_proj", kvHeads*dim, hidden)
		m.matrix(layer+"v_proj", kvHeads*dim, hidden)
		m.vector(layer+"k_norm", dim)
	}
}

// TestHalfShared wants a number of shared layers refused where some of the layers hold
// keys and others do not: of which model it is the tensors tell.
func TestHalfShared(t *testing.T) {
	m := synthetic("gemma4-e2b")
	m.config["num_kv_shared_layers"] = 3
	m.config["use_double_wide_mlp"] = false
	c, err := checkpoint.Open(m.write(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := arch.Load(c); err == nil || !strings.Contains(err.Error(), "layers.1.self_attn.k_proj.weight: the file holds it, but the configuration says that the last 3 layers share keys") {
		t.Errorf("error %v", err)
	}
}

// TestWindow cuts Mistral's window off: the first four tokens see the same, the
// fifth does not.
func TestWindow(t *testing.T) {
	m := synthetic("mistral")
	with := logits(t, m.write(t), reference.Backend{})
	m.config["sliding_window"] = nil
	without := logits(t, m.write(t), reference.Backend{})
	if d, _ := farthest(with[:4], without[:4]); d != 0 {
		t.Errorf("within the window of 4 logits differ by %g", d)
	}
	for i := 4; i < len(with); i++ {
		if slices.Equal(with[i], without[i]) {
			t.Errorf("beyond the window, at %d, logits are equal", i)
		}
	}
	delete(m.config, "sliding_window") // the library's default is 4096
	_, g, _ := load(t, m.write(t))
	for _, kv := range g.KVs() {
		if kv.Window != 4096 {
			t.Errorf("layer %d has the window %d", kv.Layer, kv.Window)
		}
	}
}

// TestUntied gives Gemma a head of its own.
func TestUntied(t *testing.T) {
	for _, name := range []string{"llama", "qwen2", "qwen3", "gemma3", "gemma4-31b"} {
		m := synthetic(name)
		tied := logits(t, m.write(t), reference.Backend{})
		m.config["tie_word_embeddings"] = false
		m.copy("model.embed_tokens", "lm_head.weight")
		folder := m.write(t)
		if d, _ := farthest(tied, logits(t, folder, reference.Backend{})); d != 0 {
			t.Errorf("%s: a head that repeats the embedding makes a difference of %g", name, d)
		}
		if got, want := printed(t, toGGUF(t, folder, nil)), printed(t, folder); got != want || !strings.Contains(got, "output = linear(output_norm, output[48 32])") {
			t.Errorf("%s: %s", name, difference(got, want))
		}
	}
}

// TestSharedFrequencies wants one slice of frequencies for all layers of a kind:
// backends make a table for each slice.
func TestSharedFrequencies(t *testing.T) {
	for _, name := range synthetics {
		_, g, _ := load(t, synthetic(name).write(t))
		slicesOf := map[*float64]bool{}
		for _, n := range g.Nodes {
			if a, ok := n.Attr.(graph.RoPEAttr); ok {
				slicesOf[&a.Freqs[0]] = true
			}
		}
		want := 1
		if strings.HasPrefix(name, "gemma") {
			want = 2
		}
		if len(slicesOf) != want {
			t.Errorf("%s: %d slices, want %d", name, len(slicesOf), want)
		}
	}
}

// TestTurningParts turns few pairs of a full layer's 8, and none: GGUF says it
// in rope_freqs, and a pair that it does not turn never does.
func TestTurningParts(t *testing.T) {
	seen := map[string]bool{}
	for _, part := range []float64{0.01, 0.125, 0.5, 1} {
		m := synthetic("gemma4-31b")
		m.config["rope_parameters"].(map[string]any)["full_attention"].(map[string]any)["partial_rotary_factor"] = part
		folder := m.write(t)
		f64 := logits(t, folder, reference.Backend{})
		f32 := logits(t, folder, cpu.New(cpu.Options{Threads: 1, Precision: cpu.F32, KV: cpu.KVF32}))
		if d, size := farthest(f64, f32); !(d <= 1e-5*size) {
			t.Errorf("part %v: float64 and float32 differ by %g", part, d)
		}
		if d, _ := farthest(f64, logits(t, toGGUF(t, folder, nil), reference.Backend{})); d != 0 {
			t.Errorf("part %v: the formats differ by %g", part, d)
		}
		if key := fmt.Sprint(f64[11][:4]); seen[key] {
			t.Errorf("part %v makes no difference", part)
		} else {
			seen[key] = true
		}
	}
}

// TestFactorWithoutType wants GGUF's factor alone, or under its early key, to mean a linear scaling.
func TestFactorWithoutType(t *testing.T) {
	folder := synthetic("qwen3").write(t)
	scaled := func(types ...string) string {
		return printed(t, toGGUF(t, folder, func(f *file) {
			f.set("rope.scaling.factor", float32(8))
			for _, typ := range types {
				f.set("rope.scaling.type", typ)
			}
		}))
	}
	if alone := scaled(); alone != scaled("linear") || alone == scaled("none") {
		t.Error("a factor without a type is not linear")
	}
	early := printed(t, toGGUF(t, folder, func(f *file) { f.set("rope.scale_linear", float32(8)) }))
	if early != scaled("linear") {
		t.Error("the early key of a linear factor is not read")
	}
}
