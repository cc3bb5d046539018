package arch_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// model is a Hugging Face folder before it is written: a few layers of seeded
// random weights under the names that PyTorch has for them. Every weight is a
// multiple of 1/64 below 2, which F32, F16 and BF16 hold alike.
type model struct {
	config  config
	tensors []tensor.Tensor
	files   map[string]string
	random  *rand.Rand
}

// Sizes of all synthetic models.
const (
	vocab, hidden, width = 48, 32, 40
	heads, kvHeads, dim  = 4, 2, 8
	fullDim, ple         = 16, 4
)

// synthetic makes a model: llama, mistral, qwen2, qwen3, gemma3, or in its
// three forms gemma4-e2b, gemma4-31b and gemma4-26b.
func synthetic(name string) *model {
	kind, form, _ := strings.Cut(name, "-")
	m := &model{files: map[string]string{}, random: rand.New(rand.NewPCG(1, 2))}
	m.config = config{"model_type": kind, "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": 3,
		"num_attention_heads": heads, "num_key_value_heads": kvHeads, "head_dim": dim, "rms_norm_eps": 1e-6,
		"max_position_embeddings": 512, "rope_theta": 10000, "tie_word_embeddings": true}
	m.matrix("model.embed_tokens", vocab, hidden)
	switch kind {
	case "gemma3":
		maps.Copy(m.config, config{"model_type": "gemma3_text", "rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window": 4,
			"layer_types": []any{"sliding_attention", "sliding_attention", "full_attention"}, "query_pre_attn_scalar": 12, "hidden_activation": "gelu_pytorch_tanh"})
	case "gemma4":
		m.gemma4(form)
	case "mistral":
		m.config["sliding_window"] = 4
	case "qwen2", "qwen3":
		m.config["hidden_act"] = "silu"
	}
	for i := range m.config["num_hidden_layers"].(int) {
		m.layer(i, kind, form)
	}
	m.vector("model.norm", hidden)
	return m.decoded()
}

// gemma4 sets what its forms have apart from the others.
func (m *model) gemma4(form string) {
	delete(m.config, "rope_theta")
	maps.Copy(m.config, config{"model_type": "gemma4_text", "sliding_window": 4, "num_hidden_layers": 4, "global_head_dim": fullDim,
		"layer_types": []any{"sliding_attention", "full_attention", "sliding_attention", "full_attention"}, "final_logit_softcapping": 30,
		"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": vocab, "num_kv_shared_layers": 0, "enable_moe_block": false,
		"rope_parameters": map[string]any{
			"full_attention":    map[string]any{"rope_type": "proportional", "rope_theta": 1000000, "partial_rotary_factor": 0.25},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 10000}}})
	switch form {
	case "e2b":
		maps.Copy(m.config, config{"hidden_size_per_layer_input": ple, "num_kv_shared_layers": 2, "use_double_wide_mlp": true})
		m.matrix("model.embed_tokens_per_layer", vocab, 4*ple)
		m.matrix("model.per_layer_model_projection", 4*ple, hidden)
		m.vector("model.per_layer_projection_norm", ple)
	case "26b":
		maps.Copy(m.config, config{"enable_moe_block": true, "num_experts": 3, "top_k_experts": 2, "moe_intermediate_size": 24})
		fallthrough
	case "31b":
		maps.Copy(m.config, config{"attention_k_eq_v": true, "num_global_key_value_heads": 1})
	}
}

// decoded turns the configuration into what a JSON reader makes of it.
func (m *model) decoded() *model {
	b, _ := json.Marshal(m.config)
	m.config = nil
	json.Unmarshal(b, &m.config)
	return m
}

func (m *model) layer(i int, kind, form string) {
	p := fmt.Sprintf("model.layers.%d.", i)
	d, kv, wide := dim, kvHeads, width
	full, shared := kind == "gemma4" && i%2 == 1, form == "e2b" && i >= 2
	if full {
		d = fullDim
	}
	kEqV := full && form != "e2b"
	if kEqV {
		kv = 1
	}
	if shared {
		wide *= 2
	}
	m.vector(p+"input_layernorm", hidden)
	m.matrix(p+"self_attn.q_proj", heads*d, hidden)
	m.matrix(p+"self_attn.o_proj", hidden, heads*d)
	if !shared {
		m.matrix(p+"self_attn.k_proj", kv*d, hidden)
	}
	if !shared && !kEqV {
		m.matrix(p+"self_attn.v_proj", kv*d, hidden)
	}
	switch kind {
	case "qwen2":
		m.vector(p+"self_attn.q_proj.bias", heads*d)
		m.vector(p+"self_attn.k_proj.bias", kv*d)
		m.vector(p+"self_attn.v_proj.bias", kv*d)
	case "qwen3", "gemma3", "gemma4":
		m.vector(p+"self_attn.q_norm", d)
		if !shared {
			m.vector(p+"self_attn.k_norm", d)
		}
	}
	m.vector(p+"post_attention_layernorm", hidden)
	m.matrix(p+"mlp.gate_proj", wide, hidden)
	m.matrix(p+"mlp.up_proj", wide, hidden)
	m.matrix(p+"mlp.down_proj", hidden, wide)
	if strings.HasPrefix(kind, "gemma") {
		m.vector(p+"pre_feedforward_layernorm", hidden)
		m.vector(p+"post_feedforward_layernorm", hidden)
	}
	if kind == "gemma4" {
		m.gemma4Layer(p, form)
	}
}

