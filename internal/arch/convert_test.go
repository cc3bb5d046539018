package arch_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// config is a config.json.
type config map[string]any

func readConfig(t testing.TB, folder string) config {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c config
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// file is a GGUF file before it is written.
type file struct {
	arch     string
	metadata []gguf.KeyValue
	tensors  []tensor.Tensor
}

// set replaces or adds a key behind the architecture's prefix; nil removes it.
func (f *file) set(key string, v any) {
	key = f.arch + "." + key
	f.metadata = slices.DeleteFunc(f.metadata, func(kv gguf.KeyValue) bool { return kv.Key == key })
	if v != nil {
		f.metadata = append(f.metadata, gguf.KeyValue{Key: key, Value: v})
	}
}

// tensor finds one by its name without .weight; nil if there is none.
func (f *file) tensor(name string) *tensor.Tensor {
	i := slices.IndexFunc(f.tensors, func(x tensor.Tensor) bool { return strings.TrimSuffix(x.Name, ".weight") == name })
	if i < 0 {
		return nil
	}
	return &f.tensors[i]
}

// toGGUF writes the model in a Hugging Face folder as llama.cpp's converter
// does (conversion/*.py there), with the two keys for Gemma 3 that
// goldens/README.md names. edit may be nil.
func toGGUF(t testing.TB, folder string, edit func(*file)) string {
	t.Helper()
	_, g, _ := load(t, folder)
	c := readConfig(t, folder)
	kind, _, _ := strings.Cut(c["model_type"].(string), "_")
	f := &file{arch: map[string]string{"mistral": "llama"}[kind]}
	if f.arch == "" {
		f.arch = kind
	}
	f.metadata = []gguf.KeyValue{{Key: "general.architecture", Value: f.arch}}
	f.sizes(c)
	switch f.arch {
	case "gemma3":
		f.gemma3(c)
	case "gemma4":
		f.gemma4(c)
	}
	f.rope(c)
	f.weights(g, c)
	if edit != nil {
		edit(f)
	}
	return f.write(t)
}

func (f *file) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	create(t, path, func(w io.Writer) error { return gguf.Write(w, f.metadata, f.tensors) })
	return path
}

// number is a setting of a config.json as GGUF has it.
func (c config) number(key string) any {
	switch v := c[key].(type) {
	case float64:
		return uint32(v)
	}
	return nil
}

func (f *file) sizes(c config) {
	for key, own := range map[string]string{"num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
		"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
		"num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length", "sliding_window": "attention.sliding_window"} {
		f.set(own, c.number(key))
	}
	f.set("attention.value_length", c.number("head_dim"))
	f.set("attention.layer_norm_rms_epsilon", float32(c["rms_norm_eps"].(float64)))
	if v, ok := c["final_logit_softcapping"].(float64); ok {
		f.set("final_logit_softcapping", float32(v))
	}
}

func (f *file) gemma3(c config) {
	types := c["layer_types"].([]any)
	f.set("attention.sliding_window_pattern", uint32(slices.Index(types, any("full_attention"))+1))
	f.set("attention.scale", float32(1/math.Sqrt(c["query_pre_attn_scalar"].(float64))))
}

// fullHead is the head size and the key and value heads of Gemma 4's full
// layers, in either spelling.
func (c config) fullHead() (dim, kv float64) {
	dim, _ = c["global_head_dim"].(float64)
	kv, _ = c["num_global_key_value_heads"].(float64)
	per, _ := c["per_layer_config"].(map[string]any)
	for _, layer := range per {
		dim, _ = layer.(map[string]any)["head_dim"].(float64)
		kv, _ = layer.(map[string]any)["num_key_value_heads"].(float64)
	}
	if kv == 0 {
		kv = c["num_key_value_heads"].(float64)
	}
	return dim, kv
}

func (f *file) gemma4(c config) {
	types := c["layer_types"].([]any)
	dim, fullKV := c.fullHead()
	slides, kv, ff := make([]bool, len(types)), make([]int32, len(types)), make([]int32, len(types))
	first := len(types) - int(c["num_kv_shared_layers"].(float64))
	for i, t := range types {
		slides[i], kv[i], ff[i] = t == "sliding_attention", int32(fullKV), int32(c["intermediate_size"].(float64))
		if slides[i] {
			kv[i] = int32(c["num_key_value_heads"].(float64))
		}
		if c["use_double_wide_mlp"] == true && i >= first {
			ff[i] *= 2
		}
	}
	f.set("attention.sliding_window_pattern", slides)
	f.set("attention.head_count_kv", kv)
	f.set("feed_forward_length", ff)
	for _, key := range []string{"attention.key_length", "attention.value_length", "rope.dimension_count"} {
		f.set(key, uint32(dim))
		f.set(key+"_swa", c.number("head_dim"))
	}
	f.set("attention.shared_kv_layers", c.number("num_kv_shared_layers"))
	f.set("embedding_length_per_layer_input", c.number("hidden_size_per_layer_input"))
	f.set("expert_count", c.number("num_experts"))
	f.set("expert_used_count", c.number("top_k_experts"))
	f.set("expert_feed_forward_length", c.number("moe_intermediate_size"))
}