func (m *model) gemma4Layer(p, form string) {
	m.vector(p+"layer_scalar", 1)
	switch form {
	case "e2b":
		m.matrix(p+"per_layer_input_gate", ple, hidden)
		m.matrix(p+"per_layer_projection", hidden, ple)
		m.vector(p+"post_per_layer_input_norm", hidden)
	case "26b":
		m.vector(p+"router.scale", hidden)
		m.matrix(p+"router.proj", 3, hidden)
		m.vector(p+"router.per_expert_scale", 3)
		m.matrix(p+"experts.gate_up_proj", 3, 48, hidden)
		m.matrix(p+"experts.down_proj", 3, hidden, 24)
		for _, n := range []string{"pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"} {
			m.vector(p+n, hidden)
		}
	}
}

// matrix adds a weight of mean 0, vector one around 0.75.
func (m *model) matrix(name string, shape ...int) { m.add(name, 0, shape) }
func (m *model) vector(name string, n int)        { m.add(name, 48, []int{n}) }

func (m *model) add(name string, mean int, shape []int) {
	v := make([]float32, tensor.Shape(shape).Size())
	for i := range v {
		v[i] = float32(mean+m.random.IntN(41)-20) / 64
	}
	// What PyTorch has as a parameter and not as a module's weight.
	bare := []string{".bias", "layer_scalar", "router.scale", "per_expert_scale", "experts.gate_up_proj", "experts.down_proj"}
	if !slices.ContainsFunc(bare, func(end string) bool { return strings.HasSuffix(name, end) }) {
		name += ".weight"
	}
	t := floats(name, v)
	t.Shape = shape
	m.tensors = append(m.tensors, t)
}

// tensor finds one by its name without .weight, which must be there.
func (m *model) tensor(name string) *tensor.Tensor {
	for i := range m.tensors {
		if strings.TrimSuffix(m.tensors[i].Name, ".weight") == name {
			return &m.tensors[i]
		}
	}
	panic("no tensor " + name)
}

// drop removes a tensor.
func (m *model) drop(name string) {
	own := m.tensor(name).Name
	m.tensors = slices.DeleteFunc(m.tensors, func(t tensor.Tensor) bool { return t.Name == own })
}

// narrow stores every weight in another type, without loss.
func (m *model) narrow(d tensor.DType) {
	for i, t := range m.tensors {
		var data []byte
		for _, v := range values(t) {
			bits := math.Float32bits(v)
			switch d {
			case tensor.F16:
				data = binary.LittleEndian.AppendUint16(data, float16.ToF16(v))
			case tensor.BF16:
				data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
			default:
				data = binary.LittleEndian.AppendUint32(data, bits)
			}
		}
		m.tensors[i].DType, m.tensors[i].Data = d, data
	}
}

// write makes the folder.
func (m *model) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	m.writeConfig(t, dir)
	create(t, filepath.Join(dir, "model.safetensors"), func(w io.Writer) error { return safetensors.Write(w, m.tensors, nil) })
	return dir
}

func (m *model) writeConfig(t testing.TB, dir string) {
	t.Helper()
	b, err := json.Marshal(m.config)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", string(b))
	for name, text := range m.files {
		write(name, text)
	}
}

// writeShards makes the folder with a file for every three tensors, and an index.
func (m *model) writeShards(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	m.writeConfig(t, dir)
	index := map[string]string{}
	for i, part := range slices.Collect(slices.Chunk(m.tensors, 3)) {
		name := fmt.Sprintf("model-%05d.safetensors", i+1)
		for _, x := range part {
			index[x.Name] = name
		}
		create(t, filepath.Join(dir, name), func(w io.Writer) error { return safetensors.Write(w, part, nil) })
	}
	b, _ := json.Marshal(map[string]any{"weight_map": index})
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