// rope writes the bases, a linear scaling, and rope_freqs for the others.
func (f *file) rope(c config) {
	p, _ := c["rope_parameters"].(map[string]any)
	full, ok := p["full_attention"].(map[string]any)
	if !ok {
		full = p
	}
	if sliding, ok := p["sliding_attention"].(map[string]any); ok {
		f.set("rope.freq_base_swa", float32(sliding["rope_theta"].(float64)))
	}
	if local, ok := c["rope_local_base_freq"].(float64); ok {
		f.set("rope.freq_base_swa", float32(local))
	}
	theta, ok := c["rope_theta"].(float64)
	if ok {
		full, _ = c["rope_scaling"].(map[string]any)
	} else {
		theta = full["rope_theta"].(float64)
	}
	f.set("rope.freq_base", float32(theta))
	var factors []float32
	switch full["rope_type"] {
	case "linear":
		f.set("rope.scaling.type", "linear")
		f.set("rope.scaling.factor", float32(full["factor"].(float64)))
	case "proportional":
		factors = proportional(c, full["partial_rotary_factor"].(float64))
	case "llama3":
		factors = llama3(full, theta, c["head_dim"].(float64))
	}
	if factors != nil {
		f.tensors = append(f.tensors, floats("rope_freqs.weight", factors))
	}
}

func proportional(c config, part float64) []float32 {
	dim, _ := c.fullHead()
	factors := make([]float32, int(dim)/2)
	for i := range factors {
		factors[i] = 1
		if i >= int(dim*part/2) {
			factors[i] = 1e30
		}
	}
	return factors
}

// llama3 is _compute_llama3_parameters of transformers as a divisor.
func llama3(p map[string]any, theta, dim float64) []float32 {
	context := p["original_max_position_embeddings"].(float64)
	factor, low, high := p["factor"].(float64), p["low_freq_factor"].(float64), p["high_freq_factor"].(float64)
	factors := make([]float32, int(dim)/2)
	for i := range factors {
		turns := context * math.Pow(theta, -2*float64(i)/dim) / (2 * math.Pi)
		smooth := min(max((turns-low)/(high-low), 0), 1)
		factors[i] = float32(1 / ((1-smooth)/factor + smooth))
	}
	return factors
}

// floats is an F32 tensor of one dimension.
func floats(name string, v []float32) tensor.Tensor {
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{len(v)}, Data: data}
}

// values decodes a tensor of plain floats.
func values(t tensor.Tensor) []float32 {
	v := make([]float32, t.Shape.Size())
	for i := range v {
		switch t.DType {
		case tensor.F32:
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		case tensor.F16:
			v[i] = float16.F16(binary.LittleEndian.Uint16(t.Data[2*i:]))
		case tensor.BF16:
			v[i] = float16.BF16(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	}
	return v
}

// weights adds the tensors of g, which was recorded from a Hugging Face folder.
func (f *file) weights(g *graph.Graph, c config) {
	for _, n := range g.Nodes {
		for _, w := range n.W {
			name := w.GGUF
			if !strings.HasSuffix(name, ".bias") && !strings.HasSuffix(name, ".scale") {
				name += ".weight"
			}
			if f.tensor(w.GGUF) == nil {
				f.tensors = append(f.tensors, f.weight(name, w, c))
			}
		}
	}
}

func (f *file) weight(name string, w *graph.Weight, c config) tensor.Tensor {
	out := w.Tensor
	if len(w.Shape) == 1 {
		v := values(w.Tensor)
		if f.arch == "gemma3" && strings.HasSuffix(name, "norm.weight") {
			for i := range v {
				v[i]++
			}
		}
		out = floats(name, v)
	}
	out.Name = name
	if f.arch == "llama" {
		switch part := strings.Split(name, "."); {
		case slices.Contains(part, "attn_q"):
			out.Data = permute(out, int(c["num_attention_heads"].(float64)))
		case slices.Contains(part, "attn_k"):
			out.Data = permute(out, int(c["num_key_value_heads"].(float64)))
		}
	}
	return out
}

// permute turns rows (head, half, pair) into (head, pair, half).
func permute(t tensor.Tensor, heads int) []byte {
	size := len(t.Data) / t.Shape[0]
	half := t.Shape[0] / heads / 2
	var data []byte
	for h := range heads {
		for pair := range half {
			for side := range 2 {
				row := (h*2+side)*half + pair
				data = append(data, t.Data[row*size:][:size]...)
			}
		}
	}
	return data
}
